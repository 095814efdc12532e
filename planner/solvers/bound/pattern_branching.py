"""A tighter bound where ranks hold one to three shards: thresholds that prices of rank patterns refute, case by case.

The relaxation of a case holds fractions of patterns and of options (`planner.solvers.bound.pattern_master`). Where it
needs no more nodes than there are, the case is divided by the leading block of a table: first by options that hold
something on every rank, which all patterns then leave room for, then by where a table is, by other options, by widths.
It is branch and price (Barnhart et al., Oper. Res. 46, 1998).
"""

from dataclasses import dataclass, replace

import numpy as np

from planner.certificates.multipliers import Bound
from planner.certificates.pattern_trees import Division, PatternPrices, PatternTree, divided_leads
from planner.certificates.rank_patterns import PatternCase, PatternRules
from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Ints
from planner.problem.placement import Placement
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.pattern_master import PatternMaster
from planner.solvers.bound.pattern_prices import PriceSearch, Work
from planner.solvers.bound.pattern_rounding import PatternRounding, may_be_rounded
from planner.solvers.limits import Clock

CELLS = 4_000
"""Cells of a threshold: three blocks of a rank are rounded down by less than a tenth of a per cent."""
RISE, WORTHWHILE = 4e-3, 5e-4
"""Relative distance of a threshold from what is proven of a case; halved where none is refuted and the case is decided;
and the least."""
DIVIDED_IN_VAIN = 16
"""Divisions without a higher bound after which all thresholds come half as near to what is proven."""
UNDECIDED = 0.02
"""Share of a table above which an option counts, and the rest of it, for the table to be undecided."""
MOST_CASES = 100
"""That are not divided, for the size of the proof: more gained nothing where these did not suffice."""


@dataclass
class Case:
    """The plans in which the leading block of every table is one of some."""

    leading: Bools
    """[B]"""
    proven_s: float
    """No plan of the case is faster."""
    prices: PatternPrices | None = None
    """What proves it; None where it is known without."""
    search: PriceSearch | None = None
    """The last one for prices that prove more."""
    rise: float = RISE
    parts: "tuple[Division, Case, Case] | None" = None


class PatternBranching:
    """Raises the bound of one problem: divides its plans where the least is proven, as far as the work goes."""

    def __init__(self, fluid: Fluid, bound: Bound) -> None:
        """Above a bound of the problem."""
        self._problem, self._bound = fluid.problem, bound
        self._whole = Case(np.ones(len(self._problem.block_option), dtype=bool), bound.seconds)
        self._leaves = [self._whole]
        self._rules: dict[float, PatternRules] = {}
        self._rise, self._divided, self._least_s = RISE, 0, bound.seconds
        """How far thresholds are above what is proven at most, and divisions since the least of all cases was last
        raised, to these seconds."""

    def run(self, step_s: float, work: Work, clock: Clock) -> Bound:
        """Go on towards the step of a plan; return the best bound that is proven."""
        while work.left > 0 and not clock.is_over() and len(self._leaves) < MOST_CASES:
            case = min(self._leaves, key=lambda each: each.proven_s)
            if case.proven_s * (1 + WORTHWHILE) >= step_s or case.rise < WORTHWHILE:
                break
            threshold_s = min(case.proven_s * (1 + self._rise_of(case)), (case.proven_s + step_s) / 2)
            if self._is_raised(case, threshold_s, work, clock) or work.left <= 0 or clock.is_over():
                continue
            if self._is_divided(case):
                self._divided += 1
            else:
                case.rise /= 2
        return self._proven()

    def _rise_of(self, case: Case) -> float:
        """How far the next threshold is above what is proven of a case with the least bound: less and less, as long as
        divisions raise nothing."""
        if case.proven_s > self._least_s:
            self._least_s, self._divided = case.proven_s, 0
        if self._divided >= DIVIDED_IN_VAIN:
            self._rise, self._divided = max(self._rise / 2, WORTHWHILE), 0
        return min(self._rise, case.rise)

    def refute(self, threshold_s: float, work: Work, clock: Clock) -> Bound:
        """Look for prices that prove a threshold of all plans at once; return what is proven."""
        self._is_raised(self._whole, threshold_s, work, clock)
        return self._proven()

    def rounded(self, threshold_s: float, clock: Clock) -> Placement | None:
        """Round what patterns need below a threshold, among the plans of which the least is proven; None where nothing
        was priced there, a table may not be everywhere or beside every other, or one is left no option."""
        case = min(self._leaves, key=lambda each: each.proven_s)
        if case.search is None or not may_be_rounded(self._problem):
            return None
        rounding = PatternRounding(self._rules_of(threshold_s), case.leading, case.search, clock)
        return rounding.placement()

    def _is_raised(self, case: Case, threshold_s: float, work: Work, clock: Clock) -> bool:
        """Look for prices that prove a threshold of a case; whether there are any."""
        before = case.search
        if before is not None and before.is_interrupted and before.case.rules.threshold_s == threshold_s:
            before.work, before.clock = work, clock
            return self._is_refuted(case, before)
        of_threshold = self._rules_of(threshold_s).case(case.leading)
        start = fluid_prices(of_threshold.rules, self._bound)
        if before is not None:
            start = replace(before.best, blocks=np.where(before.case.usable, before.best.blocks, start.blocks))
        if not of_threshold.is_possible or of_threshold.room < 0:
            case.prices = PatternPrices(threshold_s, 0 * start.blocks, 0 * start.byte)
            case.proven_s = threshold_s
            return True
        case.search = PriceSearch(of_threshold, work, clock, start)
        if before is not None:
            case.search.master.inherit(before.master)
        return self._is_refuted(case, case.search)

    def _is_refuted(self, case: Case, search: PriceSearch) -> bool:
        prices = search.run()
        if prices is not None:
            case.prices, case.proven_s = prices, prices.threshold_s
        return prices is not None

    def _rules_of(self, threshold_s: float) -> PatternRules:
        if threshold_s not in self._rules:
            self._rules[threshold_s] = PatternRules(self._problem, threshold_s, CELLS)
        return self._rules[threshold_s]

    def _is_divided(self, case: Case) -> bool:
        """Divide a case where its last optimum is least decided; False where it decides everything."""
        at = None if case.search is None else _division(case.search.case, case.search.master)
        parts = None if at is None else divided_leads(self._problem, case.leading, at)
        if at is None or parts is None:
            return False
        inside, outside = (Case(part, case.proven_s, case.prices, case.search) for part in parts)
        case.parts, case.search = (at, inside, outside), None
        self._leaves = [each for each in self._leaves if each is not case] + [inside, outside]
        return True

    def _proven(self) -> Bound:
        """Return what all leaves prove together; the bound as it was, where one proves no more."""
        proven_s = min(case.proven_s for case in self._leaves)
        cases: list[Division | PatternPrices] = []
        waiting = [self._whole]
        while waiting:
            case = waiting.pop()
            if case.parts is not None:
                cases.append(case.parts[0])
                waiting += reversed(case.parts[1:])
            elif case.prices is None:
                return self._bound
            else:
                cases.append(case.prices)
        return replace(self._bound, seconds=proven_s, patterns=PatternTree(CELLS, tuple(cases)))


