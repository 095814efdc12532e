"""The integer programme after the search: better plans, and a solver's word beside the certified bound."""

import math
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from cost_models.registry import cost_model
from planner.certificates.multipliers import Bound
from planner.document.plan import Plan
from planner.formulation.formulation import Formulation
from planner.formulation.policy import Policy
from planner.formulation.replica_choices import ReplicaChoices
from planner.planning import integer_solution
from planner.planning.planning import plan
from planner.planning.programme_file import write_programme
from planner.solvers.incumbent import Outcome
from planner.solvers.integer.solving import Solved, SolverLimits
from planner.solvers.limits import SearchLimits
from planner.solvers.search import relaxed
from planner.verification.unchecked import unchecked
from planner.verification.verify import verify
from tests.oracles.instances import node_group, topology, workload
from tests.oracles.questions import question
from tests.seeds import seeds
from topologies.errors import InputError

UNPROVEN = (500040, 500043, 500094)
"""Questions that a search of one pass leaves unproven: of the ratings, and of a step with four protocols."""


@cache
def planned(number: int, solver: str, effort: int = 1) -> Plan:
    asked = question(number)
    topology, workload, policy = asked.records
    limits = {"effort": effort, "gap": 0.0, "simulate": False}
    return plan(topology, workload, policy=policy, cost_model=asked.cost_model, solver=solver, **limits)


def best_s(made: Plan) -> float:
    assert made.objective is not None
    return made.objective.best_step_s or made.objective.step_s


@pytest.mark.parametrize("number", seeds(UNPROVEN[:2], UNPROVEN))
def test_the_word_closes_what_the_certificate_leaves_open(number: int) -> None:
    """The plan is not worse, the certified bound stays, and the solver's is above it, up to the step."""
    searched, solved = planned(number, "search"), planned(number, "auto")
    assert searched.objective is not None
    assert solved.objective is not None
    assert best_s(solved) <= best_s(searched)
    word_s = solved.objective.solver_bound_s
    assert word_s is not None
    assert solved.objective.lower_bound_s < word_s <= best_s(solved) <= word_s * (1 + 2e-5)
    assert solved.status == "feasible"
    assert solved.objective.gap > 1e-6


def test_what_is_stated_is_verified_or_named() -> None:
    """Nothing is wrong with such a plan; the word is said not to be recomputed; one above the step is refused."""
    solved = planned(500040, "auto")
    assert verify(solved) == []
    assert "objective.solver_bound_s" in [field.field for field in unchecked(solved)]
    assert "integer programme (SCIP)" in solved.provenance.solver
    assert solved.objective is not None
    for word_s in (solved.objective.step_s * 1.01, solved.objective.lower_bound_s):
        told = solved.objective.model_copy(update={"solver_bound_s": word_s})
        assert any("solver_bound_s" in fault for fault in verify(solved.model_copy(update={"objective": told})))


def test_other_protocols_are_left_out_after_one_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    """`auto` gives up where a programme at another protocol ends undecided, and tells the certificate's bound of all
    others; `ilp` asks on."""
    asked: list[SolverLimits] = []

    def undecided(*given: object) -> Solved:
        asked.append(next(each for each in given if isinstance(each, SolverLimits)))
        return Solved(None, math.inf, 0.0, asked[-1].in_vain or 1, ran_out_of_time=False)

    monkeypatch.setattr(integer_solution, "solved", undecided)
    cluster = topology(node_group("a", nodes=2, ranks=4, hbm_bytes=40e9))
    tables = [{"rows": 100_000 * (i + 1), "dim": 64, "pooling_factor": 5 + i} for i in range(4)]
    formulation = Formulation.of(cost_model("physical", cluster, workload(tables)), Policy(tiers=("hbm",)))
    found = relaxed(formulation.problem)
    assert isinstance(found, Bound)
    outcome = Outcome("feasible", None, 3 * found.seconds, found, None)
    in_vain = {}
    for solver in get_args(integer_solution.Solver):
        asked.clear()
        _, with_word = integer_solution.with_programme(formulation, outcome, solver, SearchLimits(gap=0.0))
        in_vain[solver] = [limits.in_vain for limits in asked]
        assert with_word.step_s == outcome.step_s
        assert (with_word.solver_bound_s or 0.0) <= found.seconds
    assert in_vain["search"] == []
    assert in_vain["auto"] == [None, 100]
    assert in_vain["ilp"] == [None] * len(formulation.model.all_protocols)
    assert len(in_vain["ilp"]) > 2


def test_search_alone_says_nothing_of_a_programme() -> None:
    """Neither does `auto` without a pass."""
    for made in (planned(500040, "search"), planned(500040, "auto", effort=0)):
        assert made.objective is not None
        assert made.objective.solver_bound_s is None
        assert "programme" not in made.provenance.solver


def test_the_same_bytes_again() -> None:
    """A solver that nodes limit, not the clock."""
    again = planned.__wrapped__(500043, "ilp")
    assert again.to_json() == planned(500043, "ilp").to_json()


def test_what_is_too_large_is_refused_by_its_size() -> None:
    """`ilp` by name never means something else."""
    with pytest.raises(InputError, match=r"at most 20,000 variables, and this question has \d+,\d+"):
        plan("zionex-16", "dlrm-dcnv2", solver="ilp", effort=0, simulate=False)
    with pytest.raises(InputError, match="is none of auto, search, ilp"):
        plan("zionex-16", "dlrm-dcnv2", solver="scip")  # type: ignore[arg-type]


def test_a_programme_of_groups_is_not_written(tmp_path: Path) -> None:
    """A solution of it could not be imported."""
    made = planned(500040, "search")
    policy = made.provenance.policy.model_copy(update={"replicas": ReplicaChoices()})
    in_groups = made.model_copy(update={"provenance": made.provenance.model_copy(update={"policy": policy})})
    with pytest.raises(InputError, match="leave out replicas"):
        write_programme(in_groups, tmp_path / "plan.mps")
    assert list(tmp_path.iterdir()) == []
