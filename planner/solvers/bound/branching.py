"""Best-first branch and bound with Lagrangian bounds: a tighter bound, its proof, and the best plan where it ends.

The method is that of Land & Doig (Econometrica 28(3), 1960), bounded by Lagrangian duals (Fisher, Manag. Sci. 27(1),
1981), with strong branching over a few tables.

Each branch node (see `planner.certificates.branch_nodes`) gets the best multipliers by cutting planes; the branch node
with the lowest bound is divided by the table that weighs most: by option, by the width of its widest block, by where
that block is. What is left in the end, a tree of branch nodes with their multipliers, proves the bound. Effort is
counted in branch nodes, so it repeats.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from planner.certificates.block_costs import NodeChoice
from planner.certificates.branch_nodes import BranchingRules, NodeState
from planner.certificates.branch_trees import BranchNode, BranchTree
from planner.certificates.multipliers import Multipliers
from planner.certificates.node_bounds import NodeBounds
from planner.certificates.node_weights import NodeMultipliers
from planner.certificates.parts import PartDecision
from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Floats
from planner.problem.placement import Placement
from planner.problem.rounding import COARSE_ROUNDING
from planner.solvers.bound.column_reduction import reduce_columns
from planner.solvers.bound.node_dual import NodeDual

ENOUGH = 1e-7
"""Relative distance from the threshold at which a branch node counts as closed."""
ROUNDS = 60
"""Cutting planes per branch node at most."""
TOLERANCE = 2e-5
"""Relative difference of bound and relaxation at which a branch node's multipliers are good enough."""
PAYS = 0.05
"""A rise of the bound by less than this share of its distance from the target is none."""
PATIENCE = (4, 96)
"""Divisions and cutting planes after which a bound that does not rise is left alone; or half of those until it last
rose, where these are more."""
NEAR_CEILING = 0.1
"""That difference is good enough, too, where it is less than this share of what the relaxation is below the target."""
CANDIDATES = 4
"""Tables that are tried for each division."""
MARGIN = 0.05
"""Share of the way to the threshold by which a lighter table must be better to be preferred."""


@dataclass
class Node:
    """A branch node of the tree."""

    parent: int
    table: int
    index: int
    part: PartDecision | None
    """The decision that leads here from the parent; none at the root."""
    state: NodeState
    multipliers: NodeMultipliers
    own: bool
    """Whether the multipliers are its own, not the parent's."""
    bound_s: float
    choice: NodeChoice | None = None
    has_best_multipliers: bool = False
    """Whether its multipliers are the best ones, or as good as they get."""
    divides: tuple[int, int] | None = None
    """The table and the number of its part by which the branch node is divided; none for a leaf. No children: it is
    empty."""
    children: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class BranchingResult:
    """What branching proves: no placement takes less than `bound_s`, and the best one it met, if it met one."""

    bound_s: float
    tree: BranchTree
    placement: Placement | None
    step_s: float
    """Seconds that this placement takes, or the one that was known."""


@dataclass(frozen=True)
class StopRule:
    """When branching ends, if it does not close all branch nodes."""

    nodes: int
    """So many were looked at."""
    is_over: Callable[[], bool] = lambda: False
    gap: float = 0.0
    """The bound is so near to the known step, relatively."""
    patience: float = np.inf
    """It has not risen for so many times `PATIENCE`."""
    useful_s: float = np.inf
    """The bound is as high as is of use."""


def branch(problem: Problem, multipliers: Multipliers, least: Floats, step_s: float, stop: StopRule) -> BranchingResult:
    """Divide until the bound is `step_s`, which some placement takes.

    `least` [S] are seconds that every placement takes in each stage.
    """
    search = BranchAndBound(problem, multipliers, least, step_s)
    search.run(stop)
    return search.result()


