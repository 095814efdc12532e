"""Loads of many blocks, summed up column by column with little memory touched."""

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from cost_models.loads import BlockLoad, Loads
from cost_models.schedule import Schedule
from cost_models.shards import Floats

SUMMED_AT_ONCE = 2_000
"""Blocks whose loads are summed together: of each three rows of some thirty numbers, 1.4 MB."""
COSTED_AT_ONCE = 1 << 15
"""Blocks whose terms are worked out together: some hundred arrays of 256 KB, which the next ones use again."""
BY_COLUMNS = 100_000
"""Blocks above which loads lie column by column: half of the columns are empty, and these pages are never touched."""


def pieces(blocks: int) -> Iterator[slice]:
    """Positions of blocks whose terms are worked out together, one piece after the other."""
    for begin in range(0, max(blocks, 1), COSTED_AT_ONCE):
        yield slice(begin, begin + COSTED_AT_ONCE)


def no_loads(blocks: int, columns: int) -> tuple[Floats, Floats, Floats]:
    """[n, C] zeros, for the three parts of loads."""
    order: Literal["C", "F"] = "F" if blocks > BY_COLUMNS else "C"
    fixed, by_rows, everywhere = (np.zeros((blocks, columns), order=order) for _ in range(3))
    return fixed, by_rows, everywhere


def add_loads(terms: dict[str, Loads], schedule: Schedule, kind: int, parts: Sequence[Floats]) -> None:
    """Add loads of blocks on a kind of rank to the three `parts` [n, C], some blocks after others: their rows stay in
    the processor's cache while column after column is added to."""
    blocks = len(parts[0])
    added = [
        (part, column, value, factor)
        for term, loads in terms.items()
        for resource, load in loads.items()
        for part, value in _nonzero(load, parts)
        for column, factor in schedule.targets(term, resource, kind)
    ]
    for begin in range(0, blocks, SUMMED_AT_ONCE):
        some = slice(begin, begin + SUMMED_AT_ONCE)
        for part, column, value, factor in added:
            part[some, column] += value[some] * factor


def _nonzero(load: BlockLoad, parts: Sequence[Floats]) -> list[tuple[Floats, Floats]]:
    """Of the three `parts` [n, C] those that a load adds something to, each with what it adds [n]."""
    values = zip(parts, (load.fixed, load.by_rows, load.everywhere), strict=True)
    return [(part, np.broadcast_to(value, len(part))) for part, value in values if np.any(value)]
