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
from planner.planning.known_bounds import KnownBounds
from planner.planning.protocols import at_own_protocols, moved, over_protocols
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.solvers.bound.fixing import Narrowed
from planner.solvers.incumbent import OPTIMAL_GAP, Outcome, Status
from planner.solvers.integer.solving import Solved, SolverLimits, solved
from planner.solvers.integer.variables import Choices
from planner.solvers.limits import Clock, SearchLimits
from topologies.errors import InputError, shown

Solver = Literal["auto", "search", "ilp"]
"""Whether the integer programme is solved after the search: where it is small, never, or whatever its size up to what
can be built."""
MOST_VARIABLES: dict[Solver, int] = {"auto": 1_000, "search": 0, "ilp": 20_000}
"""Options, and pairs of a block and a site."""
MOST_LEFT, FAR = 2_000, 0.02
"""Where there are more, but no more than for `ilp`: how many may be left that better plans hold, and the gap above
which `auto` looks for these."""
VARIABLE_NODES = 500_000
"""Variables x branch nodes of these, for each pass of effort."""
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
    return Choices.size_of(formulation.problem)


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
    elif limits.effort == 0 or _is_within(outcome, limits.gap):
        return formulation, outcome
    is_large = solver == "auto" and (size := programme_size(formulation)) > MOST_VARIABLES["auto"]
    if is_large and (size > MOST_VARIABLES["ilp"] or outcome.step_s is None or _is_within(outcome, FAR)):
        return formulation, outcome
    nodes = NODES[solver] * (1 if limits.effort is None else max(1, limits.effort))
    in_vain = IN_VAIN[solver]
    search = _ProtocolProgrammes(formulation, outcome, limits, nodes, in_vain, narrows=is_large)
    return (formulation, outcome) if is_large and not search.is_small else search.result()


def _is_within(outcome: Outcome, gap: float) -> bool:
    """Whether the search found a plan that is so near to its bound."""
    step_s, bound_s = outcome.step_s, outcome.bound_s
    return step_s is not None and bound_s is not None and step_s <= bound_s * (1 + gap)


class _ProtocolProgrammes:
    """The integer programmes of one formulation, protocol by protocol."""

    def __init__(
        self,
        formulation: Formulation,
        outcome: Outcome,
        limits: SearchLimits,
        nodes: int,
        in_vain: int | None,
        *,
        narrows: bool,
    ) -> None:
        """Where it `narrows`, programmes are those of the blocks that better plans may hold."""
        assert outcome.bound is not None
        self._in_vain, self._narrows = in_vain, narrows
        self._formulation, self._outcome = formulation, outcome
        self._limits, self._clock, self._nodes = limits, Clock(limits), nodes
        self._known = KnownBounds(formulation)
        self._known.keep(formulation.model.protocols, outcome.bound)
        for each in outcome.elsewhere:
            self._known.keep(each.protocols, each.bound)
        self._best: Placement | None = outcome.placement
        self._best_s = math.inf if outcome.step_s is None else outcome.step_s
        self._ran_out = False

    @property
    def is_small(self) -> bool:
        """Whether few variables are left where the plan is."""
        protocols = self._formulation.model.protocols
        return Choices.size_of(self._narrowed(protocols).problem) <= MOST_LEFT

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
        is_own = protocols == self._formulation.model.protocols
        near = OPTIMAL_GAP if is_own or self._in_vain is None else max(OPTIMAL_GAP, self._limits.gap)
        if certified_s * (1 + near) >= self._best_s or self._nodes <= 0 or self._clock.is_over():
            return certified_s
        formulation = self._formulation.at_protocols(protocols)
        found = self._solved(formulation, certified_s)
        if found is None:
            return certified_s
        in_vain = None if is_own else self._in_vain
        is_undecided = found.placement is None and found.bound_s < self._best_s
        gives_up = is_undecided and in_vain is not None and found.nodes >= in_vain
        self._nodes = 0 if gives_up else self._nodes - max(found.nodes, 1)
        self._ran_out |= found.ran_out_of_time
        if found.placement is not None and found.step_s < self._best_s * (1 - NEGLIGIBLE):
            self._best = found.placement
            own = at_own_protocols(formulation, found.placement)
            self._best_s = min(found.step_s, load_state(own.problem, found.placement).step_s())
        return max(certified_s, found.bound_s)

    def _solved(self, formulation: Formulation, certified_s: float) -> Solved | None:
        """What the solver finds at the protocols of a formulation; None where many variables are left."""
        protocols = formulation.model.protocols
        is_own = protocols == self._formulation.model.protocols
        known, in_vain = (self._best, None) if is_own else (None, self._in_vain)
        longest_s, gap = self._best_s, max(self._limits.gap, NEGLIGIBLE)
        scale_s = certified_s if math.isinf(longest_s) else longest_s
        if not self._narrows:
            limits = SolverLimits(gap, self._nodes, in_vain, cuts=self._in_vain is None)
            return solved(formulation.problem, scale_s, longest_s, known, limits, self._clock)
        narrowed = self._narrowed(protocols)
        if (size := Choices.size_of(narrowed.problem)) > MOST_LEFT:
            return None
        nodes = min(self._nodes, VARIABLE_NODES * max(1, self._limits.effort or 1) // max(size, 1))
        inside = None if known is None else narrowed.inside(known)
        limits = SolverLimits(gap, nodes, in_vain)
        found = solved(narrowed.problem, scale_s, longest_s, inside, limits, self._clock)
        return replace(found, placement=None if found.placement is None else narrowed.outside(found.placement))

    def _narrowed(self, protocols: tuple[int, ...]) -> Narrowed:
        """The blocks that a better plan may hold at some protocols."""
        fluid = self._known.at.fluid(protocols)
        known = self._best if protocols == self._formulation.model.protocols else None
        return Narrowed.of(fluid, self._known.at.optimum(protocols, fluid).multipliers, self._best_s, known)

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
