"""Passes over a placement: local search, then, where the problem is not too large, ruin and recreate, recuts and
repacking.

An iterated local search (Lourenço, Martin and Stützle, in: Handbook of Metaheuristics, 2003) whose perturbation is ruin
and recreate.
"""

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from planner.problem.load_state import load_state
from planner.problem.numbers import Bools, Ints
from planner.problem.placement import Placement
from planner.solvers.bound.cutting_planes import FluidSolution
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.threshold import step_of_block
from planner.solvers.improve.local_search import (
    LATER_SQUARINGS,
    SQUARINGS,
    TRIAL_ROUNDS,
    LocalSearch,
    only_sites_move,
)
from planner.solvers.improve.reach import Reach
from planner.solvers.improve.repacking import Repacking
from planner.solvers.improve.ruin_and_recreate import (
    COOLING,
    HOT_COOLING,
    TEMPERATURES,
    Ruin,
    is_hot,
    may_ruin,
    ruin_steps,
    temperature_of,
)
from planner.solvers.improve.target import target_seconds
from planner.solvers.improve.wide import WideBlocks
from planner.solvers.incumbent import Incumbent, Start

FINALISTS = 3
"""Starts, the best of the portfolio, that local search works on; one where it has no more than these."""
FAR = 0.1
"""Share of the step by which a start may be longer than what another one comes to, and still be tried."""
RECUTS, BEST_RECUTS = 6, 3
"""Ways to cut a table over nodes anew that are tried, the most promising ones: of a start with a little local search,
and of each best plan with all of it."""
RECUTS_IN_VAIN, HOPELESS = 2, 0.005
"""Recuts of a start in a row that gain nothing, after which no others are tried; and the share of the step by which a
recut of the best plan ends above it where those that promise less are left out."""
FEW, MORE_STEPS = 12, 200
"""Tables up to which so many more steps of ruin and recreate follow the first pass: five for each table are few."""
MENDING_STEPS = 300
"""Steps of ruin and recreate from a placement that is nearly one of a step in view."""
BUILD_TABLES = 200
"""Tables up to which problems that tables go in and out of are also built up from nothing."""
BUILD_MARGINS = (1.01, 1.03)
"""The targets of these, over the bound."""
WORTH_BALANCING = 1e-4
"""A state that ruin and recreate ends in is balanced, too, where evenly loaded it would be faster by this share."""


