"""The best division of a cache's memory among tables, found by water-filling: no solver, no cost model.

With concave hit curves the misses are convex in what each table gets, so at the optimum the next byte saves as much in
every table (Gallager 1968, for power over channels). The price of a byte is bisected until the memory is full.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SHARES = np.concatenate([[0.0], np.geomspace(1e-5, 1.0, 8000)])
"""Of the rows: where a curve is tabulated."""


WINDOWS = np.concatenate([[0.0], np.geomspace(0.1, 1e13, 3000)])
"""Ids read since a row was read last."""
PIECES = 3000
"""Ranges of ranks of a power law in which all rows count as equally hot."""


@dataclass(frozen=True)
class CachedTable:
    """A table behind a cache."""

    rows: int
    missed: Floats
    """[SHARES] distinct rows of a step that the cache lacks."""
    bytes_of_row: float
    """In the cache."""
    weight: float
    """Cost of a missed row."""

    @property
    def cost(self) -> Floats:
        """[SHARES] of the misses with each share cached."""
        return self.weight * self.missed

    def cost_at(self, share: float) -> float:
        """With one share cached."""
        return float(np.interp(share, SHARES, self.cost))


def zipf_misses(rows: int, alpha: float, lookups: float) -> Floats:
    """[SHARES] of a power law."""
    weight = np.arange(1.0, rows + 1) ** -alpha
    ends = np.unique(np.geomspace(1, rows, PIECES).astype(int))
    mass = np.diff(np.concatenate([[0.0], np.cumsum(weight)[ends - 1]])) / weight.sum()
    return _misses(np.diff(ends, prepend=0).astype(float), mass, lookups)


def empirical_misses(rows: int, points: list[tuple[float, float]], lookups: float) -> Floats:
    """[SHARES] of a curve through (share of the rows, share of the reads), from (0, 0), with straight pieces."""
    x, y = np.array([(0.0, 0.0), *points]).T
    return _misses(rows * np.diff(x), np.diff(y), lookups)


def _misses(size: Floats, mass: Floats, lookups: float) -> Floats:
    """[SHARES] misses of pieces of so many rows that take so much of the reads: a row that was not read for a window
    of ids is gone where the distinct rows of that window fill the cache (Che, Tung & Wang 2002)."""
    log_missed = np.log1p(-np.minimum(mass / size, 1 - 1e-12))
    absent = np.exp(WINDOWS[:, None] * log_missed)
    held = (size * (1 - absent)).sum(axis=1)
    missed = (size * absent * -np.expm1(lookups * log_missed)).sum(axis=1)
    return np.interp(SHARES * size.sum(), held, missed)


def least_cost(tables: list[CachedTable], budget_bytes: float) -> float:
    """Of the misses of all tables, over all divisions of the memory in fractions; a lower bound where none is full."""
    low, high = 0.0, max(float(table.cost.max() / table.bytes_of_row) for table in tables) * 10
    size = [SHARES * table.rows * table.bytes_of_row for table in tables]
    best = -np.inf
    for _ in range(200):
        price = (low + high) / 2
        at = [int((table.cost + price * of).argmin()) for table, of in zip(tables, size, strict=True)]
        taken = sum(float(of[i]) for of, i in zip(size, at, strict=True))
        paid = sum(float(table.cost[i]) for table, i in zip(tables, at, strict=True))
        best = max(best, paid + price * (taken - budget_bytes))
        low, high = (price, high) if taken > budget_bytes else (low, price)
    return best
