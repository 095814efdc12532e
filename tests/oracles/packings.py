"""Instances in which blocks pack badly, and the bounds that dual feasible functions prove of them."""

import functools
from dataclasses import dataclass

import numpy as np

from planner.certificates.multipliers import Bound
from planner.formulation.allowed_choices import planning_model
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.load_state import load_state
from planner.problem.numbers import Floats
from planner.problem.placement import Placement
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.dual_feasible_cuts import strengthen
from planner.solvers.bound.fluid import Fluid
from planner.verification.proof import recomputed_bound_s, write_proof
from tests.oracles.brute_force import Optimum, optimum
from tests.oracles.instances import Instance, confined_instance, node_group, tiny_instance, topology, workload

ROUNDING = 1e-12


@dataclass(frozen=True)
class Known:
    instance: Instance
    best: Optimum

    def stage_seconds(self) -> Floats:
        """[S] seconds of the stages of the optimum, constants aside."""
        problem, placement = self.instance.problem, self.placement
        return np.asarray(load_state(problem, placement).stage_seconds() - problem.stage_constants)

    @property
    def placement(self) -> Placement:
        """The optimum as a search would hold it."""
        items = sorted(item for _, places in self.best.choices for item in places)
        return Placement(np.array([block for block, _ in items]), np.array([place for _, place in items]))


@functools.cache
@functools.cache
def known_optima() -> list[Known]:
    """Tiny instances with tiers, policies and two kinds of rank, whose optimum is known by trying everything."""
    instances = [tiny_instance(seed) for seed in range(0, 60, 2)] + [
        confined_instance(seed) for seed in range(0, 30, 2)
    ]
    pairs = [(each, optimum(each.problem)) for each in instances if len(each.options.table)]
    return [Known(each, best) for each, best in pairs if best is not None]


def proven_s(instance: Instance, bound: Bound) -> float:
    """What `verify` makes of a bound's proof."""
    return recomputed_bound_s(write_proof(instance.model, instance.problem, bound), instance.model, instance.problem)


@functools.cache
def nine_tables() -> Instance:
    """Nine whole tables of unlike sizes, each more than half as long as the longest, on eight ranks."""
    cluster = topology(node_group("a", nodes=4, ranks=2, hbm_bytes=40e9))
    tables = [{"rows": 100_000, "dim": 128, "pooling_factor": 20 + i} for i in range(9)]
    policy = Policy(shardings=("table_wise",), tiers=("hbm",))
    model = planning_model("torchrec", cluster, workload(tables), policy)
    options = enumerate_options(model, policy)
    return Instance(model, policy, options, build_problem(model, options), "nine tables on eight ranks")


@functools.cache
def nine_tables_in_stages() -> Instance:
    """Nine whole tables on eight ranks again, by the time of a step: two of them fit a rank in every single stage of
    the best step, as that leaves a stage all that the others may be shorter by, but not in all stages at once."""
    cluster = topology(node_group("a", nodes=4, ranks=2, hbm_bytes=40e9))
    tables = [{"rows": 100_000, "dim": 128, "pooling_factor": 20 + i} for i in range(9)]
    policy = Policy(shardings=("table_wise",), tiers=("hbm",))
    model = planning_model("physical", cluster, workload(tables, global_batch=65_536), policy)
    options = enumerate_options(model, policy)
    return Instance(model, policy, options, build_problem(model, options), "nine tables on eight ranks, by stages")


@functools.cache
def tables_of_two_fifths() -> Instance:
    """Five whole tables, each of two fifths of a rank's HBM, on two ranks: four of them fit, where bytes leave room for
    all five. Host memory, which is far slower, takes any."""
    cluster = topology(node_group("a", nodes=1, ranks=2, hbm_bytes=1e9, ddr_bytes=4e9))
    tables = [{"rows": 1_600_000, "dim": 60, "pooling_factor": 20} for _ in range(5)]
    policy = Policy(shardings=("table_wise",), tiers=("hbm", "ddr"))
    model = planning_model("physical", cluster, workload(tables), policy)
    options = enumerate_options(model, policy)
    return Instance(model, policy, options, build_problem(model, options), "five tables of two fifths of a rank")


def strengthened(instance: Instance, step_s: float) -> tuple[Bound, Bound]:
    """The fluid bound, and what functions make of it."""
    fluid = Fluid(instance.problem)
    relaxed = solve_relaxation(fluid)
    before = Bound(relaxed.bound_s, relaxed.multipliers, None)
    return before, strengthen(fluid, before, step_s)
