"""Benchmarks: the figures that we promise, and whether we keep them. Run them from the root of a checkout,
with the extra `test`."""
