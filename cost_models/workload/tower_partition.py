"""Which tables are in which tower: as even as they are told to be, those that belong together in one."""

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cost_models.workload.towers import Towers
from topologies.errors import ConflictError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PASSES = 50
"""Over all tables, at most; each goes on only where the one before changed something."""


@dataclass(frozen=True)
class Tower:
    """One tower of a model."""

    tables: tuple[int, ...]
    """Indices of its tables."""
    columns: int
    """Of the vectors of a sample, joined."""
    outputs: int
    """Numbers that it gives for a sample."""


def partition(towers: Towers, names: Sequence[str], columns: Sequence[int]) -> tuple[Tower, ...]:
    """The towers of tables with so many `columns` each: those that are grouped where they are told to be, then the
    widest first to the tower with the fewest columns (Graham's longest processing time first).

    Where an imbalance or affinities are given, tables move and change places after that: first until the widest tower
    has at most `imbalance` times the columns of the narrowest, then as long as that adds to the affinities inside
    towers. That is a local optimum, not proven to be the best.

    Raises ConflictError for a pattern or a pair that names no table, a table of two towers, a tower without tables, and
    an imbalance that is not reached.
    """
    fixed, width = _grouped(towers, names), np.array(columns, dtype=np.int64)
    division = _Division(fixed, width, towers.count, _affinities(towers, names))
    if towers.imbalance is not None:
        division.even_out(towers.imbalance)
        if towers.affinity and division.imbalance <= towers.imbalance:
            division.join(towers.imbalance)
    if empty := [number for number in range(towers.count) if not (division.of_table == number).any()]:
        raise ConflictError(f"tower {empty[0]} of {towers.count} has no table", "count", "group")
    if towers.imbalance is not None and division.imbalance > towers.imbalance:
        message = f"no division was found in which it is less than {division.imbalance:.3g}; allow more, or group less"
        raise ConflictError(message, "imbalance", "group")
    tables = [tuple(np.flatnonzero(division.of_table == number).tolist()) for number in range(towers.count)]
    sums = division.load.tolist()
    return tuple(Tower(own, total, towers.outputs(total)) for own, total in zip(tables, sums, strict=True))


class _Division:
    """The tower of each of T tables, and changes of those that are not fixed: to one of K towers, alone, or in exchange
    for another table that is not."""

    def __init__(self, fixed: dict[int, int], columns: Ints, towers: int, affinity: Floats | None) -> None:
        self._columns = columns
        self._affinity: Floats = np.zeros((len(columns), len(columns))) if affinity is None else affinity
        self._inside: Floats = np.zeros((len(columns), towers))
        """[T, K] affinity of each table to those of each tower."""
        self.of_table: Ints = np.full(len(columns), -1)
        self.load: Ints = np.zeros(towers, dtype=np.int64)
        """[K] columns."""
        for table, tower in fixed.items():
            self._put(table, tower)
        free = [table for table in range(len(columns)) if table not in fixed]
        self._free: Ints = np.array(sorted(free, key=lambda table: (-columns[table], table)), dtype=np.int64)
        for table in self._free.tolist():
            self._put(table, int(self.load.argmin()))

    @property
    def imbalance(self) -> float:
        """Columns of the widest tower over those of the narrowest."""
        return float(self.load.max()) / max(float(self.load.min()), 1e-9)

    def even_out(self, most: float) -> None:
        """Change tables of the widest tower as long as that evens towers out and they are more uneven than `most`."""
        while self.imbalance > most:
            least, best = float((self.load.astype(float) ** 2).sum()), None
            for table in self._free[self.of_table[self._free] == self.load.argmax()].tolist():
                other, tower = self._changes(table)
                spread = (self._loads_after(table, other, tower).astype(float) ** 2).sum(axis=1)
                if spread.size and spread.min() < least:
                    least, at = float(spread.min()), int(spread.argmin())
                    best = table, int(other[at]), int(tower[at])
            if best is None:
                return
            self._change(*best)

    def join(self, most: float) -> None:
        """Make the change of each table that adds most to the affinities inside towers, pass by pass, where towers stay
        as even as `most`."""
        for _ in range(PASSES):
            before = self.of_table.copy()
            for table in self._free.tolist():
                other, tower = self._changes(table)
                load = self._loads_after(table, other, tower)
                is_even = (load.min(axis=1) > 0) & (load.max(axis=1) <= most * load.min(axis=1))
                gain = np.where(is_even, self._gains(table, other, tower), 0.0)
                if gain.size and gain.max() > 1e-9:
                    at = int(gain.argmax())
                    self._change(table, int(other[at]), int(tower[at]))
            if (before == self.of_table).all():
                return

    def _changes(self, table: int) -> tuple[Ints, Ints]:
        """[n] the table that a free one changes with, -1 for none, and the tower that it comes to."""
        own = self.of_table[table]
        towers = np.flatnonzero(np.arange(len(self.load)) != own)
        others = self._free[self.of_table[self._free] != own]
        return np.concatenate([np.full(len(towers), -1), others]), np.concatenate([towers, self.of_table[others]])

    def _loads_after(self, table: int, other: Ints, tower: Ints) -> Ints:
        """[n, K]"""
        more = self._columns[table] - np.where(other >= 0, self._columns[other], 0)
        load = np.tile(self.load, (len(other), 1))
        load[np.arange(len(other)), tower] += more
        load[:, self.of_table[table]] -= more
        return load

    def _gains(self, table: int, other: Ints, tower: Ints) -> Floats:
        """[n] what changes add to the affinities inside towers."""
        inside, own = self._inside, self.of_table[table]
        of_other = inside[other, own] - inside[other, tower] - 2 * self._affinity[table, other]
        return np.asarray(inside[table, tower] - inside[table, own] + np.where(other >= 0, of_other, 0.0))

    def _change(self, table: int, other: int, tower: int) -> None:
        own = int(self.of_table[table])
        self._put(table, tower)
        if other >= 0:
            self._put(other, own)

    def _put(self, table: int, tower: int) -> None:
        before = self.of_table[table]
        if before >= 0:
            self.load[before] -= self._columns[table]
            self._inside[:, before] -= self._affinity[:, table]
        self.of_table[table] = tower
        self.load[tower] += self._columns[table]
        self._inside[:, tower] += self._affinity[:, table]


def _affinities(towers: Towers, names: Sequence[str]) -> Floats | None:
    """[T, T] symmetric; None where none are given."""
    if not towers.affinity:
        return None
    number = {name: table for table, name in enumerate(names)}
    values = np.zeros((len(names), len(names)))
    for one, other, worth in towers.affinity:
        for name in (one, other):
            if name not in number:
                raise ConflictError(f"no table is called {name!r}", "affinity")
        if one == other:
            raise ConflictError(f"table {one!r} is with itself in any case; leave that pair out", "affinity")
        values[number[one], number[other]] += worth
        values[number[other], number[one]] += worth
    return values


def _grouped(towers: Towers, names: Sequence[str]) -> dict[int, int]:
    """The tower of each table that a pattern names."""
    of_table: dict[int, int] = {}
    for pattern, tower in towers.group:
        named = [t for t, name in enumerate(names) if name == pattern or fnmatch.fnmatchcase(name, pattern)]
        if not named:
            raise ConflictError(f"no table is called {pattern!r}", "group")
        for table in named:
            if of_table.setdefault(table, tower) != tower:
                message = f"table {names[table]!r} is in towers {of_table[table]} and {tower}; leave it in one"
                raise ConflictError(message, "group")
    return of_table
