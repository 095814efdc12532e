"""A problem and the narrower ones in it, searched side by side: a wider choice must not end in a worse plan.

A *restriction* allows some of the blocks only. Its search knows fewer ways to go wrong, and what it finds is a plan of
the whole problem. It is made where it costs little, or where the relaxation says that it may be worth it, and given up
as soon as its own bound says that nothing in it is better than what is known. Restrictions are restricted in turn, as
they would be if they were the question.

It is an algorithm portfolio (Huberman, Lukose and Hogg, Science 275, 1997) whose members differ in the neighbourhood
that they may use, not in the algorithm.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.integrality import integrality_floors
from planner.problem.load_state import load_state
from planner.problem.numbers import Bools, Ints
from planner.problem.placement import Placement
from planner.solvers.bound.column_reduction import with_blocks
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.infeasible import shortage
from planner.solvers.bound.presolve import presolve
from planner.solvers.deepening import Deepening
from planner.solvers.improve.descent import descended
from planner.solvers.incumbent import OPTIMAL_GAP, Outcome, Progress, Start
from planner.solvers.limits import SearchLimits
from planner.solvers.lower_bound import Relaxation

LITTLE = 1_000
"""Tables x ranks of a problem in which every restriction that may hold a better plan is searched, also where the plan
is as near to the bound as was asked."""
FAR = 0.1
"""Gap of the first starts above which competing restrictions are asked for theirs, before those that take long: in
Neo's Model-F with every tier these are 37 % above the bound, in its cached tier alone 3 %, after as many seconds."""
NOTICEABLE = 1e-9
"""Relative amount by which a plan must be able to be better."""

WORTH_A_PASS = 1e-5
"""Share of the step by which a pass makes the best plan better, for the next one to be tried before a descent."""

_Known = dict[bytes, "Portfolio"]
"""Restrictions that were met already, by the blocks that they allow."""


