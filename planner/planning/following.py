"""A plan that follows another: what can stay stays, on terms of what may move."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from cost_models.model import CostModel
from planner.document.goals import goals_reached
from planner.document.migration import DEFAULT_PAY_BACK_STEPS, Migration, migration_from
from planner.document.origin import TimedWork
from planner.document.plan import Plan
from planner.document.planned import planned_replicas
from planner.document.traffic import moves_of
from planner.formulation.formulation import Formulation
from planner.formulation.policy import replace as replace_in
from planner.formulation.replica_choices import ReplicaChoices
from planner.planning.assembly import with_moves
from planner.planning.pipeline import Pipeline, Searched, capped, widened
from planner.planning.protocols import ROUNDS, at_lowest_protocols, at_own_protocols
from planner.planning.remedy_finder import RemedyFinder
from planner.problem.goals import USUAL_OF_MOVES, Goal
from planner.problem.relocation import IncumbentPlacement
from planner.solvers.finishing import Ends
from planner.solvers.front import MoveTerms
from planner.solvers.limits import Clock
from planner.solvers.replan import Replanned, replan
from planner.verification.loading import expect_sound, load_plan
from topologies.documents import Document


@dataclass(frozen=True)
class FormerTerms:
    """The plan that is followed, and what may move away from it."""

    previous: Plan | str | Path
    lost_nodes: tuple[int, ...] = ()
    max_move_bytes: int | None = None
    pay_back_steps: int | None = None

    def migration(self, model: CostModel) -> Migration:
        """The way from the former plan to the inputs of a model. Raises InputError where nothing can be kept."""
        return migration_from(self.former, model, self.lost_nodes, self._source)

    @cached_property
    def former(self) -> Plan:
        """The former plan. Raises InputError for one that is not sound."""
        if isinstance(self.previous, Plan):
            return expect_sound(self.previous, self._source)
        return load_plan(self.previous)

    def keep_groups(self, policy: Document) -> None:
        """Have the former plan's groups of ranks in a policy that says nothing of replicas."""
        replicas = planned_replicas(self.former)
        if replicas is not None and isinstance(policy.data, dict) and policy.data.get("replicas") is None:
            kept = ReplicaChoices.of(replicas).model_dump(mode="json")
            replace_in(policy, ("replicas",), kept, f"the groups of {self._source}")

    @property
    def _source(self) -> str:
        return "the previous plan" if isinstance(self.previous, Plan) else str(self.previous)


@dataclass(frozen=True)
class Following:
    """The search for a plan that follows another."""

    terms: FormerTerms
    migration: Migration

    def planned(
        self, pipeline: Pipeline, formulation: Formulation, remedies: RemedyFinder, ended_by_time: tuple[TimedWork, ...]
    ) -> Plan:
        """The plan document with what moves."""
        migration = self.migration
        terms, steps = self._terms(formulation.model, pipeline.policy.goals or USUAL_OF_MOVES)
        limit_bytes = self._limit_bytes(formulation.model)

        clock = Clock(pipeline.limits)

        def searched(formulation: Formulation) -> tuple[Formulation, IncumbentPlacement, Replanned]:
            formulation, known = at_lowest_protocols(formulation)
            incumbent, replanned = search(formulation, known.elsewhere_s(formulation.model.protocols))
            for _ in range(ROUNDS):
                placement = replanned.outcome.placement
                own = formulation if placement is None else at_own_protocols(formulation, placement)
                if own is formulation:
                    break
                formulation = own
                incumbent, replanned = search(own, known.elsewhere_s(own.model.protocols))
            return formulation, incumbent, replanned

        def search(formulation: Formulation, elsewhere_s: float) -> tuple[IncumbentPlacement, Replanned]:
            incumbent = migration.incumbent(formulation)
            limits = replace(pipeline.limits.left_of(clock), useful_bound_s=elsewhere_s)
            tell = capped(pipeline.progress, elsewhere_s)
            return incumbent, replan(formulation.problem, incumbent, terms, limits, tell)

        _, (formulation, incumbent, replanned) = widened(formulation, searched, lambda result: result[2].outcome.status)
        outcome = replanned.outcome
        is_memory = outcome.shortage is not None or limit_bytes is None
        final = self._told_apart(pipeline, Searched(formulation, outcome, replanned.best_step_s), incumbent)
        plan = pipeline.assembled(
            final,
            incumbent=incumbent,
            remedies=remedies.of(outcome) if is_memory else (),
            ended_by_time=ended_by_time,
        )
        least, fewest = replanned.least_bytes, replanned.found_bytes
        plan = with_moves(plan, moves_of(migration, plan.tables, least, limit_bytes, steps, fewest))
        if plan.objective is None or not final.reached:
            return plan
        return plan.model_copy(update={"goals": goals_reached(plan, final.reached)})

    def _told_apart(self, pipeline: Pipeline, searched: Searched, incumbent: IncumbentPlacement) -> Searched:
        """The plan that reaches the goals of the policy, where it names some. For the sake of others than moved bytes,
        no more bytes move than may; where each must pay for itself, than the step is worth."""
        goals, placement = pipeline.policy.goals, searched.outcome.placement
        if goals is None or placement is None:
            return pipeline.finished(searched)
        terms, _ = self._terms(searched.formulation.model, goals)
        most = math.inf if terms.limit_bytes is None else terms.limit_bytes
        if terms.seconds_per_byte > 0:
            moved_bytes = float(incumbent.moved_bytes(searched.formulation.problem, placement).sum())
            most = min(most, moved_bytes)
        ends = Ends(goals, incumbent=incumbent, most_moved=most, best_step_s=searched.best_step_s)
        return pipeline.told_apart(searched, ends)

    def _limit_bytes(self, model: CostModel) -> int | None:
        """The most that may move within a group of ranks."""
        limit_bytes = self.terms.max_move_bytes
        return limit_bytes if limit_bytes is None or model.replicas is None else limit_bytes // model.replicas.factor

    def _terms(self, model: CostModel, goals: Sequence[Goal]) -> tuple[MoveTerms, int | None]:
        """What moving costs, and the steps within which a move must pay for itself."""
        limit_bytes, steps = self._limit_bytes(model), self.terms.pay_back_steps
        if limit_bytes is None and steps is None and model.quantity == "step":
            steps = DEFAULT_PAY_BACK_STEPS
        price = 0.0 if steps is None else self.migration.seconds_per_byte() / steps
        even = goals[0].share if [goal.name for goal in goals[1:2]] == ["moved_bytes"] else 0.0
        return MoveTerms(limit_bytes, price, model.whole_step_s(0.0), even), steps
