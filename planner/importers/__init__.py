"""Plans and clusters of other planners, read as ours."""
