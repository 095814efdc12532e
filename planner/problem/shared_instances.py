"""Instances of resources, or of memories, and the ranks that share each: what ranks ask for, every sharer meets.

Instances are consecutive ranks. Sums run over an instance's ranks in their order, whatever is charged with it.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.problem.numbers import Floats, Ints

MOST_KEPT = 1 << 21
"""Numbers that say which cells some ranks charge, kept at most: 16 MiB."""


@dataclass(frozen=True)
class _Cells:
    """Which sums ranks add to which cells [row, rank] of loads; n ranks, c cells."""

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
    def _bounds(self) -> tuple[Ints, Ints]:
        """First and last + 1 rank of the instance of each rank, in each row [R, W]."""
        bounds = [[np.searchsorted(row, row, side=side) for row in self._instances] for side in ("left", "right")]
        shape = self._instances.shape
        return np.reshape(bounds[0], shape).astype(np.int64), np.reshape(bounds[1], shape).astype(np.int64)

    @cached_property
    def _rows_shared(self) -> Ints:
        """Rows in which ranks share an instance; in the others, each has its own."""
        first, last = self._bounds
        return np.flatnonzero((last - first > 1).any(axis=1))

    @cached_property
    def _all_ranks(self) -> tuple[Ints, Ints]:
        """Where sums over instances begin in the values [r x W] of shared rows, and which of them each rank meets
        [r, W]."""
        opens = self._opens(self._instances[self._rows_shared])
        return np.flatnonzero(opens.ravel()), np.reshape(np.cumsum(opens.ravel()) - 1, opens.shape)

    @cached_property
    def _alike(self) -> tuple[Ints, Ints, Ints, Ints]:
        """One instance for all that are of the same kinds of ranks, in each row: row and kind of its ranks [x], where
        each begins, and which of them each rank meets [R, W]."""
        rows, kinds, starts, which = list[Ints](), list[Ints](), list[int](), np.zeros_like(self._instances)
        count = 0
        for row, (first, last) in enumerate(zip(*self._bounds, strict=True)):
            number_of: dict[bytes, int] = {}
            for begin in np.flatnonzero(first == np.arange(len(first))).tolist():
                kind = self._kind_of_rank[begin : last[begin]]
                if kind.tobytes() not in number_of:
                    number_of[kind.tobytes()] = len(starts)
                    starts.append(count)
                    rows.append(np.full(len(kind), row))
                    kinds.append(kind)
                    count += len(kind)
                which[row, begin : last[begin]] = number_of[kind.tobytes()]
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
        met[rows] = np.add.reduceat(values[rows].ravel(), start)[which]
        return met

    def met_everywhere(self, per_kind: Floats) -> Floats:
        """Return the same where all ranks of a kind ask for the same, `per_kind` [K, R]."""
        row, kind, start, which = self._alike
        return np.asarray(np.add.reduceat(per_kind[kind, row], start)[which])

    def charge(self, target: Floats, values: Floats, ranks: slice) -> None:
        """Add what some consecutive ranks ask for [R, n] to what all meet [R, W]."""
        cells = self._cells(ranks.start, ranks.stop)
        target[cells.row, cells.rank] += np.add.reduceat(values.ravel(), cells.start)[cells.which]

    def charge_rank(self, target: Floats, values: Floats, rank: int) -> None:
        """Add what one rank asks for [R] to what all meet [R, W]."""
        cells = self._cells(rank, rank + 1)
        target[cells.row, cells.rank] += values[cells.which]

    def _cells(self, begin: int, end: int) -> _Cells:
        """Return the cells that ranks from one to before another charge."""
        known = self._known.get((begin, end))
        if known is not None:
            return known
        first, last = (bounds[:, begin:end] for bounds in self._bounds)
        opens = self._opens(self._instances[:, begin:end])
        at, position = np.nonzero(opens)
        size = (last - first)[at, position]
        row, which = np.repeat(at, size), np.repeat(np.arange(len(at)), size)
        rank = np.arange(len(row)) + np.repeat(first[at, position] - (size.cumsum() - size), size)
        made = _Cells(np.flatnonzero(opens.ravel()), row, rank, which)
        self._kept += 3 * len(row)
        if self._kept > MOST_KEPT:
            self._known, self._kept = {}, 3 * len(row)
        self._known[begin, end] = made
        return made