class Passes:
    """Makes placements of one problem better, pass by pass, and tells the incumbent."""

    def __init__(
        self, fluid: Fluid, relaxed: FluidSolution, incumbent: Incumbent, local: LocalSearch, seed: int
    ) -> None:
        self._fluid, self._relaxed, self._incumbent, self._local = fluid, relaxed, incumbent, local
        self._seed = seed
        self._may_ruin = may_ruin(fluid.problem)
        self._is_tried = False
        """Whether starts come from a little local search already."""
        self._stuck_s = np.inf
        """Step of a plan that more load balancing does not help."""
        self._recut_s = np.inf
        """Step of a plan whose recuts were tried."""
        self._packed_s = np.inf
        """Step of a plan that was packed anew in vain, or came of that."""

    def run(self, queue: list[Start], number: int) -> None:
        """Run the pass of that number: from the first of the starts in the queue, or else from the best plan; then cut
        tables of the best plan over nodes anew, as long as that makes it better, and pack all of them anew."""
        assert self._incumbent.best is not None
        from_start = bool(queue)
        start = queue.pop(0) if queue else self._incumbent.best
        if from_start or not self._balanced_more(number):
            self._pass(start, number, SQUARINGS if from_start and not self._is_tried else LATER_SQUARINGS)
        if from_start and self._swaps_on_sites and not self._incumbent.is_done():
            self._pass(self._incumbent.best, number, LATER_SQUARINGS)
        self._recut_while_better(number)
        if self._may_ruin and self.repack():
            self._local.improve(self._incumbent.best[0], self._seed + number, LATER_SQUARINGS)

    def ruin_longer(self, number: int) -> None:
        """Take the few tables of a small problem out and put them back more often than the first pass, of that number,
        does, from the best plan."""
        if self._incumbent.best is not None and not number and self._fluid.problem.tables <= FEW:
            self._ruin_from(self._incumbent.best, number, MORE_STEPS)
            self._recut_while_better(number)

    def _recut_while_better(self, number: int) -> None:
        """Cut one table of the best plan over nodes anew, as long as that makes it better."""
        while self._may_ruin and self._recut_best(self._seed + number):
            pass

    def repack(self) -> bool:
        """Pack the tables of the best plan over nodes anew, in other options (`Repacking`); return whether that made it
        better."""
        incumbent, problem = self._incumbent, self._fluid.problem
        if incumbent.best is None or incumbent.is_done() or incumbent.best_s == self._packed_s:
            return False
        placement, before_s = incumbent.best
        cost, stage_s = (
            self._fluid.block_values(self._relaxed.multipliers),
            load_state(problem, placement).stage_seconds(),
        )
        for options in self._options_to_pack(placement.option_of_table(problem)):
            repacking = Repacking(problem, options)
            if repacking.is_possible:
                for packed, step_s in repacking.plans(stage_s, incumbent.bound.seconds, cost):
                    incumbent.offer(packed, step_s, "repacking")
            if incumbent.is_done() or incumbent.best_s < before_s:
                break
        self._packed_s = incumbent.best_s
        return incumbent.best_s < before_s

    def _options_to_pack(self, own: Ints) -> Iterator[Ints]:
        """Yield the options [T] of a plan; then the same, but those of the relaxation where it has a table on all ranks
        that the plan has over nodes, or the other way round."""
        problem, relaxed = self._fluid.problem, self._relaxed
        yield own
        share = np.zeros(len(problem.option_table))
        np.add.at(share, problem.block_option[relaxed.choices], relaxed.shares[:, None])
        best = share == np.maximum.reduceat(share, problem.option_start[:-1])[problem.option_table]
        other = np.flatnonzero(best)[np.searchsorted(problem.option_table[best], np.arange(problem.tables))]
        on_rank, wide = (flags[problem.block_start[:-1]] for flags in (problem.is_on_rank, problem.is_world_wide))
        differs = ~on_rank[other] & (wide[other] != wide[own])
        if differs.any():
            yield np.where(differs, other, own)

    def finalists(self, starts: list[Start], most_starts: int) -> list[Start]:
        """Return of the starts, the best first, what the best come to after a little local search, where there may be
        `most_starts`: what they cost before says little."""
        if most_starts <= FINALISTS or len(starts) < 2 or self._incumbent.is_done():
            return starts[:1]
        self._is_tried = True
        improved: list[Start] = []
        for placement, step_s in starts:
            if not improved or step_s <= (1 + FAR) * min(start[1] for start in improved):
                improved.append(self._tried(placement, self._seed))
        improved.sort(key=lambda start: start[1])
        return [*self._recut(improved[0]), *improved][:FINALISTS]

    def _recut(self, start: Start) -> list[Start]:
        """Return what a little local search makes of the start with one table over nodes cut anew, if that is
        better."""
        reduced, best, in_vain = self._local.reduced, start, 0
        for recut in self._reach.recuts(reduced.inside(start[0]))[:RECUTS]:
            if recut.reach_s >= best[1] or in_vain == RECUTS_IN_VAIN or self._incumbent.is_done():
                break
            tried = self._tried(reduced.outside(recut.placement), self._seed)
            best, in_vain = (tried, 0) if tried[1] < best[1] else (best, in_vain + 1)
        return [] if best is start else [best]

    def _recut_best(self, seed: int) -> bool:
        """Cut one table of the best plan over nodes anew and search locally; return whether that made it better."""
        incumbent, reduced = self._incumbent, self._local.reduced
        assert incumbent.best is not None
        placement, step_s = incumbent.best
        if step_s == self._recut_s:
            return False
        self._recut_s = step_s
        for recut in self._reach.recuts(reduced.inside(placement))[:BEST_RECUTS]:
            if recut.reach_s >= step_s or incumbent.is_done():
                return False
            _, recut_s = self._local.improve(reduced.outside(recut.placement), seed, LATER_SQUARINGS)
            if incumbent.best_s < step_s:
                return True
            if recut_s > step_s * (1 + HOPELESS):
                break
        return False

    def _tried(self, placement: Placement, seed: int) -> Start:
        """Return what a little local search makes of a placement."""
        return self._local.improve(placement, seed, LATER_SQUARINGS, TRIAL_ROUNDS, 0)

    def built(self) -> list[Start]:
        """Return placements of small problems built up table by table for targets a little above the bound; those that
        fit."""
        problem, incumbent, starts = self._fluid.problem, self._incumbent, []
        if not self._may_ruin or problem.tables > BUILD_TABLES or problem.is_confined:
            return []
        for number, margin in enumerate(BUILD_MARGINS):
            if incumbent.is_done():
                break
            ruin = self._ruin(incumbent.bound.seconds * margin, self._seed + number)
            ruin.build()
            placement = ruin.best()
            if placement is not None:
                starts.append((placement, ruin.best_s))
                incumbent.offer(placement, ruin.best_s, "start")
        return starts

    def _balanced_more(self, number: int) -> bool:
        """Balance the best plan of a large problem once more; return whether that made it noticeably better."""
        incumbent = self._incumbent
        assert incumbent.best is not None
        placement, step_s = incumbent.best
        if self._may_ruin or self._stuck_s == step_s or self._swaps_on_sites:
            return False
        self._local.improve(placement, self._seed + number, ())
        if incumbent.best_s < step_s * (1 - WORTH_BALANCING):
            return True
        self._stuck_s = incumbent.best_s
        return incumbent.is_done()

    @property
    def _swaps_on_sites(self) -> bool:
        """Whether groups of ranks swap blocks of the best plan of a large problem, and nothing else moves: options then
        follow the prices beside that plan."""
        best = self._incumbent.best
        return self._local.is_large and best is not None and only_sites_move(self._fluid.problem, best[0])

    def _pass(self, start: Start, number: int, squarings: tuple[int, ...]) -> None:
        """Move blocks; then, if the problem is not too large, ruin and recreate, and move blocks once more."""
        found = self._local.improve(start[0], self._seed + number, squarings)
        self._ruin_from(found, number, ruin_steps(self._fluid.problem, number))

    def _ruin_from(self, start: Start, number: int, steps: int) -> None:
        """Ruin and recreate so many times, if the problem is not too large, and search locally from there."""
        incumbent, problem = self._incumbent, self._fluid.problem
        if not self._may_ruin or incumbent.is_done():
            return
        placement, step_s = start
        ruin = self._ruin(step_s, self._seed + number)
        ruin.start_from(placement)
        cooling = HOT_COOLING if is_hot(problem, number) else COOLING
        ruin.run(steps, temperature_of(problem, number), incumbent.clock.is_over, cooling)
        self._search_from(ruin, step_s, self._seed + number)

    def mend(self, placement: Placement, target_s: float, number: int) -> None:
        """Put in the tables that a placement leaves out, and take a few out and put them back to come below a step of
        its own: it is near to that, but for some ranks; then search locally, if that is better than all others."""
        if not self._may_ruin or self._incumbent.is_done():
            return
        seed = self._seed + number
        ruin = self._ruin(target_s, seed)
        ruin.start_from(placement)
        ruin.build()
        ruin.run(MENDING_STEPS, TEMPERATURES[0], self._incumbent.clock.is_over, HOT_COOLING)
        self._search_from(ruin, self._incumbent.best_s, seed)

    def _search_from(self, ruin: Ruin, step_s: float, seed: int) -> None:
        """Offer the best state of ruin and recreate if it is faster than `step_s`, and search locally from there, and
        from the one of the least value."""
        incumbent, promising = self._incumbent, []
        best, cheapest = ruin.best(), ruin.promising()
        if best is not None and ruin.best_s < step_s:
            incumbent.offer(best, ruin.best_s, "ruin and recreate")
            promising.append(best)
        if cheapest is not None and cheapest[1] < min(ruin.best_s, step_s) * (1 - WORTH_BALANCING):
            promising.append(cheapest[0])
        for each in promising:
            if incumbent.is_done():
                break
            tried = self._tried(each, seed)
            if tried[1] < step_s:
                self._local.improve(tried[0], seed, LATER_SQUARINGS)

    def _ruin(self, target_s: float, seed: int) -> Ruin:
        """Return ruin and recreate for a step below the target: no block that alone makes the step longer is used."""
        reduced = self._local.reduced
        usable = step_of_block(self._fluid, self._relaxed.multipliers) < target_s
        usable &= self._improving_choices(target_s)
        seconds = target_seconds(self._fluid, self._relaxed, target_s)
        multipliers = reduced.multipliers(self._incumbent.bound.multipliers)
        return Ruin(reduced.problem, multipliers, usable, seconds, seed, wide=self._wide)

    @cached_property
    def _reach(self) -> Reach:
        return Reach(self._local.reduced.problem, self._wide)

    @cached_property
    def _wide(self) -> WideBlocks:
        return WideBlocks(self._local.reduced.problem)

    def _improving_choices(self, step_s: float) -> Bools:
        """Return which choices [B] a plan faster than `step_s` may hold: their value by the fluid bound's duals says
        so.

        A plan costs at least the bound plus what each of its options costs above its table's cheapest one.
        """
        problem, slack = self._fluid.problem, step_s - self._relaxed.bound_s
        value = self._fluid.choice_values(self._relaxed.multipliers)
        cheapest, _ = self._fluid.price(self._relaxed.multipliers)
        return np.asarray(value <= cheapest[problem.option_table[problem.block_option]] + slack)
