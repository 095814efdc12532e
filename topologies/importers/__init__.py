"""What machines and clusters print about themselves, read as topologies: one module a format, one that merges them, one
that completes them from the catalog, one that writes YAML with the source of every value."""
