"""A table's columns over ranks: the cheapest widths that tile it, exactly, by dynamic programming.

The joint cost of two ranks is the min-plus convolution of theirs (Bellman and Karush, 1962).
"""

from dataclasses import dataclass

import numpy as np

from planner.problem.numbers import Floats, Ints


@dataclass(frozen=True)
class Tiling:
    """Widths [R] that sum to the units of the table, and what they cost together."""

    cost: float
    widths: Ints


def cheapest_tiling(cost: Floats) -> Tiling | None:
    """Return the cheapest way to give each of R ranks a width so that the widths sum to U; None where there is none.

    `cost` [R, U + 1] is what 0 to U units cost on each rank, infinite where they are not possible. Halves of the ranks
    are joined by min-plus convolutions, level by level, of the last two at U alone: O(R U^2) operations in O(log R)
    array operations.
    """
    units = cost.shape[1] - 1
    levels = [cost if len(cost) > 1 else np.concatenate([cost, _nothing(units)])]
    while len(levels[-1]) > 2:
        if len(levels[-1]) % 2:
            levels[-1] = np.concatenate([levels[-1], _nothing(units)])
        levels.append(_joined(levels[-1], units))
    left, right = levels[-1]
    halves = left[::-1] + right
    of_right = int(halves.argmin())
    total = float(halves[of_right])
    if not np.isfinite(total):
        return None
    widths = np.array([units - of_right, of_right])
    part = np.arange(units + 1)
    for level in levels[-2::-1]:
        widths = widths[: len(level) // 2]
        rest = widths[:, None] - part
        on_left = level[::2][np.arange(len(widths))[:, None], rest]
        on_left[rest < 0] = np.inf
        both = np.empty(2 * len(widths), dtype=np.int64)
        both[1::2] = (on_left + level[1::2]).argmin(axis=1)
        both[::2] = widths - both[1::2]
        widths = both
    return Tiling(total, widths[: len(cost)])


def _nothing(units: int) -> Floats:
    """Return the costs [1, U + 1] of a rank that takes no columns."""
    row = np.full((1, units + 1), np.inf)
    row[0, 0] = 0.0
    return row


def _joined(level: Floats, units: int) -> Floats:
    """Return the cheapest way [R / 2, U + 1] to share out each number of units between two neighbours."""
    pairs = len(level) // 2
    padded = np.full((pairs, 2 * units + 1), np.inf)
    padded[:, units:] = level[::2]
    row = padded.strides[0]
    shape, strides = (pairs, units + 1, units + 1), (row, -8, 8)
    shifted: Floats = np.ndarray(shape, np.float64, padded, offset=8 * units, strides=strides)  # [p, v, u]: of u - v
    return np.asarray((shifted + level[1::2, :, None]).min(axis=1))
