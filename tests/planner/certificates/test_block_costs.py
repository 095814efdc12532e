"""Lagrangian costs of blocks: the least that any place shows, and loads that are worth as much."""

import numpy as np
import pytest

from planner.certificates.block_costs import NodeBlockCosts
from planner.certificates.branch_nodes import BranchingRules
from tests.oracles.instances import tiny_instance
from tests.oracles.node_places import cost_at, places, random_multipliers

FAR_S = 1e3
"""A threshold that leaves every block its places."""


@pytest.mark.parametrize("seed", range(30))
def test_a_block_costs_what_its_cheapest_place_shows(seed: int) -> None:
    """Where nothing is decided: of all places on empty ranks; infinite where it fits nowhere."""
    problem = tiny_instance(seed).problem
    rules = BranchingRules(problem, FAR_S, np.zeros(len(problem.stage_constants)))
    state = rules.state({})
    multipliers = random_multipliers(problem, np.random.default_rng(seed), state.labels)
    costs = NodeBlockCosts(rules, state, multipliers)
    assert np.isinf(costs.least[-1])
    for block in range(len(problem.block_option)):
        expected = min(
            (cost_at(problem, block, place, multipliers) for place in places(problem, block)), default=np.inf
        )
        assert costs.least[block] == pytest.approx(expected, rel=1e-9), block


@pytest.mark.parametrize("seed", range(30))
def test_loads_of_cheapest_blocks_are_worth_their_costs(seed: int) -> None:
    """Each block at its cheapest place, so often as it is taken: weights and prices make its costs of the loads."""
    problem, random = tiny_instance(seed).problem, np.random.default_rng(seed)
    rules = BranchingRules(problem, FAR_S, np.zeros(len(problem.stage_constants)))
    state = rules.state({})
    multipliers = random_multipliers(problem, random, state.labels)
    costs = NodeBlockCosts(rules, state, multipliers)
    taken = random.integers(0, 3, size=len(problem.block_option)).astype(float)
    taken[np.isinf(costs.least[:-1])] = 0.0
    seconds = np.zeros((len(costs.ranks), len(problem.stage_of_column)))
    size = np.zeros((len(costs.ranks), len(problem.pool_capacity)))
    costs.charge_cheapest(seconds, size, taken)
    value = (seconds * multipliers.weight[:, costs.ranks].T).sum() + (size * multipliers.byte[:, costs.ranks].T).sum()
    some = taken > 0
    assert value == pytest.approx(float(taken[some] @ costs.least[:-1][some]), rel=1e-9)
