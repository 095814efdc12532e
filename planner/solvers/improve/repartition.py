"""Pairwise repartition: two bins divide their blocks anew, all 2^n splits priced, for many pairs of bins at once.

A bin is a rank with its single-rank blocks, or a node with its node-wide ones. Improving partitions pair by
pair is the neighbourhood of Kernighan and Lin (Bell Syst. Tech. J. 49, 1970) and, for loads, of Finn and Horowitz
(BIT 19, 1979); here it is searched completely for up to BLOCKS items of a pair.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.products import product, sums_of_subsets
from planner.problem.rounding import ROUNDING_BYTES
from planner.solvers.improve.smoothing import MOST, Smoothing

Singles = NDArray[np.float32]

BLOCKS = 12
"""Blocks of a pair that are divided anew; of fuller bins, random ones. 2^12 splits are priced."""
PRECISION = 1e-5
"""Relative improvement below which a repartition is not worth making: single precision is used to price it."""
CHUNK = 1 << 15
"""Splits that are priced at once: their costs stay in a core's cache."""


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
class PairedItems:
    """Pairs of bins, and for each the items that are divided anew. P pairs, n items each."""

    items: Ints
    """[P, n] -1 where there are fewer."""
    at_left: Bools
    """[P, n] which of them stand on the left now."""
    load: tuple[Floats, Floats]
    """[P, R, C] of each side, these items and all others included."""
    free: tuple[Floats, Floats]
    """[P, R, M] of each side."""


def repartitioned(
    bins: Bins, left: Ints, right: Ints, smoothing: Smoothing, random: np.random.Generator
) -> tuple[Ints, Ints]:
    """Return the items that change bins, and their new bins; the pairs of `left` and `right` are disjoint."""
    if not len(left):
        return left, right
    items, at_left = drawn_items(bins, left, right, BLOCKS, random)
    load, free = (bins.load[left], bins.load[right]), (bins.free[left], bins.free[right])
    to_left, value, present = best_splits(bins, PairedItems(items, at_left, load, free), smoothing)
    better = value < present * (1 - PRECISION)
    changes = (to_left != at_left) & (items >= 0) & better[:, None]
    return items[changes], np.where(to_left, left[:, None], right[:, None])[changes]


def drawn_items(bins: Bins, left: Ints, right: Ints, most: int, random: np.random.Generator) -> tuple[Ints, Bools]:
    """Return up to `most` random items of each pair [P, n], -1 where there are fewer, and which stand on the left."""
    start = np.searchsorted(bins.item_bin, np.arange(len(bins.load) + 1))
    count = np.diff(start)
    both = (count[left] + count[right])[:, None]
    lottery = random.random((len(left), max(int(both.max(initial=1)), 1)))
    lottery[np.arange(lottery.shape[1]) >= both] = np.inf
    drawn = np.argsort(lottery, axis=1, kind="stable")[:, :most]
    on_left = drawn < count[left][:, None]
    index = np.where(on_left, start[left][:, None] + drawn, start[right][:, None] + drawn - count[left][:, None])
    there = drawn < both
    return np.where(there, index, -1), on_left & there


def best_splits(bins: Bins, paired: PairedItems, smoothing: Smoothing) -> tuple[Bools, Singles, Singles]:
    """Return for each pair which items go left [P, n] in the best split, its value [P], and the present one [P].

    The value sums up powers of the fuller side's loads alone: the other's follow from them. A split is a number whose
    bits say which items go left.
    """
    n = paired.items.shape[1]
    costs, memory = _split_costs(bins, paired, smoothing), _split_memory(bins, paired)
    now = paired.at_left @ (1 << np.arange(n))
    best, value, present = (np.concatenate(chunks) for chunks in zip(*_best_of_all_splits(costs, now), strict=True))
    tight = np.flatnonzero(memory.overfills(best))
    if len(tight):
        chunks = zip(*_best_of_all_splits(costs.of(tight), now[tight], memory.of(tight)), strict=True)
        best[tight], value[tight], _ = (np.concatenate(chunk) for chunk in chunks)
    return ((best[:, None] >> np.arange(n)) & 1) > 0, value, present


