"""Whether the strategy of a plan's dense part is what its policy allows, what it says of others is consistent, and
ranks hold as much of it as ZeRO's paper says."""

from collections.abc import Iterator, Sequence

from cost_models.dense_sharding import sharding_of
from cost_models.model import CostModel
from cost_models.step_costs import StepCosts
from cost_models.workload.checkpoints import is_checkpointed
from cost_models.workload.dense_part import COMPUTE_DTYPE_BYTES, Dense
from cost_models.workload.dense_sharding import REPLICATED
from cost_models.workload.formats import wire_bytes, written_bytes
from cost_models.workload.layer_graph import SizedLayer
from cost_models.workload.optimizers import ELEMENTWISE
from planner.document.dense import PlannedDense, TrainedDense
from planner.document.plan import Plan
from planner.formulation.checkpoint_choices import checkpoint_candidates, with_checkpointing
from planner.formulation.dense_choices import candidates, with_sharding
from planner.verification.figures import TOLERANCE
from planner.verification.other_choices import faults_of_other


def faults_of_dense(plan: Plan, model: CostModel) -> Iterator[str]:
    """In words: a strategy that is not that of the workload, or that the policy does not allow, others left out or made
    up, reasons against them that are none, and bytes that are not those of the strategy."""
    policy, planned, own = plan.provenance.policy, plan.dense, TrainedDense.stated_by(model.stated_workload)
    is_told = policy.dense is not None or policy.checkpointing is not None or not own.is_usual
    if is_told != (planned is not None):
        yield f"dense: {'missing' if planned is None else 'there'}, and the workload says {own.words}"
    if planned is None:
        return
    if planned.alone != own:
        yield f"dense: is {planned.words}, and the workload says {own.words}"
    yield from _faults_of_choice(plan, model, own)
    stated = [each.alone.words for each in planned.others]
    others = [each.words for each in _allowed(plan, planned, model, own) if each != own]
    if sorted(stated) != sorted(others):
        yield f"dense: the other strategies are {others}, the document has {stated}"
    for other in planned.others:
        yield from faults_of_other(plan, f"dense: {other.words}", other)
    yield from _faults_of_layer_bound(plan, planned)
    if own.is_sharded and isinstance(model, StepCosts):
        yield from _faults_of_bytes(model)
    if own.checkpointing is not None and isinstance(model, StepCosts):
        yield from _faults_of_activations(model)


def _faults_of_choice(plan: Plan, model: CostModel, own: TrainedDense) -> Iterator[str]:
    """Whether the policy allows what the plan has."""
    choices, checkpointing = plan.provenance.policy.dense, plan.provenance.policy.checkpointing
    if choices is not None and not choices.allows(sharding_of(model.stated_workload)):
        yield f"dense: {own.words} is none of the policy's choices"
    if checkpointing not in (None, "auto", own.checkpointing or "none"):
        yield f"dense: {own.words}, and the policy says {checkpointing}"


def _allowed(plan: Plan, planned: PlannedDense, model: CostModel, own: TrainedDense) -> list[TrainedDense]:
    """What the policy leaves open, the plan's own way among it; of a plan that follows another, that alone."""
    if plan.moves is not None:
        return [own]
    choices, found = plan.provenance.policy.dense, [model.stated_workload]
    if choices is not None and choices.settled is None:
        open_workload = with_sharding(model.stated_workload, REPLICATED)
        found = list(candidates(choices, model.cluster, open_workload, plan.provenance.cost_model))
    is_open = any(each.checkpointing != own.checkpointing for each in planned.others)  # else the workload states it
    if is_open and plan.provenance.policy.checkpointing == "auto" and isinstance(model, StepCosts):
        unstated = [with_checkpointing(each, None) for each in found]
        found = [way for each in unstated for way in checkpoint_candidates("auto", each)]
    return [TrainedDense.stated_by(each) for each in found]


def _faults_of_layer_bound(plan: Plan, planned: PlannedDense) -> Iterator[str]:
    """Whether what is said of strategies of layers is proven, where the multipliers of the plan's proof are some."""
    if planned.by_layer is None or plan.objective is None or plan.proof is None:
        if planned.by_layer is not None:
            yield "dense.by_layer: a bound without a plan, or without a proof"
        return
    from planner.verification.layer_bound import layer_bound_s

    stated_s, proven_s = planned.by_layer.lower_bound_s, layer_bound_s(plan)
    if proven_s is None or proven_s < stated_s * (1 - TOLERANCE):
        yield f"dense.by_layer: the proof gives {proven_s!r}, the document says {stated_s!r}"


