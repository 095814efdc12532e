"""One instance, one solver: what it takes, and how good what it finds is, by the cost model that judges all."""

import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from benchmarks.baselines import BASELINES
from benchmarks.figures import Limit
from cost_models.model import CostModel
from cost_models.registry import cost_model
from cost_models.shards import EXTENT_OF_SHARDING, RANK, PlacedShards
from cost_models.workload.models import Workload
from planner.document.plan import Plan
from planner.document.planned import placed_shards
from planner.planning import planning as api
from topologies.cluster import Topology


@dataclass(frozen=True)
class Search:
    """Our planner with limits; see `planner.planning.planning.plan`. None: its defaults."""

    time_limit_s: float | None = None
    effort: int | None = None
    gap: float = 0.01


@dataclass(frozen=True)
class Instance:
    """One planning problem."""

    name: str
    topology: Callable[[], Topology]
    workload: Callable[[], Workload]
    cost_model: str = "physical"
    tiers: tuple[str, ...] | None = None
    shardings: tuple[str, ...] | None = None
    peers: tuple[tuple[str, float], ...] = ()
    """Objectives that other planners are known to reach."""
    limits: tuple[tuple[str, Limit], ...] = ()
    """(solver, what it must keep to)."""


@dataclass(frozen=True)
class Attempt:
    """What a solver found. The objective is in seconds, or in what else the cost model counts."""

    instance: str
    solver: str
    seed: int
    status: str
    objective: float | None
    """None where nothing was found, or nothing that fits into memory."""
    bound: float | None
    """What our planner proves; the others prove nothing."""
    gap: float | None
    first_plan_s: float | None
    """Until our planner had a first plan."""
    wall_s: float
    """From the inputs, read already, to the finished plan."""
    cpu_s: float
    peak_bytes: int
    """The most memory that the process held at once, so far."""
    shards_per_rank: float
    """Mean number of shards that have a rank of their own choice: parts of tables cut by rows over many ranks, and
    replicas, leave nothing to place."""
    plan: Plan | None
    """Our planner's document."""

    @property
    def is_ours(self) -> bool:
        """Whether our planner made it."""
        return self.solver not in BASELINES

    def without_plan(self) -> "Attempt":
        """Light enough to be sent from process to process."""
        return replace(self, plan=None)

    def record(self) -> dict[str, Any]:
        """All but the plan, as plain data."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "plan"}


def attempt(instance: Instance, name: str, solver: Search | None, seed: int) -> Attempt:
    """Run the solver called `name`: our planner where `solver` gives its limits, else the baseline of that name."""
    topology, workload = instance.topology(), instance.workload()
    clock = _Clock()
    if solver is not None:
        plan = api.plan(
            topology,
            workload,
            cost_model=instance.cost_model,
            tiers=instance.tiers,
            shardings=instance.shardings,
            time_limit_s=solver.time_limit_s,
            effort=solver.effort,
            gap=solver.gap,
            seed=seed,
            progress=clock.hear,
        )
        wall_s, cpu_s = clock.read()
        placed = placed_shards(plan) if plan.tables else None
        model = cost_model(instance.cost_model, topology, workload)
        status = plan.status
    else:
        plan, model = None, cost_model(instance.cost_model, topology, workload)
        placed = BASELINES[name](model, np.random.default_rng(seed))
        wall_s, cpu_s = clock.read()
        status = "nothing found" if placed is None else "feasible"
    objective = None if placed is None else judged(model, placed)
    bound = plan.objective.lower_bound_s if plan is not None and plan.objective is not None else None
    return Attempt(
        instance=instance.name,
        solver=name,
        seed=seed,
        status="out of memory" if placed is not None and objective is None else status,
        objective=objective,
        bound=bound,
        gap=objective / bound - 1 if objective is not None and bound is not None else None,
        first_plan_s=clock.first_plan_s,
        wall_s=wall_s,
        cpu_s=cpu_s,
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        shards_per_rank=0.0 if placed is None else _placed_one_by_one(placed) / topology.world_size,
        plan=plan,
    )


def judged(model: CostModel, placed: PlacedShards) -> float | None:
    """The objective of a placement by the cost model's own sums over its shards; None where a memory overflows."""
    evaluation = model.evaluate(placed)
    for m in range(len(model.memories)):
        capacity, pool = model.memory_capacity[m], model.memory_pool_of_rank[m]
        taken = np.bincount(pool, weights=evaluation.rank_bytes[:, m], minlength=len(capacity))
        if (taken > capacity + 1).any():
            return None
    return evaluation.step_s


def _placed_one_by_one(placed: PlacedShards) -> int:
    return int((EXTENT_OF_SHARDING[placed.blocks.sharding] == RANK).sum())


class _Clock:
    """Wall and processor time since its start, and when the first plan was heard of."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        self.first_plan_s: float | None = None

    def hear(self, _what: str, best: float | None, _bound: float | None) -> None:
        if best is not None and self.first_plan_s is None:
            self.first_plan_s = time.perf_counter() - self._wall

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self._wall, time.process_time() - self._cpu
