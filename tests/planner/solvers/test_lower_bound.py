"""Raising a bound: it only rises, never passes the optimum of brute force, and comes near to it."""

import pytest

from planner.certificates.pattern_proofs import pattern_faults
from planner.formulation.allowed_choices import planning_model
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.case_divisions import MemoryDivision
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.presolve import presolve
from planner.solvers.bound.stage_cases import StageCaseSearch
from planner.solvers.construct.fallback import fallback_placement
from planner.solvers.exhaustion import ExhaustiveSearch
from planner.solvers.incumbent import Incumbent
from planner.solvers.limits import SearchLimits
from planner.solvers.lower_bound import BoundRaiser, bound_of, relaxed_optimum
from planner.verification.proof import faults_of_cases, recomputed_bound_s, write_proof
from tests.oracles.instances import node_group, topology, workload
from tests.oracles.optima import solvable_problems
from tests.oracles.patterns import known_patterns

ROUNDING = 1e-8


@pytest.mark.parametrize("is_quick", [True, False])
def test_no_bound_passes_the_optimum(is_quick: bool) -> None:
    """After each way to raise it, from any placement: at least the relaxation's, at most the optimum."""
    raised = near = 0
    problems = solvable_problems()[:: 2 if is_quick else 3]
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


def test_one_threshold_of_all_plans_is_proven_at_once() -> None:
    """Where prices of rank patterns do it, no more than that; above the optimum never."""
    proven = 0
    for known in known_patterns(0, 60):
        problem, best_s = known.instance.problem, known.best.step_s
        for threshold_s in (best_s * 0.99, best_s * 1.01):
            fluid, limits = Fluid(presolve(problem).problem), SearchLimits()
            relaxed = relaxed_optimum(fluid)
            incumbent = Incumbent(bound_of(relaxed), limits, lambda *_: None)
            BoundRaiser(fluid, relaxed, incumbent, ExhaustiveSearch(problem, incumbent), limits).refute(threshold_s)
            assert incumbent.bound.seconds in (relaxed.bound_s, threshold_s)
            if incumbent.bound.patterns is not None:
                assert threshold_s < best_s * (1 + ROUNDING), known.instance.description
                assert list(pattern_faults(problem, incumbent.bound.patterns)) == []
                proven += 1
    assert proven > 5


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
