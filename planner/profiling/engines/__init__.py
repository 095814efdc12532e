"""What counts ids: threads of this process, a cluster of processes (Dask), or DuckDB. All give the same counts."""
