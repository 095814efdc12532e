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


class _Question:
    """So many tables on four nodes of ZionEX, and what is proven of them: by multipliers alone, by three cases, and by
    as many as pay."""

    def __init__(self, tables: int) -> None:
        workload = load_workload(f"synthetic:{tables}@seed=0")
        self.model = cost_model("physical", load_topology("zionex-16", nodes=4), workload)
        self.problem = build_problem(self.model, enumerate_options(self.model, Policy()))
        fluid = Fluid(self.problem, integrality_floors(self.problem))
        relaxed = relaxed_optimum(fluid)
        self.known, cases = bound_of(relaxed), TimeCases(fluid, relaxed)
        self.three = cases.raised(self.known)
        self.bound = cases.divided_more(self.three)

    def check(self) -> None:
        """Blocks load their stage as the cases have it, and what is written down proves as much."""
        assert self.bound.cases is not None
        assert isinstance(self.bound.cases.division, StageDivision)
        stage = self.bound.cases.division.stage
        somewhere, peaks = self.problem.allowed[0], self.problem.extremes.stage_peaks[:, stage]
        assert self.problem.extremes.peaks_in_stage(stage)[somewhere] == pytest.approx(peaks[somewhere], rel=1e-9)
        for each in (self.three, self.bound):
            proof = write_proof(self.model, self.problem, each)
            assert list(faults_of_cases(proof, self.model, self.problem)) == []
            assert recomputed_bound_s(proof, self.model, self.problem) == pytest.approx(each.seconds, rel=1e-6)


def test_a_block_that_outlasts_its_stage_is_held_whole_or_not_at_all() -> None:
    """Host memory holds what HBM has no room for, and one block of a large table loads its node's link for longer than
    all tables together load each: fractions of it cost less than any plan can have them for."""
    question = _Question(500)
    assert question.three.seconds > 1.0005 * question.known.seconds
    assert question.bound.seconds > 1.0009 * question.known.seconds
    question.check()


def test_more_cases_prove_more_where_more_blocks_outlast_the_stage() -> None:
    """A hundred tables more are as many bytes more for which HBM has no room: blocks of more lengths are barred or
    held, and three cases are too few for them."""
    question = _Question(600)
    assert question.three.seconds > 1.0001 * question.known.seconds
    assert question.bound.seconds > 1.0002 * question.three.seconds
    question.check()
