"""The search: deterministic, stops when told to, says what it does, and gives a bound with every plan."""

import numpy as np
import pytest

from cost_models.step import StepModel
from cost_models.workload import load_workload
from planner.options import Policy, build_problem, enumerate_options
from planner.problem import Problem, load_state
from planner.solvers.search import Limits, solve
from tests.oracles.instances import node_group, tiny_instance, topology
from topologies.loading import load_topology


@pytest.fixture(scope="module")
def problem() -> Problem:
    model = StepModel(load_topology("zionex"), load_workload("synthetic:40@seed=3"))
    return build_problem(model, enumerate_options(model, Policy()))


def test_the_same_problem_gives_the_same_outcome(problem: Problem) -> None:
    """To the last bit, bound and prices included."""
    first, second = (solve(problem, Limits(gap=0.0)) for _ in range(2))
    assert first.placement is not None
    assert second.placement is not None
    assert first.prices is not None
    assert second.prices is not None
    assert np.array_equal(first.placement.item_block, second.placement.item_block)
    assert np.array_equal(first.placement.item_place, second.placement.item_place)
    assert (first.step_s, first.bound_s) == (second.step_s, second.bound_s)
    assert np.array_equal(first.prices.weight, second.prices.weight)
    assert np.array_equal(first.prices.byte, second.prices.byte)


def test_the_search_ends_at_the_gap_that_was_asked_for(problem: Problem) -> None:
    """A wide gap ends it with the first plan; a narrower one goes on and never ends worse."""
    plans: dict[float, list[float]] = {}
    for gap in (10.0, 0.0):
        heard: list[float] = []
        outcome = solve(
            problem, Limits(gap=gap), lambda what, best, _, h=heard: h.append(best) if what == "plan" else None
        )
        assert outcome.step_s == heard[-1]
        plans[gap] = heard
    assert len(plans[10.0]) == 1
    assert plans[0.0][-1] <= plans[10.0][-1]
    assert plans[0.0] == sorted(plans[0.0], reverse=True)


def test_without_time_there_is_still_a_plan(problem: Problem) -> None:
    """The limit is looked at between plans, so that an easy problem is answered in any case."""
    outcome = solve(problem, Limits(time_limit_s=0.0, gap=0.0))
    assert outcome.status in {"feasible", "optimal"}
    assert outcome.placement is not None
    assert outcome.bound_s is not None
    assert outcome.step_s is not None
    assert 0 < outcome.bound_s <= outcome.step_s


def test_a_search_can_be_stopped_from_outside(problem: Problem) -> None:
    """`stop` ends it with the best plan so far, after the first."""
    heard: list[str] = []
    outcome = solve(problem, Limits(gap=0.0, stop=lambda: True), lambda what, *_: heard.append(what))
    assert heard.count("plan") == 1
    assert outcome.placement is not None


def test_progress_hears_bound_and_plans(problem: Problem) -> None:
    """First the bound, then every better plan, with both figures."""
    heard: list[tuple[str, float | None, float | None]] = []
    outcome = solve(problem, Limits(gap=0.0), lambda *news: heard.append(news))
    assert heard[0][0] == "bound"
    assert heard[0][1] is None
    assert {what for what, *_ in heard[1:]} == {"plan"}
    assert heard[-1][1] == outcome.step_s
    assert len({bound for *_, bound in heard}) == 1


def test_the_step_is_what_the_placement_takes(problem: Problem) -> None:
    """The figure of the outcome is the arithmetic of the problem."""
    outcome = solve(problem, Limits())
    assert outcome.placement is not None
    state = load_state(problem, outcome.placement)
    assert state.step_s() == pytest.approx(outcome.step_s, rel=1e-12)
    assert state.overflow_bytes() == 0


def test_a_table_on_one_rank_is_solved_to_optimality() -> None:
    """One rank, ample memory: there is nothing to balance, and the word is `optimal`."""
    model = StepModel(topology(node_group("a", ranks=1, hbm_bytes=40e9)), load_workload("criteo-kaggle"))
    problem = build_problem(model, enumerate_options(model, Policy()))
    outcome = solve(problem, Limits(gap=0.0))
    assert outcome.status == "optimal"


def test_disallowed_options_do_not_hide_allowed_ones() -> None:
    """A table whose cheapest-looking option fits on no rank is placed by another one (seed 8)."""
    outcome = solve(tiny_instance(8).problem, Limits())
    assert outcome.placement is not None


def test_an_imprecise_linear_program_is_solved_afresh() -> None:
    """GLOP's warm start ends as IMPRECISE on this instance; the search goes on regardless."""
    outcome = solve(tiny_instance(604).problem, Limits(gap=0.0))
    assert outcome.placement is not None
