"""What no strategies of the layers of a dense part, with any placement of the tables, take less than.

Tables and layers share the stages of a step and the HBM of ranks. At the multipliers of a plan's proof each second and
each byte has a price, so that both parts add up (weak duality; `planner.verification.proof`): the cheapest options of
all tables, and the cheapest strategies of all layers, which a dynamic programme over their graph finds exactly
(`planner.certificates.elimination`). What `cost_models.layer_loads` leaves out of a dense part makes the bound lower,
never wrong.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cost_models.batch_copy import COPY_CONTENTION
from cost_models.cost_arrays import Column
from cost_models.dense_sharding import sharded_bytes, sharding_of
from cost_models.layer_loads import CHANNELS, Channel, DenseLoads, LayerLoads, with_turn
from cost_models.resources import DEVICE
from cost_models.shards import MEMORY_HBM, Floats
from cost_models.stages import LOOKUP, UPDATE
from cost_models.step_costs import StepCosts
from cost_models.strategy_loads import channel_loads, loads_without_strategies
from cost_models.workload.dense_sharding import Held
from cost_models.workload.models import Workload
from planner.certificates.elimination import cheapest_plan, eliminate, elimination_order
from planner.certificates.lagrangian import cheapest_options, dual_value_s, instances_of_columns
from planner.certificates.multipliers import Multipliers
from planner.certificates.strategy_graph import StrategyGraph
from planner.document.dense import PlannedDense
from planner.document.plan import Plan
from planner.document.planned import held_model, planned_model, planned_replicas
from planner.document.provenance import planned_options
from planner.formulation.allowed_choices import model_of_replicas
from planner.formulation.checkpoint_choices import with_checkpointing
from planner.formulation.choice_rules import allowed_choices
from planner.formulation.dense_choices import with_sharding
from planner.formulation.formulation import Formulation
from planner.formulation.layer_options import LayerOptions, layer_options
from planner.problem.arrays import Problem
from planner.problem.numbers import Bools
from planner.problem.rounding import ROUNDING
from planner.verification.proof import read_proof
from planner.verification.protocol_proofs import at_protocols_of

SHARES = (
    (0.0, (0.0, 0.0, 0.0)),
    (0.5, (0.0, 0.0, 0.0)),
    (1.0, (0.0, 0.0, 0.0)),
    (0.5, (0.5, 0.0, 0.0)),
    (0.0, (1.0, 0.0, 0.0)),
    (0.0, (0.5, 0.5, 0.0)),
    (0.0, (0.0, 1.0, 0.0)),
    (0.0, (0.0, 0.0, 1.0)),
    (0.0, (0.0, 0.5, 0.5)),
    (0.25, (0.5, 0.25, 0.0)),
)
"""Of the weight of the dense stage that are tried, beside what a proof has: on devices, and on the three ways in which
something follows each other there (`LayerLoads.late_s`)."""


Late = tuple[float, float, float]


@dataclass(frozen=True)
class LayerPrices:
    """What a second and a byte of layers are worth; K kinds of rank."""

    of_channel: Mapping[Channel, Floats]
    """[K] of a second of each channel, on all ranks of a kind together."""
    late: Late
    """Weights of what follows each other in the dense stage."""
    byte_s: float
    """Seconds of a byte of HBM on every rank."""
    update: float
    """Weight of the seconds of the optimizer: 1 where it takes longer than the overhead that it was measured in, else
    0."""

    def of(self, loads: LayerLoads) -> Floats:
        """[S] what strategies cost, their bytes aside."""
        total = loads.gather_s + self.update * loads.update_s + np.array(self.late) @ loads.late_s
        for channel in CHANNELS:
            total = total + self.of_channel[channel] @ loads.busy_s[channel]
        return np.asarray(total)


@dataclass(frozen=True)
class _Priced:
    """Layers at some multipliers."""

    others_s: float
    """Of all else, at least."""
    graph: StrategyGraph
    byte_s: float

    def of(self, numbers: Mapping[str, int]) -> float:
        """What strategies by their numbers cost, bytes included."""
        own = sum(
            float(cost[numbers[name]] + self.byte_s * self.graph.memory_bytes[name][numbers[name]])
            for name, cost in self.graph.costs.items()
        )
        return own + sum(float(cost[numbers[u], numbers[v]]) for (u, v), cost in self.graph.edge_costs.items())

    def least_s(self) -> float:
        """What they cost at least."""
        least_s = eliminate(self.graph, elimination_order(self.graph), byte_weight=self.byte_s).least
        return least_s - ROUNDING * abs(least_s)


class LayerRelaxation:
    """The question of a plan with the strategies of all layers open, under the plan's exchange of vectors."""

    def __init__(self, plan: Plan, options: LayerOptions, workload: Workload) -> None:
        """`plan` has a proof, and is of the physical cost model in one world; `workload` is its own, or one that
        differs in what is checkpointed."""
        self._plan, self._options = plan, options
        own = planned_model(plan)
        assert isinstance(own, StepCosts)
        assert plan.proof is not None
        self._own, origin = own, plan.provenance
        sharded = with_sharding(workload, options.sharded)
        inputs = origin.cost_model, own.cluster, sharded, origin.policy, planned_replicas(plan), origin.exchange
        model = held_model(model_of_replicas(*inputs), plan.tables)
        assert isinstance(model, StepCosts)
        self._model, self._layers = model, {layer.name: layer for layer in sharded.layers}
        passes = model.coefficients.software.activation_passes.value
        loads = DenseLoads(model.topology, model.workload, model.kinds, passes)
        alone = {name: loads.of_layer(layer, options.ways[name]) for name, layer in self._layers.items()}
        self._loads = with_turn(alone, loads.order, _numbers(options, options.held(sharding_of(own.stated_workload))))
        self._between = {
            (writer, name): loads.between(self._layers[writer], layer, options.ways[writer], options.ways[name])
            for name, layer in self._layers.items()
            for writer in dict.fromkeys(layer.inputs)
            if writer in self._layers
        }
        of_dense = sharded_bytes(model.topology, model.workload)
        self._other_bytes = model.base_bytes[MEMORY_HBM] - of_dense.held - of_dense.gathered
        self._other_bytes += model.workload.dense.extra_bytes
        least = sum(float(each.held_bytes.min()) for each in self._loads.values())
        model.base_bytes = np.where(np.arange(len(model.memories)) == MEMORY_HBM, self._other_bytes + least, 0.0)

    @cached_property
    def _formulation(self) -> Formulation:
        """That of the layers in their fewest bytes, which has every option that any strategies leave."""
        choices = allowed_choices(self._model, self._plan.provenance.policy)
        return Formulation.of_options(self._model, planned_options(self._plan.provenance, self._model, choices))

    @cached_property
    def multipliers(self) -> tuple[tuple[Multipliers, Late], ...]:
        """Those of the plan's proofs at all protocols, on the columns of this question; each with the weights of
        what follows each other in the dense stage."""
        choices = allowed_choices(self._own, self._plan.provenance.policy)
        own = Formulation.of_options(self._own, planned_options(self._plan.provenance, self._own, choices))
        proof = self._plan.proof
        found: list[tuple[Multipliers, Late]] = []
        assert proof is not None
        for each in (proof, *proof.at_other_protocols):
            at = at_protocols_of(each, own)
            found += self._moved(read_proof(each, at.model, at.problem)[0])
        return tuple(found)

    def prices(self, multipliers: Multipliers, late: Late, update: float) -> LayerPrices:
        """What layers cost at some multipliers."""
        value = self._values(multipliers)
        of_channel = {channel: (channel_loads(self._model.base, channel) * value).sum(axis=1) for channel in CHANNELS}
        sizes = self._sizes
        return LayerPrices(of_channel, late, float((multipliers.byte[:, MEMORY_HBM] * sizes).sum()), update)

    def graph(self, prices: LayerPrices) -> StrategyGraph:
        """The layers with what each strategy costs at these prices, its bytes aside."""
        costs = {name: prices.of(loads) for name, loads in self._loads.items()}
        ways = self._options.ways
        between = {
            (writer, reader): prices.of(loads).reshape(len(ways[writer]), len(ways[reader]))
            * self._layers[reader].inputs.count(writer)
            for (writer, reader), loads in self._between.items()
        }
        return StrategyGraph(costs, between, {name: loads.held_bytes for name, loads in self._loads.items()})

    def proposals(self) -> Iterator[dict[str, Held]]:
        """What the layers are held in at the least cost, at each of the multipliers: their prices say which resources
        are scarce."""
        for priced in self._priced:
            found = cheapest_plan(priced.graph, priced.byte_s)
            if found is not None:
                yield {name: self._options.ways[name][number] for name, number in found.strategy_of.items()}

    def at_least_s(self, held: Mapping[str, Held]) -> float:
        """Seconds of a step whose layers are held so, but for what the copy of a batch shows."""
        numbers = _numbers(self._options, held)
        return max(priced.others_s + priced.of(numbers) for priced in self._priced)

    def bound_s(self) -> float:
        """Seconds of a whole step, whatever the layers are held in."""
        least_s = max((priced.others_s + priced.least_s() for priced in self._priced), default=0.0)
        return self._own.whole_step_s(max(least_s, 0.0))

    @cached_property
    def _priced(self) -> "tuple[_Priced, ...]":
        """The question at each of the multipliers, with either way to count the optimizer; what is besides layers takes
        the least of all protocols."""
        problems = [self._problem_at(protocols) for protocols in self._model.all_protocols]
        overhead_s = self._model.coefficients.software.step_overhead_s.value
        found = []
        for multipliers, late in self.multipliers:
            others_s = min(_besides_s(problem, multipliers) for problem in problems)
            others_s -= sum(late) * float(self._model.base.after_dense_s[0])
            beside = (multipliers.weight[..., None] * self._formulation.problem.ranks_beside).sum(axis=0).T
            others_s -= float(((self._values(multipliers) + beside) * self._model.base.most_hidden_sums()).sum())
            for update in (0.0, 1.0):
                prices = self.prices(multipliers, late, update)
                beside_s = others_s + overhead_s * (1.0 - update)
                found.append(_Priced(beside_s, self.graph(prices), prices.byte_s))
        return tuple(found)

    def _problem_at(self, protocols: tuple[int, ...]) -> Problem:
        """The problem of the tables at some protocols, before any layer."""
        at = self._formulation.at_protocols(protocols)
        assert isinstance(at.model, StepCosts)
        latencies_s, constants = at.model.latencies, np.zeros(len(at.problem.stage_constants))
        constants[: len(latencies_s)] = latencies_s
        # Nothing is counted in HBM at the moment when what was stashed is back, a memory of the problem alone.
        bytes_of_tier = np.where(np.arange(len(at.problem.base_bytes)) == MEMORY_HBM, self._other_bytes, 0.0)
        own, loads = at.model.exchanged, self._other_loads
        loads = loads if own is None else own.base_loads(loads, at.model.case)
        loads = (loads + at.model.answer_loads(protocols)) * at.model.shares_at(protocols)
        return replace(at.problem, base_loads=loads, base_bytes=bytes_of_tier, stage_constants=constants)

    @cached_property
    def _other_loads(self) -> Floats:
        """[K, C] before any layer and table."""
        return loads_without_strategies(self._model.base)

    @cached_property
    def _sizes(self) -> Floats:
        """[D] ranks of each capacity region."""
        return np.asarray(self._formulation.problem.capacity_regions.ranks.sum(axis=1), dtype=float)

    def _values(self, multipliers: Multipliers) -> Floats:
        """[K, C] what a second on every rank of a kind is worth."""
        kinds = self._formulation.problem.capacity_regions.kind
        value = np.zeros_like(self._other_loads)
        np.add.at(value, kinds, multipliers.weight * self._sizes[:, None])
        return np.asarray(value)

    def _moved(self, own: Multipliers) -> Iterator[tuple[Multipliers, Late]]:
        """The multipliers on the columns of this question, with more and more of the weight of the dense stage on
        devices: a proof for one dense part has it on whatever ends last there."""
        model, stages = self._model, self._model.stages
        columns = {(self._own.stages[each.stage], each.resource): c for c, each in enumerate(self._own.columns)}
        weight = np.zeros((len(own.weight), len(model.columns)))
        for c, column in enumerate(model.columns):
            name = stages[column.stage], column.resource
            if name in columns and name[0] != COPY_CONTENTION:
                weight[:, c] = own.weight[:, columns[name]]
        of_table = {
            (table, stages.index(self._own.stages[stage])): share
            for (table, stage), share in own.of_table.items()
            if self._own.stages[stage] not in ("dense", COPY_CONTENTION) and self._own.stages[stage] in stages
        }
        for share, late in SHARES:
            yield Multipliers(self._on_devices(weight, share, sum(late)), own.byte, of_table), late

    def _on_devices(self, weight: Floats, share: float, late: float) -> Floats:
        """[D, C] the weights with at least a share of that of the dense stage on devices, all that is not `late` on
        something, and nothing on what others hide: then a begin that they delay moves nothing."""
        model, problem = self._model, self._formulation.problem
        instances, shared = instances_of_columns(problem)
        counted = ~shared | (np.arange(len(weight)) < problem.kinds)[:, None]
        dense = [c for c, column in enumerate(model.columns) if model.stages[column.stage] == "dense"]
        (device,) = (c for c in dense if model.columns[c].resource == DEVICE)
        weight = weight.copy()
        self._without_what_comes_ahead(weight, instances, counted)
        weight[:, [c for c in dense if self._is_uneven(c)]] = 0.0
        weight[:, dense] *= 1.0 - share - late
        left = 1.0 - late - float((weight * instances * counted)[:, dense].sum())
        here = slice(0, problem.kinds)
        weight[here, device] += max(left, 0.0) / float(instances[here, device].sum())
        return weight

    def _without_what_comes_ahead(self, weight: Floats, instances: Floats, counted: Bools) -> None:
        """Move the weight on what ids and prefetched misses load, which others hide, to devices of the same stages."""
        model, here = self._model, slice(0, self._formulation.problem.kinds)
        for stage in (LOOKUP, UPDATE):
            ahead = [c for c in model.schedule.columns_ahead if model.stages[model.columns[c].stage] == stage]
            if ahead:
                device = model.columns.index(Column(model.stages.index(stage), DEVICE))
                moved = float((weight * instances * counted)[:, ahead].sum())
                weight[:, ahead] = 0.0
                weight[here, device] += moved / float(instances[here, device].sum())

    def _is_uneven(self, column: int) -> bool:
        """Whether instances of a column's resource serve different numbers of ranks."""
        return len(set(np.bincount(self._formulation.problem.resource_of_rank[column]).tolist())) > 1


