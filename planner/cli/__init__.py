"""The command line: one module per command, one place for streams and one for exits."""
