"""A tighter bound for very many block types: cases of one stage's time, solved over options that may be cheapest.

The fluid optimum holds parts of tables in options of which one block alone outlasts a stage: of a cache over host
memory, for example, whose misses load one node's link for three times as long as all tables together load each. A plan
holds the whole block or none of it. Where its stage is shorter than the block, that is barred; where it is longer, the
stage lasts as long. With times between, at which either costs about as much, neither is cheap (Land & Doig,
Econometrica 28, 1960). Fewer times are tried than by `stage_cases`, over few options (columns that price out are added:
Gilmore & Gomory, Oper. Res. 9, 1961), and what is proven is priced over all blocks in the end.
"""

from dataclasses import dataclass, replace

import numpy as np

from planner.certificates.multipliers import Bound, Cases, Multipliers
from planner.problem.case_divisions import StageDivision
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.rounding import ROUNDING
from planner.solvers.bound.column_reduction import ReducedProblem, with_options
from planner.solvers.bound.cutting_planes import FluidSolution, solve_relaxation
from planner.solvers.bound.fluid import Fluid

TRIED = (1.1, 1.3)
"""Multiples of the fluid optimum's time of a stage at which both cases are solved: from these follows where either
proves as much."""
LEAST, MOST = 1.02, 2.0
"""What follows is at least and at most such a multiple."""
BELOW, ABOVE = 0.5, 1.28
"""Where three cases are divided, as parts of the way from the optimum's time to there."""
LOOKED_AT = (
    (1.0, 1.0, np.inf),
    (1.0, 1.0, 1.35),
    (1.0, 1.0, 1.1),
    (1.0, 1.0, 1.0),
    (1.0, 1.5, 1.1),
    (0.5, 1.0, np.inf),
    (0.0, 1.0, np.inf),
)
"""Options that cost little more than the cheapest one are looked at first: with so much of the stage's weight, so much
of the bytes' multipliers, and blocks up to such a multiple of its time."""
LITTLE_MORE = 1.02
"""What an option costs at most that is looked at, as a multiple of the cheapest one of its table."""
ROUNDS, LOST = 3, 2e-5
"""How often options are added that are cheaper than all that were looked at; and the share of the bound that they must
cost a case."""
WORTHWHILE = 1e-4
"""Share by which the bound must rise."""
MORE, HALVINGS, WORTH_DIVIDING = 5, 4, 1e-6
"""How often the weakest case is divided once more, where both parts prove as much after so many halvings; and by what
share they must prove more."""
FURTHEST = 3.0
"""Multiple of the optimum's time, or of that from which it is, up to which a case without an end is divided."""


@dataclass(frozen=True)
class _Span:
    """Plans whose stage lasts at least `floor_s` and less than `roof_s`, constant aside."""

    floor_s: float
    roof_s: float


@dataclass(frozen=True)
class _Case:
    """Plans of a span, and what is proven of them."""

    span: _Span
    bound: Bound


@dataclass(frozen=True)
class _Proven:
    """What is proven of a case."""

    bound: Bound
    lost_s: float
    """Seconds by which options that were not looked at are cheaper."""
    cheaper: Ints
    """Those options."""


