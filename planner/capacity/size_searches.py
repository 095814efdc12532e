"""Searches that judge one size of a cluster each, under every exchange of vectors that the policy leaves open."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from pydantic import ValidationError

from cost_models.model import CostModel
from cost_models.shards import PLACEMENT_TIERS, PlacementTier
from cost_models.workload.models import Workload
from planner.capacity.candidates import Candidate
from planner.document.plan import Plan
from planner.formulation.formulation import Formulation
from planner.formulation.policy import Policy, offered
from planner.formulation.question import Question
from planner.planning.dense_choice import best_of_dense
from planner.planning.exchanges import PlannedUnder, planned_under_each
from planner.planning.integer_solution import Solver, expect_programme
from planner.planning.pipeline import Pipeline, Searched, Steps
from planner.planning.question_bound import bound_of_question
from planner.problem.load_state import load_state
from planner.solvers.incumbent import Progress
from planner.solvers.limits import SearchLimits
from topologies.cluster import Topology
from topologies.documents import Document
from topologies.errors import InputError
from topologies.units import format_seconds


class Interrupted(Exception):  # noqa: N818 - no error
    """The user has seen enough."""


@dataclass
class _SizeWatch:
    """Hears of a search and ends it as soon as the target is met or proven out of reach."""

    target_s: float
    is_over: Callable[[], bool]
    whole_step_s: Callable[[float], float]
    """The step whose stages take so long together (see `CostModel`)."""
    progress: Progress
    """Hears of the best plan and bound so far, in whole steps."""
    best_s: float = math.inf
    bound_s: float = 0.0

    def hear(self, step: str, best_s: float | None, bound_s: float | None) -> None:
        self.best_s = min(self.best_s, math.inf if best_s is None else self.whole_step_s(best_s))
        self.bound_s = max(self.bound_s, self.whole_step_s(bound_s or 0.0))
        if best_s is not None or bound_s is not None:
            self.progress(step, self.best_s if math.isfinite(self.best_s) else None, self.bound_s or None)

    def is_decided(self) -> bool:
        is_met = math.isfinite(self.best_s) and self.best_s <= self.target_s
        return is_met or self.bound_s > self.target_s or self.is_over()


@dataclass
class SizeSearches:
    """Searches for sizes and tiers. What more tiers prove holds for fewer; so does a plan without the others."""

    topology: Topology
    workload: Workload
    policy: Policy
    rules: Document
    index: int
    target: float | None
    longest_s: float
    effort: int
    gap: float
    seed: int
    is_over: Callable[[], bool]
    solver: Solver = "search"
    """What follows a search that decides nothing, and that of the answer."""
    progress: Progress = lambda *_: None
    """Hears of each search's best plan and bound."""
    input_error: InputError | None = None
    judged: list[tuple[frozenset[str], frozenset[str], Candidate]] = field(default_factory=list)
    """(allowed tiers, tiers that the plan uses, candidate)."""

    def judge(self, tiers: Sequence[PlacementTier], nodes: int) -> Candidate:
        """Whether so many nodes do."""
        for allowed, used, known in self.judged:
            if known.nodes != nodes or not set(tiers) <= allowed:
                continue
            if (known.suffices and used <= set(tiers)) or (not known.suffices and known.is_proven):
                return known
        try:
            question = self._question(tiers, nodes)
            found = list(self._judged_under_each(question, nodes))
        except InputError as error:
            self.input_error = error
            return Candidate(nodes, 0, False, "input", reason=error.faults[0].message)
        candidate, searched = _verdict(found)
        if candidate.judged_by == "search" and self.is_over():
            raise Interrupted
        self.judged.append((frozenset(tiers), _tiers_used(searched), candidate))
        return candidate

    def _judged_under_each(self, question: Question, nodes: int) -> Iterator[tuple[Candidate, Searched]]:
        """A size in each way to checkpoint and under each exchange of vectors that the policy leaves open, until one
        does, or memory is too small."""
        for way in question.choices_of_checkpointing():
            for exchange in way.exchanges:
                candidate, searched = self._judged(self._formulation(way.settled(exchange)), nodes)
                yield candidate, searched
                if candidate.suffices:
                    return
                if candidate.status == "infeasible":
                    break

    def _judged(self, formulation: Formulation, nodes: int) -> tuple[Candidate, Searched]:
        """A size under one exchange of vectors."""
        model = formulation.model
        target_s = self._target_s(model)
        expect_programme(formulation, self.solver)
        for effort in sorted({0, self.effort}):
            watch = _SizeWatch(target_s, self.is_over, model.whole_step_s, self.progress)
            searched = self._decided(formulation, effort, watch)
            formulation = searched.formulation
            candidate = self._candidate(searched, nodes)
            if candidate.is_proven or self.is_over():
                break
        return candidate, searched

    def _decided(self, formulation: Formulation, effort: int, watch: "_SizeWatch") -> Searched:
        """The search of a size until it is decided; where the longest one decides nothing, the integer programme."""
        limits = SearchLimits(gap=0.0, effort=effort, seed=self.seed, stop=watch.is_decided)
        pipeline = Pipeline(self.policy, limits, Steps(finishes=False), watch.hear, self.solver)
        searched = pipeline.solved(formulation)
        return pipeline.programmed(searched) if effort == self.effort and not watch.is_decided() else searched

    def finished(self, tiers: Sequence[PlacementTier], candidate: Candidate) -> tuple[Candidate, Plan]:
        """A size that does with its plan, as `planner plan` finds it: the search goes on beyond the target."""
        question = self._question(tiers, candidate.nodes)
        limits = SearchLimits(gap=self.gap, effort=self.effort, seed=self.seed, stop=self.is_over)
        found: dict[tuple[object, str], Candidate] = {}

        def under(asked: Question, limits: SearchLimits, former: PlannedUnder | None) -> PlannedUnder:
            start, formulation = None if former is None else former.searched, self._formulation(asked)
            watch = _SizeWatch(math.inf, self.is_over, formulation.model.whole_step_s, self.progress)
            pipeline = Pipeline(asked.policy, limits, progress=watch.hear, solver=self.solver, start=start)
            final = self._finished(pipeline, formulation)
            key = asked.workload.dense.checkpointing, final.formulation.model.exchange
            found[key] = self._candidate(final, candidate.nodes)
            return PlannedUnder(pipeline.assembled(final), final.formulation, final)

        def planned(way: Question, left: SearchLimits, _: object = None) -> Plan:
            return planned_under_each(way, left, under)

        ways = question.choices_of_checkpointing()
        plan = (
            planned(ways[0], limits)
            if len(ways) == 1
            else best_of_dense(ways, lambda way, tell: bound_of_question(way, limits, tell), planned, limits, None)
        )
        checkpointing = ways[0].workload.dense.checkpointing if plan.dense is None else plan.dense.checkpointing
        own = found[checkpointing, plan.provenance.exchange]
        return _beside(own, plan), Pipeline(question.policy, limits).simulated(plan)

    def _finished(self, pipeline: Pipeline, formulation: Formulation) -> Searched:
        model = formulation.model
        target_s = self._target_s(model)
        searched = pipeline.programmed(pipeline.solved(formulation))
        step_s = searched.outcome.step_s
        if step_s is None or model.whole_step_s(step_s) > target_s:  # ended by its gap, or by the user
            watch = _SizeWatch(target_s, lambda: False, model.whole_step_s, self.progress)
            searched = self._decided(searched.formulation, self.effort, watch)
        return pipeline.finished(searched, target_s)

    def _target_s(self, model: CostModel) -> float:
        return self._target_of(model.cluster.world_size)

    def _target_of(self, ranks: int) -> float:
        target_s = math.inf if self.target is None else self.workload.batch(ranks) / self.target
        return min(target_s, self.longest_s)

    def longest_target_s(self, max_nodes: int) -> float:
        """The longest target of all sizes: that of the largest one, which has the largest batch."""
        return self._target_of(self.topology.resized(self.index, max_nodes).world_size)

    def _question(self, tiers: Sequence[PlacementTier], nodes: int) -> Question:
        """What is asked of so many nodes."""
        cluster = self._grown(nodes)
        policy = offered(self._policy(tiers), cluster, Question.cost_model)
        return Question(cluster, self.workload, policy, written_policy=self.rules)

    @staticmethod
    def _formulation(question: Question) -> Formulation:
        return Pipeline(question.policy, SearchLimits()).refined(question.formulation())

    def _policy(self, tiers: Sequence[PlacementTier]) -> Policy:
        """The policy with these tiers alone."""
        return self.policy.model_copy(update={"tiers": tuple(tiers)})

    def _grown(self, nodes: int) -> Topology:
        try:
            return Topology.model_validate(self.topology.resized(self.index, nodes).model_dump(mode="json"))
        except ValidationError as error:
            message = str(error.errors()[0]["msg"]).removeprefix("Value error, ")
            raise InputError.at(self.topology.name, message) from None

    def _candidate(self, searched: Searched, nodes: int) -> Candidate:
        model, outcome = searched.formulation.model, searched.outcome
        batch, target_s = self.workload.batch(model.cluster.world_size), self._target_s(model)
        step_s = None if outcome.step_s is None else model.whole_step_s(outcome.step_s)
        bound_s = None if outcome.bound_s is None else model.whole_step_s(outcome.bound_s)
        candidate = Candidate(
            nodes=nodes,
            ranks=model.cluster.world_size,
            suffices=step_s is not None and step_s <= target_s,
            judged_by="plan",
            status=outcome.status,
            step_s=step_s,
            samples_per_s=None if step_s is None else batch / step_s,
            lower_bound_s=bound_s,
            target_s=target_s if math.isfinite(target_s) else None,
            most_samples_per_s=batch / bound_s if bound_s else None,
            gap=step_s / bound_s - 1 if step_s is not None and bound_s else None,
        )
        if candidate.suffices:
            return candidate
        if outcome.status == "infeasible":
            why = Pipeline(self.policy, SearchLimits(seed=self.seed)).assembled(searched).infeasibility
            return replace(candidate, judged_by="memory", reason=why.summary if why else "nothing fits")
        if bound_s is not None and bound_s > target_s:
            reason = f"no step is shorter than {format_seconds(bound_s)} (proven), the target's is"
            reason += f" {format_seconds(target_s)}{_longest(searched)}"
            return replace(candidate, judged_by="bound", reason=reason)
        if step_s is None:
            return replace(
                candidate, judged_by="search", reason="no placement was found, nor a proof that there is none"
            )
        reason = f"the best plan found takes {format_seconds(step_s)}, the target's"
        reason += f" {format_seconds(target_s)}; the bound does not rule it out"
        if outcome.solver_bound_s is not None and model.whole_step_s(outcome.solver_bound_s) > target_s:
            reason += ", but the solver of the integer programme does, by its word"
        reason += _longest(searched)
        return replace(candidate, judged_by="search", reason=reason)


