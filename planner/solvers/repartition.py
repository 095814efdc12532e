"""Local search: two bins deal out their blocks anew, all 2^n ways priced, for many pairs of bins at once.

A bin is a rank with its single-rank blocks, or a node with its node-wide ones.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.problem import Floats, Ints
from planner.solvers.smoothing import Smoothing

BLOCKS = 10
"""Blocks of a pair that are dealt anew; of fuller bins, random ones. 2^10 ways are priced."""
Numbers = NDArray[np.floating[Any]]
"""Of single or double precision."""
PRECISION = 1e-5
"""Relative improvement below which a deal is not worth making: single precision is used to price them."""
ROUNDING_BYTES = 1e-3
"""Bytes by which a rank may seem over-full: sums of doubles."""
CHUNK = 4_000_000
"""Numbers held at once."""


@dataclass(frozen=True)
class Bins:
    """Bins of R ranks each, and what stands in them. N bins, I items, M memory tiers."""

    load: Floats
    """[N, R, C] seconds on the resources of each rank of the bin, all columns."""
    free: Floats
    """[N, R, M] bytes that each rank may add, whatever the others do."""
    item_bin: Ints
    """[I] ascending."""
    item_load: Floats
    """[I, R, C] what the item asks of the ranks of a bin."""
    item_bytes: Floats
    """[I, R, M]"""


def deal(bins: Bins, left: Ints, right: Ints, smoothing: Smoothing, random: np.random.Generator) -> tuple[Ints, Ints]:
    """Items that change bins, and their new bins, for disjoint pairs of bins of one kind, `left` and `right`."""
    if not len(left):
        return left, right
    items, at_left = _chosen(bins, left, right, random)
    pairs, n = items.shape
    ways = ((np.arange(2**n)[:, None] >> np.arange(n)) & 1).astype(float)
    size = bins.load.shape[1] * (len(smoothing.columns) + bins.free.shape[2])
    step = max(1, CHUNK // (len(ways) * size))
    moved: list[Ints] = []
    target: list[Ints] = []
    for begin in range(0, pairs, step):
        part = slice(begin, begin + step)
        to_left = _best_way(bins, (left[part], right[part]), (items[part], at_left[part]), ways, smoothing)
        changes = (to_left != at_left[part]) & (items[part] >= 0)
        moved.append(items[part][changes])
        target.append(np.where(to_left, left[part, None], right[part, None])[changes])
    return np.concatenate(moved), np.concatenate(target)


def _chosen(bins: Bins, left: Ints, right: Ints, random: np.random.Generator) -> tuple[Ints, np.ndarray]:
    """[P, n] up to BLOCKS items of each pair, -1 where there are fewer; and which of them stand on the left."""
    start = np.searchsorted(bins.item_bin, np.arange(len(bins.load) + 1))
    count = np.diff(start)
    n = int(min(BLOCKS, max((count[left] + count[right]).max(initial=1), 1)))
    lottery = random.random((len(left), int((count[left] + count[right]).max(initial=1))))
    position = np.arange(lottery.shape[1])
    both = (count[left] + count[right])[:, None]
    lottery[position >= both] = np.inf
    drawn = np.argsort(lottery, axis=1)[:, :n]
    on_left = drawn < count[left][:, None]
    index = np.where(on_left, start[left][:, None] + drawn, start[right][:, None] + drawn - count[left][:, None])
    return np.where(drawn < both, index, -1), on_left


def _best_way(
    bins: Bins, pair: tuple[Ints, Ints], dealt: tuple[Ints, np.ndarray], ways: Floats, smoothing: Smoothing
) -> np.ndarray:
    """[P, n] whether each item goes to the left: the way that lowers the smoothed step most, or the present one."""
    (left, right), (items, at_left) = pair, dealt
    there = (items >= 0)[:, :, None, None]
    load = np.where(there, smoothing.relative(bins.item_load[items]), 0.0).astype(np.float32)
    size = np.where(there, bins.item_bytes[items], 0.0)
    here = at_left[:, :, None, None]
    value = np.zeros((len(left), len(ways)), dtype=np.float32)
    ways = ways.astype(np.float32)
    for bin_, now_here, chosen in ((left, here, ways), (right, ~here, 1.0 - ways)):
        stripped = smoothing.relative(bins.load[bin_]).astype(np.float32) - (load * now_here).sum(axis=1)
        value += smoothing.value_of(np.maximum(stripped[:, None] + _dealt(chosen, load), 0.0))
        room = bins.free[bin_] + (size * now_here).sum(axis=1)
        for m in np.flatnonzero(size.any(axis=(0, 1, 2))):
            over = (_dealt(chosen, size[..., m : m + 1]) > room[:, None, :, m : m + 1] + ROUNDING_BYTES).any(
                axis=(2, 3)
            )
            value[over] = np.inf
    present = (at_left & (items >= 0)) @ (1 << np.arange(items.shape[1]))
    best = value.argmin(axis=1)
    rows = np.arange(len(left))
    better = value[rows, best] < value[rows, present] * (1 - PRECISION)
    return np.where(better[:, None], ways[best] > 0, at_left)


def _dealt(chosen: Numbers, amounts: Numbers) -> Numbers:
    """[P, 2^n, R, x] sums of the chosen items' `amounts` [P, n, R, x]."""
    pairs, n, ranks, width = amounts.shape
    return (chosen @ amounts.reshape(pairs, n, ranks * width)).reshape(pairs, len(chosen), ranks, width)