def _numbers(options: LayerOptions, held: Mapping[str, Held]) -> dict[str, int]:
    """The number of each layer's way among those that it may have."""
    return {name: ways.index(held[name]) for name, ways in options.ways.items()}


def _besides_s(problem: Problem, multipliers: Multipliers) -> float:
    """What tables take at least, and what is the same for all, at some multipliers."""
    cheapest = cheapest_options(problem, multipliers, np.asarray(problem.allowed.any(axis=0)))
    return dual_value_s(problem, multipliers, cheapest, np.zeros(len(problem.stage_constants)))


def layer_bound_s(plan: Plan) -> float | None:
    """No strategies of the layers that the policy of a plan allows make a shorter step under its exchange of vectors,
    whatever is checkpointed of what it leaves open. None where there is nothing to choose layer by layer, or where the
    graph of layers has too many strategies together."""
    own = planned_model(plan)
    assert plan.dense is not None
    bounds = []
    for checkpointing in dict.fromkeys(each.checkpointing for each in (plan.dense, *plan.dense.others)):
        workload = with_checkpointing(own.stated_workload, checkpointing)
        options = layer_options(plan.provenance.policy.dense, own.cluster, workload)
        if options is None:
            return None
        try:
            bounds.append(LayerRelaxation(plan, options, workload).bound_s())
        except ValueError:
            return None
    return min((*bounds, *_replicated_s(plan, plan.dense)), default=None)


def _replicated_s(plan: Plan, dense: PlannedDense) -> Iterator[float]:
    """Bounds of plans with a replicated dense part, which sums its gradients otherwise, as the plan states them."""
    assert plan.objective is not None
    bounds = [(dense.alone, plan.objective.lower_bound_s), *((each.alone, each.lower_bound_s) for each in dense.others)]
    yield from (bound_s for each, bound_s in bounds if not each.is_sharded and bound_s is not None)
