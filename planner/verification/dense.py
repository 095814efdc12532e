"""Whether the strategy of a plan's dense part is what its policy allows, what it says of others is consistent, and
ranks hold as much of it as ZeRO's paper says."""

from collections.abc import Iterator

from cost_models.dense_sharding import sharding_of
from cost_models.model import CostModel
from cost_models.step_costs import StepCosts
from cost_models.workload.dense_part import COMPUTE_DTYPE_BYTES, Dense
from cost_models.workload.formats import wire_bytes, written_bytes
from cost_models.workload.optimizers import ELEMENTWISE
from planner.document.dense import OtherDense
from planner.document.plan import Plan
from planner.formulation.dense_choices import candidates, with_sharding
from planner.verification.figures import TOLERANCE


def faults_of_dense(plan: Plan, model: CostModel) -> Iterator[str]:
    """In words: a strategy that is not that of the workload, or that the policy does not allow, others left out or made
    up, reasons against them that are none, and bytes that are not those of the strategy."""
    choices, planned, own = plan.provenance.policy.dense, plan.dense, sharding_of(model.stated_workload)
    is_told = choices is not None or own.is_sharded
    if is_told != (planned is not None):
        yield f"dense: {'missing' if planned is None else 'there'}, and the workload says {own.words}"
    if planned is None:
        return
    if (planned.strategy, planned.over) != (own.strategy, own.over):
        yield f"dense: is {planned.words}, and the workload says {own.words}"
    allowed = [own]
    if choices is not None:
        if own not in choices.listed():
            yield f"dense: {own.words} is none of the policy's choices"
        if choices.settled is None and plan.moves is None:
            open_workload = with_sharding(model.stated_workload, type(own)())
            found = candidates(choices, model.cluster, open_workload, plan.provenance.cost_model)
            allowed = [sharding_of(each) for each in found]
    stated = [(each.strategy, each.over) for each in planned.others]
    others = [(each.strategy, each.over) for each in allowed if each != own]
    if sorted(stated) != sorted(others):
        yield f"dense: the other strategies are {others}, the document has {stated}"
    for other in planned.others:
        yield from _faults_of_other(plan, other)
    if own.is_sharded and isinstance(model, StepCosts):
        yield from _faults_of_bytes(model)


def _faults_of_other(plan: Plan, other: OtherDense) -> Iterator[str]:
    """Whether it was rightly rejected, as far as its figures tell."""
    name, best_s = f"dense: {other.words}", None if plan.objective is None else plan.objective.step_s
    bound, step = other.lower_bound_s, other.step_s
    if best_s is not None and step is not None and step < best_s * (1 - TOLERANCE):
        yield f"{name}: has a step of {step!r}, shorter than that of the plan"
    if other.rejected == "bound" and (bound is None or best_s is None or bound < best_s * (1 - TOLERANCE)):
        yield f"{name}: its bound {bound!r} does not say that it is slower"
    if (other.rejected == "plan") != (step is not None):
        yield f"{name}: rejected for {other.rejected}, {'with' if step is not None else 'without'} a step"
    if bound is not None and step is not None and bound > step * (1 + TOLERANCE):
        yield f"{name}: its bound {bound!r} is above its step {step!r}"


def _faults_of_bytes(model: StepCosts) -> Iterator[str]:
    """Whether a rank's part of the dense part has the bytes of its parameters, counted as in table 1 of
    arXiv:1910.02054."""
    workload, own = model.workload, sharding_of(model.workload)
    ranks = model.topology.world_size if own.over == "world" else int(model.host_of_rank.tolist().count(0))
    parameters = sum(layer.parameters for layer in workload.layers) or workload.dense.parameters or 0
    per_parameter = _bytes_per_parameter(workload.dense, own.strategy, ranks)
    expected = per_parameter * parameters + workload.dense.extra_bytes
    held = model.peak.rank_bytes["parameters"]
    if abs(held - expected) > TOLERANCE * expected + 1:
        yield f"dense: a rank holds {held!r} bytes of parameters, and {own.words} takes {expected!r}"


def _bytes_per_parameter(dense: Dense, strategy: str, ranks: int) -> float:
    """What a rank holds for each parameter of the model."""
    updated, computed = wire_bytes(dense.master_weights or "fp32"), COMPUTE_DTYPE_BYTES[dense.dtype]
    state = ELEMENTWISE[dense.optimizer] * wire_bytes(dense.optimizer_state or "fp32")
    gradient = written_bytes(dense.gradient_format)
    if strategy == "fsdp":
        return (updated + state + gradient) / ranks
    whole = (computed, updated / ranks) if computed < updated else (updated, 0.0)
    return sum(whole) + state / ranks + (gradient / ranks if strategy == "zero2" else gradient)
