"""Starts that are over-full at first: placed and balanced with a penalty on bytes, then repaired until they fit.

To search beyond the limits and come back is strategic oscillation (Glover, Decis. Sci. 8, 1977); the penalty on
bytes is that of Lagrangian relaxation.
"""

from dataclasses import replace
from functools import cached_property

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.load_state import LoadState, load_state
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.placement import Placement
from planner.problem.rounding import ROUNDING_BYTES
from planner.solvers.bound.column_reduction import ReducedProblem, reduce_columns
from planner.solvers.bound.cutting_planes import FluidSolution
from planner.solvers.bound.fluid import Fluid
from planner.solvers.construct.caps import blocks_for_nodes
from planner.solvers.construct.greedy import place
from planner.solvers.construct.node_packing import HEADROOMS_OF_NODES, NodePacking
from planner.solvers.construct.overfull import with_priced_memory
from planner.solvers.construct.rounding import choose
from planner.solvers.improve.local_search import LATER_SQUARINGS, OVERFULL_TRIAL_ROUNDS, SQUARINGS, LocalSearch
from planner.solvers.improve.passes import FINALISTS
from planner.solvers.improve.repair import repaired
from planner.solvers.incumbent import Incumbent, Start

HEADROOMS = (0.9998, 0.9994, 0.998, 0.99)
"""Shares of the memory that the choice of options may use: hardly less than all of it."""
BYTE_PENALTY, HIGH_BYTE_PENALTY, REPAIR_ROUNDS = 2.0, 8.0, 16
"""The penalty on bytes until they are balanced, as a multiple of the bound's multipliers; the one while most of the
excess leaves; and the rounds at each norm in which the placement must come to fit."""
LEAST_WORTH = 0.25
"""What all bytes of a tight tier are worth at least, as a share of the step: where duals are low, it must fit, too."""
LOST_IN_REPAIR = 0.005
"""Share of the step that limits may cost a start at last; where it is more, less of the memory is tried, too."""


