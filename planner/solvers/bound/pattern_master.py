"""The master programme of rank patterns: as few nodes as hold all tables, in fractions of patterns and of options.

Contents of nodes and patterns of their ranks are columns of their own, linked by levels: what a node holds on all its
ranks leaves so many cells of each, and a pattern that fits into these fits into those of every node that holds less.
Dual values of its rows are prices of blocks (Gilmore & Gomory, Oper. Res. 11, 1963). A block may stand for a smaller
one of its table, which keeps prices ascending (dual inequalities: Valério de Carvalho, INFORMS J. Comput. 17, 2005).

CLP solves it: with columns added to the last basis it takes a tenth of GLOP's time here.
"""

import bisect
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from planner.certificates.lagrangian import block_values, region_capacity
from planner.certificates.pattern_trees import PatternPrices
from planner.certificates.rank_patterns import PatternCase
from planner.problem.arrays import Problem
from planner.problem.numbers import Floats, Ints

if TYPE_CHECKING:
    from ortools.linear_solver import pywraplp

Content = Mapping[int, int]
"""How often each block is on a rank, or on a node, or in an option."""
NEEDED = 1e-3
"""Nodes that a column costs too much at most to be handed on to the parts of a case."""
USED = 1e-6
"""How much of a column an optimum takes at least that has it."""


@dataclass(frozen=True)
class MasterSolution:
    """An optimum of the programme."""

    nodes: float
    """That the columns so far need, in fractions."""
    prices: PatternPrices
    """In nodes."""
    of_level: Mapping[int, float]
    """What a rank is worth of a node that holds so many cells on all of them."""
    of_table: Floats
    """[T] what a table costs."""


@dataclass
class Columns:
    """Contents of nodes, patterns of ranks and cuts of options (with the option), each once."""

    on_node: dict[tuple[tuple[int, int], ...], "pywraplp.Variable"] = field(default_factory=dict)
    on_rank: dict[tuple[int, tuple[tuple[int, int], ...]], "pywraplp.Variable"] = field(default_factory=dict)
    options: dict[tuple[int, tuple[tuple[int, int], ...]], "pywraplp.Variable"] = field(default_factory=dict)
    leads: "list[tuple[int, pywraplp.Variable]]" = field(default_factory=list)
    """The leading block of each cut of an option."""


class Count(NamedTuple):
    """How often an optimum has a content."""

    content: Content
    value: float
    held: int
    """It has it at least so often."""
    variable: "pywraplp.Variable"


