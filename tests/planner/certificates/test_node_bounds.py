"""Bounds of branch nodes: below every plan of the node, whatever the multipliers, and attained by their choice."""

from collections.abc import Iterator

import numpy as np
import pytest

from planner.certificates.branch_nodes import BranchingRules
from planner.certificates.node_bounds import NodeBounds
from planner.certificates.parts import PartDecision
from planner.problem.arrays import Problem
from tests.oracles.brute_force import Optimum, optimum
from tests.oracles.instances import confined_instance, tiny_instance
from tests.oracles.node_places import random_multipliers, worth


def _problems() -> list[Problem]:
    instances = [*map(tiny_instance, range(24)), *map(confined_instance, range(12))]
    return [each.problem for each in instances if len(each.options.table)]


def _solved() -> Iterator[tuple[int, Problem, BranchingRules, Optimum]]:
    """Number, problem, rules below one and a half times the optimum, and optimum of each problem that has one."""
    for seed, problem in enumerate(_problems()):
        best = optimum(problem)
        if best is not None:
            yield (
                seed,
                problem,
                BranchingRules(problem, best.step_s * 1.5, np.zeros(len(problem.stage_constants))),
                best,
            )


def test_no_multipliers_prove_more_than_the_best_plan() -> None:
    """At the root, and along the decisions of the best plan, each a narrower node that still holds it."""
    compared = 0
    for seed, problem, rules, best in _solved():
        bounds, random = NodeBounds(rules), np.random.default_rng(seed)
        decisions: dict[int, tuple[PartDecision, ...]] = {}
        for table, (option, placed) in enumerate([(None, ()), *best.choices]):
            if option is not None:
                ordered = sorted(placed, reverse=bool(problem.option_units[option]))
                decisions[int(problem.option_table[option])] = tuple(PartDecision(b, b, place) for b, place in ordered)
            state = rules.state(decisions)
            multipliers = random_multipliers(problem, random, state.labels)
            assert bounds.bound(state, multipliers) <= best.step_s * (1 + 1e-9), (seed, table)
            compared += 1
    assert compared > 60


def test_the_children_of_a_node_hold_its_best_plan() -> None:
    """Whatever the first block of a table and its place: the least bound of all children is not above the optimum."""
    compared = 0
    for seed, problem, rules, best in _solved():
        bounds, root = NodeBounds(rules), rules.state({})
        multipliers = random_multipliers(problem, np.random.default_rng(seed), root.labels)
        leads = range(*problem.table_block_start[:2])
        parts = [PartDecision(block, block, place) for block in leads for place in rules.places(root, block)]
        children = [rules.child(root, 0, 0, part) for part in parts if rules.parts.is_part(part, ())]
        least = min((bounds.bound(child, multipliers) for child in children if child is not None), default=np.inf)
        assert least <= best.step_s * (1 + 1e-9)
        compared += 1
    assert compared > 15


def test_the_choice_attains_the_bound() -> None:
    """What it loads is worth what the tables need at least; and the bound is that, less the price of the memory."""
    compared = 0
    for seed, problem in enumerate(_problems()):
        rules = BranchingRules(problem, 1e3, np.zeros(len(problem.stage_constants)))
        state = rules.state({})
        multipliers = random_multipliers(problem, np.random.default_rng(seed), state.labels)
        bound, choice = NodeBounds(rules).priced(state, multipliers)
        if choice is None:
            assert np.isinf(bound)
            continue
        ranks = rules.open_places(state).ranks
        loads = (choice.seconds * multipliers.weight[:, ranks].T).sum()
        loads += (choice.size * multipliers.byte[:, ranks].T).sum()
        assert loads == pytest.approx(choice.of_table.sum(), rel=1e-9)
        base = worth(problem, state.load, -np.maximum(state.free, 0.0), multipliers)
        assert bound == pytest.approx(loads + base + problem.stage_constants.sum(), rel=1e-6, abs=1e-12)
        assert (problem.table_of_block[choice.lead] == np.arange(problem.tables)).all()
        compared += 1
    assert compared > 15
