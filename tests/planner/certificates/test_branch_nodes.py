"""Branching by cases: never above the optimum, and a tree that leaves something out is found."""

import json

import numpy as np
import pytest

from benchmarks.instances import SHIPPED_CASES
from cost_models.registry import cost_model
from cost_models.torchrec.cases import case_topology, case_workload
from planner.certificates.branch_nodes import BranchingRules
from planner.certificates.branch_trees import BranchTree, gap_in, tree_bound_s, tree_faults
from planner.certificates.parts import Part
from planner.formulation.allowed_choices import planning_model
from planner.formulation.options import Policy, build_problem, enumerate_options
from planner.problem.arrays import Problem
from planner.problem.numbers import Floats
from planner.solvers.bound.branching import BranchAndBound, BranchingResult, StopRule, branch
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.infeasible import shortage
from planner.solvers.bound.threshold import least_of_stages, tighten
from planner.solvers.limits import SearchLimits
from planner.solvers.search import solve
from tests.oracles.brute_force import optimum
from tests.oracles.instances import confined_instance, node_group, tiny_instance, topology, workload
from tests.oracles.placements import faults

NODES = 60


def branched(problem: Problem, step_s: float) -> tuple[BranchingResult, Floats]:
    """The tree below a known step, and the seconds that every plan takes in each stage."""
    fluid = Fluid(problem)
    bound = tighten(fluid, solve_relaxation(fluid), step_s)
    least = least_of_stages(fluid, bound.multipliers)
    return branch(problem, bound.multipliers, least, step_s, StopRule(NODES)), least


@pytest.fixture(scope="module")
def example() -> tuple[Problem, BranchingResult, Floats]:
    """A tree of many cases."""
    problem = tiny_instance(20).problem
    best = optimum(problem)
    assert best is not None
    found, least = branched(problem, best.step_s * 1.01)
    assert len(found.tree.nodes) > 20
    return problem, found, least


@pytest.mark.parametrize("seed", range(30))
def test_no_case_promises_too_much(seed: int) -> None:
    """Bound ≤ optimum ≤ step; the check of the tree finds no fault and proves the same."""
    problem = tiny_instance(seed).problem
    best = optimum(problem)
    if best is None or shortage(Fluid(problem)):
        return
    found, least = branched(problem, best.step_s * 1.02)
    assert found.bound_s <= best.step_s * (1 + 1e-12)
    assert found.step_s >= best.step_s * (1 - 1e-12)
    assert list(tree_faults(problem, found.tree, least)) == []
    proven = tree_bound_s(problem, found.tree, least)
    assert found.bound_s * (1 - 1e-8) <= proven <= best.step_s * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(15))
