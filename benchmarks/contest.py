"""One instance, one solver: what it takes, and how good what it finds is, by the cost model that judges all."""

import time
from dataclasses import dataclass

import numpy as np

from benchmarks.baselines import BASELINES
from cost_models.model import CostModel
from cost_models.shards import MEMORY_TIERS, PlacedShards
from planner.build import document
from planner.options import Policy, build_problem, enumerate_options
from planner.provenance import provenance
from planner.solvers.search import Limits, solve
from planner.verification import placed_shards

OURS = "ours"


@dataclass(frozen=True)
class Attempt:
    """What a solver found. Seconds, or what else the cost model counts in."""

    solver: str
    objective: float | None
    """None where it found nothing, or nothing that fits into memory."""
    bound: float | None
    """Our planner's; the others prove nothing."""
    wall_s: float
    """From the cost model to the finished plan."""
    cpu_s: float
    shards: int


def attempt(model: CostModel, policy: Policy, solver: str, limits: Limits) -> Attempt:
    """Run `solver`, `ours` or a baseline, and judge its placement. The seed is that of the limits."""
    began, cpu_began = time.perf_counter(), time.process_time()
    placed, bound = None, None
    if solver == OURS:
        options = enumerate_options(model, policy)
        problem = build_problem(model, options)
        outcome = solve(problem, limits)
        plan = document(model, options, problem, outcome, provenance(model, policy, limits.seed))
        if plan.objective is not None:
            placed, bound = placed_shards(plan), plan.objective.lower_bound_s
    else:
        placed = BASELINES[solver](model, np.random.default_rng(limits.seed))
    wall_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
    objective = None if placed is None else judged(model, placed)
    return Attempt(solver, objective, bound, wall_s, cpu_s, 0 if placed is None else len(placed.rank))


def judged(model: CostModel, placed: PlacedShards) -> float | None:
    """The objective of a placement by the cost model's own sums over its shards; None where a memory overflows."""
    evaluation = model.evaluate(placed)
    for m in range(len(MEMORY_TIERS)):
        capacity, pool = model.memory_capacity[m], model.memory_pool_of_rank[m]
        taken = np.bincount(pool, weights=evaluation.rank_bytes[:, m], minlength=len(capacity))
        if (taken > capacity + 1).any():
            return None
    return evaluation.step_s
