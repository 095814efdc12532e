"""Cases of one stage's time: above the fluid bound, never above the optimum, and proven as written."""

import pytest

from cost_models.registry import cost_model
from cost_models.workload.loading import load_workload
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.case_divisions import StageDivision
from planner.problem.integrality import integrality_floors
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.time_cases import TimeCases
from planner.solvers.lower_bound import bound_of, relaxed_optimum
from planner.verification.proof import faults_of_cases, recomputed_bound_s, write_proof
from tests.oracles.packings import ROUNDING, known_optima, proven_s
from topologies.loading import load_topology


def test_cases_never_prove_more_than_the_optimum() -> None:
    """Of random questions whose optimum is known by enumeration; written down, they prove as much."""
    raised = 0
    for each in known_optima():
        problem = each.instance.problem
        if problem.kinds > 1:
            continue
        fluid = Fluid(problem, integrality_floors(problem))
        relaxed = relaxed_optimum(fluid)
        cases = TimeCases(fluid, relaxed)
        three = cases.raised(bound_of(relaxed))
        bound = cases.divided_more(three)
        assert bound.seconds >= three.seconds
        assert bound.seconds <= each.best.step_s * (1 + ROUNDING), each.instance.description
        assert proven_s(each.instance, bound) >= bound.seconds * (1 - ROUNDING), each.instance.description
        raised += bound.cases is not None
    assert raised > 0


def test_a_block_that_outlasts_its_stage_is_held_whole_or_not_at_all() -> None:
    """Host memory holds what HBM has no room for, and one block of a large table loads its node's link for longer than
    all tables together load each: fractions of it cost less than any plan can have them for."""
    model = cost_model("physical", load_topology("zionex-16", nodes=4), load_workload("synthetic:500@seed=0"))
    problem = build_problem(model, enumerate_options(model, Policy()))
    fluid = Fluid(problem, integrality_floors(problem))
    relaxed = relaxed_optimum(fluid)
    known = bound_of(relaxed)
    cases = TimeCases(fluid, relaxed)
    three = cases.raised(known)
    bound = cases.divided_more(three)
    assert three.seconds > 1.0005 * known.seconds
    assert bound.seconds > 1.0001 * three.seconds
    assert bound.cases is not None
    assert isinstance(bound.cases.division, StageDivision)
    stage = bound.cases.division.stage
    somewhere, peaks = problem.allowed[0], problem.extremes.stage_peaks[:, stage]
    assert problem.extremes.peaks_in_stage(stage)[somewhere] == pytest.approx(peaks[somewhere], rel=1e-9)
    for each in (three, bound):
        proof = write_proof(model, problem, each)
        assert list(faults_of_cases(proof, model, problem)) == []
        assert recomputed_bound_s(proof, model, problem) == pytest.approx(each.seconds, rel=1e-6)
