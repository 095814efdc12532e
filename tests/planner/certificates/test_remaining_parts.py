"""The rest of tables that are decided in part, and options of one node: as cheap as the best of all ways."""

import itertools

import numpy as np
import pytest

from cost_models.shards import RANK
from planner.certificates.block_costs import NodeBlockCosts
from planner.certificates.branch_nodes import BranchingRules, NodeState
from planner.certificates.parts import PartDecision
from planner.certificates.remaining_parts import RemainingParts
from planner.problem.arrays import Problem
from tests.oracles.instances import tiny_instance
from tests.oracles.node_places import cost_at, random_multipliers

FAR_S = 1e3
"""A threshold that leaves every block its places."""


def _rest(problem: Problem, seed: int) -> tuple[NodeBlockCosts, RemainingParts, NodeState]:
    rules = BranchingRules(problem, FAR_S, np.zeros(len(problem.stage_constants)))
    state = rules.state({})
    costs = NodeBlockCosts(rules, state, random_multipliers(problem, np.random.default_rng(seed), state.labels))
    return costs, RemainingParts(costs, state), state


def test_the_rest_of_a_splittable_option_is_tiled_best() -> None:
    """After a widest block with a place, or with one still open: of all tilings with no wider block."""
    compared = 0
    for seed in range(40):
        problem = tiny_instance(seed).problem
        costs, remaining, _ = _rest(problem, seed)
        for block in np.flatnonzero(problem.block_is_splittable & (problem.block_extent == RANK)).tolist():
            option = int(problem.block_option[block])
            types = list(range(int(problem.block_start[option]), block + 1))
            left = int(problem.option_units[option] - problem.block_units[block])
            sums = [
                sum(costs.least[list(chosen)])
                for n in range(left // int(problem.block_units[types].min()) + 1)
                for chosen in itertools.combinations_with_replacement(types, n)
                if problem.block_units[list(chosen)].sum() == left
            ]
            expected = min(sums, default=np.inf)
            for place, own in ((0, 0.0), (None, costs.least[block])):
                found = remaining.cheapest((PartDecision(block, block, place),))
                assert found.cost == pytest.approx(expected + own, rel=1e-9)
                if np.isfinite(found.cost):
                    units = problem.block_units[[each for each, _ in found.blocks]].sum()
                    assert units == left + (place is None) * problem.block_units[block]
                    worth = costs.least[[each for each, _ in found.blocks]].sum()
                    assert found.cost == pytest.approx(worth, rel=1e-9)
                    compared += 1
    assert compared > 100


def test_a_part_that_is_still_open_after_a_placed_one_is_tiled_best() -> None:
    """After a widest block with a place comes one of some widths, and then the rest: as cheap as the best of all first
    ones and tilings, and nothing where no first one fits."""
    compared = wholes = 0
    for seed in range(40):
        problem = tiny_instance(seed).problem
        costs, remaining, _ = _rest(problem, seed)
        for block in np.flatnonzero(problem.block_is_splittable & (problem.block_extent == RANK)).tolist():
            option, units = int(problem.block_option[block]), problem.block_units
            start = int(problem.block_start[option])
            left = int(problem.option_units[option] - units[block])
            for first, last in itertools.combinations_with_replacement(range(start, block + 1), 2):
                sums = [
                    sum(costs.least[[lead, *chosen]])
                    for lead in range(first, last + 1)
                    for n in range(left // int(units[start]) + 1)
                    for chosen in itertools.combinations_with_replacement(range(start, last + 1), n)
                    if units[lead] + units[list(chosen)].sum() == left
                ]
                expected = min(sums, default=np.inf)
                found = remaining.cheapest((PartDecision(block, block, 0), PartDecision(first, last, None)))
                assert found.cost == pytest.approx(expected, rel=1e-9)
                if np.isfinite(found.cost):
                    lead, *others = [each for each, _ in found.blocks]
                    assert first <= lead <= last
                    assert units[lead] + units[others].sum() == left
                    assert found.cost == pytest.approx(costs.least[[lead, *others]].sum(), rel=1e-9)
                    compared += 1
                    wholes += bool(others)
    assert compared > 50
    assert wholes > 20, "most leave something to tile"


def test_blocks_of_one_node_are_placed_best() -> None:
    """On different ranks of one node: of all permutations of the ranks of each node."""
    compared = 0
    for seed in range(60):
        problem = tiny_instance(seed).problem
        _, remaining, state = _rest(problem, seed)
        multipliers = random_multipliers(problem, np.random.default_rng(seed), state.labels)
        blocks = np.flatnonzero((problem.block_extent == RANK) & problem.allowed.all(axis=0))[:2].tolist()
        for chosen in (blocks[:1], blocks, blocks[:1] * 2):
            expected = np.inf
            for node in range(len(problem.node_start) - 1):
                ranks = range(*problem.node_start[node : node + 2])
                for order in itertools.permutations(ranks, len(chosen)):
                    each = [cost_at(problem, b, rank, multipliers) for b, rank in zip(chosen, order, strict=True)]
                    expected = min(expected, sum(each))
            if chosen and len(set(state.labels.tolist())) == 1:
                assert remaining.colocated(chosen, None, []).cost == pytest.approx(expected, rel=1e-9)
                compared += np.isfinite(expected)
    assert compared > 10
