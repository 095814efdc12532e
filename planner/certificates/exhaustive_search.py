"""Every plan of a small problem that may be below a threshold: table by table, all that are alike counted once.

This is dynamic programming over the loads (Bellman, Dynamic Programming, 1957) with bounds (Morin & Marsten, Oper. Res.
24(4), 1976). Partial plans grow in layers. After each table those are pruned that overfill a memory, break the policy,
or cannot stay below the threshold: by what they load already, by what the tables still to come add to the mean load of
a resource at least, or at given multipliers (`planner.certificates.partial_plans`). Two partial plans are alike where
ranks that nothing tells apart change places; one of them goes on.

Nothing here depends on a solver: a plan document claims a threshold, and the check tries every plan again.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from planner.certificates.partial_plans import PartialPlanBounds, PartialPlans
from planner.certificates.table_placements import PlacedRows, TableEnumeration, TablePlacements
from planner.certificates.work_budget import WorkBudget, WorkExceededError
from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.placement import Placement
from planner.problem.symmetry import RankSymmetry, rank_symmetry

NEAR = 1e-7
"""Relative distance below the threshold within which a plan is not looked for."""
QUANTUM = 1e-12
"""Loads that differ by less, relative to the largest, are equal."""
MOST_PAIRS = 8_000
"""Block types x ranks, at most."""
MOST_NUMBERS = 20_000_000
"""Numbers that the partial plans of one layer may be made of."""
LATER_LAYERS = 0.5
"""Work on each layer still to come, over that on the last one: where that is more than what is left, it is given up."""
AT_ONCE = 1_000_000
"""Numbers that are worked on at once."""
CHECK_WORK = 5e9
"""Numbers beyond which a check gives up: more than any search takes."""


class ExhaustiveResult(NamedTuple):
    """The best plan below the threshold, where there is one."""

    step_s: float
    """Infinite where there is none."""
    placement: Placement | None
    work: float
    """Numbers worked on."""


def search_exhaustively(
    problem: Problem,
    threshold_s: float,
    weight: Floats | None = None,
    byte: Floats | None = None,
    work: float = CHECK_WORK,
    is_over: Callable[[], bool] = lambda: False,
    known: PlacedRows | None = None,
) -> ExhaustiveResult | None:
    """The fastest plan that is faster than `threshold_s`, if any; None where that takes more than `work` numbers, or
    when `is_over`, asked now and then, says so.

    `weight` [D, C] and `byte` [D, M] are multipliers as in `planner.certificates.multipliers`: the better, the less
    there is to try. Any are right. What blocks add at places is `known` from one search of a problem to the next.
    """
    if not may_be_tried(problem):
        return None
    bounds = PartialPlanBounds(problem, threshold_s * (1 - NEAR), weight, byte)
    try:
        return _Layers(problem, bounds, WorkBudget(work, is_over), {} if known is None else known).run()
    except WorkExceededError:
        return None


def may_be_tried(problem: Problem) -> bool:
    """Whether a problem is small enough to try every plan of it."""
    return len(problem.block_option) * problem.world <= MOST_PAIRS


def proven_s(threshold_s: float) -> float:
    """What it proves that no plan was found below a threshold."""
    return threshold_s * (1 - 1.1 * NEAR)


class _Layers:
    """The layers of partial plans, one for each table."""

    def __init__(self, problem: Problem, bounds: PartialPlanBounds, budget: WorkBudget, known: PlacedRows) -> None:
        self._problem, self._bounds, self._budget, self._known = problem, bounds, budget, known
        self._symmetry = rank_symmetry(problem)

    def run(self) -> ExhaustiveResult:
        """Grow all layers; the tables whose placements make the longest steps come first."""
        problem, bounds, budget = self._problem, self._bounds, self._budget
        base = bounds.linear(bounds.base[None])
        if not bounds.is_possible(bounds.base[None], base).all():
            return ExhaustiveResult(np.inf, None, 0.0)
        enumeration = TableEnumeration(problem, bounds, budget, self._known)
        possible = [enumeration.placements(table) for table in range(problem.tables)]
        choices = [of_table for of_table in possible if of_table is not None]
        if len(choices) < len(possible):
            return ExhaustiveResult(np.inf, None, 0.0)
        least = [of_table.linear.min(axis=0) for of_table in choices]
        bounds.allow_for_rounding(least)
        nothing = [np.zeros((len(of_table.items), base.shape[1])) for of_table in choices]
        alone = [float(bounds.least_step(of.added, none).min()) for of, none in zip(choices, nothing, strict=True)]
        order = sorted(range(problem.tables), key=lambda table: -alone[table])
        rows, linear = bounds.base[None], base
        trail: list[tuple[Ints, Ints]] = []
        for at, table in enumerate(order):
            left = budget.left
            is_last = at + 1 == len(order)
            rest = np.zeros(base.shape[1]) + sum(least[later] for later in order[at + 1 :])
            earlier = [sum(before in group.tables for before in order[:at]) for group in bounds.groups]
            lots = self._grown(choices[table], table, rows, linear, rest, earlier)
            layer = self._best(lots) if is_last else _unlike(self._joined(lots, rows, linear), self._symmetry)
            trail.append((layer.parent, layer.choice))
            rows, linear = layer.rows, layer.linear
            if (left - budget.left) * (len(order) - at - 1) * LATER_LAYERS > budget.left:
                raise WorkExceededError
            if not len(rows):
                return ExhaustiveResult(np.inf, None, budget.used)
        step_s = float(bounds.least_step(rows, np.zeros_like(linear))[0])
        return ExhaustiveResult(step_s, _placement(trail, [choices[table] for table in order]), budget.used)

    def _grown(
        self, choices: TablePlacements, table: int, rows: Floats, linear: Floats, rest: Floats, earlier: list[int]
    ) -> Iterator[PartialPlans]:
        """Partial plans with one more table that may stay below the threshold, lot by lot."""
        bounds, numbers = self._bounds, rows[0].size
        per_lot = max(1, AT_ONCE // max(len(choices.items) * linear.shape[1], 1))
        for first in range(0, len(rows), per_lot):
            some = slice(first, first + per_lot)
            grid = linear[some, None] + choices.linear + rest
            self._budget.spend(grid.size)
            possible = bounds.may_grow(grid) & self._keeps_groups(rows[some], choices, table, earlier)
            parents, chosen = np.nonzero(possible)
            for begin in range(0, len(parents), max(1, AT_ONCE // numbers)):
                part = slice(begin, begin + max(1, AT_ONCE // numbers))
                parent, choice = parents[part] + first, chosen[part]
                self._budget.spend(len(parent) * numbers)
                new, total = rows[parent] + choices.added[choice], linear[parent] + choices.linear[choice]
                kept = np.flatnonzero(bounds.is_possible(new, total + rest))
                if len(kept):
                    yield PartialPlans(parent[kept], choice[kept], new[kept], total[kept])

    def _joined(self, lots: Iterator[PartialPlans], rows: Floats, linear: Floats) -> PartialPlans:
        """All lots as one; empty ones are like `rows` and `linear`."""
        nothing = np.zeros(0, dtype=np.int64)
        parts, size = [PartialPlans(nothing, nothing, rows[:0], linear[:0])], 0
        for lot in lots:
            parts.append(lot)
            size += lot.rows.size
            if size > MOST_NUMBERS:
                raise WorkExceededError
        return PartialPlans(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def _best(self, lots: Iterator[PartialPlans]) -> PartialPlans:
        """The fastest one only; with every better one the target falls."""
        bounds, nothing = self._bounds, np.zeros(0, dtype=np.int64)
        base = bounds.base[None]
        best = PartialPlans(nothing, nothing, base[:0], bounds.linear(base)[:0])
        for lot in lots:
            step = bounds.least_step(lot.rows, np.zeros_like(lot.linear))
            at = int(step.argmin())
            if step[at] < bounds.target_s:
                best = lot.only(np.array([at]))
                bounds.target_s = float(step[at]) * (1 - NEAR)
        return best

    def _keeps_groups(self, rows: Floats, choices: TablePlacements, table: int, earlier: list[int]) -> Bools:
        """[P, n] whether the groups of the table allow each placement beside what partial plans hold.

        `earlier` says how many tables of each group they hold.
        """
        bounds = self._bounds
        allowed = np.ones((len(rows), len(choices.items)), dtype=bool)
        for g, group in enumerate(bounds.groups):
            if table not in group.tables or not earlier[g]:
                continue
            row = bounds.columns + bounds.pools + g
            marks = choices.added[:, row]
            overlap = rows[:, row] @ marks.T
            if g < len(self._problem.affinity_groups):
                allowed &= overlap == earlier[g] * marks.sum(axis=1)
            else:
                allowed &= overlap == 0
        return allowed


def _placement(trail: list[tuple[Ints, Ints]], choices: list[TablePlacements]) -> Placement:
    """The first plan of the last layer, followed back by the parents and choices of every layer."""
    items: list[tuple[int, int]] = []
    index = 0
    for (parent, choice), of_table in zip(reversed(trail), reversed(choices), strict=True):
        items += of_table.items[int(choice[index])]
        index = int(parent[index])
    items.sort()
    return Placement(np.array([block for block, _ in items]), np.array([place for _, place in items]))


def _unlike(layer: PartialPlans, symmetry: RankSymmetry) -> PartialPlans:
    """One of each lot of partial plans that are alike but for ranks that nothing tells apart."""
    rows = layer.rows
    if not len(rows):
        return layer
    scale = np.maximum(np.abs(rows).max(axis=(0, 2)), 1e-300)[:, None] * QUANTUM
    table = np.rint(rows / scale).astype(np.int64)
    draw = np.random.default_rng(0)
    odd = draw.integers(1, 2**62, size=table.shape[1], dtype=np.int64) * 2 + 1
    mark = (table * odd[:, None]).sum(axis=1)
    mark ^= mark >> 29
    order = symmetry.order(mark, draw)
    places = draw.integers(1, 2**62, size=mark.shape[1], dtype=np.int64) * 2 + 1
    whole = (np.take_along_axis(mark, order, axis=1) * places).sum(axis=1)
    _, first, lot = np.unique(whole, return_index=True, return_inverse=True)
    table = np.take_along_axis(table, order[:, None], axis=2)
    differs = (table != table[first[lot]]).any(axis=(1, 2))
    differs[first] = True
    return layer.only(np.flatnonzero(differs))
