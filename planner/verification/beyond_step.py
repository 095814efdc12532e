"""What a step is expected to take beyond its stages, in the words of the document, and whether a document's is that of
its costs. Neither step nor bound has a part of it."""

from collections.abc import Iterator

import numpy as np

from cost_models.model import CostModel
from planner.document.plan import Objective, Plan
from planner.document.planned import placed_shards

TOLERANCE = 1e-9
"""Share of the step by which two orders of summation may differ."""


def with_beyond_step(plan: Plan, model: CostModel) -> Plan:
    """The plan with what its step takes beyond its stages."""
    beyond = {name: seconds or None for name, seconds in _beyond(plan, model).items()}
    return plan.model_copy(update={"objective": _objective(plan).model_copy(update=beyond)})


def faults_beyond_step(plan: Plan, model: CostModel) -> Iterator[str]:
    """Seconds that are not those of the placement."""
    objective = _objective(plan)
    for name, seconds in _beyond(plan, model).items():
        stated = getattr(objective, name)
        if not np.isclose(stated or 0.0, seconds, rtol=TOLERANCE, atol=TOLERANCE * objective.step_s):
            yield f"objective: {name} is {stated!r}, not {seconds!r}"


def _objective(plan: Plan) -> Objective:
    assert plan.objective is not None
    return plan.objective


def _beyond(plan: Plan, model: CostModel) -> dict[str, float]:
    """By the fields of the document's objective."""
    placed = placed_shards(plan)
    return {
        "mixing_s": model.mixing_seconds(placed.blocks.sharding),
        "cache_launch_s": model.cache_launch_seconds(placed.blocks.tier),
        "length_imbalance_s": model.length_imbalance_s,
        "hot_rows_s": model.hot_rows_s(placed),
    }
