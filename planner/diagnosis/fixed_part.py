"""What no placement changes of a step, and where each part of it comes from."""

from collections.abc import Iterator
from dataclasses import dataclass

from cost_models.coefficients import Coefficient
from cost_models.floor import HOST
from cost_models.model import CostModel
from cost_models.resources import DEVICE
from cost_models.software import HostPart, host_work
from cost_models.step_costs import StepCosts
from planner.document.plan import Objective

NEGLIGIBLE = 1e-6
"""Share of a bound that is nothing but rounding."""


OVERHEAD = "step_overhead_s"
"""The coefficient that is a step's fixed overhead."""


@dataclass(frozen=True)
class FixedPart:
    """What no placement changes of a step, and what that leaves of the gap."""

    seconds: float
    gap_of_rest: float | None
    """How far the step is from the bound, over what of the bound the placement decides; None where that is nothing."""


def host_beside(model: CostModel) -> "tuple[FixedSeconds, ...]":
    """What the host of one rank does while the device works, part by part, whether or not it is the longer of both;
    none where host and device are added up."""
    if not isinstance(model, StepCosts) or (host := model.coefficients.host_beside) is None or not host.value:
        return ()
    if parts := host_work(model.workload):
        return tuple(FixedSeconds(HOST, f"host: {_counted(part)}", part.seconds) for part in parts)
    return (FixedSeconds(HOST, "host: fixed overhead", host.value),)


def _counted(part: HostPart) -> str:
    return f"{part.name} ({part.count:,} times)" if part.count > 1 else part.name


def fixed_part(objective: Objective, model: CostModel) -> FixedPart | None:
    """The fixed part of a plan's step; None for ratings."""
    if model.quantity != "step":
        return None
    decided_s = objective.lower_bound_s - model.fixed_step_s
    is_some = decided_s > NEGLIGIBLE * objective.lower_bound_s
    gap = (objective.step_s - objective.lower_bound_s) / decided_s if is_some else None
    return FixedPart(model.fixed_step_s, gap)


@dataclass(frozen=True)
class FixedSeconds:
    """A part of the fixed part, and what takes it."""

    stage: str
    what: str
    seconds: float


_ON_DEVICE = {
    "lookup_forward": "launch of the lookup's kernels",
    "output_dist": "bottom MLP, forward",
    "dense": "matrix products",
    "gradient_dist": "bottom MLP, backward",
    "lookup_backward": "launch of the update's kernels",
    "tower_forward": "modules of towers, forward",
    "tower_backward": "modules of towers, backward",
}
_ELSEWHERE = {
    "input_dist": "copy of the batch to the devices",
    "cache_fetch": "first answers of memories",
    "dense": "dense part up to its first gradients, then their sums on the links",
    "all_reduce": "dense gradients on the links",
    "output_dist": "outputs of towers to their peers",
    "gradient_dist": "gradients of these",
    HOST: "what the host does longer than the device",
}


def fixed_seconds(model: CostModel) -> tuple[FixedSeconds, ...]:
    """The parts of `CostModel.fixed_step_s`, which add up to it, in the order of the stages; none of ratings."""
    return tuple(part for part in _fixed_seconds(model) if part.seconds) if isinstance(model, StepCosts) else ()


def _fixed_seconds(model: StepCosts) -> Iterator[FixedSeconds]:
    nothing = model.evaluate_nothing()
    for stage, total, resource in zip(model.stages, nothing.stage_seconds.tolist(), nothing.binding, strict=True):
        if stage == "overhead":
            parts = host_work(model.workload) if model.coefficients.host_beside is None else ()
            for part in parts:
                yield FixedSeconds(stage, f"host: {_counted(part)}", part.seconds)
            overhead_s = model.coefficients.software.step_overhead_s.value
            if not parts:
                yield FixedSeconds(stage, "host: fixed overhead", overhead_s)
            update = model.update
            if total > overhead_s + update.beyond_overhead_s:
                moved_s = total - overhead_s - update.beyond_overhead_s
                yield FixedSeconds(stage, "dense optimizer, beyond the host", moved_s)
            yield FixedSeconds(stage, "Shampoo: sums, and gradients by roots", update.preconditioned_s)
            yield FixedSeconds(stage, "Shampoo: updates gathered", update.gathered_s)
            yield FixedSeconds(stage, "Shampoo: inverse roots, in the mean", update.roots_s / update.frequency)
            continue
        latency_s = 0.0
        if stage in model.schedule.collectives:
            least_s = min(line.latency_s for line in model.lines_of(stage))
            latency_s = least_s if stage in model.protocol_stages else min(total, least_s)
            yield FixedSeconds(stage, "latency of the collective", latency_s)
        words = _ON_DEVICE if resource == DEVICE else _ELSEWHERE
        left_s = total - latency_s
        if stage == "dense" and resource == DEVICE:
            activations_s = min(left_s, model.activation_seconds())
            yield FixedSeconds(stage, _activations(model), activations_s)
            left_s -= activations_s
        yield FixedSeconds(stage, words.get(stage, stage.replace("_", " ")), left_s)


def _activations(model: StepCosts) -> str:
    """What activations take is counted by."""
    if any(kind.beside.counted for kind in model.kinds):
        return "activations, kernel by kernel"
    return f"activations, {model.coefficients.software.activation_passes.value:g} times through memory"


@dataclass(frozen=True)
class FixedCost:
    """A constant of a stage and where it comes from."""

    stage: str
    seconds: float
    coefficient: str
    of: str
    """The file of coefficients: a software profile, or an optimizer."""
    evidence: Coefficient


def fixed_costs(model: CostModel) -> tuple[FixedCost, ...]:
    """The step's fixed overhead, and the inverse roots of an optimizer; none of ratings."""
    if not isinstance(model, StepCosts):
        return ()
    used, update = model.coefficients, model.update
    evidence, stage = used.software.step_overhead_s, "overhead"
    if used.host_beside is not None:
        evidence, stage = used.host_beside, HOST
    roots_s = update.roots_s / update.frequency
    return (
        FixedCost(stage, evidence.value, OVERHEAD, used.software.name, evidence),
        *(FixedCost("overhead", roots_s, "root_column_s", each.name, each.root_column_s) for each in used.optimizers),
    )