class Portfolio:
    """One problem, its search, and those of its restrictions."""

    def __init__(
        self,
        problem: Problem,
        restrictions: Sequence[Bools],
        limits: SearchLimits,
        tell: Progress,
        number: Ints | None = None,
        known: _Known | None = None,
        relaxation: Relaxation | None = None,
    ) -> None:
        """`restrictions` are masks [B] of the blocks; `number` [B] is that of each in the problem that was asked. Its
        `relaxation` is of use where presolve leaves the problem as it is."""
        self._whole, self._composed = problem, presolve(problem)
        self._limits, self._tell = limits, tell
        self._number = np.arange(len(problem.block_option)) if number is None else number
        self._known: _Known = {} if known is None else known
        fluid, relaxed = relaxation or (None, None)
        if fluid is None or fluid.problem is not self._composed.problem:
            fluid, relaxed = Fluid(self._composed.problem, integrality_floors(self._composed.problem)), None
        self._missing = shortage(fluid)
        self._search = None if self._missing is not None else Deepening(fluid, limits, tell, relaxed)
        self._masks = [mask for mask in restrictions if not mask.all()]
        self._parts: dict[int, Portfolio | None] = {}
        self._level = -1
        self._earlier: list[Start] = []
        """The best placement after each pass, where it is another one than before."""
        self._settled_s = np.inf

    def run(self) -> None:
        """Search pass by pass, until there have been enough, or nothing is left to do."""
        effort = self._limits.effort
        self.advance(0)
        while (effort is None or self._level < effort) and self._may_go_on():
            self.advance(self._level + 1)
        if effort == 0 and self._search is not None:
            self._end_without_passes(self._search)
        self._known.clear()  # each of these holds it, too: their arrays would stay until Python looks for cycles

    def _end_without_passes(self, search: Deepening) -> None:
        """End a search that was asked for no pass; with one, where the starts are so far above the bound that they ask
        for it."""
        falls_short = search.asks_for_pass
        if falls_short:
            self._note_best()
            search.run_pass(1)
            self._descend()
        search.raise_bound(0)
        search.repack()
        self._descend()
        if falls_short:
            search.ruin_longer(1)
            self._descend()

    def advance(self, level: int) -> None:
        """Go on until so many passes were made."""
        search = self._search
        while search is not None and self._level < level:
            self._note_best()
            self._level += 1
            if not self._level:
                self._open()
                search.begin()
                if self._is_little:
                    self._descend()
                continue
            search.run_pass(self._level)
            self._descend()
            if self._search_parts():
                search.refine(self._level)
                self._descend()
            search.raise_bound(self._level)
            self._descend()
            search.ruin_longer(self._level)
            self._descend()

    def outcome(self) -> Outcome:
        """Return what there is now."""
        if self._search is None:
            return Outcome("infeasible", None, None, None, self._missing)
        outcome = self._search.outcome()
        ran_out = outcome.ran_out_of_time or any(
            part.outcome().ran_out_of_time for part in self._parts.values() if part
        )
        placement = None if outcome.placement is None else self._composed.postsolved(outcome.placement)
        earlier = tuple(self._composed.postsolved(each) for each, step_s in self._earlier if step_s != outcome.step_s)
        return replace(outcome, placement=placement, earlier=earlier, ran_out_of_time=ran_out)

    def _note_best(self) -> None:
        """Remember the best placement before another pass begins."""
        assert self._search is not None
        best = self._search.incumbent.best
        if best is not None and (not self._earlier or best[1] < self._earlier[-1][1]):
            self._earlier.append(best)

    def _may_go_on(self) -> bool:
        """Whether another pass may find more; the first one may in any case."""
        if self._search is None or self._level < 0:
            return self._search is not None
        if self._search.incumbent.best is None:
            return False
        if not self._search.incumbent.is_done():
            return True
        return any(part._may_go_on() for _, part in self._competing())

    def _descend(self) -> None:
        """Make the best plan a local optimum, if it is not known to be one, and nor will the next pass begin from
        it."""
        assert self._search is not None
        incumbent = self._search.incumbent
        if incumbent.best is None or incumbent.best_s == self._settled_s or incumbent.is_done() or self._is_on_its_way:
            return
        better = descended(self._search.fluid.problem, incumbent.best[0], incumbent.clock.is_over)
        incumbent.offer(*better, "descent")
        self._settled_s = incumbent.best_s

    @property
    def _is_on_its_way(self) -> bool:
        """Whether the passes of a large problem, of which only time ends them, still make the best plan better: a
        descent takes seconds there and gains less."""
        if self._search is None or self._limits.effort is not None or not self._search.is_large or not self._earlier:
            return False
        return self._search.incumbent.best_s < self._earlier[-1][1] * (1 - WORTH_A_PASS)

    # -- restrictions ------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Make the starts that cost least; those of restrictions too, where the whole's are far from the bound."""
        assert self._search is not None
        self._search.open()
        if self._is_little or self._search.incumbent.is_within(FAR):
            return
        for mask, part in self._competing():
            part._open()
            self._take(mask, part)

    def _search_parts(self) -> bool:
        """Bring the restrictions that compete as far as the whole; whether the plan of one is the best."""
        assert self._search is not None
        incumbent = self._search.incumbent
        before_s = incumbent.best_s
        for mask, part in self._competing():
            if part._level < 0:
                part._refute(before_s)
                if not self._is_promising(part._bound_s):
                    continue
            part.advance(self._level)
            self._take(mask, part)
        return incumbent.best_s < before_s

    def _take(self, mask: Bools, part: "Portfolio") -> None:
        """Offer what a restriction found as a plan of the whole."""
        assert self._search is not None
        outcome = part.outcome()
        if outcome.placement is not None:
            placement = Placement(np.flatnonzero(mask)[outcome.placement.item_block], outcome.placement.item_place)
            step_s = load_state(self._search.fluid.problem, placement).step_s()
            self._search.incumbent.offer(placement, step_s, "restricted")

    def _competing(self) -> "Iterator[tuple[Bools, Portfolio]]":
        """Yield restrictions that may hold a plan better than the best one, and are worth a search."""
        assert self._search is not None
        incumbent = self._search.incumbent
        for index, mask in enumerate(self._masks):
            if incumbent.best is None or incumbent.is_within(OPTIMAL_GAP) or incumbent.clock.is_over():
                return
            if not self._is_little and (incumbent.is_done() or self._search.relaxed_within(mask)):
                continue
            if index not in self._parts:
                if not self._is_promising(self._search.fluid.bound(self._search.relaxed.multipliers, mask)[0]):
                    continue
                self._parts[index] = self._part(mask)
            part = self._parts[index]
            if part is not None and self._is_promising(part._bound_s):
                yield mask, part

    def _part(self, mask: Bools) -> "Portfolio | None":
        """Return the portfolio of the blocks of a mask; None where it is known to hold none that fits."""
        blocks = np.flatnonzero(mask)
        key = self._number[blocks].tobytes()
        if key not in self._known:
            assert self._search is not None
            inner = [(other & mask)[blocks] for other in self._masks]
            limits = replace(self._limits.left_of(self._search.incumbent.clock), pattern_work=0.0)
            problem = with_blocks(self._whole, blocks)
            inner = [other for other in inner if _holds_every_table(problem, other)]
            self._known[key] = Portfolio(problem, inner, limits, lambda *_: None, self._number[blocks], self._known)
        part = self._known[key]
        return None if part._search is None else part

    def _refute(self, threshold_s: float) -> None:
        """Prove at once, where that is possible, that no plan is faster than the threshold."""
        if self._search is not None:
            self._search.raiser.refute(threshold_s)

    @property
    def _is_little(self) -> bool:
        return self._whole.tables * self._whole.world <= LITTLE

    @property
    def _bound_s(self) -> float:
        """The bound: no plan of the problem is faster."""
        return np.inf if self._search is None else self._search.incumbent.bound.seconds

    def _is_promising(self, bound_s: float) -> bool:
        assert self._search is not None
        return bound_s < self._search.incumbent.best_s * (1 - NOTICEABLE)


def _holds_every_table(problem: Problem, mask: Bools) -> bool:
    """Whether every table has a block in the mask [B] that some rank may hold."""
    usable = mask & problem.allowed.any(axis=0)
    return len(np.unique(problem.table_of_block[usable])) == problem.tables
