"""All column cuts of one table over single ranks that stay within a limit, rank by rank.

Loads never fall as blocks are added: whatever is beyond the limit is given up with all that would follow.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from cost_models.shards import Floats, Ints

MOST_UNITS = 24
"""The widest table of which the contents of a rank are listed."""
MOST_NUMBERS = 10_000_000
"""In the loads of all contents of all ranks."""
MOST_PAIRS = 30_000
"""Parts of cuts that are looked at before listing all is given up."""


@lru_cache(maxsize=64)
def _contents(units: int) -> Ints:
    """[n, units] how many blocks of each width a rank holds: nothing, and the partitions of 1 to `units`."""
    found: list[list[int]] = []
    counts = [0] * units

    def fill(widest: int, left: int) -> None:
        found.append(counts.copy())
        for width in range(1, min(widest, left) + 1):
            counts[width - 1] += 1
            fill(width, left - width)
            counts[width - 1] -= 1

    fill(units, units)
    return np.array(found, dtype=np.int64)


def tilings(
    pieces: Floats,
    supported: NDArray[np.bool_],
    ranks: Sequence[int],
    most_parts: float,
    is_within: Callable[[Floats], NDArray[np.bool_]],
) -> Ints | None:
    """[n, units, places] counts of blocks by width and rank of every cut within the limit; None where these are too
    many to look at.

    `pieces` [units, places, R] is what a block of a width adds on a rank, `supported` [units, places] where it may be.
    """
    units, places, size = pieces.shape
    if units > MOST_UNITS:
        return None
    every = _contents(units)
    if len(every) * len(ranks) * size > MOST_NUMBERS:
        return None
    every_width, every_parts = every @ np.arange(1, units + 1), every.sum(axis=1)
    of_rank = []
    for rank in ranks:
        load = every.astype(float) @ pieces[:, rank]
        kept = ~(every[:, ~supported[:, rank]] > 0).any(axis=1) & (every_parts <= most_parts) & is_within(load)
        of_rank.append((np.flatnonzero(kept), load[kept]))
    most = [int(every_width[index].max(initial=0)) for index, _ in of_rank]
    used, parts, load = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64), np.zeros((1, size))
    chosen, pairs = np.zeros((1, 0), dtype=np.int64), 0
    for number, (index, added) in enumerate(of_rank):
        width, count = every_width[index], every_parts[index]
        total = used[:, None] + width
        fits = (total <= units) & (total + sum(most[number + 1 :]) >= units)
        fits &= parts[:, None] + count <= most_parts
        pairs += int(fits.sum())
        if pairs > MOST_PAIRS:
            return None
        of, content = np.nonzero(fits)
        sums = load[of] + added[content]
        kept = np.flatnonzero(is_within(sums)) if len(sums) else np.zeros(0, dtype=np.int64)
        of, content, load = of[kept], content[kept], sums[kept]
        used, parts = used[of] + width[content], parts[of] + count[content]
        chosen = np.concatenate([chosen[of], index[content][:, None]], axis=1)
    counts = np.zeros((len(chosen), units, places), dtype=np.int64)
    for number, rank in enumerate(ranks):
        counts[:, :, rank] = every[chosen[:, number]]
    return counts
