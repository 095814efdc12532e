"""Local search: two bins deal out their blocks anew, all 2^n ways priced, for many pairs of bins at once.

A bin is a rank with its single-rank blocks, or a node with its node-wide ones.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from planner.problem import Bools, Floats, Ints
from planner.solvers.smoothing import Smoothing

Singles = NDArray[np.float32]

BLOCKS = 12
"""Blocks of a pair that are dealt anew; of fuller bins, random ones. 2^12 ways are priced."""
PRECISION = 1e-5
"""Relative improvement below which a deal is not worth making: single precision is used to price them."""
ROUNDING_BYTES = 1e-3
"""Bytes by which a rank may seem over-full: sums of doubles."""
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


def deal(bins: Bins, left: Ints, right: Ints, smoothing: Smoothing, random: np.random.Generator) -> tuple[Ints, Ints]:
    """Items that change bins, and their new bins, for disjoint pairs of bins of one kind, `left` and `right`."""
    if not len(left):
        return left, right
    items, at_left = _chosen(bins, left, right, random)
    step = max(1, CHUNK >> items.shape[1])
    moved: list[Ints] = []
    target: list[Ints] = []
    for begin in range(0, len(items), step):
        part = slice(begin, begin + step)
        to_left = _best_way(bins, (left[part], right[part]), (items[part], at_left[part]), smoothing)
        changes = (to_left != at_left[part]) & (items[part] >= 0)
        moved.append(items[part][changes])
        target.append(np.where(to_left, left[part, None], right[part, None])[changes])
    return np.concatenate(moved), np.concatenate(target)


def _chosen(bins: Bins, left: Ints, right: Ints, random: np.random.Generator) -> tuple[Ints, Bools]:
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
    there = drawn < both
    return np.where(there, index, -1), on_left & there


def _best_way(bins: Bins, pair: tuple[Ints, Ints], dealt: tuple[Ints, Bools], smoothing: Smoothing) -> Bools:
    """[P, n] whether each item goes to the left: the way that lowers the smoothed step most, or the present one.

    A way is a number whose bits say which items go left.
    """
    (left, right), (items, at_left) = pair, dealt
    there = items >= 0
    load = _flat(smoothing.relative(bins.item_load[items]) * there[:, :, None, None])
    on_left, on_right = (_flat(smoothing.relative(bins.load[side])[:, None])[..., 0] for side in pair)
    used, weight = _distinct(np.concatenate([load, on_left[..., None], on_right[..., None]], axis=2), smoothing)
    load, total = load[used], (on_left + on_right)[used]
    stripped = on_left[used] - (load * at_left).sum(axis=2)
    value = np.zeros((len(left), 2 ** items.shape[1]), dtype=np.float32)
    for first, others, both, w in zip(*_sums(load, stripped), total, weight, strict=True):
        mine = (others[:, :, None] + first[:, None, :]).reshape(value.shape)
        for side in (mine, both[:, None] - mine):
            power = smoothing.power(np.maximum(side, 0.0, out=side))
            power *= w
            value += power
    present = at_left @ (1 << np.arange(items.shape[1]))
    _close(value, bins, pair, dealt)
    best = value.argmin(axis=1)
    rows = np.arange(len(left))
    better = value[rows, best] < value[rows, present] * (1 - PRECISION)
    chosen = (best[:, None] >> np.arange(items.shape[1])) & 1
    return np.where(better[:, None], chosen > 0, at_left)


def _flat(amounts: Floats, dtype: DTypeLike = np.float32) -> Any:
    """[R x X, P, n] of [P, n, R, X]."""
    return np.ascontiguousarray(amounts.reshape(*amounts.shape[:2], -1).transpose(2, 0, 1), dtype=dtype)


def _distinct(loads: Singles, smoothing: Smoothing) -> tuple[Ints, Singles]:
    """Of `loads` [D, P, n + 2] (the items', then the bins') the rows that items change, alike ones once; weights."""
    weight = np.resize(smoothing.weight, len(loads)).astype(np.float32)
    used = np.flatnonzero(loads[:, :, :-2].any(axis=(1, 2)))
    flat = loads[used].reshape(len(used), -1)
    mark = flat @ np.sin(1.0 + np.arange(flat.shape[1], dtype=np.float32))
    kept: list[int] = []
    for row in range(len(used)):
        same = [k for k in kept if abs(mark[k] - mark[row]) < 1e-3 and np.allclose(flat[k], flat[row], rtol=1e-5)]
        if same:
            weight[used[same[0]]] += weight[used[row]]
        else:
            kept.append(row)
    return used[kept], weight[used[kept]]


def _sums(load: Singles, stripped: Singles) -> tuple[Singles, Singles]:
    """Sums of all subsets of each pair's first half of the items [D, P, 2^a], and of the others with `stripped` [D, P].

    `load` is [D, P, n].
    """
    half = load.shape[2] // 2
    first, others = (part @ _ways(part.shape[2]).T for part in (load[..., :half], load[..., half:]))
    return first, others + stripped[..., None]


@cache
def _ways(n: int) -> Singles:
    """[2^n, n] the bits of each number."""
    return ((np.arange(2**n)[:, None] >> np.arange(n)) & 1).astype(np.float32)


def _close(value: Singles, bins: Bins, pair: tuple[Ints, Ints], dealt: tuple[Ints, Bools]) -> None:
    """Make the ways infinite that overfill a rank, for the pairs whose best way does."""
    (left, right), (items, at_left) = pair, dealt
    size = _flat(np.where((items >= 0)[:, :, None, None], bins.item_bytes[items], 0.0), np.float64)
    used = np.flatnonzero(size.any(axis=(1, 2)))
    if not len(used):
        return
    size = size[used]
    room = [_flat(bins.free[side][:, None], np.float64)[used, :, 0] for side in pair]
    on_left = (size * at_left).sum(axis=2)
    everything = size.sum(axis=2)
    most = room[0] + on_left + ROUNDING_BYTES
    least = on_left - room[1] - ROUNDING_BYTES
    chosen = ((value.argmin(axis=1)[:, None] >> np.arange(items.shape[1])) & 1) > 0
    taken = (size * chosen).sum(axis=2)
    for p in np.flatnonzero(((taken > most) | (taken < least)).any(axis=0)):
        for d in np.flatnonzero((everything[:, p] > most[:, p]) | (least[:, p] > 0)):
            taken = _ways(items.shape[1]) @ size[d, p]
            value[p, (taken > most[d, p]) | (taken < least[d, p])] = np.inf
