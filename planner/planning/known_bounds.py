"""What is known of a formulation at each protocol of its cost model: its problem, its relaxation, its bound."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, TypeVar

from planner.certificates.exhaustive_search import ExhaustiveResult, proven_s, search_exhaustively
from planner.certificates.multipliers import Bound
from planner.formulation.formulation import Formulation
from planner.formulation.seconds_at_lines import without_sums
from planner.planning.like_bounds import multipliers_at, proven_like, tried_like
from planner.problem.integrality import integrality_floors
from planner.solvers.bound.cutting_planes import FluidSolution
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.infeasible import shortage
from planner.solvers.lower_bound import Relaxation, bound_of, relaxed_optimum

Protocols = tuple[int, ...]
"""The number of a line of each exchange of a cost model."""
ROUNDING = 1e-12
"""Relative difference of two bounds, or steps, that sums of other columns may make."""
HARDLY = 1e-3
"""Share by which bounds differ that are taken to be the same where a search begins."""
MOST_KEPT = 1 << 18
"""Seconds of block types up to which all that is made of them at each protocol is kept: 2 MiB an array."""

Made = TypeVar("Made")


class Elsewhere(NamedTuple):
    """What a search at some protocols is told of all others."""

    least_s: float
    """The least bound there: no higher one holds for all placements yet."""
    useful_s: float
    """The bound above which none is of use."""


class AtProtocols:
    """One formulation at each protocol of its cost model, and the relaxation there: made once, unless it is large."""

    def __init__(self, formulation: Formulation) -> None:
        self._formulation = formulation
        self._is_kept = formulation.problem.fixed.size <= MOST_KEPT
        self._formulations: dict[Protocols, Formulation] = {formulation.model.protocols: formulation}
        self._fluids: dict[Protocols, Fluid] = {}
        self._optima: dict[Protocols, FluidSolution] = {}

    def formulation(self, protocols: Protocols) -> Formulation:
        """Return the formulation at some protocols."""
        return self._made(self._formulations, protocols, lambda: self._formulated(protocols))

    def _formulated(self, protocols: Protocols) -> Formulation:
        beside = self._beside(protocols)
        if beside is None:
            return self._formulation.at_protocols(protocols)
        known, model = self.formulation(beside), self._formulation.model.at_protocols(protocols)
        return replace(known, model=model, problem=without_sums(known.problem, model, known.options))

    def _beside(self, protocols: Protocols) -> Protocols | None:
        """The same with sums around all ranks, where these are without and what is made there is kept: most of it is
        the same."""
        around = self._formulation.model.at_protocols(protocols).around
        return around if around is not None and self._keeps(around) else None

    def _keeps(self, protocols: Protocols) -> bool:
        """Whether what is made there is kept: of a large formulation, at its own protocols, where a search mostly
        begins."""
        return self._is_kept or protocols == self._formulation.model.protocols

    def fluid(self, protocols: Protocols) -> Fluid:
        """Return its relaxation."""
        return self._made(self._fluids, protocols, lambda: self._fluid(protocols))

    def _fluid(self, protocols: Protocols) -> Fluid:
        problem, beside = self.formulation(protocols).problem, self._beside(protocols)
        cost = None if beside is None else self.fluid(beside).cost
        return Fluid(problem, integrality_floors(problem), cost)

    def optimum(self, protocols: Protocols, fluid: Fluid) -> FluidSolution:
        """Return the optimum of that relaxation."""
        return self._made(self._optima, protocols, lambda: relaxed_optimum(fluid))

    def is_solved(self, protocols: Protocols) -> bool:
        """Whether the optimum of the relaxation is there."""
        return protocols in self._optima

    def relaxation(self, formulation: Formulation) -> Relaxation | None:
        """Return the relaxation of a formulation and its optimum, if both are there."""
        protocols = formulation.model.protocols
        if protocols not in self._optima or self._formulations.get(protocols) is not formulation:
            return None
        return self._fluids[protocols], self._optima[protocols]

    def bound(self, protocols: Protocols) -> Bound | None:
        """Return what multipliers prove there, without a search for a placement; None where nothing fits."""
        fluid = self.fluid(protocols)
        return bound_of(self.optimum(protocols, fluid)) if shortage(fluid) is None else None

    def _made(self, kept: dict[Protocols, Made], protocols: Protocols, make: Callable[[], Made]) -> Made:
        made = kept[protocols] if protocols in kept else make()
        if self._keeps(protocols):
            kept[protocols] = made
        return made


class KnownBounds:
    """Bounds at each protocol of a cost model: of one formulation, those at others proven by its multipliers."""

    def __init__(self, formulation: Formulation) -> None:
        self.at = AtProtocols(formulation)
        self._model, self._all = formulation.model, formulation.model.all_protocols
        cases = {each: formulation.model.at_protocols(each).case for each in self._all}
        self._around = [each for each in self._all if cases[each] == "around"]
        self._apart = [each for each in self._all if cases[each] == "apart"]
        self._best: dict[Protocols, Bound] = {}
        self._elsewhere: dict[Protocols, tuple[Bound, Bound | None, Bound]] = {}

    def keep(self, protocols: Protocols, bound: Bound) -> None:
        """Keep a bound if it is the highest at its protocols."""
        self._best[protocols] = max(bound, self._best.get(protocols, bound), key=lambda each: each.seconds)

    def keep_all(self, protocols: Protocols, bound: Bound) -> None:
        """Keep a bound at its protocols, and what its multipliers prove at all others."""
        self.keep(protocols, bound)
        for other in self._all:
            if other != protocols:
                self.keep(other, multipliers_at(self.at.fluid(other), bound))

    def keep_found(self, protocols: Protocols, bound: Bound) -> None:
        """Keep a search's bound at its protocols; beside sums around all ranks also what proves as much without any,
        and what does at other shares of what is prefetched."""
        self.keep(protocols, bound)
        for other in self._apart if protocols in self._around else ():
            if self.seconds(other) < bound.seconds:
                self.keep(other, proven_like(self.at.fluid(other), bound))
        for other in self._model.other_shares(protocols):
            if self.seconds(other) < bound.seconds:
                fluid = self.at.fluid(other)
                self.keep(other, tried_like(fluid, proven_like(fluid, bound), bound))

    def tried(
        self, protocols: Protocols, threshold_s: float, work: float, is_over: Callable[[], bool]
    ) -> ExhaustiveResult | None:
        """Try every plan below a threshold at some protocols, of which a bound is known, and keep what that proves.
        Return the fastest of them, if any; None where that takes more than `work` numbers."""
        best = self._best[protocols]
        problem, multipliers = self.at.fluid(protocols).problem, best.multipliers
        found = search_exhaustively(problem, threshold_s, multipliers.weight, multipliers.byte, work, is_over)
        if found is not None:
            none_below_s = min(threshold_s, found.step_s)
            self.keep(protocols, replace(best, seconds=proven_s(none_below_s), exhaustive_search_s=none_below_s))
        return found

    def made_elsewhere(self, protocols: Protocols, bound: Bound, make: Callable[[], Bound]) -> Bound:
        """Return what a bound at a placement's protocols proves at others; made anew where more is known there."""
        known = self._best.get(protocols)
        kept = self._elsewhere.get(protocols)
        if kept is None or kept[0] is not bound or kept[1] is not known:
            self._elsewhere[protocols] = kept = bound, known, make()
        return kept[2]

    def lowest(self) -> Protocols:
        """Return the protocols at which the bound is least; where it is hardly more with sums around all ranks, those,
        as what is found and proven there holds without such sums, too."""
        lowest = min(self._all, key=self.seconds)
        around = min(self._around, key=self.seconds, default=lowest)
        return around if self.seconds(around) <= self.seconds(lowest) * (1 + HARDLY) else lowest

    def seconds(self, protocols: Protocols) -> float:
        """Return the bound at some protocols; 0 where none is known."""
        return self._best[protocols].seconds if protocols in self._best else 0.0

    def elsewhere_s(self, protocols: Protocols) -> float:
        """Return the least bound at all others: no bound at these protocols above it holds for all placements."""
        return min((self.seconds(each) for each in self._all if each != protocols), default=math.inf)

    def useful_s(self, protocols: Protocols) -> float:
        """Return the bound above which none at these protocols is of use: the least of those at others that it does not
        raise, too, as one beside sums around all ranks mostly raises those without any."""
        others = self._around if protocols in self._around else self._all
        return min((self.seconds(each) for each in others if each != protocols), default=math.inf)

    def elsewhere(self, protocols: Protocols) -> Elsewhere:
        """Return what a search at these protocols is told of others."""
        return Elsewhere(self.elsewhere_s(protocols), self.useful_s(protocols))

    def above(self, protocols: Protocols, bound: Bound) -> Bound | None:
        """Return the bound that is kept of placements without sums around all ranks, if it is as high as the one that
        was found beside these."""
        kept = self._best.get(protocols) if self._around and protocols in self._apart else None
        return kept if kept is not None and kept.seconds >= bound.seconds * (1 - ROUNDING) else None

    def better(self, protocols: Protocols, bound: Bound) -> Bound:
        """Return the higher of a bound and of the one that is kept."""
        return max(bound, self._best.get(protocols, bound), key=lambda each: each.seconds)
