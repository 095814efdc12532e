"""Raising a bound: it only rises, never passes the optimum of brute force, and comes near to it."""

import numpy as np
import pytest

from planner.formulation.allowed_choices import planning_model
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.case_divisions import MemoryDivision
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.stage_cases import StageCaseSearch
from planner.solvers.construct.fallback import fallback_placement
from planner.solvers.exhaustion import ExhaustiveSearch
from planner.solvers.incumbent import Incumbent
from planner.solvers.limits import SearchLimits
from planner.solvers.lower_bound import BoundRaiser, Rations, bound_of, relaxed_optimum
from planner.verification.proof import faults_of_cases, recomputed_bound_s, write_proof
from tests.oracles.instances import node_group, topology, workload
from tests.oracles.optima import solvable_problems

ROUNDING = 1e-8


@pytest.mark.parametrize("is_quick", [True, False])
def test_no_bound_passes_the_optimum(is_quick: bool) -> None:
    """After each way to raise it, from any placement: at least the relaxation's, at most the optimum."""
    raised = near = 0
    problems = solvable_problems()[::2]
    for problem, best_s in problems:
        fluid, limits = Fluid(problem), SearchLimits(gap=0.0)
        relaxed = relaxed_optimum(fluid)
        incumbent = Incumbent(bound_of(relaxed), limits, lambda *_: None)
        start = fallback_placement(fluid, relaxed, incumbent.clock)
        if start is None:
            continue
        incumbent.offer(*start, "start")
        raiser = BoundRaiser(fluid, relaxed, incumbent, ExhaustiveSearch(problem, incumbent), limits)
        if is_quick:
            raiser.raise_quickly()
        else:
            raiser.raise_all(1)
        assert relaxed.bound_s <= incumbent.bound.seconds <= best_s * (1 + ROUNDING)
        assert incumbent.best_s >= best_s * (1 - ROUNDING)
        raised += incumbent.bound.seconds > relaxed.bound_s * (1 + 1e-6)
        near += incumbent.bound.seconds >= best_s * 0.999
    assert raised >= len(problems) / 3
    assert is_quick or near >= len(problems) * 0.7


def test_without_a_placement_there_is_nothing_to_raise_towards() -> None:
    """The bound stays the relaxation's."""
    problem, _ = solvable_problems()[0]
    fluid, limits = Fluid(problem), SearchLimits(gap=0.0)
    relaxed = relaxed_optimum(fluid)
    incumbent = Incumbent(bound_of(relaxed), limits, lambda *_: None)
    BoundRaiser(fluid, relaxed, incumbent, ExhaustiveSearch(problem, incumbent), limits).raise_quickly()
    assert incumbent.bound.seconds == relaxed.bound_s


def test_an_effort_allows_each_pass_as_much_work_on_patterns() -> None:
    """Whatever the bound and the step did, so that an effort repeats."""
    rations = Rations(SearchLimits(effort=3, pattern_work=8.0))
    assert [rations.allowed(1.0 - 0.1 * passes, 0.5, passes) for passes in (1, 2, 3)] == [8.0, 16.0, 24.0]


def test_without_an_end_work_goes_where_it_gains_more() -> None:
    """Twice as much after the bound rose by more than the step fell, half as much the other way round, within limits;
    and no more for being asked twice in a pass."""
    rations = Rations(SearchLimits(effort=None, pattern_work=16.0))
    assert rations.allowed(1.0, 0.5, 1) == 8.0
    assert rations.allowed(1.0, 0.6, 1) == 8.0
    assert rations.allowed(1.0, 0.6, 2) == 8.0 + 16.0
    assert rations.allowed(0.9, 0.7, 3) == 24.0 + 16.0
    assert rations.allowed(0.8, 0.7, 4) == 40.0 + 8.0
    assert rations.allowed(0.8, 0.7, 5) == 48.0 + 8.0
    allowed = [rations.allowed(0.8 / number, 0.7, number) for number in range(6, 12)]
    assert np.diff(allowed).tolist() == [2.0, 1.0, 1.0, 1.0, 1.0]


def test_a_large_table_is_in_one_memory_or_the_other() -> None:
    """Beside tables that are alike, which fill HBM better, the relaxation has one with a part of its columns there and
    the rest in host memory; no plan does, and the bound is that of the lesser of the two cases."""
    alike: list[dict[str, object]] = [{"rows": 1_000_000, "dim": 64, "pooling_factor": 10}] * 16
    large: dict[str, object] = {"rows": 20_000_000, "dim": 64, "pooling_factor": 10}
    cluster = topology(node_group("a", nodes=2, ranks=2, hbm_bytes=2e9, ddr_bytes=40e9))
    policy = Policy(shardings=("table_wise", "row_wise"), tiers=("hbm", "ddr"))
    model = planning_model("physical", cluster, workload([*alike, large]), policy)
    problem = build_problem(model, enumerate_options(model, policy))
    fluid = Fluid(problem)
    relaxed = relaxed_optimum(fluid)
    search = StageCaseSearch(fluid, relaxed, bound_of(relaxed))
    search.run_options(1.0, 4)
    found = search.whole.proven()
    assert found.cases is not None
    assert found.cases.division == MemoryDivision(len(alike), 1)
    assert found.seconds > relaxed.bound_s * 1.01
    proof = write_proof(model, problem, found)
    assert recomputed_bound_s(proof, model, problem) == pytest.approx(found.seconds, rel=1e-9)
    assert list(faults_of_cases(proof, model, problem)) == []
    assert proof.memory_cases is not None
    nowhere = proof.memory_cases.model_copy(update={"tier": "attic"})
    elsewhere = proof.model_copy(update={"memory_cases": nowhere})
    assert list(faults_of_cases(elsewhere, model, problem)) == ["cases of memory attic: there is no such memory"]