def fluid_prices(rules: PatternRules, bound: Bound) -> PatternPrices:
    """What the relaxation's multipliers say: a block is worth the room that it takes; of a node worth 1."""
    problem, weight = rules.problem, bound.multipliers.weight
    ranks = np.where(problem.is_on_rank, 1, rules.ranks)
    blocks = np.where(rules.blocks, rules.load_cells * ranks / (rules.ranks * (rules.cells - 1)), 0.0)
    of_node_s = float(weight[0, 0]) * rules.ranks * bound.seconds
    byte = bound.multipliers.byte / of_node_s if of_node_s > 0 else 0 * bound.multipliers.byte
    return PatternPrices(rules.threshold_s, blocks, byte)


def _division(case: PatternCase, master: PatternMaster) -> Division | None:
    """Return where the optimum of a master is least decided; None where it decides everything."""
    problem = case.rules.problem
    of_lead = master.lead_shares()
    of_option = np.add.reduceat(of_lead, problem.block_start[:-1])
    first, last = problem.block_start[:-1], problem.block_start[1:] - 1
    everywhere = np.logical_or.reduceat(problem.is_world_wide, first)
    return (
        _least_decided(of_option[everywhere], first[everywhere], last[everywhere])
        or _least_decided(*_by_reach(problem, of_option))
        or _least_decided(of_option, first, last)
        or _by_width(problem, of_lead)
    )


def _least_decided(share: np.ndarray, first: Ints, last: Ints) -> Division | None:
    """Return the range whose share [n] is nearest to a half."""
    undecided = np.flatnonzero((share > UNDECIDED) & (share < 1 - UNDECIDED))
    if not len(undecided):
        return None
    at = int(undecided[np.abs(share[undecided] - 0.5).argmin()])
    return Division(int(first[at]), int(last[at]))


def _by_reach(problem: Problem, of_option: np.ndarray) -> tuple[np.ndarray, Ints, Ints]:
    """Runs of options of one table whose first blocks reach as far: their shares, first and last blocks."""
    lead = problem.block_start[:-1]
    kind = problem.is_on_rank[lead] + 2 * problem.is_on_group[lead]
    breaks = np.diff(problem.option_table, prepend=-1) != 0
    breaks |= np.diff(kind, prepend=-1) != 0
    runs = np.flatnonzero(breaks)
    ends = np.append(runs[1:], len(lead))
    return np.add.reduceat(of_option, runs), lead[runs], problem.block_start[ends] - 1


def _by_width(problem: Problem, of_lead: np.ndarray) -> Division | None:
    """Return the widths of a splittable option up to which about a half of its cuts have their widest block."""
    free = np.flatnonzero(problem.option_units > 0)
    found, best = None, UNDECIDED
    for option in free.tolist():
        start, stop = int(problem.block_start[option]), int(problem.block_start[option + 1])
        below = np.cumsum(of_lead[start:stop])
        split = np.minimum(below, below[-1] - below)
        at = int(split.argmax())
        if split[at] > best:
            found, best = Division(start, start + at), float(split[at])
    return found
