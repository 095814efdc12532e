"""From the formulation of a question to its plan: refine, solve, finish, assemble.

`planner plan`, re-planning, sizing, studies and imports all take this way. What one of them leaves out is a switch of
`Steps`, and the reason stands beside it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from planner.document.dense import PlannedDense, TrainedDense
from planner.document.goals import goals_reached
from planner.document.origin import TimedWork
from planner.document.plan import Plan
from planner.document.provenance import provenance
from planner.document.reasons import Remedy
from planner.document.replicas import PlannedReplicas
from planner.formulation.formulation import Formulation
from planner.formulation.options import CacheFractions, hbm_of
from planner.formulation.policy import Policy
from planner.formulation.restrictions import restrictions
from planner.planning.assembly import document
from planner.planning.cache_division import polished
from planner.planning.caches import with_own_fractions
from planner.planning.integer_solution import Solver, with_programme
from planner.planning.known_bounds import Elsewhere
from planner.planning.protocols import at_own_protocols, over_protocols, searched
from planner.planning.whole_tables import with_whole_tables
from planner.problem.goals import USUAL, USUAL_OF_STASH, Reached
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.problem.relocation import IncumbentPlacement
from planner.solvers.finishing import Ends, finished
from planner.solvers.incumbent import Outcome, Progress, Status
from planner.solvers.integer.scip import SOLVER
from planner.solvers.limits import Clock, SearchLimits
from planner.solvers.lower_bound import Relaxation
from planner.solvers.search import better, resumed, solve
from planner.solvers.seeds import FurtherSeeds
from planner.verification.proof import write_proof
from planner.verification.simulation import with_simulation

Result = TypeVar("Result")
PROGRAMME = f"integer programme ({SOLVER})"
"""What a plan says beside its search."""


@dataclass(frozen=True)
class Steps:
    """Which steps are taken; all of them in `planner plan` without a former plan."""

    proves: bool = True
    """Whether branching raises the bound once the search has ended. A study leaves it out unless it says `prove`: where
    tables are few it takes most of the time of a point, and a curve over many points needs no bound of each."""
    finishes: bool = True
    """Whether whole tables are tried, caches are divided anew and ranks are levelled after the search. A plan that
    follows another leaves it out: all three move what may stay, uncounted. So does a size that is judged: it has
    to reach its target as the search leaves it, and only the answer is written as a plan."""
    simulates: bool = True
    """Whether the step is simulated. An import leaves it out for the plan that its bound is taken from, as
    it is the imported placement that is simulated; so does whoever asks for no simulation."""


@dataclass(frozen=True)
class Searched:
    """The outcome to be written, with what it is about."""

    formulation: Formulation
    outcome: Outcome
    best_step_s: float | None = None
    """That of the best placement found, of which something may be given up; None where there is none."""
    reached: tuple[Reached, ...] = ()
    """How far the goals are reached that the policy names."""

    def placement_in(self, formulation: Formulation) -> Placement | None:
        """The placement, where the blocks of a formulation are the same."""
        return self.outcome.placement if self.formulation.options.cuts == formulation.options.cuts else None


@dataclass(frozen=True)
class Pipeline:
    """The way to a plan that keeps to a policy, within limits."""

    policy: Policy
    limits: SearchLimits
    steps: Steps = Steps()
    progress: Progress | None = None
    solver: Solver = "search"
    """Whether the integer programme is solved after the search."""
    seeds: FurtherSeeds | None = None
    """Seeds beside that of the limits, from which a search begins, too."""
    start: Searched | None = None
    """What was found from the same options under another exchange of vectors: searched from, too, where it is better
    than what a search finds."""

    def refined(
        self,
        formulation: Formulation,
        former: CacheFractions | None = None,
        has_time: Callable[[float], bool] = lambda _: True,
    ) -> Formulation:
        """The formulation with cache sizes of each table's own, those of a `former` plan among them; with a few of each
        variant where these are chosen.

        `has_time` is asked before each round whether there is time for one of so many seconds.
        """
        return with_own_fractions(formulation, former, has_time)

    def solved(self, formulation: Formulation) -> Searched:
        """The outcome of a search, over every column cut where nothing fits among fewer, and at the protocols that its
        plan takes; its bound is one at all protocols."""
        clock = Clock(self.limits)
        other = self.start or self._solved_flat(formulation)

        def search(
            formulation: Formulation, elsewhere: Elsewhere, start: Placement | None, relaxation: Relaxation | None
        ) -> Outcome:
            limits = replace(self._search_limits.left_of(clock), useful_bound_s=elsewhere.useful_s)
            tell = capped(self.progress, elsewhere.least_s)
            if start is not None:
                return resumed(formulation.problem, start, limits, tell)
            found = solve(formulation.problem, limits, tell, restrictions(formulation.options), relaxation, self.seeds)
            known = None if other is None else other.placement_in(formulation)
            if known is None or found.step_s is None or load_state(formulation.problem, known).step_s() >= found.step_s:
                return found
            return better(found, resumed(formulation.problem, known, limits.left_of(clock), tell))

        _, (formulation, outcome) = widened(
            formulation,
            lambda each: searched(each, search, self.limits.gap, clock.is_over),
            lambda result: result[1].status,
        )
        return Searched(formulation, outcome, outcome.step_s)

    def _solved_flat(self, formulation: Formulation) -> "Searched | None":
        """What a search finds for the flat exchange of vectors, in half of the time; None where it is flat."""
        flat = formulation.model.with_flat_exchange()
        if flat is None:
            return None
        half = replace(self.limits, time_limit_s=self.limits.time_limit_s / 2)
        return replace(self, limits=half, progress=None).solved(formulation.under(flat))

    @property
    def _search_limits(self) -> SearchLimits:
        return self.limits if self.steps.proves else replace(self.limits, branch_nodes=0, pattern_work=0.0)

    def finished(self, searched: Searched, longest_s: float = math.inf) -> Searched:
        """What is made of the outcome of a search; a step of at most `longest_s` stays one."""
        if not self.steps.finishes:
            return searched
        formulation, outcome = searched.formulation, searched.outcome
        whole = with_whole_tables(formulation, outcome, self._search_limits)
        if whole.step_s is None or outcome.step_s is None or whole.step_s <= max(longest_s, outcome.step_s):
            outcome = whole
        formulation, outcome = polished(formulation, outcome)
        usual = USUAL_OF_STASH if formulation.model.stashes else USUAL
        ends = Ends(self.policy.goals or usual, longest_s, gap=self.limits.gap)
        return self.told_apart(Searched(formulation, outcome), ends)

    def told_apart(self, searched: Searched, ends: Ends) -> Searched:
        """The plan that is nearly as fast and best otherwise."""
        formulation = searched.formulation
        final = finished(formulation.problem, searched.outcome, hbm_of(formulation.model), ends)
        reached = () if self.policy.goals is None else final.reached
        return Searched(formulation, final.outcome, final.best_step_s, reached)

    def planned(self, formulation: Formulation) -> Searched:
        """The outcome of a search within the limits, finished in the time that is left of them."""
        clock = Clock(self.limits)
        searched = self.solved(formulation)
        searched = replace(self, limits=self.limits.left_of(clock)).programmed(searched)
        return replace(self, limits=self.limits.left_of(clock)).finished(searched)

    def programmed(self, searched: Searched) -> Searched:
        """The outcome of a search with what the integer programme adds, where it is to be solved after it."""
        if self.progress is not None and self.solver != "search":
            self.progress("the integer programme", None, None)
        formulation, outcome = with_programme(searched.formulation, searched.outcome, self.solver, self.limits)
        return Searched(formulation, outcome, outcome.step_s)

    def assembled(
        self,
        searched: Searched,
        *,
        incumbent: IncumbentPlacement | None = None,
        remedies: tuple[Remedy, ...] = (),
        ended_by_time: tuple[TimedWork, ...] = (),
    ) -> Plan:
        """The plan document of an outcome, before a simulation; see `assembly.document`."""
        formulation, outcome = searched.formulation, over_protocols(searched.formulation, searched.outcome)
        further = 0 if self.seeds is None else self.seeds.count
        origin = provenance(formulation, self.policy, self.limits.seed, 1 + further)
        solver = origin.solver if outcome.solver_bound_s is None else f"{origin.solver}, {PROGRAMME}"
        origin = origin.model_copy(update={"ended_by_time": ended_by_time, "solver": solver})
        own = formulation if outcome.placement is None else at_own_protocols(formulation, outcome.placement)
        proof = (
            None
            if outcome.bound is None
            else write_proof(formulation.model, formulation.problem, outcome.bound, outcome.elsewhere)
        )
        plan = document(own, outcome, proof, origin, incumbent, remedies, searched.best_step_s)
        if searched.reached:
            plan = plan.model_copy(update={"goals": goals_reached(plan, searched.reached)})
        workload = own.model.workload
        is_told = self.policy.dense is not None or self.policy.checkpointing is not None
        if is_told or not TrainedDense.stated_by(workload).is_usual:
            plan = plan.model_copy(update={"dense": PlannedDense.of(workload)})
        if self.policy.replicas is None:
            return plan
        return plan.model_copy(update={"replicas": PlannedReplicas.of(own.model)})

    def simulated(self, plan: Plan) -> Plan:
        """The plan with its step simulated."""
        if not self.steps.simulates:
            return plan
        if self.progress is not None:
            self.progress("simulating the step", None, None)
        return with_simulation(plan)


def capped(progress: Progress | None, elsewhere_s: float) -> Progress:
    """The same that hears of no bound above `elsewhere_s`, the least that is proven of placements that a search leaves
    out."""

    def tell(step: str, best_s: float | None, bound_s: float | None) -> None:
        if progress is not None:
            progress(step, best_s, None if bound_s is None else min(bound_s, elsewhere_s))

    return tell


def widened(
    formulation: Formulation, search: Callable[[Formulation], Result], status: Callable[[Result], Status]
) -> tuple[Formulation, Result]:
    """What a search finds, with what it is about: every column cut, where nothing fits among fewer.

    Only then is it true that nothing fits.
    """
    result = search(formulation)
    if status(result) == "infeasible" and not formulation.has_every_cut:
        formulation = formulation.with_every_cut()
        result = search(formulation)
    return formulation, result
