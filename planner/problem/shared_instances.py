"""Instances of resources, or of memories, and the ranks that share each: what ranks ask for, every sharer meets.

Instances are mostly consecutive ranks; the leaf of a rail serves one rank of each node. Sums run over an instance's
ranks in their order, whatever is charged with it.
"""

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from planner.problem.numbers import Floats, Ints

Values = TypeVar("Values", np.int64, np.float64)
MOST_KEPT = 1 << 21
"""Numbers that say which cells some ranks charge, kept at most: 16 MiB."""


@dataclass(frozen=True)
class _Cells:
    """Which sums ranks add to which cells [row, rank] of loads; n ranks, c cells."""

    order: Ints | None
    """[R, n] the ranks of each row, instance by instance; None where they are so already."""
    start: Ints
    """Where the sums begin in [R x n] values."""
    row: Ints
    """[c]"""
    rank: Ints
    """[c]"""
    which: Ints
    """[c] the number of the sum that the cell meets."""


class SharedInstances:
    """R rows of instances, each of which W ranks share."""

    def __init__(self, instances: Ints, kind_of_rank: Ints) -> None:
        """Take the instance of each rank in each row [R, W]."""
        self._instances, self._kind_of_rank = instances, kind_of_rank
        self._known: dict[tuple[int, int], _Cells] = {}
        self._kept = 0

    @cached_property
    def _order(self) -> Ints | None:
        """[R, W] the ranks of each row, instance by instance; None where they are so already."""
        return _order(self._instances)

    @cached_property
    def _sorted(self) -> Ints:
        """[R, W] the instances in that order."""
        return _in_order(self._instances, self._order)

    @cached_property
    def _bounds(self) -> tuple[Ints, Ints]:
        """First and last + 1 place in that order of the instance of each rank, in each row [R, W]."""
        rows = list(zip(self._sorted, self._instances, strict=True))
        bounds = [[np.searchsorted(ordered, row, side=side) for ordered, row in rows] for side in ("left", "right")]
        shape = self._instances.shape
        return np.reshape(bounds[0], shape).astype(np.int64), np.reshape(bounds[1], shape).astype(np.int64)

    @cached_property
    def _rows_shared(self) -> Ints:
        """Rows in which ranks share an instance; in the others, each has its own."""
        first, last = self._bounds
        return np.flatnonzero((last - first > 1).any(axis=1))

    @cached_property
    def _all_ranks(self) -> tuple[Ints, Ints]:
        """Where sums over instances begin in the values [r x W] of shared rows, in their order, and which of them each
        rank meets [r, W]."""
        rows = self._rows_shared
        opens = self._opens(self._sorted[rows])
        which = np.reshape(np.cumsum(opens.ravel()) - 1, opens.shape)
        if self._order is not None:
            of_place, which = which, np.empty_like(which)
            np.put_along_axis(which, self._order[rows], of_place, axis=1)
        return np.flatnonzero(opens.ravel()), which

    @cached_property
    def _alike(self) -> tuple[Ints, Ints, Ints, Ints]:
        """One instance for all that are of the same kinds of ranks, in each row: row and kind of its ranks [x], where
        each begins, and which of them each rank meets [R, W]."""
        rows, kinds, starts, which = list[Ints](), list[Ints](), list[int](), np.zeros_like(self._instances)
        count = 0
        for row, ordered in enumerate(self._sorted):
            order = np.arange(len(ordered)) if self._order is None else self._order[row]
            number_of: dict[bytes, int] = {}
            begins = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])).tolist()
            for begin, end in itertools.pairwise([*begins, len(ordered)]):
                kind = self._kind_of_rank[order[begin:end]]
                if kind.tobytes() not in number_of:
                    number_of[kind.tobytes()] = len(starts)
                    starts.append(count)
                    rows.append(np.full(len(kind), row))
                    kinds.append(kind)
                    count += len(kind)
                which[row, order[begin:end]] = number_of[kind.tobytes()]
        none = np.zeros(0, dtype=np.int64)
        return np.concatenate([none, *rows]), np.concatenate([none, *kinds]), np.array(starts, dtype=np.int64), which

    @staticmethod
    def _opens(instances: Ints) -> "np.ndarray[tuple[int, ...], np.dtype[np.bool_]]":
        """Whether another instance begins at each of some ranks [R, n]."""
        return np.concatenate([np.ones_like(instances[:, :1], dtype=bool), np.diff(instances, axis=1) != 0], axis=1)

    def met(self, values: Floats) -> Floats:
        """Return what each rank meets at its instances [R, W], of the values that ranks themselves ask for [R, W]."""
        rows = self._rows_shared
        if not len(rows):
            return values
        start, which = self._all_ranks
        met = values.copy()
        ordered = _in_order(values[rows], None if self._order is None else self._order[rows])
        met[rows] = np.add.reduceat(ordered.ravel(), start)[which]
        return met

    def met_everywhere(self, per_kind: Floats) -> Floats:
        """Return the same where all ranks of a kind ask for the same, `per_kind` [K, R]."""
        row, kind, start, which = self._alike
        return np.asarray(np.add.reduceat(per_kind[kind, row], start)[which])

    def charge(self, target: Floats, values: Floats, ranks: slice) -> None:
        """Add what some consecutive ranks ask for [R, n] to what all meet [R, W]."""
        cells = self._cells(ranks.start, ranks.stop)
        sums = np.add.reduceat(_in_order(values, cells.order).ravel(), cells.start)
        target[cells.row, cells.rank] += sums[cells.which]

    def charge_rank(self, target: Floats, values: Floats, rank: int) -> None:
        """Add what one rank asks for [R] to what all meet [R, W]."""
        cells = self._cells(rank, rank + 1)
        target[cells.row, cells.rank] += values[cells.which]

    def _cells(self, begin: int, end: int) -> _Cells:
        """Return the cells that ranks from one to before another charge."""
        known = self._known.get((begin, end))
        if known is not None:
            return known
        order = None if self._order is None else _order(self._instances[:, begin:end])
        first, last = (_in_order(bounds[:, begin:end], order) for bounds in self._bounds)
        opens = self._opens(_in_order(self._instances[:, begin:end], order))
        at, position = np.nonzero(opens)
        size = (last - first)[at, position]
        row, which = np.repeat(at, size), np.repeat(np.arange(len(at)), size)
        rank = np.arange(len(row)) + np.repeat(first[at, position] - (size.cumsum() - size), size)
        rank = rank if self._order is None else self._order[row, rank]
        made = _Cells(order, np.flatnonzero(opens.ravel()), row, rank, which)
        self._kept += 3 * len(row)
        if self._kept > MOST_KEPT:
            self._known, self._kept = {}, 3 * len(row)
        self._known[begin, end] = made
        return made


def _order(instances: Ints) -> Ints | None:
    """[R, n] the ranks of each row of `instances` [R, n], instance by instance, those of one in their order; None where
    they are so already."""
    return None if (np.diff(instances, axis=1) >= 0).all() else np.argsort(instances, axis=1, kind="stable")


def _in_order(values: NDArray[Values], order: Ints | None) -> NDArray[Values]:
    """[R, n] of `values` [R, n] of ranks, in this order of the ranks of each row."""
    return values if order is None else np.take_along_axis(values, order, axis=1)
