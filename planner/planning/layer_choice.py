"""Strategies of layers and places of tables in turn, until neither changes.

For a plan the layers are chosen anew: by the dynamic programme at the prices of its proof, which say what seconds of
each link and bytes of HBM are worth to the tables, then some layers after others while the tables stay where they are.
For the layers the tables are placed anew. The step gets shorter with each turn.
"""

import math
from dataclasses import dataclass, field, replace

from cost_models.shards import MEMORY_HBM
from cost_models.step_costs import StepCosts
from cost_models.workload.dense_sharding import DenseSharding
from planner.document.dense import LayerStrategies
from planner.document.plan import Plan
from planner.document.planned import held_model, placed_shards, planned_replicas
from planner.formulation.allowed_choices import model_of_replicas
from planner.formulation.dense_choices import with_sharding
from planner.formulation.layer_options import LayerOptions, layer_options
from planner.formulation.question import Question
from planner.planning.choices import Bounded, Planned
from planner.planning.layer_changes import GAIN, Costed, improved
from planner.solvers.incumbent import Progress
from planner.solvers.limits import Clock, SearchLimits
from planner.verification.figures import overfull
from planner.verification.layer_bound import LayerRelaxation, layer_bound_s
from topologies.errors import InputError

TURNS = 4
"""At most."""
WORTH = 1e-3
"""Share of the step that strategies of layers must save over the same for all."""
WORDS = "strategies of layers"


def by_layer(
    best: Plan, question: Question, bounded: Bounded, planned: Planned, limits: SearchLimits, progress: Progress | None
) -> Plan:
    """The plan with strategies of its own for each layer, where that is worth it, or nothing else fits; else as it is.
    `question` is the plan's own."""
    options = layer_options(question.policy.dense, question.topology, question.workload)
    if options is None or best.dense is None:
        return best
    turns, clock = _Turns(question, options, bounded, planned, limits, progress), Clock(limits)
    if best.objective is None:
        found = turns.of_fewest_bytes(best)
        if found.objective is None:
            return best
        best, enough_s = found, found.objective.step_s
    else:
        bound_s, enough_s = layer_bound_s(best), best.objective.step_s * (1 - WORTH)
        if bound_s is not None and bound_s >= enough_s:
            return best
    taken = best
    for _ in range(TURNS):
        shorter = None if clock.is_over() else turns.shorter(taken)
        if shorter is None:
            break
        taken = shorter
    assert taken.objective is not None
    return taken if taken.objective.step_s <= enough_s else best


def with_layer_bound(plan: Plan) -> Plan:
    """The plan with what is proven of strategies of its layers, where it leaves a choice of them."""
    if plan.dense is None or plan.proof is None or plan.objective is None or (bound_s := layer_bound_s(plan)) is None:
        return plan
    proven = LayerStrategies(lower_bound_s=min(bound_s, plan.objective.step_s))
    return plan.model_copy(update={"dense": plan.dense.model_copy(update={"by_layer": proven})})


@dataclass
class _Turns:
    """The turns of one question."""

    question: Question
    options: LayerOptions
    bounded: Bounded
    planned: Planned
    limits: SearchLimits
    progress: Progress | None
    _seen: set[str] = field(default_factory=set)
    """Strategies that plans were sought for, in words."""

    def of_fewest_bytes(self, plan: Plan) -> Plan:
        """A plan with the layers in the fewest bytes that are found, where those of one strategy do not fit."""
        layers, costed = self.question.workload.layers, Costed(self._bytes)
        held = improved(self.options.held(_stated(plan)), self.options, layers, costed)
        return self.planned(self._with(self.options.sharding(held, layers)), self.limits, self._tell)

    def shorter(self, plan: Plan) -> Plan | None:
        """A plan with a shorter step, whose layers are held otherwise; None where none is found."""
        own, layers, options = _stated(plan), self.question.workload.layers, self.options
        self._seen.add(own.words)
        try:
            relaxation = LayerRelaxation(plan, options, self.question.workload)
            proposals = [options.sharding(held, layers) for held in relaxation.proposals()]
        except ValueError:  # too many strategies together for the programme
            return None
        costed = Costed(TablesInPlace(plan, self.question).step_s, relaxation.at_least_s)
        others = {each.words: each for each in proposals if each.words != own.words}
        ordered = sorted(others.values(), key=costed.of)
        starts = dict.fromkeys((own.words, min((own, *ordered), key=costed.of).words))
        of_words = {own.words: own, **others}
        held = (improved(options.held(of_words[words]), options, layers, costed) for words in starts)
        changed = sorted((options.sharding(each, layers) for each in held), key=costed.of)
        unfit = [each for each in ordered if math.isinf(costed.of(each))]
        found = (self._shorter(plan, each) for each in (*changed, *unfit))
        return next((each for each in found if each is not None), None)

    def _shorter(self, plan: Plan, sharding: DenseSharding) -> Plan | None:
        """The plan with such strategies, where its step is shorter."""
        assert plan.objective is not None
        best_s = plan.objective.step_s * (1 - GAIN)
        if sharding.words in self._seen:
            return None
        self._seen.add(sharding.words)
        try:
            bound_s = self.bounded(self._with(sharding), self._tell)
        except InputError:  # a choice that cannot be had on this cluster
            return None
        if bound_s is None or bound_s >= best_s:
            return None
        found = self.planned(self._with(sharding), self.limits, self._tell)
        return found if found.objective is not None and found.objective.step_s < best_s else None

    def _with(self, sharding: DenseSharding) -> Question:
        return replace(self.question, workload=with_sharding(self.question.workload, sharding))

    def _bytes(self, sharding: DenseSharding) -> float:
        """Bytes of HBM of each rank before any table."""
        asked = self._with(sharding)
        try:
            return float(asked.settled(asked.exchanges[0]).model().base_bytes[MEMORY_HBM])
        except InputError:
            return math.inf

    def _tell(self, step: str, best_s: float | None, _: float | None) -> None:
        """Hear how far a search is; its bound is one of the strategies that it is for."""
        if self.progress is not None:
            self.progress(f"{WORDS}: {step}", best_s, None)


def _stated(plan: Plan) -> DenseSharding:
    assert plan.dense is not None
    return DenseSharding(strategy=plan.dense.strategy, over=plan.dense.over, layers=plan.dense.layers)


class TablesInPlace:
    """What steps take with the tables where a plan has them."""

    def __init__(self, plan: Plan, question: Question) -> None:
        self._plan, self._question, self._placed = plan, question, placed_shards(plan)

    def step_s(self, sharding: DenseSharding) -> float:
        """Seconds of a step; infinite where it does not fit."""
        origin, asked = self._plan.provenance, self._question
        workload = with_sharding(asked.workload, sharding)
        inputs = origin.cost_model, asked.topology, workload, origin.policy, planned_replicas(self._plan)
        try:
            model = held_model(model_of_replicas(*inputs, origin.exchange), self._plan.tables)
        except InputError:
            return math.inf
        assert isinstance(model, StepCosts)
        evaluation = model.evaluate(self._placed)
        return math.inf if any(overfull(model, evaluation)) else model.whole_step_s(evaluation.step_s)
