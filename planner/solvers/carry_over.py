"""An incumbent placement carried over to a changed problem: what no longer fits leaves, what is new is placed."""

from collections.abc import Callable

import numpy as np

from planner.problem.load_state import load_state, place_block
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.placement import Placement
from planner.problem.relocation import IncumbentPlacement, first_ranks, ranks_of
from planner.solvers.bound.cutting_planes import FluidSolution, solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.infeasible import shortage
from planner.solvers.construct.greedy import place
from planner.solvers.construct.rounding import round_choices
from planner.solvers.improve.path_relinking import in_order, part_of

HEADROOMS = (0.0, 0.02, 0.1, 0.3)
"""Shares of each memory pool that the incumbent placement leaves to what is new, until that fits."""


class CarryOver:
    """Completes placements of which some blocks keep their places, those of the incumbent placement above all."""

    def __init__(self, fluid: Fluid, relaxed: FluidSolution, incumbent: IncumbentPlacement) -> None:
        """`relaxed` is the fluid optimum of the problem, which chooses the options of what is new."""
        self._fluid, self._problem, self._relaxed, self._incumbent = fluid, fluid.problem, relaxed, incumbent

    def start(self, is_over: Callable[[], bool]) -> Placement | None:
        """Return the incumbent placement with what is new; as few bytes as possible leave pools too full for that.

        What leaves keeps its form where that can be placed; else it may take any. None where nothing helps.
        """
        problem, incumbent = self._problem, self._incumbent
        table_of_block = problem.table_of_block
        if not len(incumbent.start.item_block) and not len(incumbent.loose):
            return None
        for headroom in HEADROOMS:
            leaving = self._leaving(headroom)
            kept = part_of(incumbent.start, ~leaving)
            left = incumbent.start.item_block[leaving]
            is_colocated = problem.option_colocated[problem.block_option[left]]
            if not (problem.is_world_wide[left] | is_colocated).any():
                completed = self.completed(kept, np.concatenate([incumbent.loose, left]))
                if completed is not None:
                    return completed[0]
            tables = np.zeros(problem.tables, dtype=bool)
            tables[table_of_block[np.concatenate([left, incumbent.loose])]] = True
            completed = self.completed(part_of(kept, ~tables[table_of_block[kept.item_block]]), incumbent.loose[:0])
            if completed is not None:
                return completed[0]
            if is_over():
                break
        return None

    def completed(self, kept: Placement, unplaced: Ints) -> tuple[Placement, float] | None:
        """Return a placement, and its step, that holds the blocks `kept` where they are and the `unplaced` ones
        anywhere, with options chosen for the tables that have neither; None if they do not fit."""
        problem, fluid = self._problem, self._fluid
        chosen = problem.block_option[np.concatenate([kept.item_block, unplaced])]
        known = np.zeros(problem.tables, dtype=bool)
        known[problem.option_table[chosen]] = True
        relaxed, choices = self._relaxed, np.zeros(0, dtype=np.int64)
        if not known.all():
            is_chosen = np.zeros(len(problem.option_table), dtype=bool)
            is_chosen[chosen] = True
            usable = ~known[problem.table_of_block] | is_chosen[problem.block_option]
            if shortage(fluid, usable) is None:
                relaxed = solve_relaxation(fluid, usable=usable, tolerance=1e-4)
            choices = round_choices(fluid, relaxed)[~known]
        placed = place(problem, choices, relaxed.stage_seconds, kept, unplaced)
        return None if placed is None else (in_order(placed[0]), placed[1].step_s())

    def _leaving(self, headroom: float) -> Bools:
        """Return which blocks [I] of the incumbent placement must leave, so that every pool has this share of its
        capacity free."""
        problem, start = self._problem, self._incumbent.start
        state = load_state(problem, start)
        leaving = np.zeros(len(start.item_block), dtype=bool)
        items, ranks, _, _ = ranks_of(problem, start.item_block, start.item_place)
        size = self._most_bytes(start)
        for m, (pool, capacity) in enumerate(zip(problem.pool_of_rank, problem.pool_capacity, strict=True)):
            firsts = np.unique(pool, return_index=True)[1]
            for rank in firsts[state.free[m, firsts] < headroom * capacity[pool[firsts]]].tolist():
                last = int(np.searchsorted(pool, pool[rank], side="right"))
                is_there = np.bincount(items[(ranks >= rank) & (ranks < last)], minlength=len(leaving)) > 0
                here = np.flatnonzero(is_there & (size[:, m] > 0) & ~leaving)
                here = here[np.lexsort((size[here, m], problem.block_extent[start.item_block[here]]))]
                while len(here) and (lack := headroom * capacity[pool[rank]] - float(state.free[m, rank])) > 0:
                    on_ranks = here[problem.is_on_rank[start.item_block[here]]]
                    among = on_ranks if len(on_ranks) else here
                    enough = np.searchsorted(size[among, m], lack) if len(on_ranks) else len(among) - 1
                    item = int(among[min(enough, len(among) - 1)])
                    place_block(problem, state, int(start.item_block[item]), int(start.item_place[item]), -1.0)
                    leaving[item] = True
                    here = here[here != item]
        return leaving

    def _most_bytes(self, placement: Placement) -> Floats:
        """Return the bytes [I, M] that each block takes on the rank where it takes most."""
        problem, block = self._problem, placement.item_block
        first = first_ranks(problem, block, placement.item_place)
        share = problem.row_shares.largest[problem.kind_of_rank[first], block][:, None]
        size = problem.bytes_fixed[:, block] + problem.bytes_by_rows[:, block] * share
        return np.asarray(size.max(axis=0))
