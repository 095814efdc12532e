"""Local search on the longest steps of many scenarios (sample average approximation of the conditional value at risk:
Kleywegt, Shapiro & Homem-de-Mello 2002; Rockafellar & Uryasev 2000).

All candidates are judged by the same scenarios (common random numbers), so that differences between placements are not
noise of the draws. The mean of the longest steps, and not the quantile at which they begin, is lowered: it rests on
more scenarios, and what it gains is there in others, too. First-improvement descent: a block on a rank that binds some
stage moves, or changes places with another, where that gains most; the memory is that of the profiles' means.
"""

from collections.abc import Callable

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.numbers import Ints
from planner.problem.placement import Placement
from planner.problem.scenario_loads import ScenarioLoads
from planner.solvers.improve.changes import Changeable, PlacementChange

MOST_WORK = 2e9
"""Numbers that are looked at, at most: 10 to 20 s of a core."""
GAIN = 1e-6
"""Share of the longest steps below which a change is none."""
AT_ONCE = 4_000_000
"""Numbers of an array of swaps, at most: 32 MB."""
MOST_PARTNERS = 256
"""Blocks that one is exchanged with, at most: those whose loads are nearest to its own."""


def descended(
    problem: Problem, placement: Placement, loads: ScenarioLoads, is_over: Callable[[], bool] = lambda: False
) -> Placement:
    """Return a placement whose longest steps no move and no swap shortens on the mean, unless the work limit or
    `is_over` ended it first; `loads` are those of the placement."""
    descent = _Descent(problem, placement, loads, is_over)
    descent.run()
    return descent.now.placement()


class _Descent:
    def __init__(
        self, problem: Problem, placement: Placement, loads: ScenarioLoads, is_over: Callable[[], bool]
    ) -> None:
        self.now = Changeable(problem, placement)
        self._problem, self._loads, self._is_over, self._work = problem, loads, is_over, 0.0
        self._best_s = loads.tail_s()
        self._weight = problem.whole_load.sum(axis=(0, 2))

    def run(self) -> None:
        """Improve until a whole round, over the blocks of ranks that bind, the heaviest first, gains nothing."""
        gained = True
        while gained:
            gained = False
            movable = np.flatnonzero(self.now.may_move)
            movable = movable[self._loads.binding()[self.now.place[movable]]]
            order = movable[np.argsort(-self._weight[self.now.block[movable]], kind="stable")]
            where = list(zip(self.now.block[order].tolist(), self.now.place[order].tolist(), strict=True))
            for block, rank in where:
                if self._work > MOST_WORK or self._is_over():
                    return
                held = np.flatnonzero((self.now.block == block) & (self.now.place == rank) & self.now.may_move)
                if len(held):
                    gained |= self._moved(int(held[0])) or self._swapped(int(held[0]))

    def _moved(self, item: int) -> bool:
        """Move an item where that gains most."""
        now, block, rank = self.now, int(self.now.block[item]), int(self.now.place[item])
        fits = np.isfinite(now.offers(now.without([item]), [item], block).step_s)
        fits[rank] = False
        self._work += self._loads.load.size
        if not fits.any():
            return False
        values = np.where(fits, self._loads.after_moves(block, rank), np.inf)
        to = int(values.argmin())
        if values[to] > self._best_s * (1 - GAIN):
            return False
        now.make(PlacementChange(now.step_s, (item,), ((block, to),)))
        self._loads.move(block, rank, to)
        self._best_s = self._loads.tail_s()
        return True

    def _swapped(self, item: int) -> bool:
        """Exchange an item with the one whose place gains most."""
        now, block, rank = self.now, int(self.now.block[item]), int(self.now.place[item])
        others, step_s = now.swaps(item, self._partners(item))
        others = others[np.isfinite(step_s)]
        per_rank = self._loads.load.size // self._problem.world
        best: tuple[float, int] | None = None
        for some in np.array_split(others, max(len(others) * per_rank // AT_ONCE, 1)):
            if not len(some):
                continue
            values = self._loads.after_swaps(block, rank, now.block[some], now.place[some])
            self._work += self._loads.load.size + values.size * per_rank
            first = int(values.argmin())
            if best is None or values[first] < best[0]:
                best = float(values[first]), int(some[first])
        if best is None or best[0] > self._best_s * (1 - GAIN):
            return False
        other, there = int(now.block[best[1]]), int(now.place[best[1]])
        now.make(now.swap(item, best[1], now.step_s))
        self._loads.move(block, rank, there)
        self._loads.move(other, there, rank)
        self._best_s = self._loads.tail_s()
        return True

    def _partners(self, item: int) -> Ints:
        """Return the items of other blocks that may move, those of the most similar weight."""
        now = self.now
        partners = np.flatnonzero(now.may_move & (now.block != now.block[item]))
        if len(partners) <= MOST_PARTNERS:
            return partners
        apart = np.abs(self._weight[now.block[partners]] - self._weight[now.block[item]])
        return np.sort(partners[np.argsort(apart, kind="stable")[:MOST_PARTNERS]])
