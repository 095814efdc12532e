"""What sharding the dense part bought: the same tables beside a replicated one."""

from dataclasses import dataclass

import numpy as np

from cost_models.dense_sharding import sharding_of
from cost_models.shards import MEMORY_HBM
from cost_models.step_costs import StepCosts
from cost_models.workload.dense_sharding import REPLICATED
from planner.document.plan import Plan
from planner.document.planned import placed_shards
from planner.formulation.dense_choices import with_sharding


@dataclass(frozen=True)
class BesideReplicated:
    """A replicated dense part beside a plan's."""

    more_s: float
    """Of its step over the plan's; below zero where it would be shorter."""
    more_bytes: float
    """HBM that it takes more of each rank."""
    fits: bool
    """Whether the tables would still fit where they are."""


def beside_replicated(plan: Plan, model: StepCosts) -> BesideReplicated | None:
    """That of a plan; None where it is replicated, or there is no plan."""
    if plan.objective is None or not sharding_of(model.workload).is_sharded:
        return None
    placed = placed_shards(plan)
    replicated = type(model)(
        model.topology, with_sharding(model.workload, REPLICATED), model.reserve, exchange=model.exchange
    )
    other, own = replicated.evaluate(placed), model.evaluate(placed)
    fullest = other.rank_bytes[:, MEMORY_HBM]
    return BesideReplicated(
        more_s=replicated.whole_step_s(other.step_s) - model.whole_step_s(own.step_s),
        more_bytes=float((fullest - own.rank_bytes[:, MEMORY_HBM]).max()),
        fits=bool(np.all(fullest <= replicated.memory_capacity[MEMORY_HBM])),
    )
