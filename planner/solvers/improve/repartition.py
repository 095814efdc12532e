"""Local search: two bins deal out their blocks anew, all 2^n ways priced, for many pairs of bins at once.

A bin is a rank with its single-rank blocks, or a node with its node-wide ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.rounding import ROUNDING_BYTES
from planner.solvers.improve.smoothing import MOST, Smoothing

Singles = NDArray[np.float32]

BLOCKS = 12
"""Blocks of a pair that are dealt anew; of fuller bins, random ones. 2^12 ways are priced."""
PRECISION = 1e-5
"""Relative improvement below which a deal is not worth making: single precision is used to price them."""
CHUNK = 1 << 15
"""Ways priced at once: their prices stay in a core's cache."""


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


@dataclass(frozen=True)
class Hands:
    """Pairs of bins, and for each the items that are dealt out anew. P pairs, n items each."""

    items: Ints
    """[P, n] -1 where there are fewer."""
    at_left: Bools
    """[P, n] which of them stand on the left now."""
    load: tuple[Floats, Floats]
    """[P, R, C] of each side, these items and all others included."""
    free: tuple[Floats, Floats]
    """[P, R, M] of each side."""


def deal(bins: Bins, left: Ints, right: Ints, smoothing: Smoothing, random: np.random.Generator) -> tuple[Ints, Ints]:
    """Items that change bins, and their new bins, for disjoint pairs of bins of one kind, `left` and `right`."""
    if not len(left):
        return left, right
    items, at_left = draw(bins, left, right, BLOCKS, random)
    load, free = (bins.load[left], bins.load[right]), (bins.free[left], bins.free[right])
    to_left, value, present = best_ways(bins, Hands(items, at_left, load, free), smoothing)
    better = value < present * (1 - PRECISION)
    changes = (to_left != at_left) & (items >= 0) & better[:, None]
    return items[changes], np.where(to_left, left[:, None], right[:, None])[changes]


def draw(bins: Bins, left: Ints, right: Ints, most: int, random: np.random.Generator) -> tuple[Ints, Bools]:
    """[P, n] up to `most` items of each pair, -1 where there are fewer; and which of them stand on the left."""
    start = np.searchsorted(bins.item_bin, np.arange(len(bins.load) + 1))
    count = np.diff(start)
    both = (count[left] + count[right])[:, None]
    lottery = random.random((len(left), max(int(both.max(initial=1)), 1)))
    lottery[np.arange(lottery.shape[1]) >= both] = np.inf
    drawn = np.argsort(lottery, axis=1)[:, :most]
    on_left = drawn < count[left][:, None]
    index = np.where(on_left, start[left][:, None] + drawn, start[right][:, None] + drawn - count[left][:, None])
    there = drawn < both
    return np.where(there, index, -1), on_left & there


def best_ways(bins: Bins, hands: Hands, smoothing: Smoothing) -> tuple[Bools, Singles, Singles]:
    """For each pair which items go left [P, n] in the way of the lowest value, that value [P], and the present one [P].

    The value sums up powers of the fuller side's loads alone: the other's follow from them. A way is a number whose
    bits say which items go left.
    """
    n = hands.items.shape[1]
    prices, memory = _prices(bins, hands, smoothing), _memory(bins, hands)
    now = hands.at_left @ (1 << np.arange(n))
    best, value, present = (np.concatenate(found) for found in zip(*_searched(prices, now), strict=True))
    tight = np.flatnonzero(memory.is_broken(best))
    if len(tight):
        found = zip(*_searched(prices.of(tight), now[tight], memory.of(tight)), strict=True)
        best[tight], value[tight], _ = (np.concatenate(parts) for parts in found)
    return ((best[:, None] >> np.arange(n)) & 1) > 0, value, present


@dataclass(frozen=True)
class _Prices:
    """What the ways of P pairs are priced by; D loads, scaled so that their powers add up to the value."""

    load: Singles
    """[D, P, n] of the items."""
    half: Singles
    """[D, P, 1] half of what both sides hold together."""
    off_half: Singles
    """[D, P, 1] what the left holds above the half when it has none of the items."""
    least: Singles
    """[D] below which loads count alike."""
    most: Singles
    """[D] above which they do."""
    unchanged: Singles
    """[P] value of the loads that the items do not change."""
    squarings: int

    def of(self, pairs: Ints) -> "_Prices":
        arrays = (self.load[:, pairs], self.half[:, pairs], self.off_half[:, pairs])
        return _Prices(*arrays, self.least, self.most, self.unchanged[pairs], self.squarings)


def _prices(bins: Bins, hands: Hands, smoothing: Smoothing) -> _Prices:
    load = _flat(smoothing.relative(bins.item_load[hands.items]) * (hands.items >= 0)[:, :, None, None])
    on_left, on_right = (_flat(smoothing.relative(side)[:, None]) for side in hands.load)
    used, others, weight = _distinct(np.concatenate([load, on_left, on_right], axis=2), smoothing)
    fuller = np.maximum(on_left[others], on_right[others])[..., 0]
    unchanged = np.asarray(weight[others] @ smoothing.power(fuller), dtype=np.float32)
    scale: Singles = (weight[used] ** (0.5**smoothing.squarings)).astype(np.float32)[:, None, None]
    load, left, half = load[used] * scale, on_left[used] * scale, (on_left + on_right)[used] / 2 * scale
    off_half = left - (load * hands.at_left).sum(axis=2, keepdims=True) - half
    scale = scale[:, 0, 0]
    least = (np.resize(smoothing.floor, len(weight))[used] * scale).astype(np.float32)
    return _Prices(load, half, off_half, least, (scale * MOST).astype(np.float32), unchanged, smoothing.squarings)


