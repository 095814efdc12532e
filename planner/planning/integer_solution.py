"""The integer programme after the search: a better plan, and what its solver says of all others.

At one protocol for each stage a placement's step is what the programme minimises. At any protocols it takes at most
that, so the programme is solved at each that may hold a better plan: at those of the search's plan first, then at
others by their bounds, each for a step that is shorter than the best so far. What the solver says of all placements is
the least of what it says, or a certificate proves, at each.
"""

import math
from dataclasses import replace
from typing import Literal, get_args

from planner.formulation.formulation import Formulation
from planner.planning.protocols import KnownBounds, at_own_protocols, moved, over_protocols
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.solvers.incumbent import OPTIMAL_GAP, Outcome, Status
from planner.solvers.integer.solving import SolverLimits, solved
from planner.solvers.integer.variables import Choices
from planner.solvers.limits import Clock, SearchLimits
from topologies.errors import InputError, shown

Solver = Literal["auto", "search", "ilp"]
"""Whether the integer programme is solved after the search: where it is small, never, or whatever its size up to what
can be built."""
MOST_VARIABLES: dict[Solver, int] = {"auto": 1_000, "search": 0, "ilp": 20_000}
"""Options, and pairs of a block and a site."""
NODES: dict[Solver, int] = {"auto": 1_000, "search": 0, "ilp": 10_000}
"""Branch nodes at all protocols together, for each pass of effort."""
IN_VAIN: dict[Solver, int | None] = {"auto": 100, "search": None, "ilp": None}
"""Branch nodes without a better plan after which the solver ends at protocols that are not those of the search's plan;
then all others are left out, too, whose certified bounds promise less."""
NEGLIGIBLE = 1e-9
"""Relative amount by which a plan must be better."""


def expect_solver(word: str) -> None:
    """Raise InputError for a word that says nothing of what follows a search."""
    if word not in get_args(Solver):
        raise InputError.at("solver", f"{shown(word)} is none of {', '.join(get_args(Solver))}")


def programme_size(formulation: Formulation) -> int:
    """Options, and pairs of a block and a site: the integer variables of the programme, groups of tables aside."""
    return Choices.of(formulation.problem).size


def expect_programme(formulation: Formulation, solver: Solver) -> None:
    """Raise InputError where an integer programme is asked for by name and too large."""
    if solver == "ilp" and (size := programme_size(formulation)) > MOST_VARIABLES["ilp"]:
        raise InputError.at(
            "solver",
            f"ilp takes at most {MOST_VARIABLES['ilp']:,} variables, and this question has {size:,}; leave it to the"
            " search, narrow the tiers and shardings, or write the model for a solver of your own (--write-model)",
        )


def with_programme(
    formulation: Formulation, outcome: Outcome, solver: Solver, limits: SearchLimits
) -> tuple[Formulation, Outcome]:
    """The outcome of a search with what the integer programme adds, where it is to be solved."""
    if solver == "search" or outcome.bound is None or outcome.status == "infeasible":
        return formulation, outcome
    outcome = over_protocols(formulation, outcome)
    if outcome.step_s is not None and outcome.step_s <= (outcome.bound_s or 0.0) * (1 + OPTIMAL_GAP):
        return formulation, outcome
    if solver == "ilp":
        expect_programme(formulation, solver)
    elif not _pays(formulation, outcome, limits):
        return formulation, outcome
    nodes = NODES[solver] * (1 if limits.effort is None else max(1, limits.effort))
    search = _ProtocolProgrammes(formulation, outcome, limits, nodes, IN_VAIN[solver])
    return search.result()


def _pays(formulation: Formulation, outcome: Outcome, limits: SearchLimits) -> bool:
    """Whether the programme is small, and the search was to find more than it did."""
    step_s, bound_s = outcome.step_s, outcome.bound_s
    if limits.effort == 0 or (step_s is not None and bound_s is not None and step_s <= bound_s * (1 + limits.gap)):
        return False
    return programme_size(formulation) <= MOST_VARIABLES["auto"]


class _ProtocolProgrammes:
    """The integer programmes of one formulation, protocol by protocol."""

    def __init__(
        self, formulation: Formulation, outcome: Outcome, limits: SearchLimits, nodes: int, in_vain: int | None
    ) -> None:
        assert outcome.bound is not None
        self._in_vain = in_vain
        self._formulation, self._outcome = formulation, outcome
        self._limits, self._clock, self._nodes = limits, Clock(limits), nodes
        self._known = KnownBounds(formulation)
        self._known.keep(formulation.model.protocols, outcome.bound)
        for each in outcome.elsewhere:
            self._known.keep(each.protocols, each.bound)
        self._best: Placement | None = outcome.placement
        self._best_s = math.inf if outcome.step_s is None else outcome.step_s
        self._ran_out = False

    def result(self) -> tuple[Formulation, Outcome]:
        """Solve at every protocol that may hold a better plan, and return the best, at its own protocols."""
        own = self._formulation.model.protocols
        others = sorted(each.protocols for each in self._outcome.elsewhere)
        word_s = min(self._word_s(each) for each in (own, *sorted(others, key=self._known.seconds)))
        formulation, outcome = self._formulation, self._outcome
        if self._best is not None and self._best is not outcome.placement:
            formulation = at_own_protocols(formulation, self._best)
            outcome = self._improved(formulation, self._best)
        word_s = min(word_s, outcome.step_s or math.inf)
        ran_out = outcome.ran_out_of_time or self._ran_out
        return formulation, replace(outcome, solver_bound_s=word_s, ran_out_of_time=ran_out)

    def _word_s(self, protocols: tuple[int, ...]) -> float:
        """What no placement takes less than at these protocols; a better one that is found there is kept."""
        certified_s = self._known.seconds(protocols)
        if certified_s * (1 + OPTIMAL_GAP) >= self._best_s or self._nodes <= 0 or self._clock.is_over():
            return certified_s
        formulation = self._formulation.at_protocols(protocols)
        is_own = protocols == self._formulation.model.protocols
        known = self._best if is_own else None
        longest_s, gap = self._best_s, max(self._limits.gap, NEGLIGIBLE)
        scale_s = certified_s if math.isinf(longest_s) else longest_s
        limits = SolverLimits(gap, self._nodes, None if is_own else self._in_vain)
        found = solved(formulation.problem, scale_s, longest_s, known, limits, self._clock)
        is_undecided = found.placement is None and found.bound_s < longest_s
        gives_up = is_undecided and limits.in_vain is not None and found.nodes >= limits.in_vain
        self._nodes = 0 if gives_up else self._nodes - max(found.nodes, 1)
        self._ran_out |= found.ran_out_of_time
        if found.placement is not None and found.step_s < self._best_s * (1 - NEGLIGIBLE):
            self._best = found.placement
            own = at_own_protocols(formulation, found.placement)
            self._best_s = min(found.step_s, load_state(own.problem, found.placement).step_s())
        return max(certified_s, found.bound_s)

    def _improved(self, formulation: Formulation, placement: Placement) -> Outcome:
        """The outcome with a better placement, at its own protocols."""
        assert self._outcome.bound is not None
        if formulation is not self._formulation:
            outcome = moved(formulation, self._outcome, placement, self._known)
            return over_protocols(formulation, replace(outcome, elsewhere=()), self._known)
        step_s = load_state(formulation.problem, placement).step_s()
        bound = replace(self._outcome.bound, seconds=min(self._outcome.bound.seconds, step_s))
        status: Status = "optimal" if step_s <= bound.seconds * (1 + OPTIMAL_GAP) else "feasible"
        return replace(self._outcome, placement=placement, step_s=step_s, bound=bound, status=status)
