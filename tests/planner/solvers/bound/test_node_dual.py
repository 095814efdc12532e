"""The dual of a branch node: no multipliers prove more than its program says, and it ends at the best of them."""

import numpy as np
import pytest

from planner.certificates.branch_nodes import BranchingRules
from planner.certificates.node_bounds import NodeBounds
from planner.solvers.bound.column_reduction import reduce_columns
from planner.solvers.bound.node_dual import NodeDual
from tests.oracles.brute_force import optimum
from tests.oracles.instances import tiny_instance
from tests.oracles.node_places import random_multipliers

ROUNDS = 80
"""Cutting planes in which the node's bound meets the program's."""


def test_the_program_ends_at_the_best_multipliers() -> None:
    """Cut after cut its value falls to the best bound; random multipliers prove no more, the optimum is not below."""
    met = compared = 0
    for seed in range(20):
        problem, random = tiny_instance(seed).problem, np.random.default_rng(seed)
        best = optimum(problem)
        if best is None:
            continue
        rules = BranchingRules(problem, best.step_s * 1.2, np.zeros(len(problem.stage_constants)))
        bounds, state = NodeBounds(rules), rules.state({})
        dual = NodeDual(rules, state, reduce_columns(problem))
        drawn = [random_multipliers(problem, random, state.labels) for _ in range(5)]
        query, reached, ceiling = drawn[0], -np.inf, np.inf
        for _ in range(ROUNDS):
            bound, choice = bounds.priced(state, query)
            reached = max(reached, bound)
            if choice is None or ceiling - reached <= 1e-4 * reached:
                break
            dual.add_cut(choice)
            solved = dual.solve()
            assert solved is not None
            assert solved[1] <= ceiling * (1 + 1e-6)
            point, ceiling = solved
            assert reached <= ceiling * (1 + 1e-6)
            query = dual.multipliers(point)
            assert rules.weights.excess_weight(query) <= 1e-9
        assert reached <= best.step_s * (1 + 1e-9)
        assert max(bounds.bound(state, each) for each in drawn) <= min(ceiling * (1 + 1e-6), best.step_s * (1 + 1e-9))
        met += bool(abs(ceiling - reached) <= 1e-3 * reached)
        compared += 1
    assert compared > 8
    assert met > 0.7 * compared


def test_multipliers_come_back_from_their_shares() -> None:
    """Of columns and tiers that the reduced problem keeps, on every rank."""
    for seed in range(12):
        problem, random = tiny_instance(seed).problem, np.random.default_rng(seed)
        rules = BranchingRules(problem, 1e3, np.zeros(len(problem.stage_constants)))
        state, reduced = rules.state({}), reduce_columns(problem)
        dual = NodeDual(rules, state, reduced)
        given = random_multipliers(problem, random, state.labels)
        back = dual.multipliers(dual.shares_of(given))
        assert back.weight[reduced.columns] == pytest.approx(given.weight[reduced.columns], rel=1e-9)
        assert back.byte[reduced.tiers] == pytest.approx(given.byte[reduced.tiers], rel=1e-9)
