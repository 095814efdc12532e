"""Path relinking: from a placement, tables return one after the other to where an earlier plan held them.

The path leads from a placement to a guiding one, and all placements on it are candidates (Glover, Laguna and Martí,
Control Cybern. 29, 2000). First come those tables whose return makes no stage longer, then, under rising tolerances,
those that cost some time, down to the earlier placement.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.load_state import load_state, place_block
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.placement import Placement
from planner.problem.relocation import IncumbentPlacement
from planner.problem.rounding import FINE_ROUNDING, ROUNDING_BYTES
from planner.solvers.improve.insertion import PlacedBlocks
from planner.solvers.limits import Clock

TOLERANCES = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, np.inf)
"""Shares by which returning tables may lengthen a stage, one after the other."""
SWEEPS = 3
"""Times that all tables are asked to return under one tolerance: those that left make room for others."""


@dataclass(frozen=True)
class RelinkingPath:
    """A placement and the tables that return from it, one after the other: the path's points."""

    problem: Problem
    start: Placement
    points: list[tuple[float, float]]
    """(step in seconds, moved bytes) before any return, and after each."""
    returns: list[tuple[int, PlacedBlocks]]
    """(table, its blocks and places)."""

    def placement(self, point: int) -> Placement:
        """Return the placement at one of the points."""
        if not point:
            return self.start
        back = dict(self.returns[:point])
        gone = np.zeros(self.problem.tables, dtype=bool)
        gone[list(back)] = True
        table = self.problem.option_table[self.problem.block_option[self.start.item_block]]
        stays = part_of(self.start, ~gone[table])
        blocks = np.array([piece for blocks in back.values() for piece in blocks], dtype=np.int64)
        return in_order(
            Placement(
                np.concatenate([stays.item_block, blocks[:, 0]]), np.concatenate([stays.item_place, blocks[:, 1]])
            )
        )


class _GuidingPlacement:
    """A placement that tables return to."""

    def __init__(
        self, problem: Problem, placement: Placement, blocks: dict[int, PlacedBlocks], moved_bytes: Floats
    ) -> None:
        placed = in_order(placement)
        order = np.argsort(problem.option_table[problem.block_option[placed.item_block]], kind="stable")
        self._block, self._place = placed.item_block[order], placed.item_place[order]
        table = problem.option_table[problem.block_option[self._block]]
        self._start: Ints = np.searchsorted(table, np.arange(problem.tables + 1))
        self.blocks, self.moved_bytes = blocks, moved_bytes

    def items(self, tables: Ints) -> tuple[Ints, Ints, Ints]:
        """Return which of the `tables` each of their blocks is of, the block and its place."""
        count = self._start[tables + 1] - self._start[tables]
        which = np.repeat(np.arange(len(tables)), count)
        index = np.arange(len(which)) + np.repeat(self._start[tables] - np.cumsum(count) + count, count)
        return which, self._block[index], self._place[index]


