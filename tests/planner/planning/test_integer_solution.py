"""The integer programme after the search: better plans, and a solver's word beside the certified bound."""

from functools import cache
from pathlib import Path

import pytest

from planner.document.plan import Plan
from planner.formulation.replica_choices import ReplicaChoices
from planner.planning.planning import plan
from planner.planning.programme_file import write_programme
from planner.verification.unchecked import unchecked
from planner.verification.verify import verify
from tests.oracles.questions import question
from topologies.errors import InputError

UNPROVEN = (500040, 500043, 500060)
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


@pytest.mark.parametrize("number", UNPROVEN)
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


def test_search_alone_says_nothing_of_a_programme() -> None:
    """Neither does `auto` without a pass."""
    for made in (planned(500040, "search"), planned(500040, "auto", effort=0)):
        assert made.objective is not None
        assert made.objective.solver_bound_s is None
        assert "programme" not in made.provenance.solver


def test_the_same_bytes_again() -> None:
    """A solver that nodes limit, not the clock."""
    first = planned(500043, "ilp")
    planned.cache_clear()
    assert planned(500043, "ilp").to_json() == first.to_json()


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
