"""Branch and bound: never above the optimum, with a tree that proves as much."""

import json

import pytest

from benchmarks.instances import SHIPPED_CASES
from cost_models.registry import cost_model
from cost_models.torchrec.cases import case_topology, case_workload
from planner.certificates.branch_trees import tree_bound_s, tree_faults
from planner.formulation.options import Policy, build_problem, enumerate_options
from planner.solvers.bound.branching import BranchAndBound, StopRule
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.infeasible import shortage
from planner.solvers.bound.threshold import least_of_stages, tighten
from planner.solvers.limits import SearchLimits
from planner.solvers.search import solve
from tests.oracles.branchings import NODES, branched
from tests.oracles.brute_force import optimum
from tests.oracles.instances import confined_instance, tiny_instance
from tests.oracles.placements import faults
from tests.seeds import seeds


@pytest.mark.parametrize("seed", seeds(range(0, 30, 2), range(30)))
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


@pytest.mark.parametrize("seed", seeds((*range(0, 40, 2), 27), range(40)))
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


def test_branching_finds_plans_and_proves_them_optimal() -> None:
    """Of the first instances most are solved to the end."""
    proven = feasible = 0
    for seed in range(12):
        problem = tiny_instance(seed).problem
        best = optimum(problem)
        if best is not None:
            found = solve(problem, SearchLimits(gap=0.0, branch_nodes=NODES))
            feasible += 1
            proven += found.status == "optimal"
            assert found.status != "optimal" or found.step_s == pytest.approx(best.step_s, rel=2e-6)
    assert proven >= 0.7 * feasible


def test_memory_beside_a_large_block_raises_the_bound() -> None:
    """100 tables on 8 ranks: 5.921 ms for all plans at once, 6.189 ms case by case; 6.2071 ms is known."""
    cluster = case_topology(json.loads((SHIPPED_CASES / "w8_h40.json").read_text()))
    trained = case_workload(json.loads((SHIPPED_CASES / "n100_s20340.json").read_text()), 2048)
    model = cost_model("torchrec", cluster, trained)
    problem = build_problem(model, enumerate_options(model, Policy()))
    found, _ = branched(problem, 6.2071e-3)
    assert found.bound_s == pytest.approx(6.189e-3, rel=1e-3)
