"""Trees of branch nodes: one that leaves something out, or has no weights, is no proof."""

import numpy as np
import pytest

from planner.certificates.branch_trees import BranchTree, tree_bound_s, tree_faults
from planner.problem.arrays import Problem
from planner.problem.numbers import Floats
from planner.solvers.bound.branching import BranchingResult
from tests.oracles.branchings import branched
from tests.oracles.brute_force import optimum
from tests.oracles.instances import tiny_instance


@pytest.fixture(scope="module")
def example() -> tuple[Problem, BranchingResult, Floats]:
    """A tree of many cases."""
    problem = tiny_instance(11).problem
    best = optimum(problem)
    assert best is not None
    found, least = branched(problem, best.step_s * 1.01)
    assert len(found.tree.nodes) > 15
    return problem, found, least


@pytest.mark.parametrize("seed", [4, 11, 24, 31])
def test_a_case_that_is_left_out_is_found(seed: int) -> None:
    """Each leaf in turn: without it the tree has a fault, unless no plan below the threshold is of it, so that the rest
    proves no more than there is."""
    problem = tiny_instance(seed).problem
    best = optimum(problem)
    assert best is not None
    found, least = branched(problem, best.step_s * 1.01)
    nodes = found.tree.nodes
    leaves = [i for i in range(1, len(nodes)) if all(node.parent != i for node in nodes)]
    noticed = 0
    for gone in leaves:
        kept = [node for i, node in enumerate(nodes) if i != gone]
        moved = [node._replace(parent=node.parent - (node.parent > gone)) for node in kept]
        tree = BranchTree(found.tree.threshold_s, tuple(moved))
        if any(tree_faults(problem, tree, least)):
            noticed += 1
        else:
            assert tree_bound_s(problem, tree, least) <= best.step_s * (1 + 1e-12)
    assert noticed > 0.25 * len(leaves)


def test_multipliers_that_are_none_are_found(example: tuple[Problem, BranchingResult, Floats]) -> None:
    """Too much weight, or below zero."""
    problem, found, least = example
    root, *rest = found.tree.nodes
    assert root.multipliers is not None
    for factor in (1.01, -1.0):
        wrong = root.multipliers._replace(weight=root.multipliers.weight * factor)
        tree = BranchTree(found.tree.threshold_s, (root._replace(multipliers=wrong), *rest))
        assert any(tree_faults(problem, tree, least))


def test_worse_multipliers_prove_less(example: tuple[Problem, BranchingResult, Floats]) -> None:
    """Without weight nothing is proven beyond the constants."""
    problem, found, least = example
    nodes = tuple(
        node._replace(multipliers=None if i else type(node.multipliers)(*map(np.zeros_like, node.multipliers)))
        for i, node in enumerate(found.tree.nodes)
    )
    proven = tree_bound_s(problem, BranchTree(found.tree.threshold_s, nodes), least)
    assert proven < found.bound_s


def test_a_wrong_order_is_found(example: tuple[Problem, BranchingResult, Floats]) -> None:
    """Parents come before their children."""
    problem, found, least = example
    turned = BranchTree(found.tree.threshold_s, tuple(reversed(found.tree.nodes)))
    assert any(tree_faults(problem, turned, least))