class TimeCases:
    """What cases of a stage's time, three at first, prove of a problem whose ranks are of one kind."""

    def __init__(self, fluid: Fluid, relaxed: FluidSolution) -> None:
        self._fluid, self._problem = fluid, fluid.problem
        self._stage, self._time_s = _outlasted(fluid, relaxed)
        """The stage that is divided, and the optimum's time of it, constant aside; 0 where no block outlasts any."""
        self._cases: list[_Case] = []
        """The cases that are proven, those of shorter times first."""
        if self._time_s:
            self._peaks = self._problem.extremes.peaks_in_stage(self._stage)
            self._kept = self._looked_at(relaxed.multipliers)
            self._narrow()

    def raised(self, known: Bound) -> Bound:
        """Return what the cases prove, where it is more than what is known by as much as is worth it; else that."""
        if not self._time_s:
            return known
        for _ in range(ROUNDS):
            way_s = self._way_s()
            low_s, high_s = self._time_s + BELOW * way_s, self._time_s + ABOVE * way_s
            spans = _Span(0.0, low_s), _Span(low_s, high_s), _Span(high_s, np.inf)
            proven = [self._proven(span) for span in spans]
            if max(each.lost_s for each in proven) <= LOST * known.seconds:
                break
            self._kept[np.concatenate([each.cheaper for each in proven])] = True
            self._narrow()
        self._cases = [_Case(span, each.bound) for span, each in zip(spans, proven, strict=True)]
        return self._bound(known)

    def divided_more(self, known: Bound) -> Bound:
        """Return what more cases prove, once three are known: the weakest one is divided, again and again, as long as
        both parts prove more; what is known where they do not prove noticeably more."""
        for _ in range(MORE if self._cases else 0):
            number = min(range(len(self._cases)), key=lambda number: self._cases[number].bound.seconds)
            whole = self._cases[number]
            at_s = self._middle_s(whole.span)
            spans = _Span(whole.span.floor_s, at_s), _Span(at_s, whole.span.roof_s)
            parts = [
                _Case(span, max(self._proven(span).bound, whole.bound, key=lambda each: each.seconds)) for span in spans
            ]
            if min(part.bound.seconds for part in parts) <= whole.bound.seconds * (1 + WORTH_DIVIDING):
                break
            self._cases[number : number + 1] = parts
        return self._bound(known, WORTH_DIVIDING)

    def _middle_s(self, span: _Span) -> float:
        """Return the time at which the two parts of a span prove about as much."""
        low_s = max(span.floor_s, self._time_s)
        high_s = min(span.roof_s, FURTHEST * low_s)
        for _ in range(HALVINGS):
            middle_s = (low_s + high_s) / 2
            below, above = _Span(span.floor_s, middle_s), _Span(middle_s, span.roof_s)
            if self._solved(below).bound_s > self._solved(above).bound_s:
                low_s = middle_s
            else:
                high_s = middle_s
        return (low_s + high_s) / 2

    def _bound(self, known: Bound, worthwhile: float = WORTHWHILE) -> Bound:
        """Return what all cases prove, where it is more than what is known by as much as is worth it; else that."""
        if not self._cases:
            return known
        below = self._cases[0].bound
        for case in self._cases[1:]:
            cases = Cases(StageDivision(self._stage, case.span.floor_s), below, case.bound)
            below = Bound(min(below.seconds, case.bound.seconds), known.multipliers, None, cases=cases)
        if below.seconds < known.seconds * (1 + worthwhile):
            return known
        return replace(known, seconds=below.seconds, cases=below.cases)

    def _looked_at(self, multipliers: Multipliers) -> Bools:
        """Return which options [O] are looked at first."""
        kept, first = np.zeros(len(self._problem.option_table), dtype=bool), self._problem.block_start[:-1]
        of_stage = self._problem.stage_of_column == self._stage
        for share, bytes_share, times in LOOKED_AT:
            weight = np.where(of_stage, share * multipliers.weight, multipliers.weight)
            at = Multipliers(weight, bytes_share * multipliers.byte, multipliers.of_table)
            usable = None if np.isinf(times) else self._is_shorter(times * self._time_s)
            value = self._fluid.choice_values(at, usable)
            value = np.minimum.reduceat(value, first)
            cheapest = np.minimum.reduceat(value, self._problem.option_start[:-1])
            kept |= value <= LITTLE_MORE * cheapest[self._problem.option_table]
        return kept

    def _narrow(self) -> None:
        """Let the options that are kept be all there are."""
        self._narrowed: ReducedProblem = with_options(self._problem, self._kept)
        self._inner = Fluid(self._narrowed.problem, self._fluid.floors)

    def _way_s(self) -> float:
        """Return how far above the fluid optimum's time both of two cases prove as much, about: what either proves
        changes little more than linearly between."""
        more = []
        for times in TRIED:
            at_s = times * self._time_s
            below, above = (self._solved(span).bound_s for span in (_Span(0.0, at_s), _Span(at_s, np.inf)))
            more.append(below - above)
        fall = more[0] - more[1]
        at = MOST if more[0] > 0 else LEAST
        if 0 < fall < np.inf:
            at = TRIED[0] + more[0] / fall * (TRIED[1] - TRIED[0])
        return (min(max(at, LEAST), MOST) - 1) * self._time_s

    def _solved(self, span: _Span) -> FluidSolution:
        """Return the optimum of a case over the options that are kept."""
        usable = self._is_shorter(span.roof_s)[self._narrowed.blocks]
        return solve_relaxation(self._inner, usable=usable, floors=self._floors(span))

    def _proven(self, span: _Span) -> _Proven:
        """Return what the optimum of a case proves of all blocks."""
        narrowed, usable = self._narrowed, self._is_shorter(span.roof_s)
        inside, multipliers = self._solved(span).multipliers, self._fluid.no_multipliers()
        multipliers.weight[:, narrowed.columns], multipliers.byte[:, narrowed.tiers] = inside.weight, inside.byte
        value_s, choices = self._fluid.price(multipliers, usable)
        if np.isinf(value_s).any():
            return _Proven(Bound(np.inf, self._fluid.no_multipliers(), None), 0.0, np.zeros(0, dtype=np.int64))
        inner_s, _ = self._inner.price(inside, usable[narrowed.blocks])
        cheaper = choices[value_s < inner_s]
        seconds = self._fluid.total(multipliers, float(value_s.sum()), floors=self._floors(span))
        bound = Bound(seconds, multipliers, None)
        return _Proven(bound, float((inner_s - value_s).sum()), self._problem.block_option[cheaper])

    def _is_shorter(self, roof_s: float) -> Bools:
        """Return which blocks [B] a plan may hold whose stage is shorter."""
        return np.asarray(self._peaks * (1 - ROUNDING) < roof_s)

    def _floors(self, span: _Span) -> Floats:
        floors = self._fluid.floors.copy()
        floors[self._stage] = max(floors[self._stage], span.floor_s)
        return floors


def _outlasted(fluid: Fluid, relaxed: FluidSolution) -> tuple[int, float]:
    """Return the stage that blocks of the fluid optimum alone outlast most, all together, and its time there; the time
    is 0 where none do."""
    time_s = np.maximum(relaxed.stage_seconds - fluid.problem.stage_constants, 0.0)
    beyond = np.zeros(len(time_s))
    for choices, share in zip(relaxed.choices, relaxed.shares.tolist(), strict=True):
        beyond += share * np.maximum(fluid.peaks_of(choices) - TRIED[0] * time_s, 0.0).sum(axis=0)
    stage = int(beyond.argmax())
    return stage, float(time_s[stage]) if beyond[stage] > 0 else 0.0