def _searched(prices: _Prices, now: Ints, memory: "_Memory | None" = None) -> Iterator[tuple[Ints, Singles, Singles]]:
    """The best way, its value and that of the way `now`, some pairs at a time; within `memory` where that is given."""
    _, pairs, n = prices.load.shape
    half = n // 2
    step = max(1, CHUNK >> n)
    for begin in range(0, pairs, step):
        rows = slice(begin, begin + step)
        some = now[rows]
        value = np.repeat(prices.unchanged[rows, None], 2**n, axis=1)
        each = zip(prices.load, prices.half, prices.off_half, prices.least, prices.most, strict=True)
        for load, middle, start, least, most in each:
            first = load[rows, :half] @ _ways(half).T
            others = load[rows, half:] @ _ways(n - half).T + start[rows]
            fuller = (others[:, :, None] + first[:, None, :]).reshape(value.shape)
            np.abs(fuller, out=fuller)
            fuller += middle[rows]
            if least > 0:
                np.maximum(fuller, least, out=fuller)
            if fuller.max() > most:
                np.minimum(fuller, most, out=fuller)
            for _ in range(prices.squarings):
                np.square(fuller, out=fuller)
            value += fuller
        every = np.arange(len(some))
        present = value[every, some]
        if memory is not None:
            value[memory.of(np.arange(pairs)[rows]).broken_ways(n)] = np.inf
        best = value.argmin(axis=1)
        yield best, value[every, best], present


@dataclass(frozen=True)
class _Memory:
    """Bytes of P pairs: D memories of a side's ranks."""

    size: Floats
    """[D, P, n] of the items."""
    least: Floats
    """[D, P, 1] that the left must take, so that the right has room for the others."""
    most: Floats
    """[D, P, 1] that the left may take."""

    def of(self, pairs: Ints) -> "_Memory":
        return _Memory(self.size[:, pairs], self.least[:, pairs], self.most[:, pairs])

    def is_broken(self, way: Ints) -> Bools:
        """[P] whether one way of each pair overfills a side."""
        goes_left = (way[:, None] >> np.arange(self.size.shape[2])) & 1
        taken = (self.size * goes_left).sum(axis=2, keepdims=True)
        return np.asarray(((taken < self.least) | (taken > self.most)).any(axis=(0, 2)))

    def broken_ways(self, n: int) -> Bools:
        """[P, 2^n] which ways overfill a side."""
        taken = self.size @ _ways(n).T.astype(float)
        return np.asarray(((taken < self.least) | (taken > self.most)).any(axis=0))


def _memory(bins: Bins, hands: Hands) -> _Memory:
    size = _flat(np.where((hands.items >= 0)[:, :, None, None], bins.item_bytes[hands.items], 0.0), np.float64)
    room_left, room_right = (_flat(side[:, None], np.float64) for side in hands.free)
    on_left = (size * hands.at_left).sum(axis=2, keepdims=True)
    concerned = size.any(axis=2, keepdims=True) | (np.minimum(room_left, room_right) < -ROUNDING_BYTES)
    most = np.where(concerned, room_left + on_left + ROUNDING_BYTES, np.inf)
    least = np.where(concerned, on_left - room_right - ROUNDING_BYTES, -np.inf)
    used = np.flatnonzero(concerned.any(axis=(1, 2)))
    return _Memory(size[used], least[used], most[used])


def _flat(amounts: Floats, dtype: DTypeLike = np.float32) -> Any:
    """[R x X, P, n] of [P, n, R, X]."""
    return np.ascontiguousarray(amounts.reshape(*amounts.shape[:2], -1).transpose(2, 0, 1), dtype=dtype)


def _distinct(loads: Singles, smoothing: Smoothing) -> tuple[Ints, Ints, Singles]:
    """Rows of `loads` [D, P, n + 2] (the items', then the bins') that items change, alike ones once; the rest; weights.

    The weights [D] are those of all rows; of alike ones the first has the sum.
    """
    weight = np.resize(smoothing.weight, len(loads)).astype(np.float32)
    changed = loads[:, :, :-2].any(axis=(1, 2))
    flat = loads.reshape(len(loads), loads.shape[1] * loads.shape[2])
    mark = flat.sum(axis=1)
    kept: list[int] = []
    for row in np.flatnonzero(changed).tolist():
        near = [k for k in kept if abs(mark[k] - mark[row]) <= 1e-4 * abs(mark[row])]
        same = [k for k in near if np.allclose(flat[k], flat[row], rtol=1e-5)]
        if same:
            weight[same[0]] += weight[row]
        else:
            kept.append(row)
    return np.array(kept, dtype=np.int64), np.flatnonzero(~changed), weight


@cache
def _ways(n: int) -> Singles:
    """[2^n, n] the bits of each number."""
    return ((np.arange(2**n)[:, None] >> np.arange(n)) & 1).astype(np.float32)
