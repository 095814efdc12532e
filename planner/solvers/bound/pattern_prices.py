"""Prices that refute a case of rank patterns, by column generation (Gilmore & Gomory, Oper. Res. 9, 1961).

Columns are priced between the best prices known and the master's dual values, which wander (Wentges, Int. Trans. Oper.
Res. 4, 1997), and which are kept near to those: the first ones, of the relaxation, prove nearly as much as any, where
dual values of few columns prove nothing (boxstep: Marsten, Hogan and Blankenship, Oper. Res. 23, 1975).

Prices at any iteration prove something (Farley, Oper. Res. 38, 1990), so that it ends as soon as they refute the case,
or the columns so far need no more nodes than there are, with prices that may be anything.
"""

import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from planner.certificates.pattern_trees import PatternPrices
from planner.certificates.rank_patterns import Knapsack, PatternCase, WholeCuts
from planner.problem.numbers import Floats
from planner.problem.rounding import COARSE_ROUNDING
from planner.solvers.bound.pattern_master import Content, MasterSolution, PatternMaster
from planner.solvers.limits import Clock

SMOOTHING = 0.5
"""Weight of the best prices known where columns are priced."""
LEAST_SMOOTHING = 0.1
"""Below it, halved each time that nothing new is found, columns are priced at the dual values."""
NEAR, WIDER, FARTHEST = 0.1, 2.0, 0.4
"""Share by which prices in the master may differ from the best ones known, how much farther they may where that
proves too little, and beyond what they may be anything: columns are good ones then."""
AT_ONCE = 20
"""Contents of nodes, and levels of ranks, that are added at once."""
DIGITS = 7
"""Decimals of prices, as shares of what a node is worth."""
PRICINGS = 400
"""Of one case at most."""
FIRST_MASTER = 2
"""Pricings that take as long as the making of a master with the columns of another one."""
MASTER_WORK = 4_000
"""What a row of the master takes at each pricing, in cells of a bundle: measured on few tables and many ranks."""


@dataclass
class Work:
    """Cells of bundles that may be looked at, in all."""

    left: float

    def spend(self, case: PatternCase, pricings: int = 1) -> None:
        """Count pricings of a case."""
        bundles = len(case.on_rank.table) + len(case.on_node.table)
        self.left -= pricings * (bundles * case.rules.cells + MASTER_WORK * int(case.usable.sum()))


