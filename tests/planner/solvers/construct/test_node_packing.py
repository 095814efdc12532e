"""Tables packed over nodes: the start that comes of it fits, where one block is a third of a node's pool."""

from dataclasses import replace

import numpy as np

from planner.formulation.allowed_choices import planning_model
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.rounding import ROUNDING_BYTES
from planner.solvers.bound.fluid import Fluid
from planner.solvers.construct.caps import blocks_for_nodes
from planner.solvers.construct.node_packing import NodePacking
from planner.solvers.construct.overfull import tight_tiers
from planner.solvers.improve.local_search import LocalSearch
from planner.solvers.incumbent import Incumbent
from planner.solvers.limits import SearchLimits
from planner.solvers.lower_bound import bound_of, relaxed_optimum
from planner.solvers.overfull_starts import OverfullStarts
from tests.oracles.incumbents import whole_tables
from tests.oracles.instances import node_group, topology, workload
from tests.oracles.placements import faults


def nearly_full(free: float) -> Problem:
    """Return forty tables, the largest a third of a node's host memory, on four nodes that have little more than they
    take."""
    rows = (3e6 / np.arange(1, 41) ** 0.9).astype(int).tolist()
    profiles = [{"rows": each, "dim": 64, "pooling_factor": 2 + number % 7} for number, each in enumerate(rows)]
    group = node_group("n", nodes=4, hbm_bytes=1e12, ddr_bytes=1e12, scm_bytes=1e12)
    policy = Policy(tiers=("hbm", "ddr", "scm"))
    model = planning_model("physical", topology(group), workload(profiles), policy)
    problem = build_problem(model, enumerate_options(model, policy))
    is_whole = problem.is_on_rank & (problem.block_units == problem.option_units[problem.block_option])
    stored = (problem.bytes_fixed + problem.bytes_by_rows)[0].sum(axis=1)
    of_table = np.full(problem.tables, np.inf)
    np.minimum.at(of_table, problem.table_of_block[is_whole], stored[is_whole])
    size = float(of_table.sum()) / (1 - free)
    capacities = list(problem.pool_capacity)
    in_use = [tier for tier, capacity in enumerate(capacities) if tier and capacity.sum() > 0]
    for tier in (0, *in_use):
        share = 0.8 / len(in_use) if tier else 0.2
        capacities[tier] = np.full(len(capacities[tier]), share * size / len(capacities[tier]))
    capacities[0] += problem.base_bytes[0]
    return replace(problem, pool_capacity=tuple(capacities))


def test_what_is_packed_fits() -> None:
    """A legal placement comes of it, the same each time."""
    problem = nearly_full(0.1)
    fluid = Fluid(problem)
    relaxed = relaxed_optimum(fluid)
    tight = tight_tiers(fluid, relaxed)
    found = []
    for _ in range(2):
        incumbent = Incumbent(bound_of(relaxed), SearchLimits(gap=0.0), lambda *_: None)
        local = LocalSearch(fluid, relaxed.multipliers, incumbent)
        (start,) = OverfullStarts(fluid, relaxed, tight, incumbent, local, 0).packed()
        found.append(start)
    placement, step_s = found[0]
    assert faults(problem, placement) == []
    state = load_state(problem, placement)
    assert state.overflow_bytes() <= ROUNDING_BYTES
    assert abs(state.step_s() - step_s) <= 1e-9 * step_s
    assert (placement.item_block == found[1][0].item_block).all()
    assert (placement.item_place == found[1][0].item_place).all()


def test_a_node_alone_is_not_packed() -> None:
    """Nor are clusters without a memory that ranks share; nothing else is asked of them."""
    problem = whole_tables(5)
    fluid = Fluid(problem)
    relaxed = relaxed_optimum(fluid)
    assert not NodePacking(fluid, relaxed, blocks_for_nodes(problem, relaxed)).is_possible