class OverfullStarts:
    """Over-full starts of a problem with scarce memory; the incumbent hears of those that come to fit."""

    def __init__(
        self,
        fluid: Fluid,
        relaxed: FluidSolution,
        tight: Bools,
        incumbent: Incumbent,
        local: LocalSearch,
        seed: int,
    ) -> None:
        """The `tight` [M] tiers may be over-full."""
        self._fluid, self._relaxed, self._incumbent, self._local = fluid, relaxed, incumbent, local
        self._tight, self._seed = tight, seed

    def starts(self, allowed: list[Bools]) -> list[Start]:
        """Return those that come to fit, of choices among the blocks `allowed` [B] for hardly less than all the
        memory."""
        fluid, incumbent, overfull = self._fluid, self._incumbent, self._overfull
        full_s = float(LoadState(overfull.problem).stage_seconds()[len(fluid.problem.stage_constants) :].sum())
        tried: list[tuple[float, float, Bools]] = []
        seen: list[tuple[Bools, FluidSolution]] = []
        for usable in allowed:
            if incumbent.is_done():
                break
            if any(
                usable[relaxed.choices].all() and not (usable & ~seen_usable).any() for seen_usable, relaxed in seen
            ):
                continue
            rounded = choose(fluid, usable, HEADROOMS[0])
            if rounded is None:
                continue
            seen.append((usable, rounded[0]))
            if rounded[0].bound_s < min((value for value, _, _ in tried), default=incumbent.best_s):
                start = _placed(overfull.problem, *rounded)
                if start is not None:
                    _, value = self._local.improve(start, self._seed, SQUARINGS, OVERFULL_TRIAL_ROUNDS, 0, overfull)
                    tried.append((value - full_s, rounded[0].bound_s, usable))
        starts: list[Start] = []
        for _, bound_s, usable in sorted(tried, key=lambda item: item[0])[:FINALISTS]:
            if incumbent.is_done():
                break
            if bound_s >= incumbent.best_s:
                continue
            fit = self._fitted(usable)
            if fit is not None:
                starts.append(fit)
            elif starts:
                break
        return starts

    def packed(self) -> list[Start]:
        """Return the start whose tables are packed over nodes with memories of their own, if it comes to fit: where
        blocks are large for a node's pool, no exchange of single ones leads there."""
        fluid, relaxed = self._fluid, self._relaxed
        packing = NodePacking(fluid, relaxed, blocks_for_nodes(fluid.problem, relaxed))
        shared = np.array([len(np.unique(of)) < fluid.problem.world for of in fluid.problem.pool_of_rank])
        if not packing.is_possible or not (self._tight & shared).any():
            return []
        overfull = self._overfull.problem
        of_memory = LoadState(overfull).stage_seconds()[len(relaxed.stage_seconds) :]
        aim = np.concatenate([relaxed.stage_seconds, of_memory])
        for headroom in HEADROOMS_OF_NODES:
            placement = packing.placement(overfull, aim, headroom, self._incumbent.clock.is_over)
            if placement is None or self._incumbent.is_done():
                continue
            roomy = _with_room_for(fluid.problem, placement, shared)
            only_ranks = [self._priced(factor, ~shared, roomy) for factor in (BYTE_PENALTY, HIGH_BYTE_PENALTY)]
            start, _ = self._repaired(placement, *only_ranks)
            if start is not None:
                return [start]
        return []

    @cached_property
    def _overfull(self) -> ReducedProblem:
        """The problem with a penalty on bytes instead of limits."""
        return self._priced(BYTE_PENALTY)

    @cached_property
    def _highly_penalized(self) -> ReducedProblem:
        return self._priced(HIGH_BYTE_PENALTY)

    def _priced(self, factor: float, tiers: Bools | None = None, problem: Problem | None = None) -> ReducedProblem:
        """Return the problem, or one of other capacities, with a penalty on bytes of all tight tiers, or of some of the
        `tiers` [M]."""
        seconds = (self._relaxed.multipliers.byte * self._fluid.capacity).sum(axis=0)
        least_s = np.where(self._tight, LEAST_WORTH * self._relaxed.bound_s, 0.0)
        seconds = np.maximum(seconds, least_s) * (1.0 if tiers is None else tiers)
        return reduce_columns(with_priced_memory(problem or self._fluid.problem, factor * seconds))

    def _fitted(self, usable: Bools) -> Start | None:
        """Return an over-full start, improved until it fits, with ever less memory; None where it does not come to."""
        before: Ints | None = None
        best: Start | None = None
        for headroom in HEADROOMS:
            rounded = choose(self._fluid, usable, headroom)
            if rounded is None or rounded[0].bound_s >= self._incumbent.best_s or self._incumbent.is_done():
                break
            if before is not None and (rounded[1] == before).all():
                continue
            before = rounded[1]
            start = _placed(self._overfull.problem, *rounded)
            repaired, lost = (None, 0.0) if start is None else self._repaired(start)
            if repaired is not None and (best is None or repaired[1] < best[1]):
                best = repaired
            if best is not None and lost <= LOST_IN_REPAIR:
                break
        return best

    def _repaired(
        self, placement: Placement, overfull: ReducedProblem | None = None, penalized: ReducedProblem | None = None
    ) -> tuple[Start | None, float]:
        """Balance an over-full start, then with a higher penalty, then with limits, until it fits; return None where it
        does not. All tight tiers have penalties, or those of the problems `overfull` and, higher ones, `penalized`.

        Also the share by which the limits made its step longer.
        """
        problem, seed, improve = self._fluid.problem, self._seed, self._local.improve
        placement, _ = improve(placement, seed, SQUARINGS, overfull=overfull or self._overfull)
        if load_state(problem, placement).overflow_bytes() > 0 and not self._incumbent.is_done():
            few = REPAIR_ROUNDS
            placement, _ = improve(placement, seed, LATER_SQUARINGS, few, few, penalized or self._highly_penalized)
        before = load_state(problem, placement)
        if before.overflow_bytes() > 0:
            placement, _ = improve(placement, seed, LATER_SQUARINGS, REPAIR_ROUNDS, 0)
        state = load_state(problem, placement)
        if state.overflow_bytes() > ROUNDING_BYTES:
            within_memory = repaired(
                problem, placement, self._fluid.block_values(self._relaxed.multipliers), state.step_s()
            )
            if within_memory is None:
                return None, 0.0
            placement, _ = improve(within_memory, seed, LATER_SQUARINGS)
            state = load_state(problem, placement)
        self._incumbent.offer(placement, state.step_s(), "start")
        return (placement, state.step_s()), state.step_s() / before.step_s() - 1


def _placed(overfull: Problem, relaxed: FluidSolution, choices: Ints) -> Placement | None:
    """Return options placed where bytes have a penalty instead of limits; the problem has stages beyond those of
    `relaxed`."""
    of_memory = LoadState(overfull).stage_seconds()[len(relaxed.stage_seconds) :]
    placed = place(overfull, choices, np.concatenate([relaxed.stage_seconds, of_memory]))
    return None if placed is None else placed[0]


def _with_room_for(problem: Problem, placement: Placement, tiers: Bools) -> Problem:
    """Return the problem with pools of the `tiers` [M] as large as the placement takes, where that is more."""
    free, capacities = load_state(problem, placement).free, list(problem.pool_capacity)
    for tier in np.flatnonzero(tiers).tolist():
        capacities[tier] = capacities[tier].copy()
        np.maximum.at(capacities[tier], problem.pool_of_rank[tier], _taken(problem, free, tier))
    return replace(problem, pool_capacity=tuple(capacities))


def _taken(problem: Problem, free: Floats, tier: int) -> Floats:
    """[W] bytes of each rank's pool that are taken, as `free` [M, W] are left."""
    return np.asarray(problem.pool_capacity[tier][problem.pool_of_rank[tier]] - free[tier])