class BranchAndBound:
    """Branching that can go on where it ended, also once a faster placement is known; see `branch`."""

    def __init__(self, problem: Problem, multipliers: Multipliers, least: Floats, step_s: float) -> None:
        self.rules = BranchingRules(problem, step_s, least * (1 - COARSE_ROUNDING))
        self.bounds = NodeBounds(self.rules)
        self.placement: Placement | None = None
        self._reduced = reduce_columns(problem)
        multipliers, kind = self._reduced.whole_multipliers(multipliers), problem.kind_of_rank
        state = self.rules.state({})
        weight, byte = multipliers.weight[kind].T.copy(), multipliers.byte[kind].T.copy()
        for row, instance in zip((*weight, *byte), (*problem.resource_of_rank, *problem.pool_of_rank), strict=True):
            row[~np.isin(instance, instance[problem.reach])] = 0.0
        root = Node(-1, -1, -1, None, state, NodeMultipliers(weight, byte), True, -np.inf)
        self._work = np.zeros(2, dtype=np.int64)
        """Divisions and cutting planes so far."""
        self.nodes: list[Node] = [root]
        self._queue: list[tuple[float, int]] = []
        self._enter(0)

    @property
    def _target(self) -> float:
        return self.rules.threshold_s * (1 - ENOUGH)

    def run(self, stop: StopRule) -> None:
        """Best first, as long as the bound rises now and then."""
        risen_s, risen_at = self._queue[0][0] if self._queue else self._target, self._work.copy()
        patience = stop.patience * np.array(PATIENCE)
        while self._queue and len(self.nodes) < stop.nodes and not stop.is_over():
            bound, number = self._queue[0]
            if bound >= min(self._target, self.rules.threshold_s / (1 + stop.gap), stop.useful_s):
                break
            if bound - risen_s >= PAYS * (self._target - risen_s):
                risen_s, risen_at = bound, self._work.copy()
            elif (self._work - risen_at > np.maximum(patience, risen_at / 2)).any():
                break
            heapq.heappop(self._queue)
            node = self.nodes[number]
            if node.has_best_multipliers:
                self._divide(number)
            else:
                self._optimise_multipliers(node)
                node.has_best_multipliers = True
                heapq.heappush(self._queue, (node.bound_s, number))

    def lower(self, step_s: float) -> None:
        """From now on only placements faster than `step_s`, which some placement takes, are of interest."""
        if step_s < self.rules.threshold_s:
            self.rules.threshold_s, self.placement = step_s, None

    def result(self) -> BranchingResult:
        """The tree as it stands."""
        leaves = [node.bound_s for node in self.nodes if not node.children]
        bound = min([self.rules.threshold_s, *leaves])
        nodes = [
            BranchNode(node.parent, node.part, node.divides, node.multipliers if node.own else None)
            for node in self.nodes
        ]
        step_s = self.rules.threshold_s
        return BranchingResult(bound, BranchTree(step_s, tuple(nodes)), self.placement, step_s)

    def _enter(self, number: int) -> None:
        """Bound a new branch node; it waits to be divided, unless it is closed or a plan."""
        node = self.nodes[number]
        placement = self.rules.plan(node.state)
        if placement is not None:
            node.multipliers, node.own = _critical(self.rules.problem, node.state), True
            node.bound_s = node.state.step_s * (1 - ENOUGH / 10)
            if node.state.step_s < self.rules.threshold_s:
                self.rules.threshold_s, self.placement = node.state.step_s, placement
            return
        node.bound_s, node.choice = self.bounds.priced(node.state, node.multipliers)
        if node.parent >= 0:
            node.bound_s = max(node.bound_s, self.nodes[node.parent].bound_s)
        if node.bound_s < self._target:
            heapq.heappush(self._queue, (node.bound_s, number))

    def _optimise_multipliers(self, node: Node) -> None:
        """Find the best multipliers of a branch node."""
        dual = NodeDual(self.rules, node.state, self._reduced)
        best = query = dual.shares_of(node.multipliers)
        value, choice = node.bound_s, node.choice
        for _ in range(ROUNDS):
            if choice is not None:
                dual.add_cut(choice)
            self._work[1] += 1
            solved = dual.solve()
            if solved is None:
                break
            point, ceiling = solved
            left = max(TOLERANCE * abs(node.bound_s), NEAR_CEILING * (self._target - ceiling))
            if ceiling - node.bound_s <= left:
                break
            query = (best + point) / 2
            value, choice = self.bounds.priced(node.state, dual.multipliers(query))
            if value > node.bound_s:
                node.bound_s, node.choice, best = value, choice, query
                node.multipliers, node.own = dual.multipliers(best), True
            if value >= self._target or choice is None:
                break

    def _divide(self, number: int) -> None:
        """Choose a table and enter all that it can do."""
        self._work[0] += 1
        node = self.nodes[number]
        assert node.choice is not None
        best: tuple[float, int, list[tuple[int, int, PartDecision, NodeState]]] | None = None
        for table in self._candidates(node):
            children = self._ways(node, table)
            bounds = [self.bounds.bound(state, node.multipliers) for *_, state in children]
            gain = max(node.bound_s, min(bounds, default=np.inf))
            if best is None or gain > best[0] + MARGIN * (self._target - node.bound_s):
                best = gain, table, children
        assert best is not None
        node.divides = best[1], self._index(node, best[1])
        first = len(self.nodes)
        for table, index, part, state in best[2]:
            self.nodes.append(Node(number, table, index, part, state, node.multipliers, False, node.bound_s))
        node.children = list(range(first, len(self.nodes)))
        if not node.children:
            node.bound_s = np.inf
        for child in node.children:
            self._enter(child)

    def _candidates(self, node: Node) -> list[int]:
        """The tables that weigh most, of those that are not decided."""
        assert node.choice is not None
        weight = node.choice.of_table.copy()
        for table, parts in node.state.decisions.items():
            if self.rules.parts.is_inexact(parts):
                weight[table] += self.rules.spread(node.multipliers, parts[-1])
            elif self.rules.parts.open_range(table, parts) is None:
                weight[table] = -1.0
        order = np.argsort(-weight, kind="stable")[:CANDIDATES]
        return [int(table) for table in order if weight[table] >= 0]

    def _ways(self, node: Node, table: int) -> list[tuple[int, int, PartDecision, NodeState]]:
        """The possible branch nodes of a table's next decision."""
        state, rules = node.state, self.rules
        parts, index = state.decisions.get(table, ()), self._index(node, table)
        children = []
        for part in self._parts(node, table, parts):
            child = rules.child(state, table, index, part)
            if child is not None:
                children.append((table, index, part, child))
        return children

    def _index(self, node: Node, table: int) -> int:
        """Number of the part of a table that is decided next, or more narrowly."""
        parts = node.state.decisions.get(table, ())
        return len(parts) - int(bool(parts) and (parts[-1].place is None or self.rules.parts.is_inexact(parts)))

    def _parts(self, node: Node, table: int, parts: tuple[PartDecision, ...]) -> list[PartDecision]:
        problem, rules = self.rules.problem, self.rules
        if rules.parts.is_inexact(parts):
            first, last, place = parts[-1]
            middle = (first + last) // 2
            return [PartDecision(first, middle, place), PartDecision(middle + 1, last, place)]
        around = rules.parts.open_range(table, parts)
        assert around is not None
        assert node.choice is not None
        room = rules.open_places(node.state)
        usable = first_last(room.usable, *around)
        if usable is None:
            return []
        first, last = usable
        lead = min(max(int(node.choice.lead[table]), first), last)
        option = int(problem.block_option[lead])
        start, stop = problem.block_start[option : option + 2].tolist()
        if problem.option_units[option]:
            low, high = first_last(room.usable, lead, min(stop - 1, last)) or (lead, lead)
            cuts = [(first, start - 1), (max(first, start), low - 1), (high + 1, last)]
        elif rules.parts.placed(parts):
            low = high = first
            cuts = []
        else:
            low = high = start
            cuts = [(first, start - 1), (stop, last)]
        open_parts = [PartDecision(a, b, None) for a, b in cuts if a <= b]
        reachable = {place for block in range(low, high + 1) for place in rules.places(node.state, block)}
        return [*open_parts, *(PartDecision(low, high, place) for place in sorted(reachable))]


def first_last(usable: Bools, first: int, last: int) -> tuple[int, int] | None:
    """The range without the unusable blocks at its ends; None where there is no other."""
    left = np.flatnonzero(usable[first : last + 1])
    return (first + int(left[0]), first + int(left[-1])) if len(left) else None


def _critical(problem: Problem, state: NodeState) -> NodeMultipliers:
    """All weight of each stage on what makes it as long as it is."""
    weight, byte = np.zeros_like(state.load), np.zeros_like(state.free)
    for stage in np.unique(problem.stage_of_column):
        columns = np.flatnonzero(problem.stage_of_column == stage)
        row, rank = np.unravel_index(int(state.load[columns].argmax()), (len(columns), problem.world))
        column = columns[row]
        weight[column, problem.resource_of_rank[column] == problem.resource_of_rank[column, rank]] = 1.0
    return NodeMultipliers(weight, byte)
