"""Weights of branch nodes: one in all over the instances of a stage, equal on equal ranks."""

import numpy as np
import pytest

from planner.certificates.node_weights import NodeMultipliers, WeightRules, opens
from planner.problem.arrays import Problem
from tests.oracles.instances import tiny_instance


def _random(problem: Problem, random: np.random.Generator) -> NodeMultipliers:
    """Multipliers whose weights over the instances of each stage sum to one."""
    weight = np.zeros((len(problem.stage_of_column), problem.world))
    for stage in np.unique(problem.stage_of_column).tolist():
        columns = np.flatnonzero(problem.stage_of_column == stage)
        slots = [(c, i) for c in columns for i in np.unique(problem.resource_of_rank[c])]
        for (c, i), share in zip(slots, random.dirichlet(np.ones(len(slots))), strict=True):
            weight[c, problem.resource_of_rank[c] == i] = share
    byte = random.random((len(problem.pool_capacity), problem.world))
    return NodeMultipliers(weight, byte)


@pytest.mark.parametrize("seed", range(20))
def test_weights_that_sum_to_one_are_in_order(seed: int) -> None:
    """More is an excess of just as much; below zero, or unlike on ranks that share an instance, they are none."""
    problem = tiny_instance(seed).problem
    rules, given = WeightRules(problem), _random(problem, np.random.default_rng(seed))
    assert rules.excess_weight(given) == pytest.approx(0.0, abs=1e-12)
    assert rules.idle_shares(given) == pytest.approx(
        [0.0 if s in problem.stage_of_column else 1.0 for s in range(len(problem.stage_constants))], abs=1e-12
    )
    assert rules.excess_weight(given._replace(weight=given.weight * 1.5)) == pytest.approx(0.5)
    assert rules.idle_shares(given._replace(weight=given.weight * 0.75)).min() == pytest.approx(0.25)
    assert rules.excess_weight(given._replace(weight=-given.weight)) == np.inf
    assert rules.excess_weight(given._replace(byte=-given.byte)) == np.inf
    shared = np.flatnonzero(~rules.first_of_instance.all(axis=1))
    if len(shared):
        unlike = given.weight.copy()
        unlike[shared[0], np.flatnonzero(~rules.first_of_instance[shared[0]])[0]] += 0.1
        assert rules.excess_weight(given._replace(weight=unlike)) == np.inf


def test_equal_ranks_get_the_mean() -> None:
    """By plain loops; multipliers that were even stay as they are."""
    problem = tiny_instance(0).problem
    rules, given = WeightRules(problem), _random(problem, np.random.default_rng(0))
    labels = np.arange(problem.world) % 2
    even = rules.evened(labels, given)
    for rank in range(problem.world):
        own = [other for other in range(problem.world) if labels[other] == labels[rank]]
        assert even.weight[:, rank] == pytest.approx(sum(given.weight[:, other] for other in own) / len(own))
        assert even.byte[:, rank] == pytest.approx(sum(given.byte[:, other] for other in own) / len(own))
    again = rules.evened(labels, even)
    assert again.weight == pytest.approx(even.weight)


def test_the_first_rank_opens_its_instance() -> None:
    """Row by row."""
    instances = np.array([[0, 0, 1, 2, 2], [0, 1, 2, 3, 3], [4, 4, 4, 4, 4]])
    expected = [[True, False, True, True, False], [True, True, True, True, False], [True, False, False, False, False]]
    assert opens(instances).tolist() == expected