class PathRelinking:
    """Paths to the guiding placements: how the incumbent placement held tables, or else the start of the search."""

    def __init__(self, problem: Problem, incumbent: IncumbentPlacement, start: Placement | None) -> None:
        self._problem, self._incumbent = problem, incumbent
        table_of_loose = problem.option_table[problem.block_option[incumbent.loose]]
        table = problem.option_table[problem.block_option[incumbent.start.item_block]]
        whole = part_of(incumbent.start, ~np.isin(table, table_of_loose))
        self._goals: list[_GuidingPlacement] = []
        for goal in (whole, start):
            if goal is not None:
                blocks = by_table(problem, goal)
                self._goals.append(_GuidingPlacement(problem, goal, blocks, self._moved_bytes(goal, blocks)))
        self._own_column: Bools = np.array([len(np.unique(i)) == problem.world for i in problem.resource_of_rank])
        self._own_pool: Bools = np.array([len(np.unique(i)) == problem.world for i in problem.pool_of_rank])

    def moved_bytes(self, placement: Placement) -> Floats:
        """Return the bytes [T] that tables have moved in a placement."""
        return self._moved_bytes(placement, by_table(self._problem, placement))

    def _moved_bytes(self, placement: Placement, blocks: dict[int, PlacedBlocks]) -> Floats:
        """Return the moved bytes [T] of all tables of a placement; those that are as in a goal are known already."""
        moved = np.zeros(self._problem.tables)
        is_new = np.zeros(self._problem.tables, dtype=bool)
        is_new[list(blocks)] = True
        for goal in self._goals:
            same = [table for table, where in blocks.items() if is_new[table] and goal.blocks.get(table) == where]
            moved[same], is_new[same] = goal.moved_bytes[same], False
        table = self._problem.option_table[self._problem.block_option[placement.item_block]]
        return moved + self._incumbent.moved_bytes(self._problem, part_of(placement, is_new[table]))

    def stay(self, placement: Placement) -> RelinkingPath:
        """Return the path without any return from a placement."""
        moved = float(self.moved_bytes(placement).sum())
        return RelinkingPath(self._problem, placement, [(load_state(self._problem, placement).step_s(), moved)], [])

    def path_from(self, placement: Placement, clock: Clock) -> RelinkingPath:
        """Return the path of all returns from a placement, tolerance by tolerance."""
        problem = self._problem
        self._state = state = load_state(problem, placement)
        self._now = by_table(problem, placement)
        self._moved = self._moved_bytes(placement, self._now)
        busy = (state.stage_seconds() - problem.stage_constants)[problem.stage_of_column]
        points = [(state.step_s(), float(self._moved.sum()))]
        returns: list[tuple[int, PlacedBlocks]] = []
        for tolerance in TOLERANCES:
            most = 1 + tolerance + FINE_ROUNDING
            self._ceiling: Floats = busy * most if np.isfinite(most) else np.full(len(busy), np.inf)
            for _ in range(SWEEPS):
                before = len(returns)
                for goal in self._goals:
                    for table, is_barred in self._candidates(goal, at_no_cost=tolerance == 0):
                        blocks = self._return(table, goal.blocks[table], is_barred=is_barred)
                        if blocks is not None:
                            self._now[table] = blocks
                            self._moved[table] = goal.moved_bytes[table]
                            returns.append((table, blocks))
                            points.append((state.step_s(), float(self._moved.sum())))
                if len(returns) == before or clock.is_over():
                    break
        return RelinkingPath(problem, placement, points, returns)

    def _candidates(self, goal: _GuidingPlacement, *, at_no_cost: bool) -> list[tuple[int, bool]]:
        """Return the tables that save bytes if they return, most bytes first, but for those that make a stage too long.

        Tables that must stay with others or away from them do not return one by one. With each, whether its memory
        there is too full. At no cost, tables return that save no bytes, too.
        """
        away = [table for table, blocks in goal.blocks.items() if self._now[table] != blocks]
        tables = np.array([table for table in away if not self._problem.grouped[table]], dtype=np.int64)
        saved = self._moved[tables] - goal.moved_bytes[tables]
        tables = tables[(saved > 0) | ((saved == 0) & at_no_cost & (goal is self._goals[0]))]
        tables = tables[np.lexsort((tables, goal.moved_bytes[tables] - self._moved[tables]))]
        overloads, overfills = self._alone(goal, tables)
        return list(zip(tables[~overloads].tolist(), overfills[~overloads].tolist(), strict=True))

    def _alone(self, goal: _GuidingPlacement, tables: Ints) -> tuple[Bools, Bools]:
        """Return whether a block of each table [n] makes a stage too long, or a pool too full, on its return.

        Only resources that the rank shares with no other are looked at, and only tables that are on single ranks now.
        """
        problem, state = self._problem, self._state
        which, block, rank = goal.items(tables)
        blocks = [(i, *piece) for i, table in enumerate(tables.tolist()) for piece in self._now[table]]
        which_now, block_now, rank_now = np.array(blocks, dtype=np.int64).reshape(-1, 3).T
        everywhere = np.zeros((len(tables), problem.kinds, len(problem.stage_of_column)))
        np.add.at(everywhere, which, problem.everywhere[:, block].swapaxes(0, 1))
        np.subtract.at(everywhere, which_now, problem.everywhere[:, block_now].swapaxes(0, 1))
        is_spread = np.zeros(len(tables), dtype=bool)
        is_spread[which_now[~problem.is_on_rank[block_now]]] = True
        looked_at = np.flatnonzero(problem.is_on_rank[block] & ~is_spread[which])
        which, block, rank = which[looked_at], block[looked_at], rank[looked_at]
        single = np.flatnonzero(~is_spread[which_now])
        places, at = np.unique(which_now[single] * problem.world + rank_now[single], return_inverse=True)
        same = np.searchsorted(places, which * problem.world + rank)
        same = np.where(np.append(places, -1)[same] == which * problem.world + rank, same, len(places))
        wrong_tables: list[Bools] = []
        for own, fixed, by_rows, now, most, more in (
            (self._own_column, problem.fixed, problem.by_rows, state.load, self._ceiling, everywhere),
            (self._own_pool, problem.bytes_fixed, problem.bytes_by_rows, -state.free, ROUNDING_BYTES, None),
        ):
            kind, kind_now = problem.kind_of_rank[rank], problem.kind_of_rank[rank_now[single]]
            there = np.zeros((len(places) + 1, len(own)))
            np.add.at(there, at, fixed[kind_now, block_now[single]] + by_rows[kind_now, block_now[single]])
            then = now[:, rank].T + fixed[kind, block] + by_rows[kind, block] - there[same]
            then += 0.0 if more is None else more[which, kind]
            wrong = (then > most)[:, own].any(axis=1)
            wrong_tables.append(np.bincount(which, weights=wrong, minlength=len(tables)) > 0)
        return wrong_tables[0], wrong_tables[1]

    def _return(self, table: int, blocks: PlacedBlocks, *, is_barred: bool) -> PlacedBlocks | None:
        """Put a table back, or into another memory there if its own is too full; None where it does not fit."""
        now = self._now[table]
        if not is_barred:
            outcome = self._exchange(now, blocks)
            if outcome != "full":
                return blocks if outcome == "done" else None
        for variant in self._variants(table, blocks):
            if variant == now:
                return None
            if self._exchange(now, variant) == "done":
                return variant
        return None

    def _variants(self, table: int, blocks: PlacedBlocks) -> Iterator[PlacedBlocks]:
        """Yield the same columns at the same places in other tiers or cache sizes."""
        problem = self._problem
        own = problem.block_option[blocks[0][0]]
        if not problem.option_units[own]:
            return
        units = problem.block_units[[block for block, _ in blocks]]
        kinds = problem.kind_of_rank[[where for _, where in blocks]]
        for option in range(int(problem.option_start[table]), int(problem.option_start[table + 1])):
            if option == own or problem.option_units[option] != problem.option_units[own]:
                continue
            types = np.arange(*problem.block_start[option : option + 2])
            same = types[np.minimum(np.searchsorted(problem.block_units[types], units), len(types) - 1)]
            if np.array_equal(problem.block_units[same], units) and problem.allowed[kinds, same].all():
                yield [(block, where) for block, (_, where) in zip(same.tolist(), blocks, strict=True)]

    def _exchange(self, old: PlacedBlocks, new: PlacedBlocks) -> Literal["done", "slow", "full"]:
        """Put other blocks of a table in the place of its present ones, if ceilings and memory are kept."""
        problem, state = self._problem, self._state
        everywhere = problem.everywhere[:, [b for b, _ in new]].sum(axis=1)
        everywhere -= problem.everywhere[:, [b for b, _ in old]].sum(axis=1)
        ranks = np.concatenate([problem.sites_of(block).members(place) for block, place in new])
        self._charge(old, new, everywhere)
        where = slice(None) if everywhere.any() else ranks
        is_slow = bool((state.load[:, where] > self._ceiling[:, None]).any())
        is_full = bool((state.free[:, ranks] < -ROUNDING_BYTES).any())
        if not is_slow and not is_full:
            return "done"
        self._charge(new, old, -everywhere)
        return "slow" if is_slow else "full"

    def _charge(self, gone: PlacedBlocks, come: PlacedBlocks, everywhere: Floats) -> None:
        for block, where in gone:
            place_block(self._problem, self._state, block, where, -1.0)
        for block, where in come:
            place_block(self._problem, self._state, block, where)
        if everywhere.any():
            self._state.add_everywhere(everywhere)


def part_of(placement: Placement, index: Bools) -> Placement:
    """Return the items of a placement that are marked [I]."""
    return Placement(placement.item_block[index], placement.item_place[index])


def in_order(placement: Placement) -> Placement:
    """Return a placement in order of block, then place."""
    order = np.lexsort((placement.item_place, placement.item_block))
    return Placement(placement.item_block[order], placement.item_place[order])


def by_table(problem: Problem, placement: Placement) -> dict[int, PlacedBlocks]:
    """Return the blocks of each table with their places, in order of both."""
    placed = in_order(placement)
    table = problem.option_table[problem.block_option[placed.item_block]].tolist()
    blocks_of: dict[int, PlacedBlocks] = {}
    for of, block, where in zip(table, placed.item_block.tolist(), placed.item_place.tolist(), strict=True):
        blocks_of.setdefault(of, []).append((block, where))
    return blocks_of
