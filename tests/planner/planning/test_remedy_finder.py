"""Remedies are looked for where there is no plan for want of room, and nowhere else."""

import itertools
import math
import time
from collections.abc import Callable

import pytest

from cost_models.step import StepModel
from planner.diagnosis.remedies import remedies
from planner.formulation.formulation import Formulation
from planner.formulation.policy import Policy
from planner.planning.remedy_finder import RemedyFinder
from planner.solvers.incumbent import Outcome
from planner.solvers.limits import SearchLimits
from planner.solvers.search import solve
from tests.oracles.instances import node_group, topology, workload

POLICY = Policy(tiers=("hbm",))
UNKNOWN = Outcome("timeout", None, None, None, None)
"""A search that ended without a plan and without a proof."""


def _model(hbm_bytes: float) -> StepModel:
    cluster = topology(node_group("g", hbm_bytes=hbm_bytes))
    return StepModel(cluster, workload([{"rows": 700_000, "dim": 64}] * 6, global_batch=256))


@pytest.fixture(scope="module")
def tight() -> StepModel:
    """HBM for half of the tables."""
    return _model(0.3e9)


@pytest.fixture(scope="module")
def impossible(tight: StepModel) -> Outcome:
    """What a search finds of it."""
    return solve(Formulation.of(tight, POLICY).problem, SearchLimits())


def _finder(
    model: StepModel, *, time_limit_s: float = math.inf, stop: Callable[[], bool] | None = None
) -> tuple[RemedyFinder, list[str]]:
    told: list[str] = []
    limits = SearchLimits(time_limit_s, stop=stop)
    return RemedyFinder(model, POLICY, limits, lambda words, *_: told.append(words)), told


def test_a_proven_shortage_has_its_remedies(tight: StepModel, impossible: Outcome) -> None:
    """Those that are found from the bytes that the proof says are short; progress hears of it once."""
    finder, told = _finder(tight)
    assert (impossible.status, impossible.placement) == ("infeasible", None)
    assert impossible.shortage is not None
    found = finder.of(impossible)
    assert found == remedies(tight, POLICY, impossible.shortage.bytes_short)
    assert any(remedy.flags for remedy in found)
    assert told == ["what would make it fit"]


def test_a_proof_is_explained_also_when_the_time_is_up(tight: StepModel, impossible: Outcome) -> None:
    """That nothing fits is an answer; what would is asked beyond the limit of the search."""
    finder, _ = _finder(tight, time_limit_s=0.0)
    assert any(remedy.flags for remedy in finder.of(impossible))


def test_a_plan_needs_no_remedy() -> None:
    """Where there is a placement nothing is asked."""
    model = _model(5e9)
    outcome = solve(Formulation.of(model, POLICY).problem, SearchLimits())
    assert outcome.placement is not None
    finder, told = _finder(model)
    assert (finder.of(outcome), told) == ((), [])


def test_a_search_that_ran_out_of_time_says_nothing_about_room(
    tight: StepModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a proof remedies are found only while there is time: an end for want of time shows no want of room."""
    ticks = itertools.count(step=10)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(ticks)))
    in_time, told = _finder(tight, time_limit_s=11.0)
    assert any(remedy.flags for remedy in in_time.of(UNKNOWN))
    assert told
    too_late, told = _finder(tight, time_limit_s=9.0)
    assert (too_late.of(UNKNOWN), told) == ((), [])


def test_whoever_stops_the_search_wants_no_remedies(tight: StepModel, impossible: Outcome) -> None:
    """A stopped search without a proof has none; after a proof, kinds of change not asked yet are left out."""
    stopped, told = _finder(tight, stop=lambda: True)
    assert (stopped.of(UNKNOWN), told) == ((), [])
    assert stopped.of(impossible) == ()
    asked = itertools.count()
    soon, _ = _finder(tight, stop=lambda: next(asked) > 3)
    every, _ = _finder(tight)
    some = soon.of(impossible)
    assert 0 < len(some) < len(every.of(impossible))
    assert some == every.of(impossible)[: len(some)]
