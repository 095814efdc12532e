"""How far the simulated step is from the estimate, where that is far, and what the simulated one waits for."""

from dataclasses import dataclass

from cost_models.floor import BATCH_COPY, HOST
from planner.document.plan import Plan
from planner.verification.simulation import simulate_plan

DRIFTED = 0.1
"""The share of the estimate by which a simulated step differs that is told and explained."""
DENSE = "dense"
"""The stage of tasks that are of no other."""
STAGE_OF_TASKS = {
    "lookup": "lookup_forward",
    "cache fetch": "cache_fetch",
    "embedding update": "lookup_backward",
    "all-reduce": "all_reduce",
    "input dist": "input_dist",
    "copy to device": BATCH_COPY,
    "output dist": "output_dist",
    "gradient dist": "gradient_dist",
    "dense optimizer": "overhead",
    "overhead": "overhead",
    "host": HOST,
}
"""Stages by the beginning of a task's name."""


@dataclass(frozen=True)
class StageDrift:
    """The stage that is longer or shorter by most on the critical path than in the estimate."""

    stage: str
    estimated_s: float
    played_s: float


def drift(plan: Plan) -> float:
    """The difference of the simulated step from the estimate, relative to it; 0 of a plan without one of both."""
    if plan.simulated is None or plan.objective is None or plan.provenance.cost_model != "physical":
        return 0.0
    return plan.simulated.step_s / plan.objective.step_s - 1


def stage_drift(plan: Plan) -> StageDrift:
    """Where a simulated step waits longest beyond the estimate, or least. It simulates the plan again."""
    played = dict[str, float]()
    for share in simulate_plan(plan).critical_path():
        stage = next((of for begin, of in STAGE_OF_TASKS.items() if share.task.startswith(begin)), DENSE)
        played[stage] = played.get(stage, 0.0) + share.seconds
    stages = {stage.name: stage.seconds for stage in plan.stages}
    differences = {name: played.get(name, 0.0) - stages.get(name, 0.0) for name in {**stages, **played}}
    sign = 1.0 if drift(plan) > 0 else -1.0
    most = max(differences, key=lambda name: sign * differences[name])
    return StageDrift(most, stages.get(most, 0.0), played.get(most, 0.0))