@dataclass(frozen=True)
class _SplitCosts:
    """What the splits of P pairs are priced by; D loads, scaled so that their powers add up to the value."""

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
    may_be_hidden: bool = False
    """Whether both sides of a pair may have less than nothing, which counts like nothing."""

    def powers(self, loads: slice, pairs: slice) -> Singles:
        """Return the powers [d, p, 2^n] of some loads of the fuller side, for all splits of some pairs."""
        half = self.load.shape[2] // 2
        items = self.load[loads, pairs]
        first = sums_of_subsets(items[..., :half])
        others = sums_of_subsets(items[..., half:]) + self.off_half[loads, pairs]
        fuller = (others[..., :, None] + first[..., None, :]).reshape(*others.shape[:2], 1 << self.load.shape[2])
        np.abs(fuller, out=fuller)
        fuller += self.half[loads, pairs]
        least, most = self.least[loads, None, None], self.most[loads, None, None]
        if (least > 0).any() or self.may_be_hidden:
            np.maximum(fuller, least, out=fuller)
        np.minimum(fuller, most, out=fuller)
        for _ in range(self.squarings):
            np.square(fuller, out=fuller)
        return np.asarray(fuller)

    def of(self, pairs: Ints) -> "_SplitCosts":
        arrays = (self.load[:, pairs], self.half[:, pairs], self.off_half[:, pairs])
        return _SplitCosts(*arrays, self.least, self.most, self.unchanged[pairs], self.squarings, self.may_be_hidden)


def _split_costs(bins: Bins, paired: PairedItems, smoothing: Smoothing) -> _SplitCosts:
    of_item = np.ascontiguousarray(smoothing.relative(bins.item_load).reshape(len(bins.item_load), -1).T, np.float32)
    load = of_item[:, paired.items] * (paired.items >= 0)
    on_left, on_right = (_flat(smoothing.relative(side)[:, None]) for side in paired.load)
    used, others, weight = _distinct(np.concatenate([load, on_left, on_right], axis=2), smoothing)
    fuller = np.maximum(np.maximum(on_left[others], on_right[others])[..., 0], 0.0)
    unchanged = np.asarray(product(weight[others], smoothing.power(fuller)), dtype=np.float32)
    scale = weight[used][:, None, None]
    for _ in range(smoothing.squarings):
        scale = np.sqrt(scale)
    load, left, half = load[used] * scale, on_left[used] * scale, (on_left + on_right)[used] / 2 * scale
    off_half = left - (load * paired.at_left).sum(axis=2, keepdims=True) - half
    scale = scale[:, 0, 0]
    least = (np.resize(smoothing.floor, len(weight))[used] * scale).astype(np.float32)
    most, are_hidden = (scale * MOST).astype(np.float32), bool((half < 0).any())
    return _SplitCosts(load, half, off_half, least, most, unchanged, smoothing.squarings, are_hidden)


def _best_of_all_splits(
    costs: _SplitCosts, now: Ints, memory: "_SplitMemory | None" = None
) -> Iterator[tuple[Ints, Singles, Singles]]:
    """Yield the best split, its value and that of the split `now`, some pairs at a time; within `memory` if given."""
    loads, pairs, n = costs.load.shape
    step = max(1, CHUNK >> n)
    are_few = loads * pairs << n <= CHUNK
    for begin in range(0, pairs, step):
        rows = slice(begin, begin + step)
        some = now[rows]
        value = np.repeat(costs.unchanged[rows, None], 2**n, axis=1)
        for each in [slice(None)] if are_few else [slice(d, d + 1) for d in range(loads)]:
            for powers in costs.powers(each, rows):
                value += powers
        every = np.arange(len(some))
        present = value[every, some]
        if memory is not None:
            value[memory.of(np.arange(pairs)[rows]).overfilling_splits()] = np.inf
        best = value.argmin(axis=1)
        yield best, value[every, best], present


