"""Decided parts of tables: which block the largest part is, or between which widths, and where it is."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from planner.problem.arrays import Problem


class PartDecision(NamedTuple):
    """One decided block of a table: a type from `first` to `last`, on a place (rank, node, -1: the world) or open.

    The first part of a splittable option is its widest block, the next one the widest of the rest, and so on; those of
    a fixed option are its blocks in order. A range over several options says only with which block the option begins.
    """

    first: int
    last: int
    place: int | None


Decisions = Mapping[int, tuple[PartDecision, ...]]
"""Parts of some tables. Only the last part of a table may be without a place, and only after parts of one width."""


class PartRules:
    """What parts of the tables of one problem may follow each other."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._sequences = [
            [int(block) for block in np.repeat(types, problem.block_count[types])]
            for types in map(np.arange, problem.block_start[:-1].tolist(), problem.block_start[1:].tolist())
        ]

    def sequence(self, option: int) -> list[int]:
        """Blocks of a fixed option in the order of its parts."""
        return self._sequences[option]

    def units_left(self, parts: tuple[PartDecision, ...]) -> tuple[int, int]:
        """Fewest and most column units of a splittable option that its placed parts leave."""
        problem = self.problem
        whole = int(problem.option_units[problem.block_option[parts[0].first]])
        placed = self.placed(parts)
        most = whole - sum(int(problem.block_units[part.first]) for part in placed)
        fewest = whole - sum(int(problem.block_units[part.last]) for part in placed)
        return max(fewest, 0), most

    def open_range(self, table: int, parts: tuple[PartDecision, ...]) -> tuple[int, int] | None:
        """Block types from which a table's next undecided part is taken; None where nothing is left or not known."""
        problem = self.problem
        if not parts:
            return int(problem.table_block_start[table]), int(problem.table_block_start[table + 1]) - 1
        if parts[-1].place is None:
            return parts[-1].first, parts[-1].last
        option = int(problem.block_option[parts[0].first])
        if not problem.option_units[option]:
            sequence = self.sequence(option)
            return (sequence[len(parts)],) * 2 if len(parts) < len(sequence) else None
        fewest, most = self.units_left(parts)
        if fewest != most or not most:
            return None
        return int(problem.block_start[option]), parts[-1].last

    def placed(self, parts: tuple[PartDecision, ...]) -> tuple[PartDecision, ...]:
        """Those that have a place."""
        return tuple(part for part in parts if part.place is not None)

    def is_inexact(self, parts: tuple[PartDecision, ...]) -> bool:
        """Whether the last part is placed with more than one width."""
        return bool(parts) and parts[-1].place is not None and parts[-1].first < parts[-1].last

    def is_unfinished(self, parts: tuple[PartDecision, ...]) -> bool:
        """Whether something of the table is still to be placed."""
        if parts[-1].place is None:
            return True
        option = int(self.problem.block_option[parts[0].first])
        if self.problem.option_units[option]:
            return self.units_left(parts)[1] > 0
        return len(parts) < len(self.sequence(option))

    def undecided_range(self, table: int, before: tuple[PartDecision, ...], index: int) -> tuple[int, int] | None:
        """Block types among which a part is still to be decided."""
        if 0 <= index == len(before) - 1 and (before[-1].place is None or self.is_inexact(before)):
            return before[-1].first, before[-1].last
        if index == len(before) and not (before and before[-1].place is None):
            return self.open_range(table, before)
        return None

    def is_part(self, part: PartDecision, before: tuple[PartDecision, ...]) -> bool:
        """Whether a part with a place is of one option, and of a fixed one the block whose turn it is."""
        if part.place is None:
            return True
        option = int(self.problem.block_option[part.first])
        if self.problem.option_units[option]:
            return bool(option == self.problem.block_option[part.last])
        turn = self.sequence(option)[len(before) : len(before) + 1]
        return bool(part.first == part.last and [part.first] == turn)
