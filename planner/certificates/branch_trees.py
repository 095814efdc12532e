"""Branch-and-bound trees as proofs: whether their leaves hold every plan, and the bound that they prove together."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from planner.certificates.branch_nodes import BranchingRules, NodeState
from planner.certificates.node_bounds import NodeBounds
from planner.certificates.node_weights import NodeMultipliers
from planner.certificates.parts import PartDecision
from planner.problem.arrays import Problem
from planner.problem.numbers import Floats
from planner.problem.rounding import ROUNDING


class BranchNode(NamedTuple):
    """A branch node of a tree."""

    parent: int
    """-1 for the root."""
    part: PartDecision | None
    """What the branch node decides of the table and the part by which its parent is divided; None for the root."""
    divides: tuple[int, int] | None
    """Table and number of the part by which the branch node is divided; None for a leaf."""
    multipliers: NodeMultipliers | None
    """None for those of the parent."""


class BranchTree(NamedTuple):
    """Branch nodes that together hold every plan below the threshold; parents come before their children."""

    threshold_s: float
    nodes: tuple[BranchNode, ...]


def tree_faults(problem: Problem, tree: BranchTree, least: Floats) -> Iterator[str]:
    """What keeps a tree from being a proof: branch nodes that leave something out, or weights that are none."""
    yield from _Walk(problem, tree, least).faults


def tree_bound_s(problem: Problem, tree: BranchTree, least: Floats) -> float:
    """What a tree without faults proves: no plan is faster. Every plan takes `least` [S] seconds in the stages."""
    return _Walk(problem, tree, least).bound_s


class _Walk:
    """One walk over a tree, from the root to the leaves."""

    def __init__(self, problem: Problem, tree: BranchTree, least: Floats) -> None:
        self.rules = BranchingRules(problem, tree.threshold_s, least)
        self.bounds = NodeBounds(self.rules)
        self.faults: list[str] = []
        self.bound_s = tree.threshold_s
        children: dict[int, list[int]] = {}
        for number, node in enumerate(tree.nodes):
            if (node.parent < 0) != (number == 0) or node.parent >= number or (node.part is None) != (number == 0):
                self.faults.append(f"branch node {number}: not in the order of a tree")
                return
            children.setdefault(node.parent, []).append(number)
        entered_nodes: dict[int, tuple[NodeState, NodeMultipliers, float]] = {}
        for number, node in enumerate(tree.nodes):
            entered = self._enter(tree, number, entered_nodes)
            if entered is None:
                continue
            state, multipliers, bound = entered
            bound = max(bound, self.bounds.bound(state, multipliers))
            entered_nodes[number] = state, multipliers, bound
            below = children.get(number, [])
            if node.divides is None:
                self.bound_s = min(self.bound_s, bound)
                gap = "is a leaf with nodes below it" if below else None
            else:
                parts = [part for part in (tree.nodes[child].part for child in below) if part is not None]
                gap = self._gap(state, node.divides, parts)
            if gap:
                self.faults.append(f"branch node {number}: {gap}")
                return

    def _gap(self, state: NodeState, divides: tuple[int, int], parts: list[PartDecision]) -> str | None:
        table, index = divides
        if not 0 <= table < self.rules.problem.tables:
            return "is divided by a table that does not exist"
        return gap_in(self.rules, state, table, index, parts)

    def _enter(
        self, tree: BranchTree, number: int, entered_nodes: dict[int, tuple[NodeState, NodeMultipliers, float]]
    ) -> tuple[NodeState, NodeMultipliers, float] | None:
        """NodeState, multipliers and the parent's bound of a branch node; None where no plan below the threshold is of
        it."""
        node = tree.nodes[number]
        if number == 0:
            state, inherited, bound = self.rules.state({}), node.multipliers, -np.inf
        else:
            parent = tree.nodes[node.parent]
            if node.parent not in entered_nodes or parent.divides is None or node.part is None:
                return None
            above, inherited, bound = entered_nodes[node.parent]
            after = self.rules.child(above, *parent.divides, node.part)
            if after is None:
                return None
            state = after
        multipliers = node.multipliers or inherited
        if multipliers is None:
            self.faults.append("the root of the branch tree has no multipliers")
            return None
        even = self.rules.weights.evened(state.labels, multipliers)
        if self.rules.weights.excess_weight(even) > ROUNDING:
            self.faults.append(f"branch node {number}: weights of a stage sum to more than 1, or are below 0")
            return None
        return state, multipliers, bound


def gap_in(rules: BranchingRules, state: NodeState, table: int, index: int, parts: list[PartDecision]) -> str | None:
    """What a branch node can do with a table's part number `index` that none of the `parts` covers; None for
    nothing."""
    before = state.decisions.get(table, ())
    around = rules.parts.undecided_range(table, before, index)
    if around is None:
        return f"its part {index} is not to be decided"
    fixed_place = before[index].place if index < len(before) else None
    for part in parts:
        if not (around[0] <= part.first <= part.last <= around[1]) or not rules.parts.is_part(part, before[:index]):
            return f"block types {part.first} to {part.last} are no part of it"
        if fixed_place is not None and part.place != fixed_place:
            return f"its part {index} has another place"
    usable = rules.open_places(state).usable
    for block in range(around[0], around[1] + 1):
        covering = [part.place for part in parts if part.first <= block <= part.last]
        if fixed_place is not None:
            places = [] if covering else [fixed_place]
        elif (
            None in covering
            or not usable[block]
            or not rules.parts.is_part(PartDecision(block, block, 0), before[:index])
        ):
            places = []
        else:
            covered = {rules.stands_for(state, block, place) for place in covering if place is not None}
            places = [place for place in rules.places(state, block) if place not in covered]
        for place in places:
            if rules.child(state, table, index, PartDecision(block, block, place)) is not None:
                return f"block type {block} on place {place} is left out"
    return None
