"""Exhaustive search of a small problem, as far as the work suffices: from the bound up, and below the best plan."""

import math
from dataclasses import replace

from planner.certificates.exhaustive_search import ExhaustiveResult, proven_s, search_exhaustively
from planner.certificates.multipliers import Multipliers
from planner.certificates.table_placements import PlacedRows
from planner.problem.arrays import Problem
from planner.solvers.incumbent import Incumbent

TRIED_WORK = 6e6
"""Numbers that trying every plan may work on with each pass, and with none: about 2e7 take a second."""
FIRST_TRIES, FIRST_WORK = (0.01, 0.03, 0.1, 0.25, 0.6, 1.5), 0.2
"""Distances from the bound below which all plans are tried before anything else, and the share of the work for each."""
LONGER_TRIES = 100
"""How much more of that where no number of passes is given and nothing was found that fits."""
TRIES, LAST_TRY = 3, 0.01
"""All plans are tried below a threshold that is higher every time: the lower, the fewer there are. It is one of so many
steps, equal in proportion, from the bound to the best plan; the best plan's own where that is as near as the latter."""

NARROWER = 0.75
"""Where that took too much work, it is tried again once a threshold is at most this much as far above the bound."""


def next_threshold_s(bound_s: float, best_s: float) -> float:
    """The next threshold below which all plans are tried, between a bound and the best step."""
    is_last = bound_s <= 0 or best_s <= bound_s * (1 + LAST_TRY)
    return best_s if is_last else bound_s * (best_s / bound_s) ** (1 / TRIES)


class ExhaustiveSearch:
    """The work that is left for trying every plan of a problem, and what of that was given up."""

    def __init__(self, problem: Problem, incumbent: Incumbent) -> None:
        self._problem, self._incumbent = problem, incumbent
        self._work = TRIED_WORK
        self._gave_up_s = math.inf
        """How far above the bound a threshold was that took too much work."""
        self._rows: PlacedRows = {}

    def renew(self, passes: int) -> None:
        """Have the work of so many passes again; with more than before, what was given up is tried again."""
        self._work = TRIED_WORK * passes
        if passes > 1:
            self._gave_up_s = math.inf

    def from_below(self) -> None:
        """Try every plan a little above the bound, where these are few; the first threshold with a plan is enough."""
        incumbent = self._incumbent
        low = incumbent.bound.seconds
        for share in FIRST_TRIES if low > 0 else ():
            threshold = low * (1 + share)
            tried = self._tried(self._problem, threshold, incumbent.bound.multipliers, FIRST_WORK)
            if tried is None:
                return
            threshold = self._noted(tried, threshold)
            incumbent.raise_to(replace(incumbent.bound, seconds=proven_s(threshold), exhaustive_search_s=threshold))
            if tried.placement is not None:
                return

    def below_best(self) -> None:
        """Try every plan below the best one, where these are few: below the bound and a little more first."""
        incumbent = self._incumbent
        while incumbent.best is not None and not incumbent.is_done() and self._work > 0:
            low = incumbent.bound.seconds
            threshold = next_threshold_s(low, incumbent.best[1])
            if threshold - low > NARROWER * self._gave_up_s:
                return
            tried = self._tried(self._problem, threshold, incumbent.bound.multipliers)
            if tried is None:
                self._gave_up_s = threshold - low
                return
            threshold = self._noted(tried, threshold)
            proven = proven_s(threshold)
            if proven <= incumbent.bound.seconds:
                return
            incumbent.raise_to(
                replace(
                    incumbent.bound,
                    seconds=proven,
                    packing=None,
                    tree=None,
                    patterns=None,
                    exhaustive_search_s=threshold,
                )
            )

    def whatever_fits(self) -> ExhaustiveResult | None:
        """Try every placement until one fits, whatever its step; None where that takes too much work."""
        return self._tried(self._problem.without_seconds(), 1.0, None)

    def _noted(self, tried: ExhaustiveResult, threshold_s: float) -> float:
        """Return the threshold below which there is no plan: that of the trial, or the step of the plan that it
        found."""
        if tried.placement is None:
            return threshold_s
        self._incumbent.offer(tried.placement, tried.step_s, "all plans tried")
        return tried.step_s

    def _tried(
        self, problem: Problem, threshold_s: float, multipliers: Multipliers | None, part: float = 1.0
    ) -> ExhaustiveResult | None:
        weight, byte = (None, None) if multipliers is None else (multipliers.weight, multipliers.byte)
        allowed = self._work * part
        known = self._rows if problem is self._problem else None
        tried = search_exhaustively(problem, threshold_s, weight, byte, allowed, self._incumbent.clock.is_over, known)
        self._work -= allowed / 2 if tried is None else tried.work
        return tried
