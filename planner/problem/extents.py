"""Over which ranks a block reaches."""

RANK, NODE, WORLD = range(3)
"""One rank; the ranks of one node; all ranks."""
