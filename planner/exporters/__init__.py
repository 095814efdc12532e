"""Plans as the files of the runtimes that execute them; what a runtime cannot execute is refused, all of it at once."""
