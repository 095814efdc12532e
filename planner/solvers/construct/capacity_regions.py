"""Where tables of groups may still go while a placement grows, and which tables are placed as one unit."""

from dataclasses import dataclass

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Ints


@dataclass(frozen=True)
class TableUnit:
    """Tables that are placed together, or one table that may not be everywhere."""

    tables: tuple[int, ...]
    zone_of_rank: Ints
    """[W] all blocks of the unit stay in one zone; a single table has one zone, the whole world."""


def units_of(problem: Problem) -> list[TableUnit]:
    """Return the units of all tables that are in a group or may not use every rank that others may, most confined
    first.

    Groups that share a table are one unit; its zones are those of the group with the widest ones.
    """
    label = np.arange(problem.tables)
    zones: dict[int, Ints] = {}
    for group in problem.affinity_groups:
        met = np.unique(label[group.tables]).tolist()
        known = [zones.pop(of, group.zone_of_rank) for of in met]
        label[np.isin(label, met)] = met[0]
        zones[met[0]] = min([group.zone_of_rank, *known], key=lambda zone: int(zone[-1]))
    confined = problem.grouped | (problem.rank_sets[problem.table_rank_set] != problem.reach).any(axis=1)
    world = np.zeros(problem.world, dtype=np.int64)
    units = [
        TableUnit(tuple(np.flatnonzero(label == of).tolist()), zones.get(of, world))
        for of in np.unique(label[confined]).tolist()
    ]
    room = problem.rank_sets.sum(axis=1)[problem.table_rank_set]
    return sorted(units, key=lambda unit: min(int(room[table]) for table in unit.tables))


class OpenRanks:
    """The ranks [W] that each table of a unit may still use, as its partners and rivals take theirs."""

    def __init__(self, problem: Problem, units: list[TableUnit]) -> None:
        self._problem = problem
        every = np.ones(problem.world, dtype=bool)
        self._open: dict[int, Bools] = {table: every for unit in units for table in unit.tables}

    def of(self, block: int) -> Bools:
        """Return which ranks [W] may hold the block or a part of it."""
        allowed = self._problem.may_hold(block)
        table = int(self._problem.table_of_block[block])
        return allowed & self._open[table] if table in self._open else allowed

    def keep(self, tables: tuple[int, ...], ranks: Bools) -> None:
        """Close all but some ranks to tables."""
        for table in tables:
            self._open[table] = self._open[table] & ranks

    def take(self, block: int, ranks: Ints) -> None:
        """Note that a block has gone to ranks: its partners follow, its rivals stay away."""
        table = int(self._problem.table_of_block[block])
        if table not in self._open:
            return
        for group in self._problem.affinity_groups:
            if table in group.tables:
                self.keep(tuple(group.tables.tolist()), group.zone_of_rank == group.zone_of_rank[ranks[0]])
        for group in self._problem.anti_affinity_groups:
            if table in group.tables:
                others = tuple(other for other in group.tables.tolist() if other != table)
                self.keep(others, ~np.isin(group.zone_of_rank, group.zone_of_rank[ranks]))

    def copy(self) -> "OpenRanks":
        """Return the ranks as they are now."""
        twin = OpenRanks(self._problem, [])
        twin._open = dict(self._open)
        return twin