def test_branching_that_goes_on_below_a_faster_plan_is_a_proof(seed: int) -> None:
    """Bound ≤ optimum; the check of the tree finds no fault, and the bound does not fall."""
    problem = tiny_instance(seed).problem
    best = optimum(problem)
    if best is None or shortage(Fluid(problem)):
        return
    fluid = Fluid(problem)
    bound = tighten(fluid, solve_relaxation(fluid), best.step_s * 1.2)
    least = least_of_stages(fluid, bound.multipliers)
    branches = BranchAndBound(problem, bound.multipliers, least, best.step_s * 1.2)
    branches.run(StopRule(NODES // 3))
    first = branches.result()
    branches.lower(best.step_s * 1.01)
    branches.run(StopRule(NODES))
    found = branches.result()
    assert min(first.bound_s, found.tree.threshold_s) <= found.bound_s <= best.step_s * (1 + 1e-12)
    assert list(tree_faults(problem, found.tree, least)) == []
    proven = tree_bound_s(problem, found.tree, least)
    assert found.bound_s * (1 - 1e-8) <= proven <= best.step_s * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(40))
def test_cases_keep_to_the_policy(seed: int) -> None:
    """Pinned, held together, kept apart: what the cases promise holds, and plans that they end in have no faults."""
    instance = confined_instance(seed)
    best = optimum(instance.problem) if len(instance.options.table) else None
    if best is None or shortage(Fluid(instance.problem)):
        return
    problem = instance.problem
    found, least = branched(problem, best.step_s * 1.02)
    assert found.bound_s <= best.step_s * (1 + 1e-12)
    assert found.step_s >= best.step_s * (1 - 1e-12)
    assert found.placement is None or faults(problem, found.placement) == []
    assert list(tree_faults(problem, found.tree, least)) == []
    proven = tree_bound_s(problem, found.tree, least)
    assert found.bound_s * (1 - 1e-8) <= proven <= best.step_s * (1 + 1e-12)


def test_only_what_breaks_the_policy_may_be_left_out() -> None:
    """Two tables apart on three ranks: not the case that has them on one; of two equal ranks either."""
    cluster = topology(node_group("a", ranks=3))
    trained = workload([{"rows": 20_000, "dim": 64, "pooling_factor": 5 + i} for i in range(4)])
    policy = Policy.model_validate(
        {"tiers": ("hbm",), "shardings": ("table_wise",), "separate": [{"tables": ["t2", "t3"], "on": "rank"}]}
    )
    model = planning_model("physical", cluster, trained, policy)
    problem = build_problem(model, enumerate_options(model, policy))
    rules = BranchingRules(problem, 1.0, np.zeros(len(problem.stage_constants)))
    beside = rules.child(rules.state({}), 2, 0, Part(2, 2, 0))
    assert beside is not None
    assert rules.child(beside, 3, 0, Part(3, 3, 0)) is None
    assert gap_in(rules, beside, 3, 0, [Part(3, 3, 1)]) is None
    assert gap_in(rules, beside, 3, 0, []) is not None
    assert gap_in(rules, beside, 1, 0, [Part(1, 1, 1)]) is not None
    assert gap_in(rules, beside, 1, 0, [Part(1, 1, 0), Part(1, 1, 1)]) is None


def test_branching_finds_plans_and_proves_them_optimal() -> None:
    """Of the first instances most are solved to the end."""
    proven = feasible = 0
    for seed in range(12):
        problem = tiny_instance(seed).problem
        best = optimum(problem)
        if best is not None:
            found = solve(problem, SearchLimits(gap=0.0, cases=NODES))
            feasible += 1
            proven += found.status == "optimal"
            assert found.status != "optimal" or found.step_s == pytest.approx(best.step_s, rel=2e-6)
    assert proven >= 0.7 * feasible


def test_a_case_that_is_left_out_is_found(example: tuple[Problem, BranchingResult, Floats]) -> None:
    """Each leaf in turn: without it the tree has a fault, unless no plan below the threshold is of it."""
    problem, found, least = example
    nodes = found.tree.nodes
    leaves = [i for i in range(1, len(nodes)) if all(node.parent != i for node in nodes)]
    noticed = 0
    for gone in leaves[-8:]:
        kept = [node for i, node in enumerate(nodes) if i != gone]
        moved = [node._replace(parent=node.parent - (node.parent > gone)) for node in kept]
        noticed += any(tree_faults(problem, BranchTree(found.tree.threshold_s, tuple(moved)), least))
    assert noticed == len(leaves[-8:])


def test_multipliers_that_are_none_are_found(example: tuple[Problem, BranchingResult, Floats]) -> None:
    """Too much weight, or below zero."""
    problem, found, least = example
    root, *rest = found.tree.nodes
    assert root.multipliers is not None
    for factor in (1.01, -1.0):
        wrong = root.multipliers._replace(weight=root.multipliers.weight * factor)
        tree = BranchTree(found.tree.threshold_s, (root._replace(multipliers=wrong), *rest))
        assert any(tree_faults(problem, tree, least))


def test_worse_multipliers_prove_less(example: tuple[Problem, BranchingResult, Floats]) -> None:
    """Without weight nothing is proven beyond the constants."""
    problem, found, least = example
    nodes = tuple(
        node._replace(multipliers=None if i else type(node.multipliers)(*map(np.zeros_like, node.multipliers)))
        for i, node in enumerate(found.tree.nodes)
    )
    proven = tree_bound_s(problem, BranchTree(found.tree.threshold_s, nodes), least)
    assert proven < found.bound_s


def test_a_wrong_order_is_found(example: tuple[Problem, BranchingResult, Floats]) -> None:
    """Parents come before their children."""
    problem, found, least = example
    turned = BranchTree(found.tree.threshold_s, tuple(reversed(found.tree.nodes)))
    assert any(tree_faults(problem, turned, least))


def test_memory_beside_a_large_block_raises_the_bound() -> None:
    """100 tables on 8 ranks: 5.921 ms for all plans at once, 6.189 ms case by case; 6.2071 ms is known."""
    cluster = case_topology(json.loads((SHIPPED_CASES / "w8_h40.json").read_text()))
    trained = case_workload(json.loads((SHIPPED_CASES / "n100_s20340.json").read_text()), 2048)
    model = cost_model("torchrec", cluster, trained)
    problem = build_problem(model, enumerate_options(model, Policy()))
    found, _ = branched(problem, 6.2071e-3)
    assert found.bound_s == pytest.approx(6.189e-3, rel=1e-3)