@dataclass
class PriceSearch:
    """The column generation of one case."""

    case: PatternCase
    work: Work
    clock: Clock
    best: PatternPrices
    """What proves most so far; of a node worth 1."""
    best_nodes: float = -np.inf
    """Nodes that any plan needs, as far as it is proven."""
    master: PatternMaster = field(init=False)
    is_interrupted: bool = False
    """Whether it ended for want of work or time, and may go on."""
    _near: float = NEAR
    _solution: MasterSolution | None = None

    def __post_init__(self) -> None:
        self.master = PatternMaster(self.case)
        self.master.add_node({})

    def run(self) -> PatternPrices | None:
        """Return prices that refute the case; None where none are found."""
        nodes, query, smoothing, near, proven = self.case.rules.nodes, self.best, SMOOTHING, self._near, -np.inf
        if not self.is_interrupted:
            self.work.spend(self.case, FIRST_MASTER)
        self.is_interrupted = False
        for _ in range(PRICINGS):
            is_new = self._price(query)
            if self.best_nodes > nodes * (1 + COARSE_ROUNDING):
                rounded = self._in_seconds()
                if self.case.is_refuted(rounded.blocks, rounded.byte):
                    return rounded
            if self.work.left <= 0 or self.clock.is_over():
                self.is_interrupted, self._near = True, near
                break
            if self.best_nodes > proven:
                proven, smoothing = self.best_nodes, SMOOTHING
                self._keep(near)
            elif is_new:
                smoothing = SMOOTHING
            elif smoothing:
                smoothing = smoothing / 2 if smoothing > LEAST_SMOOTHING else 0.0
            elif self.master.is_at_edge:
                near, smoothing = self._widened(near), SMOOTHING
            else:
                break
            near = self._solve(near)
            if self._solution is None or self._solution.nodes <= nodes * (1 + COARSE_ROUNDING):
                break
            query = _mean(self.best, self._solution.prices, smoothing)
        return None

    def _solve(self, near: float) -> float:
        """Solve the master, and again with prices that may be farther from the best ones, as long as it has no optimum
        or needs no more nodes than there are because they may not; return how far they may be then."""
        self._solution = self.master.solve()
        most = self.case.rules.nodes * (1 + COARSE_ROUNDING)
        while near < math.inf and (self._solution is None or self._solution.nodes <= most):
            if self._solution is not None and not self.master.is_at_edge:
                break
            near = self._widened(near)
            self._solution = self.master.solve()
        return near

    def _widened(self, near: float) -> float:
        near = near * WIDER if near < FARTHEST else math.inf
        self._keep(near)
        return near

    def _keep(self, near: float) -> None:
        """Keep prices near to the best ones, or let them be anything."""
        if near < math.inf:
            self.master.keep_near(self.best, near)
        else:
            self.master.let_go()

    def fits(self, pricings: int) -> bool:
        """Add columns, at so many prices at most, until the master needs no more nodes than there are; whether it comes
        to that."""
        for _ in range(pricings):
            self._solution = self.master.solve()
            if self._solution is None or self._solution.nodes <= self.case.rules.nodes * (1 + COARSE_ROUNDING):
                return self._solution is not None
            if self.clock.is_over() or not self._price(self._solution.prices):
                return False
        return False

    def cells(self, content: Content) -> int:
        """Cells that a content takes of each rank, beyond what is held there in any case."""
        return max(sum(int(self.case.extra_cells[block]) * count for block, count in content.items()), 0)

    def _in_seconds(self) -> PatternPrices:
        """The best prices, where a node is worth its ranks' seconds."""
        node_s = self.case.rules.ranks * self.case.rules.threshold_s
        unit_s = 10.0 ** (math.floor(math.log10(node_s)) - DIGITS)
        blocks = np.where(self.case.usable, np.round(self.best.blocks * node_s / unit_s), 0.0)
        digits = DIGITS - math.floor(math.log10(node_s))
        return PatternPrices(self.case.rules.threshold_s, np.round(blocks * unit_s, digits), self.best.byte * node_s)

    def _price(self, query: PatternPrices) -> bool:
        """Take what prices prove, and add the columns that they find; whether there are new ones."""
        case, ranks = self.case, self.case.rules.ranks
        self.work.spend(case)
        options, cuts = case.cheapest(case.values(query.blocks, query.byte))
        least = case.least_value(options, query.byte)
        if least == math.inf:
            self.best_nodes, self.best = least, query
            return False
        on_rank, on_node = (case.dearest(each, query.blocks) for each in (case.on_rank, case.on_node))
        filled = on_node.best + ranks * on_rank.best[::-1]
        value = float(filled.max())
        if value > 0 and least / value > self.best_nodes:
            self.best_nodes = least / value
            self.best = PatternPrices(query.threshold_s, query.blocks / value, query.byte / value)
        is_new = self._add_patterns(on_rank, on_node, filled)
        return self._add_options(options, cuts) or is_new

    def _add_patterns(self, on_rank: Knapsack, on_node: Knapsack, filled: Floats) -> bool:
        room, is_new = self.case.room, False
        fuller = np.flatnonzero(np.diff(on_node.best, prepend=-1.0) > 0)
        dearest = fuller[np.argsort(-filled[fuller], kind="stable")][:AT_ONCE].tolist()
        levels = set()
        for cells in dearest:
            level = self.master.add_node(on_node.content(cells))
            if level is not None:
                levels.add(level)
        is_new = bool(levels)
        if self._solution is not None:
            gains = {level: on_rank.best[room - level] - worth for level, worth in self._solution.of_level.items()}
            dearest = sorted(gains, key=lambda level: (-gains[level], level))[:AT_ONCE]
            levels.update(level for level in dearest if gains[level] > COARSE_ROUNDING)
        for level in sorted(levels):
            is_new |= self.master.add_rank(on_rank.content(room - level), level)
        return is_new

    def _add_options(self, options: Floats, cuts: list[WholeCuts]) -> bool:
        """Add each table's cheapest option, and all others that cost less than the table does in the master."""
        problem, is_new = self.case.rules.problem, False
        start = problem.option_start
        cheapest = np.minimum.reduceat(options, start[:-1])
        costs = cheapest if self._solution is None else np.maximum(cheapest, self._solution.of_table - COARSE_ROUNDING)
        for option in np.flatnonzero(options <= costs[problem.option_table]).tolist():
            is_new |= self.master.add_option(option, self._content(option, cuts))
        return is_new

    def _content(self, option: int, cuts: list[WholeCuts]) -> Counter[int]:
        """The blocks of an option, of a splittable one in its cheapest tiling."""
        problem = self.case.rules.problem
        units = int(problem.option_units[option])
        if units:
            return Counter(next(each for each in cuts if each.width.shape[1] == units + 1).content(option))
        types = range(int(problem.block_start[option]), int(problem.block_start[option + 1]))
        return Counter({block: int(problem.block_count[block]) for block in types})


def _mean(best: PatternPrices, other: PatternPrices, weight: float) -> PatternPrices:
    return PatternPrices(
        best.threshold_s,
        weight * best.blocks + (1 - weight) * other.blocks,
        weight * best.byte + (1 - weight) * other.byte,
    )
