"""Numbers of ranks and nodes, as people write them."""

import re
from collections.abc import Sequence

from topologies.errors import shown

MOST_RANKS = 1 << 20
"""Ranks and nodes are numbered below this."""


def parse_ranks(value: object) -> tuple[int, ...]:
    """`3`, `"0-7"`, `"0-3,8"` or a list of such, as ascending numbers without repetitions."""
    items = value if isinstance(value, list | tuple) else [value]
    ranks: set[int] = set()
    for item in items:
        for word in str(item).split(","):
            ends = re.fullmatch(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?", word)
            if ends is None or isinstance(item, bool | float):
                raise ValueError(f"{shown(item)} is no number or range; write for example 3 or 0-7")
            first, last = int(ends[1]), int(ends[2] or ends[1])
            if last < first or last >= MOST_RANKS:
                raise ValueError(f"{shown(item)} must run upwards and stay below {MOST_RANKS}")
            ranks.update(range(first, last + 1))
    if not ranks:
        raise ValueError("must not be empty")
    return tuple(sorted(ranks))


def rank_ranges(ranks: Sequence[int]) -> str:
    """Ascending numbers as people write them: `0-3,8`."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs)
