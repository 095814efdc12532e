"""The integer programme against an enumeration of all placements of tiny problems."""

import math

import numpy as np
import pytest

from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.solvers.integer.constraints import power_of_two
from planner.solvers.integer.programme import Programme
from planner.solvers.integer.solving import Solved, SolverLimits, solved
from planner.solvers.limits import Clock, SearchLimits
from planner.solvers.search import solve
from tests.oracles.brute_force import Optimum, optimum
from tests.oracles.instances import Instance, confined_instance, tiny_instance
from tests.oracles.placements import faults


def instances(first: int, last: int) -> list[Instance]:
    some = [make(seed) for make in (tiny_instance, confined_instance) for seed in range(first, last)]
    return [each for each in some if len(each.options.table)]


def by_programme(problem: Problem, scale_s: float, longest_s: float = math.inf) -> Solved:
    return solved(problem, scale_s, longest_s, None, SolverLimits(1e-9, 10_000), Clock(SearchLimits()))


def expect_optimum(instance: Instance, best: Optimum | None) -> None:
    problem = instance.problem
    found = by_programme(problem, 1e-3 if best is None else best.step_s)
    if best is None:
        assert found.placement is None, instance.description
        assert found.bound_s == math.inf, instance.description
        return
    assert found.placement is not None, instance.description
    assert faults(problem, found.placement) == [], instance.description
    assert found.step_s == pytest.approx(best.step_s, rel=1e-8), instance.description
    assert best.step_s * (1 - 1e-4) <= found.bound_s <= best.step_s * (1 + 1e-12), instance.description


def test_the_programme_has_the_optimum_of_an_enumeration() -> None:
    """Of clusters of one and two kinds, with tiers and groups of tables: the same step, or that nothing fits."""
    for instance in instances(0, 6):
        expect_optimum(instance, optimum(instance.problem))


@pytest.mark.slow(seconds=20)
def test_the_programme_has_the_optimum_of_an_enumeration_on_many() -> None:
    """160 problems, some of whose policies hold tables together, keep them apart or pin them."""
    some = instances(6, 86)
    assert len(some) >= 150
    assert sum(bool(each.problem.affinity_groups) for each in some) >= 3
    assert sum(bool(each.problem.anti_affinity_groups) for each in some) >= 3
    assert {each.problem.kinds for each in some} == {1, 2}
    for instance in some:
        expect_optimum(instance, optimum(instance.problem))


def test_bound_is_at_most_the_programme_and_the_programme_at_most_the_plan() -> None:
    """What is certified is not above what the solver finds, and no plan is below what it says."""
    for instance in instances(20, 23):
        outcome = solve(instance.problem, SearchLimits(gap=0.0, effort=0))
        if outcome.step_s is None or outcome.bound_s is None:
            continue
        found = by_programme(instance.problem, outcome.step_s)
        assert outcome.bound_s <= found.step_s * (1 + 1e-9), instance.description
        assert found.step_s <= outcome.step_s * (1 + 1e-9), instance.description
        assert found.bound_s <= outcome.step_s, instance.description


def test_nothing_is_found_below_the_optimum() -> None:
    """Asked for less than the optimum, the solver says that there is nothing, as far as it was asked."""
    instance = tiny_instance(0)
    best = optimum(instance.problem)
    assert best is not None
    asked_s = best.step_s * (1 - 1e-4)
    found = by_programme(instance.problem, best.step_s, asked_s)
    assert found.placement is None
    assert asked_s * (1 - 1e-4) <= found.bound_s <= asked_s


def test_nodes_in_vain_end_the_search() -> None:
    """A solver that finds nothing for some nodes stops; what it says by then is less than what it says at the end."""
    problem = tiny_instance(45).problem
    known_s = solve(problem, SearchLimits(effort=0)).step_s
    assert known_s is not None
    asked_s = known_s * (1 - 1e-6)
    whole = by_programme(problem, known_s, asked_s)
    limits = SolverLimits(1e-9, 10_000, in_vain=20)
    short = solved(problem, known_s, asked_s, None, limits, Clock(SearchLimits()))
    assert 20 <= short.nodes < whole.nodes
    assert short.bound_s < whole.bound_s <= whole.step_s <= short.step_s


def test_the_values_of_a_placement_make_it_again() -> None:
    """A hint is a solution: read back it is the same placement, and its stages take what the arrays say."""
    for instance in instances(0, 6):
        placement = solve(instance.problem, SearchLimits(gap=0.0, effort=0)).placement
        if placement is None:
            continue
        step_s = load_state(instance.problem, placement).step_s()
        programme = Programme.of(instance.problem, power_of_two(step_s))
        values = programme.hint(placement).variable_values
        count = np.array([values[variable] for variable in programme.variables.count])
        again = load_state(instance.problem, programme.placement(count))
        assert again.step_s() == pytest.approx(step_s, rel=1e-12)
        stages_s = sum(values[stage] for stage in programme.variables.stage) * programme.unit_s
        assert stages_s + instance.problem.stage_constants.sum() == pytest.approx(step_s, rel=1e-12)


def test_the_same_again() -> None:
    """One thread and a limit of nodes: the same placement, bound and nodes on every run."""
    problem = tiny_instance(9).problem
    first, second = by_programme(problem, 1e-3), by_programme(problem, 1e-3)
    assert (first.step_s, first.bound_s, first.nodes) == (second.step_s, second.bound_s, second.nodes)
    assert first.placement is not None
    assert second.placement is not None
    assert (first.placement.item_place == second.placement.item_place).all()