def _faults_of_bytes(model: StepCosts) -> Iterator[str]:
    """Whether a rank's part of the dense part has the bytes of its parameters, counted as in table 1 of
    arXiv:1910.02054; of a layer that the ranks of a node share, of its own
    columns, rows or heads."""
    workload, own = model.workload, sharding_of(model.workload)
    world, per_node = model.topology.world_size, int(model.host_of_rank.tolist().count(0))
    counted = [(own.of_layer(layer.name), layer.parameters) for layer in workload.layers if layer.parameters]
    expected = float(workload.dense.extra_bytes)
    for way, parameters in counted or [(own.of_others, workload.dense.parameters or 0)]:
        parts = per_node if way.cuts_weights else 1
        ranks = world // parts if way.cut or way.over == "world" else per_node
        expected += _bytes_per_parameter(workload.dense, way.strategy, ranks) * parameters / parts
    held = model.peak.rank_bytes["parameters"]
    if abs(held - expected) > TOLERANCE * expected + 1:
        yield f"dense: a rank holds {held!r} bytes of parameters, and {own.words} takes {expected!r}"


def _bytes_per_parameter(dense: Dense, strategy: str, ranks: int) -> float:
    """What a rank holds for each parameter of a part of the model that so many ranks share."""
    updated, computed = wire_bytes(dense.master_weights or "fp32"), COMPUTE_DTYPE_BYTES[dense.dtype]
    state = ELEMENTWISE[dense.optimizer] * wire_bytes(dense.optimizer_state or "fp32")
    gradient = written_bytes(dense.gradient_format)
    if strategy == "replicate" or ranks == 1:
        return updated + (computed if computed < updated else 0.0) + state + gradient
    if strategy == "fsdp":
        return (updated + state + gradient) / ranks
    whole = (computed, updated / ranks) if computed < updated else (updated, 0.0)
    return sum(whole) + state / ranks + (gradient / ranks if strategy == "zero2" else gradient)


def _faults_of_activations(model: StepCosts) -> Iterator[str]:
    """Whether what a rank keeps for the backward pass suffices for one that is played tensor by tensor. What a layer
    gives is there until the block has gone back that last needs it: its own, unless that is checkpointed, and readers'.
    """
    workload, layers = model.workload, [layer for layer in model.workload.layers if layer.kind != "embeddings"]
    order = list(dict.fromkeys(layer.block for layer in layers))
    place = {layer.name: order.index(layer.block) for layer in layers}
    needed: dict[str, set[int]] = {layer.name: set() for layer in layers}
    for layer in layers:
        if not is_checkpointed(workload.dense.checkpointing, layer.stated, layer.block):
            needed[layer.name].add(place[layer.name])
        for name in _tensors_read(layer, layers):
            needed[name] |= {place[layer.name]} - {place[name]}
    most = 0.0
    for current in range(len(order)):
        there = [each for each in layers if min(needed[each.name], default=current + 1) <= current]
        there += [each for each in layers if place[each.name] == current and each not in there]
        most = max(most, sum(each.output.numbers for each in there if each.activation_elements))
    least = most * workload.dense.activation_bytes * model.peak.samples_per_rank
    held = model.peak.rank_bytes["activations"] or model.peak.rank_bytes["embeddings"] / 2  # twice there in an exchange
    if held < least * (1 - TOLERANCE):
        yield f"dense: a rank keeps {held!r} bytes for the backward pass, and its blocks take {least!r}"


def _tensors_read(layer: SizedLayer, layers: Sequence[SizedLayer]) -> Iterator[str]:
    """The layers whose outputs a layer reads, through those that only join what they read; views need nothing."""
    if not layer.activation_elements:
        return
    of_name = {each.name: each for each in layers}
    names = [name for name in layer.inputs if name in of_name]
    while names:
        read = of_name[names.pop()]
        if read.activation_elements:
            yield read.name
        else:
            names += [name for name in read.inputs if name in of_name]