@dataclass(frozen=True)
class _SplitMemory:
    """Bytes of P pairs: D memories of a side's ranks."""

    size: Floats
    """[D, P, n] of the items."""
    least: Floats
    """[D, P, 1] that the left must take, so that the right has room for the others."""
    most: Floats
    """[D, P, 1] that the left may take."""

    def of(self, pairs: Ints) -> "_SplitMemory":
        return _SplitMemory(self.size[:, pairs], self.least[:, pairs], self.most[:, pairs])

    def overfills(self, split: Ints) -> Bools:
        """Return whether [P] one split of each pair overfills a side."""
        goes_left = (split[:, None] >> np.arange(self.size.shape[2])) & 1
        taken = (self.size * goes_left).sum(axis=2, keepdims=True)
        return np.asarray(((taken < self.least) | (taken > self.most)).any(axis=(0, 2)))

    def overfilling_splits(self) -> Bools:
        """Return which splits [P, 2^n] overfill a side."""
        taken = sums_of_subsets(self.size)
        return np.asarray(((taken < self.least) | (taken > self.most)).any(axis=0))


def _split_memory(bins: Bins, paired: PairedItems) -> _SplitMemory:
    item_bytes = bins.item_bytes.reshape(len(bins.item_bytes), -1)
    free_left, free_right = (side.reshape(len(side), -1) for side in paired.free)
    least_free = np.minimum(free_left, free_right)
    some = np.flatnonzero(item_bytes.any(axis=0) | (least_free < -ROUNDING_BYTES).any(axis=0))
    room_left, room_right, least_room = (free[:, some].T[..., None] for free in (free_left, free_right, least_free))
    size = np.where(paired.items >= 0, item_bytes.T[some][:, paired.items], 0.0)
    on_left = (size * paired.at_left).sum(axis=2, keepdims=True)
    concerned = size.any(axis=2, keepdims=True) | (least_room < -ROUNDING_BYTES)
    most = np.where(concerned, room_left + on_left + ROUNDING_BYTES, np.inf)
    least = np.where(concerned, on_left - room_right - ROUNDING_BYTES, -np.inf)
    used = np.flatnonzero(concerned.any(axis=(1, 2)))
    return _SplitMemory(size[used], least[used], most[used])


def _flat(amounts: Floats, dtype: DTypeLike = np.float32) -> Any:
    """Return amounts [P, n, R, X] as [R x X, P, n]."""
    return np.ascontiguousarray(amounts.reshape(*amounts.shape[:2], -1).transpose(2, 0, 1), dtype=dtype)


def _distinct(loads: Singles, smoothing: Smoothing) -> tuple[Ints, Ints, Singles]:
    """Return the rows of `loads` [D, P, n + 2] (items, then bins) that items change, alike ones once; others; weights.

    The weights [D] are those of all rows; of alike ones the first has the sum.
    """
    weight = np.resize(smoothing.weight, len(loads)).astype(np.float32)
    changed = loads[:, :, :-2].any(axis=(1, 2))
    flat = loads.reshape(len(loads), loads.shape[1] * loads.shape[2])
    mark = flat.sum(axis=1).tolist()
    kept: list[int] = []
    for row in np.flatnonzero(changed).tolist():
        for k in kept:
            if abs(mark[k] - mark[row]) <= 1e-4 * abs(mark[row]) and _are_alike(flat[k], flat[row]):
                weight[k] += weight[row]
                break
        else:
            kept.append(row)
    return np.array(kept, dtype=np.int64), np.flatnonzero(~changed), weight


def _are_alike(row: Singles, other: Singles) -> bool:
    return bool((np.abs(row - other) <= 1e-8 + 1e-5 * np.abs(other)).all())
