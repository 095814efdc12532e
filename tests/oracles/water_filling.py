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


@dataclass(frozen=True)
class CachedTable:
    """A table behind a cache."""

    rows: int
    hits: Floats
    """[SHARES] share of the reads that the hottest rows take."""
    lookups: float
    """Reads in a step."""
    unique: float
    """Distinct rows among them: no more are missed."""
    bytes_of_row: float
    """In the cache."""
    weight: float
    """Cost of a missed row."""

    @property
    def cost(self) -> Floats:
        """[SHARES] of the misses with each share cached."""
        misses = self.lookups * (1 - self.hits)
        cold = self.rows * (1 - SHARES)
        return self.weight * np.minimum(np.minimum(misses, cold), self.unique)

    def cost_at(self, share: float) -> float:
        """With one share cached."""
        return float(np.interp(share, SHARES, self.cost))


def zipf_curve(rows: int, alpha: float, lookups: float) -> tuple[Floats, float]:
    """Hits [SHARES] of a power law, and the distinct rows of some lookups, summed row by row."""
    probability = np.arange(1.0, rows + 1) ** -alpha
    probability /= probability.sum()
    mass = np.concatenate([[0.0], np.cumsum(probability)])
    unique = -np.expm1(lookups * np.log1p(-probability)).sum()
    return np.interp(SHARES * rows, np.arange(rows + 1), mass), float(unique)


def empirical_curve(rows: int, points: list[tuple[float, float]], lookups: float) -> tuple[Floats, float]:
    """Hits [SHARES] of a curve through (share of the rows, share of the reads), from (0, 0), and the distinct rows of
    some lookups; between two points all rows are equally hot."""
    x, y = np.array([(0.0, 0.0), *points]).T
    size = rows * np.diff(x)
    unique = (size * -np.expm1(lookups * np.log1p(-np.diff(y) / size))).sum()
    return np.interp(SHARES, x, y), float(unique)


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
