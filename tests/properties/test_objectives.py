"""Bound ≤ optimum ≤ plan under the ratings of other planners, on random tiny instances tried out in full."""

from dataclasses import dataclass

import pytest

from planner import plan, verify
from planner.solvers.incumbent import Outcome
from planner.solvers.limits import SearchLimits
from planner.solvers.search import solve
from tests.oracles.brute_force import Optimum, optimum
from tests.oracles.instances import Instance, node_group, tiny_instance, topology, workload

INSTANCES = 20
ROUNDING = 1e-12


@dataclass(frozen=True)
class Solved:
    instance: Instance
    best: Optimum | None
    outcome: Outcome


@pytest.fixture(scope="module", params=["torchrec", "hugectr"])
def solved(request: pytest.FixtureRequest) -> list[Solved]:
    found = []
    for seed in range(INSTANCES):
        instance = tiny_instance(seed, request.param)
        found.append(Solved(instance, optimum(instance.problem), solve(instance.problem, SearchLimits(gap=0.0))))
    return found


def test_bound_optimum_and_plan_are_in_this_order(solved: list[Solved]) -> None:
    """Wherever anything fits, also on two kinds of rank; and where nothing does, no plan is claimed."""
    feasible = [each for each in solved if each.best is not None]
    assert len(feasible) >= 10
    assert {each.instance.problem.kinds for each in feasible} == {1, 2}
    for each in solved:
        if each.best is None:
            assert each.outcome.placement is None, each.instance.description
            continue
        assert each.outcome.step_s is not None, each.instance.description
        assert each.outcome.bound_s is not None
        assert each.outcome.bound_s <= each.best.step_s * (1 + ROUNDING), each.instance.description
        assert each.best.step_s <= each.outcome.step_s * (1 + ROUNDING), each.instance.description


@pytest.mark.parametrize("objective", ["physical", "torchrec", "hugectr"])
def test_plans_of_every_objective_hold(objective: str) -> None:
    """Over all options, on one kind of rank and on two: the bound is not above the objective, and `verify` agrees."""
    kinds = set()
    for seed in (0, 3, 9):  # of those with ample memory
        instance = tiny_instance(seed, objective)
        found = plan(instance.model.topology, instance.model.workload, cost_model=objective)
        assert verify(found) == [], instance.description
        assert found.objective is not None, instance.description
        assert 0 <= found.objective.lower_bound_s <= found.objective.step_s
        kinds.add(len(instance.model.topology.nodes))
    assert kinds == {1, 2}


def test_a_rating_of_zero_is_optimal() -> None:
    """HugeCTR's planner replicates small tables at no cost: a plan of nothing else has no gap."""
    tables = workload([{"rows": 100, "dim": 16}, {"rows": 1000, "dim": 8}])
    found = plan(topology(node_group("g")), tables, cost_model="hugectr")
    assert found.status == "optimal"
    assert found.objective is not None
    assert (found.objective.step_s, found.objective.lower_bound_s, found.objective.gap) == (0.0, 0.0, 0.0)
    assert verify(found) == []