def _verdict(found: Sequence[tuple[Candidate, Searched]]) -> tuple[Candidate, Searched]:
    """What is said of a size that was judged in each way to checkpoint and under each exchange of vectors: that it does
    in one, or why it does in none: the one that no proof rules out, or that fits with the lowest bound."""

    def order(each: tuple[Candidate, Searched]) -> tuple[bool, bool, bool, float]:
        candidate = each[0]
        is_short = candidate.status == "infeasible"
        return not candidate.suffices, candidate.is_proven, is_short, candidate.lower_bound_s or 0.0

    return min(found, key=order)


def _beside(candidate: Candidate, plan: Plan) -> Candidate:
    """The answer with the bound over all exchanges of vectors that its plan has."""
    if plan.other_exchange is None or plan.objective is None:
        return candidate
    bound_s, speed = plan.objective.lower_bound_s, candidate.samples_per_s
    most = speed * plan.objective.step_s / bound_s if speed and bound_s else None
    return replace(candidate, lower_bound_s=bound_s, most_samples_per_s=most, gap=plan.objective.gap)


def _longest(searched: Searched) -> str:
    """Words for the stage that takes most of the plan's step, fixed costs aside: no cluster lowers these."""
    model, problem, outcome = searched.formulation.model, searched.formulation.problem, searched.outcome
    if outcome.placement is None or outcome.step_s is None:
        return ""
    if model.floor is not None and model.is_floor(outcome.step_s):
        return f"; {model.floor.words} takes as long"
    seconds = load_state(problem, outcome.placement).stage_seconds()
    stage = int(np.argmax(seconds - problem.stage_constants))
    return f"; {model.stages[stage]} takes {seconds[stage] / outcome.step_s:.0%} of the best plan found"


def _tiers_used(searched: Searched) -> frozenset[str]:
    outcome = searched.outcome
    if outcome.placement is None:
        return frozenset()
    codes = searched.formulation.tiers_of(outcome.placement.item_block)
    return frozenset(PLACEMENT_TIERS[code] for code in np.unique(codes).tolist())
