"""One way to a plan: whoever asks, and with which command, gets the same."""

import math
from dataclasses import replace

import pytest

from planner import plan
from planner.capacity.sizing import size
from planner.formulation.policy import Policy
from planner.formulation.question import Question
from planner.planning.pipeline import Pipeline, Steps
from planner.solvers.limits import SearchLimits
from planner.studies.point import Job, answer
from planner.studies.study import Search
from tests.oracles.instances import unlike_tables


@pytest.mark.parametrize("seed", [10, 26])
def test_planning_sizing_and_studies_find_the_same_plan(seed: int) -> None:
    """Byte by byte, with what was given up for emptier ranks; a size says which tiers its cluster has."""
    cluster, trained = unlike_tables(seed)
    asked = plan(cluster, trained, effort=1)
    (sized,) = size(cluster, trained, max_nodes=1, each_tier=False)
    point = answer(Job(cluster, trained, Policy(), Search(effort=1, prove=True), keeps_plan=True))
    assert point.plan is not None
    assert asked.objective is not None
    assert asked.objective.given_up_s
    assert point.plan == asked.to_json()
    assert sized.plan is not None
    own_tiers = sized.plan.provenance.model_copy(update={"policy": asked.provenance.policy})
    own_tiers = own_tiers.model_copy(update={"policy_fingerprint": asked.provenance.policy_fingerprint})
    assert sized.plan.model_copy(update={"provenance": own_tiers}).to_json() == asked.to_json()


def test_each_step_can_be_left_out() -> None:
    """Without its step, a plan has no node of a branch tree, gives nothing up, or has no simulated step."""
    cluster, trained = unlike_tables(10)
    formulation = Question(cluster, trained, Policy()).formulation()
    whole = Pipeline(Policy(), SearchLimits(gap=0.0, effort=0))
    found = whole.simulated(whole.assembled(whole.planned(formulation)))
    assert found.proof is not None
    assert found.objective is not None
    assert found.simulated is not None
    assert found.proof.branching is not None
    assert found.objective.given_up_s
    for steps in (Steps(proves=False), Steps(finishes=False), Steps(simulates=False)):
        fewer = replace(whole, steps=steps)
        less = fewer.simulated(fewer.assembled(fewer.planned(formulation)))
        assert less.proof is not None
        assert less.objective is not None
        assert (less.simulated is not None) == steps.simulates
        assert bool(less.objective.given_up_s) == steps.finishes
        assert steps.proves or less.proof.branching is None
        assert less.objective.lower_bound_s <= found.objective.lower_bound_s * (1 + 1e-9)


def test_a_target_is_reached_by_the_plan_that_is_written() -> None:
    """What is given up for emptier ranks does not take a plan beyond the step that it was sized for."""
    cluster, trained = unlike_tables(10)
    asked = plan(cluster, trained, effort=1, simulate=False)
    assert asked.objective is not None
    assert asked.objective.best_step_s is not None
    (sized,) = size(cluster, trained, max_step_s=asked.objective.best_step_s, max_nodes=1, each_tier=False)
    assert sized.plan is not None
    assert sized.plan.objective is not None
    assert sized.plan.objective.step_s <= asked.objective.best_step_s


def test_no_clock_ends_a_search_for_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asked for a time limit, so there is none, and the answer repeats on any machine."""
    cluster, trained = unlike_tables(10)
    seen: list[float] = []
    after_init = SearchLimits.__init__

    def noted(self: SearchLimits, *args: object, **given: object) -> None:
        after_init(self, *args, **given)  # type: ignore[arg-type]
        seen.append(self.time_limit_s)

    monkeypatch.setattr(SearchLimits, "__init__", noted)
    size(cluster, trained, max_nodes=2, each_tier=False)
    assert seen
    assert all(limit == math.inf for limit in seen)