class PatternMaster:
    """The programme of one case."""

    def __init__(self, case: PatternCase) -> None:
        from ortools.linear_solver import pywraplp

        self._case, self.columns = case, Columns()
        rules, problem = case.rules, case.rules.problem
        self._solver: pywraplp.Solver = pywraplp.Solver.CreateSolver("CLP")
        self._parameters = pywraplp.MPSolverParameters()
        for key, value in (
            (self._parameters.PRESOLVE, self._parameters.PRESOLVE_OFF),
            (self._parameters.LP_ALGORITHM, self._parameters.PRIMAL),
            (self._parameters.INCREMENTALITY, self._parameters.INCREMENTALITY_ON),
        ):
            self._parameters.SetIntegerParam(key, value)
        self._optimal = pywraplp.Solver.OPTIMAL
        self._infinity = self._solver.infinity()
        self._objective = self._solver.Objective()
        self._objective.SetMinimization()
        self._capacity = region_capacity(problem)
        self._unit_bytes: Floats = np.where(self._capacity > 0, self._capacity, 2.0**30)
        self._bytes = self._bytes_of_blocks()
        self._memory = [self._solver.Constraint(-self._infinity, 1.0) for _ in self._capacity.ravel()]
        self._tables = [self._solver.Constraint(1.0, 1.0) for _ in range(problem.tables)]
        for row in self._tables:
            row.SetCoefficient(self._variable(10.0 * rules.nodes), 1.0)
        self._larger: list[int] = []
        """Rows of blocks on ranks that may stand for those of the row before."""
        self._part, self._rows = self._parts()
        self._edges: list[tuple[pywraplp.Variable, pywraplp.Variable]] = []
        """Of each row, blocks bought at the highest price and sold at the lowest one, where prices are kept near."""
        self._levels: dict[int, pywraplp.Constraint] = {}
        self._sorted_levels: list[int] = []

    def _bytes_of_blocks(self) -> Floats:
        """[B, D x M] bytes of a block where it is taken once, as a share of what there is."""
        rules, (regions, tiers) = self._case.rules, self._capacity.shape
        sizes = []
        for at in range(regions * tiers):
            byte = np.zeros(regions * tiers)
            byte[at] = 1.0
            worth = block_values(rules.problem, np.zeros((regions, 1)), byte.reshape(regions, tiers))
            sizes.append(rules.joined(np.where(self._case.usable, worth, np.inf)) / self._unit_bytes.ravel()[at])
        return np.stack(sizes, axis=1)

    def _parts(self) -> "tuple[Ints, list[pywraplp.Constraint]]":
        """[B] the row of each block: those of one table that take as much of a rank have one. Larger ones may stand for
        smaller ones on a rank."""
        case, problem = self._case, self._case.rules.problem
        usable = np.flatnonzero(case.usable)
        keys = np.stack([problem.table_of_block, problem.is_on_rank, case.extra_cells])[:, usable]
        unique, number = np.unique(keys, axis=1, return_inverse=True)
        part = np.full(len(problem.block_option), -1)
        part[usable] = number.ravel()
        rows = [self._solver.Constraint(0.0, self._infinity) for _ in range(unique.shape[1])]
        for larger in range(1, len(rows)):
            if (unique[:2, larger] == unique[:2, larger - 1]).all() and unique[1, larger]:
                self._larger.append(larger)
                exchanged = self._variable(0.0)
                rows[larger].SetCoefficient(exchanged, -1.0)
                rows[larger - 1].SetCoefficient(exchanged, 1.0)
        return part, rows

    def _variable(self, cost: float) -> "pywraplp.Variable":
        self._is_solved = False
        variable = self._solver.NumVar(0.0, self._infinity, "")
        self._objective.SetCoefficient(variable, cost)
        return variable

    def _cover(self, variable: "pywraplp.Variable", content: Content, times: Floats | None = None) -> None:
        """Count a column's blocks; as often as they are demanded where it is an option."""
        of_part: dict[int, float] = {}
        for block, count in content.items():
            amount = float(count) if times is None else -count * float(times[block])
            of_part[int(self._part[block])] = of_part.get(int(self._part[block]), 0.0) + amount
        for part, amount in of_part.items():
            self._rows[part].SetCoefficient(variable, amount)

    def _cells(self, content: Content) -> int:
        return max(sum(int(self._case.extra_cells[block]) * count for block, count in content.items()), 0)

    def add_node(self, content: Content) -> int | None:
        """Add what a node may hold on all its ranks; return the cells that it takes of them, None where it is known."""
        key = tuple(sorted(content.items()))
        if key in self.columns.on_node:
            return None
        cells = self._cells(content)
        if cells not in self._levels:
            self._add_level(cells)
        self.columns.on_node[key] = variable = self._variable(1.0)
        self._levels[cells].SetCoefficient(variable, float(self._case.rules.ranks))
        self._cover(variable, content)
        return cells

    def _add_level(self, cells: int) -> None:
        """Ranks of nodes that hold less may be used as those of nodes that hold more."""
        self._levels[cells] = self._solver.Constraint(0.0, self._infinity)
        at = bisect.bisect(self._sorted_levels, cells)
        self._sorted_levels.insert(at, cells)
        for less, more in itertools.pairwise(self._sorted_levels[max(at - 1, 0) : at + 2]):
            handed_on = self._variable(0.0)
            self._levels[less].SetCoefficient(handed_on, -1.0)
            self._levels[more].SetCoefficient(handed_on, 1.0)

    def add_rank(self, content: Content, level: int | None = None) -> bool:
        """Add a pattern of a rank at a level, or the highest that it fits; False where it is known or none."""
        if level is None:
            at = bisect.bisect_right(self._sorted_levels, self._case.room - self._cells(content))
            if not at:
                return False
            level = self._sorted_levels[at - 1]
        key = level, tuple(sorted(content.items()))
        if key in self.columns.on_rank:
            return False
        self.columns.on_rank[key] = variable = self._variable(0.0)
        self._levels[level].SetCoefficient(variable, -1.0)
        self._cover(variable, content)
        return True

    def add_option(self, option: int, content: Content) -> bool:
        """Add an option, cut into blocks in one way; False where it is known."""
        key = option, tuple(sorted(content.items()))
        if key in self.columns.options:
            return False
        self.columns.options[key] = variable = self._variable(0.0)
        rules = self._case.rules
        self.columns.leads.append((_lead(rules.problem, option, content), variable))
        self._tables[int(rules.problem.option_table[option])].SetCoefficient(variable, 1.0)
        self._cover(variable, content, rules.demand)
        size = sum((count * self._bytes[block] for block, count in content.items()), np.zeros(len(self._memory)))
        for row, share in zip(self._memory, size.tolist(), strict=True):
            if share > 0:
                row.SetCoefficient(variable, share)
        return True

    def keep_near(self, prices: PatternPrices, share: float) -> None:
        """Have no price of a block differ from these by more than that share of it in what is solved from now on."""
        self._is_solved = False
        self._edges = self._edges or [self._edge(row) for row in self._rows]
        middle = np.zeros(len(self._rows) + 1)
        np.maximum.at(middle, self._part, prices.blocks)
        for row in self._larger:
            middle[row] = max(middle[row], middle[row - 1])
        for (bought, sold), price in zip(self._edges, middle[:-1].tolist(), strict=True):
            self._objective.SetCoefficient(bought, price * (1 + share))
            self._objective.SetCoefficient(sold, -price * (1 - share))

    def let_go(self) -> None:
        """Have prices be anything from now on."""
        self._is_solved = False
        for each in itertools.chain(*self._edges):
            each.SetUb(0.0)

    def _edge(self, row: "pywraplp.Constraint") -> "tuple[pywraplp.Variable, pywraplp.Variable]":
        bought, sold = self._variable(0.0), self._variable(0.0)
        row.SetCoefficient(bought, 1.0)
        row.SetCoefficient(sold, -1.0)
        return bought, sold

    @property
    def is_at_edge(self) -> bool:
        """Whether the last optimum would have other prices, were these not kept near to some."""
        return any(each.solution_value() > USED for pair in self._edges for each in pair)

    def solve(self) -> MasterSolution | None:
        """Return the optimum over the columns so far; None where the solver gives up."""
        self._is_solved = self._solver.Solve(self._parameters) == self._optimal
        if not self._is_solved:
            return None
        price = np.append([max(row.dual_value(), 0.0) for row in self._rows], 0.0)
        byte = np.array([max(-row.dual_value(), 0.0) for row in self._memory]).reshape(self._capacity.shape)
        return MasterSolution(
            self._objective.Value(),
            PatternPrices(self._case.rules.threshold_s, price[self._part], byte / self._unit_bytes),
            {level: max(row.dual_value(), 0.0) for level, row in self._levels.items()},
            np.array([row.dual_value() for row in self._tables]),
        )

    def lead_shares(self) -> Floats:
        """[B] how much the optimum takes of options with each leading block; nothing where there is no optimum."""
        shares = np.zeros(len(self._case.rules.problem.block_option))
        if self._is_solved or self.solve() is not None:
            for lead, variable in self.columns.leads:
                shares[lead] += variable.solution_value()
        return shares

    def counts(self, *, on_rank: bool) -> "list[Count]":
        """How often the optimum has each content of nodes, or each pattern of ranks, and how often it must have it."""
        if not self._is_solved and self.solve() is None:
            return []
        if on_rank:
            pairs = [(content, variable) for (_, content), variable in self.columns.on_rank.items()]
        else:
            pairs = list(self.columns.on_node.items())
        return [Count(dict(content), each.solution_value(), round(each.lb()), each) for content, each in pairs]

    def hold(self, count: "Count", least: int) -> None:
        """Have a content at least so often from now on."""
        self._is_solved = False
        count.variable.SetLb(float(least))

    def inherit(self, other: "PatternMaster") -> None:
        """Add the columns of the optimum of a case that this one is a part of, and others that cost little more."""
        if not other._is_solved and other.solve() is None:
            return
        case, problem = self._case, self._case.rules.problem
        held = {b: int(problem.block_count[b]) for b in np.flatnonzero(case.usable & case.is_held).tolist()}

        def is_usable(content: tuple[tuple[int, int], ...]) -> bool:
            return all(case.usable[block] for block, _ in content)

        for content in filter(is_usable, _needed(other.columns.on_node)):
            more = {**dict(content), **held}
            if self._cells(more) <= case.room:
                self.add_node(more)
        for _, content in _needed(other.columns.on_rank):
            if is_usable(content):
                self.add_rank(dict(content))
        for option, content in _needed(other.columns.options):
            if is_usable(content):
                self.add_option(option, dict(content))


def _lead(problem: Problem, option: int, content: Content) -> int:
    """The widest block of a splittable option; the first one of a fixed option."""
    if not problem.option_units[option]:
        return int(problem.block_start[option])
    return max((int(problem.block_units[block]), block) for block in content)[1]


_Key = TypeVar("_Key")


def _needed(known: "Mapping[_Key, pywraplp.Variable]") -> list[_Key]:
    """Columns of an optimum, and those that cost little more than they are worth there."""
    return [
        key for key, variable in known.items() if variable.solution_value() > 0 or abs(variable.reduced_cost()) < NEEDED
    ]
