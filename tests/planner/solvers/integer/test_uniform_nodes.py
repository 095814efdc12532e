"""Plans whose nodes all hold the same: whole, within memory, alike on all nodes, and as fast as any such plan."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from cost_models.shards import Sharding
from cost_models.tiers import PlacementTier
from planner.formulation.allowed_choices import planning_model
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.problem.table_classes import table_classes
from planner.solvers.bound.fluid import Fluid
from planner.solvers.integer.uniform_nodes import UniformNodes
from planner.solvers.limits import Clock, SearchLimits
from tests.oracles.instances import node_group, topology, workload
from tests.oracles.placements import faults

ENDLESS = Clock(SearchLimits())
ALIKE = {"rows": 1_000_000, "dim": 64, "pooling_factor": 10}


def problem_of(
    tables: list[dict[str, object]],
    nodes: int = 4,
    hbm_bytes: float = 0.7e9,
    shardings: tuple[Sharding, ...] = ("table_wise", "table_row_wise", "row_wise"),
    tiers: tuple[PlacementTier, ...] = ("hbm", "ddr"),
) -> Problem:
    """Tables in HBM or host memory, whole or by rows over a node or over all ranks, on so many nodes of two ranks."""
    cluster = topology(node_group("a", nodes=nodes, ranks=2, hbm_bytes=hbm_bytes, ddr_bytes=3e9))
    policy = Policy(shardings=shardings, tiers=tiers)
    model = planning_model("physical", cluster, workload(tables), policy)
    return build_problem(model, enumerate_options(model, policy))


def choices(problem: Problem, table: int) -> list[int]:
    """The block of each option of one block of a table."""
    blocks = np.arange(*problem.table_block_start[table : table + 2])
    whole = problem.block_units[blocks] == problem.option_units[problem.block_option[blocks]]
    return blocks[whole & (problem.block_count[blocks] == 1)].tolist()


def uniform_steps(problem: Problem) -> Iterator[float]:
    """Steps of the plans of tables of one class that fit and in which as many are on each site of a type of blocks."""
    own = choices(problem, 0)
    width = np.diff(problem.table_block_start)[0]
    for taken in itertools.combinations_with_replacement(own, problem.tables):
        blocks, places = [], []
        for block in sorted(set(taken)):
            sites, times = problem.sites_of(block), taken.count(block)
            if sites.reach != "world" and times % sites.count:
                break
            start = len(blocks)
            blocks += [block + width * (start + number) for number in range(times)]
            places += [-1 if sites.reach == "world" else number % sites.count for number in range(times)]
        else:
            order = np.lexsort((places, blocks))
            state = load_state(problem, Placement(np.array(blocks)[order], np.array(places)[order]))
            if state.overflow_bytes() <= 0:
                yield state.step_s()


def uniform_plan(problem: Problem, below_s: float = np.inf) -> tuple[Placement, float] | None:
    nodes = UniformNodes(problem)
    assert nodes.is_possible
    fluid = Fluid(problem)
    return nodes.plan(fluid.choice_values(fluid.no_multipliers()), np.inf, below_s, ENDLESS)


def test_no_uniform_plan_is_faster() -> None:
    """Eight tables, of which HBM holds some: every way to hold them in equal numbers, by enumeration."""
    problem = problem_of([ALIKE] * 8)
    found = uniform_plan(problem)
    assert found is not None
    placement, step_s = found
    steps = list(uniform_steps(problem))
    assert len(steps) > 20
    assert step_s == pytest.approx(min(steps), rel=1e-6)
    assert faults(problem, placement) == []


def test_what_is_left_over_of_a_round_stays_away() -> None:
    """Three classes, one of a number that no sites but all ranks divide."""
    tables = [ALIKE] * 8 + [{**ALIKE, "pooling_factor": 3}] * 8 + [{**ALIKE, "rows": 50_000}] * 9
    problem = problem_of(tables)
    found = uniform_plan(problem)
    assert found is not None
    assert faults(problem, found[0]) == []
    state = load_state(problem, found[0])
    assert state.step_s() == found[1]
    assert state.overflow_bytes() == 0


def test_only_what_is_faster_is_returned() -> None:
    """Below its own step there is nothing."""
    problem = problem_of([ALIKE] * 8)
    found = uniform_plan(problem)
    assert found is not None
    again = uniform_plan(problem, found[1] * 1.001)
    assert again is not None
    assert again[1] == pytest.approx(found[1], rel=1e-6)
    assert uniform_plan(problem, found[1] * 0.999) is None


def test_unlike_tables_or_nodes_are_left_to_the_others() -> None:
    """Tables of many classes; one node; memory that no uniform plan fits."""
    unlike = problem_of([{**ALIKE, "rows": 1_000 * (number + 1)} for number in range(8)])
    assert not UniformNodes(unlike).is_possible
    assert not UniformNodes(problem_of([ALIKE] * 8, nodes=1, hbm_bytes=8e9)).is_possible
    full = problem_of([ALIKE] * 8)
    full = replace(full, pool_capacity=tuple(np.minimum(of_tier, 1e8) for of_tier in full.pool_capacity))
    assert uniform_plan(full) is None


def test_classes_are_of_tables_that_nothing_tells_apart() -> None:
    """Rows, lookups and blocks that are allowed tell them apart; numbers are those of the first tables."""
    problem = problem_of([ALIKE, {**ALIKE, "pooling_factor": 3}, ALIKE, {**ALIKE, "rows": 999_999}, ALIKE])
    assert table_classes(problem).tolist() == [0, 1, 0, 2, 0]
    allowed = problem.allowed.copy()
    allowed[0, problem.table_block_start[2]] ^= True
    assert table_classes(replace(problem, allowed=allowed)).tolist() == [0, 1, 2, 3, 0]
