"""Several seeds: what they find is the same however many processes there are, and never worse than what one finds."""

import os
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from cost_models.step import StepModel
from cost_models.workload import load_workload
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.solvers import seeds as seeds_module
from planner.solvers.incumbent import Outcome
from planner.solvers.limits import SearchLimits
from planner.solvers.search import better, solve
from planner.solvers.seeds import FurtherSeeds
from topologies.loading import load_topology

LIMITS = SearchLimits(gap=0.0, effort=1, pattern_work=1e7, branch_nodes=20)


@pytest.fixture(scope="module")
def problem() -> Problem:
    model = StepModel(load_topology("zionex"), load_workload("synthetic:20@seed=3"))
    return build_problem(model, enumerate_options(model, Policy()))


@pytest.fixture(scope="module")
def further() -> Iterator[FurtherSeeds]:
    """Two more seeds, in a process beside this one."""
    with FurtherSeeds(2, workers=2) as further:
        yield further


@pytest.fixture(scope="module")
def beside(problem: Problem, further: FurtherSeeds) -> Outcome:
    """What three seeds find in two processes."""
    return solve(problem, LIMITS, seeds=further)


@pytest.fixture(scope="module")
def singles(problem: Problem) -> list[Outcome]:
    """What each of the three finds alone."""
    return [solve(problem, replace(LIMITS, seed=seed)) for seed in range(3)]


def described(outcome: Outcome) -> tuple[object, ...]:
    assert outcome.placement is not None
    placement = outcome.placement
    return outcome.status, outcome.step_s, outcome.bound_s, *map(tuple, (placement.item_block, placement.item_place))


def test_processes_change_nothing(problem: Problem, further: FurtherSeeds, beside: Outcome) -> None:
    with FurtherSeeds(2, workers=1) as one_by_one:
        assert described(solve(problem, LIMITS, seeds=one_by_one)) == described(beside)
    assert described(solve(problem, LIMITS, seeds=further)) == described(beside)


def test_the_best_of_all_seeds_is_taken(problem: Problem, beside: Outcome, singles: list[Outcome]) -> None:
    found = beside
    assert found.placement is not None
    assert found.bound_s is not None
    steps = [each.best_s for each in singles]
    assert len(set(steps)) > 1
    assert found.step_s == min(steps)
    assert found.bound_s >= (singles[0].bound_s or 0.0)
    assert load_state(problem, found.placement).step_s() == found.step_s


def test_no_seed_is_waited_for_that_is_not_needed(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds_module, "_found", _fail)
    near = SearchLimits(gap=0.5, effort=0)
    with FurtherSeeds(3, workers=1) as further:
        assert described(solve(problem, near, seeds=further)) == described(solve(problem, near))


def test_a_process_that_dies_takes_nothing_with_it(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = SearchLimits(gap=0.0, effort=0)
    with FurtherSeeds(2, workers=1) as one_by_one:
        expected = solve(problem, limits, seeds=one_by_one)
    monkeypatch.setattr(seeds_module, "_found_elsewhere", _die)
    with FurtherSeeds(2, workers=3) as further:
        assert described(solve(problem, limits, seeds=further)) == described(expected)


def test_whoever_says_stop_waits_for_no_process(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeds_module, "_found_elsewhere", _work_for_ever)
    begun: list[bool] = []

    def stop() -> bool:
        begun.append(True)
        return len(begun) > 20

    with FurtherSeeds(1, workers=2) as further:
        found = solve(problem, SearchLimits(gap=0.0, effort=None, stop=stop), seeds=further)
        assert further._pool is None
    assert found.placement is not None


def test_time_is_shared_where_one_process_searches_from_all(problem: Problem) -> None:
    limits = SearchLimits(time_limit_s=12.0)
    one, two, four = FurtherSeeds(3, workers=1), FurtherSeeds(3, workers=2), FurtherSeeds(3, workers=4)
    assert [each.of_first(limits).time_limit_s for each in (one, two, four)] == [3.0, 12.0, 12.0]
    assert [each.time_limit_s for each in one._limits(limits)] == [3.0] * 3
    assert [each.time_limit_s for each in two._limits(limits)] == [11 / 3] * 3
    assert [(each.time_limit_s, each.seed) for each in four._limits(limits)] == [(11.0, 1), (11.0, 2), (11.0, 3)]


def test_the_better_of_two_outcomes_has_the_higher_bound(singles: list[Outcome]) -> None:
    first, second = singles[:2]
    for one, other in ((first, second), (second, first)):
        both = better(one, other)
        assert both.step_s == min(first.best_s, second.best_s)
        assert both.bound_s == max(first.bound_s or 0.0, second.bound_s or 0.0)
    nothing = Outcome("timeout", None, None, first.bound, None, ran_out_of_time=True)
    both = better(nothing, second)
    assert (both.step_s, both.ran_out_of_time) == (second.step_s, True)
    assert better(nothing, nothing).status == "timeout"
    assert not np.isfinite(nothing.best_s)


def _fail(*_: object) -> Outcome:
    raise AssertionError("nobody asked for this seed")


def _die(*_: object) -> Outcome:
    os._exit(1)


def _work_for_ever(*_: object) -> Outcome:
    while True:
        pass
