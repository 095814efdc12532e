"""The memory of ranks divided among their caches once every block has its place: in any shares, row by row.

Options and places stay. A linear program mixes a few sizes of each cached table, near those of the plan; the sizes that
it finds become options too, so that the bound covers them.
"""

from dataclasses import replace

import numpy as np

from cost_models.shards import (
    PLACEMENT_TIERS,
    SIZED_BY_PLAN,
    Floats,
    Ints,
)
from planner.certificates.multipliers import Bound
from planner.formulation.formulation import Formulation
from planner.formulation.options import Options, costs_of
from planner.planning.caches import LEAST_FRACTION, merged
from planner.planning.like_bounds import fluid_of, multipliers_at, raised_like
from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.solvers.improve.shares import MOST_NUMBERS, MemoryDivision
from planner.solvers.incumbent import OPTIMAL_GAP, Outcome, Status
from planner.solvers.lower_bound import bound_of, relaxed_optimum

FINE_DIGITS = 5
"""Those of a share that fills the memory of a rank."""
WIDE = np.geomspace(LEAST_FRACTION, 1.0, 24)
NEAR = np.array([0.7, 0.8, 0.87, 0.92, 0.95, 0.97, 0.985, 1.0, 1.015, 1.03, 1.05, 1.08, 1.15, 1.25, 1.4])
"""Shares, and multiples of a share, between which memory is divided once everything has its place."""
REPEATS = 3
"""Divisions near the one before, each with finer steps to choose from than the first."""
TAKES = 1e-6
"""Part of a mixture that counts."""
LOST = 1e-3
"""Share of the bound that is lost to new shares before multipliers are looked for anew."""
WORTH = 1e-5
"""Share of the step that a new division of the memory must save."""


def polished(formulation: Formulation, outcome: Outcome) -> tuple[Formulation, Outcome]:
    """The same placement with the memory of its ranks divided among its caches as is best, where that helps.

    The shares found become options, so that the bound holds for them, too: it is that of the multipliers then.
    """
    options = formulation.options
    if outcome.placement is None or outcome.bound is None or outcome.step_s is None or options.fractions is None:
        return formulation, outcome
    fractions = _divided(formulation, outcome.placement)
    if fractions is None:
        return formulation, outcome
    table = options.table_of_profile
    held = options.profile[outcome.placement.option_of_table(formulation.problem)]
    share, tier_of = (values[table] for values in fractions)
    is_held = held[table] == np.arange(len(table))
    more = {
        tier: np.where(is_held & (tier_of == PLACEMENT_TIERS.index(tier)), share, np.nan)[:, None]
        for tier in options.fractions
        if (fractions[1] == PLACEMENT_TIERS.index(tier)).any()
    }
    new = formulation.with_fractions(merged(options.fractions, more))
    placement = _at_fractions(formulation, outcome.placement, new, fractions[0])
    state = load_state(new.problem, placement)
    step_s = state.step_s()
    if step_s > outcome.step_s * (1 - WORTH) or state.overflow_bytes() > 0:
        return formulation, outcome
    bound = bound_at(new.problem, outcome.bound)
    bound = replace(bound, seconds=min(bound.seconds, step_s))
    status: Status = "optimal" if step_s <= bound.seconds * (1 + OPTIMAL_GAP) else "feasible"
    outcome = replace(outcome, placement=placement, step_s=step_s, bound=bound, status=status)
    return new, replace(outcome, elsewhere=(), solver_bound_s=outcome.solver_bound_s and 0.0)


def bound_at(problem: Problem, bound: Bound) -> Bound:
    """What the multipliers of a bound prove of a problem with more options; or new ones, where these lose much.

    Where memory is scarce its price is as high as it takes to keep out what does not fit: a share that is slightly
    smaller than all others may fit, and then the old multipliers prove nothing.
    """
    fluid = fluid_of(problem)
    best = multipliers_at(fluid, bound)
    if best.seconds < bound.seconds * (1 - LOST):
        anew = bound_of(relaxed_optimum(fluid))
        best = max(best, anew, key=lambda each: each.seconds)
    return raised_like(fluid, best, bound)


def _divided(formulation: Formulation, placement: Placement) -> tuple[Floats, Ints] | None:
    """Share [T] and tier [T] of each cached table (-1: none) after the memory is divided anew; None if that is no help.

    First every table may have any share, then one near what it has. Where misses are not convex, a table may be torn
    between a small share and a large one: it gets the small one, and the others what is left.
    """
    model, options, problem = formulation.model, formulation.options, formulation.problem
    option = placement.option_of_table(problem)
    sized = SIZED_BY_PLAN.intersection(options.fractions or {})
    resizable = [PLACEMENT_TIERS.index(tier) for tier in sized - model.cache_fractions.keys()]
    may_change = np.isin(options.tier[option], resizable) & np.isnan(options.choices.cache_fraction)
    tables = np.flatnonzero(may_change & (options.cache_fraction[option] > 0))
    if not len(tables):
        return None
    was = options.cache_fraction[option[tables]]
    parts = _CachedParts(formulation, placement, tables)
    if len(parts.rank) * len(WIDE) > MOST_NUMBERS:
        return None
    state = load_state(problem, placement)
    division = MemoryDivision(problem, state, parts.table, parts.rank, *(of[:, 0] for of in parts.costs(was[:, None])))
    best, best_s = was, state.step_s() * (1 - WORTH)
    for first in (np.tile(WIDE, (len(tables), 1)), was[:, None] * NEAR):
        for shares in _mixed(parts, division, first):
            division_shares = shares
            for _ in range(REPEATS):
                after = division.state_with(*(of[:, 0] for of in parts.costs(division_shares[:, None])))
                if after.step_s() < best_s and after.overflow_bytes() == 0:
                    best, best_s = division_shares, after.step_s()
                division_shares = next(iter(_mixed(parts, division, division_shares[:, None] * NEAR)), division_shares)
    if best is was:
        return None
    fractions, tier = np.zeros(problem.tables), np.full(problem.tables, -1)
    fractions[tables], tier[tables] = best, options.tier[option[tables]]
    return fractions, tier


def _mixed(parts: "_CachedParts", division: MemoryDivision, grid: Floats) -> list[Floats]:
    """The best shares [n] between those of an ascending grid [n, L]: the means of what is mixed; and with the smaller
    one for the tables that are torn, if there are any. None where nothing fits."""
    grid = np.clip(grid, LEAST_FRACTION, 1.0)
    mix = division.best_mix(*parts.costs(grid))
    if mix is None:
        return []
    takes, mean = mix > TAKES, (mix * grid).sum(axis=1)
    low, high = takes.argmax(axis=1), takes.shape[1] - 1 - takes[:, ::-1].argmax(axis=1)
    smaller = np.where(high - low > 1, grid[np.arange(len(mix)), low], mean)
    mixtures = [_rounded_down(mean, parts.rows)]
    return mixtures if (smaller == mean).all() else [*mixtures, _rounded_down(smaller, parts.rows)]


class _CachedParts:
    """The parts of a placement's blocks of n tables on single ranks. P parts."""

    def __init__(self, formulation: Formulation, placement: Placement, tables: Ints) -> None:
        problem = formulation.problem
        number = np.full(problem.tables, -1)
        number[tables] = np.arange(len(tables))
        items = np.flatnonzero(number[problem.table_of_block[placement.item_block]] >= 0)
        block, place = placement.item_block[items], placement.item_place[items]
        options = formulation.options
        self._model, self._problem = options.costed(formulation.model), problem
        of_rows = problem.block_rows / self._model.tables.rows[options.profile[problem.block_option]]
        parts = [
            _ranks_and_shares(problem, b, p, of_rows[b]) for b, p in zip(block.tolist(), place.tolist(), strict=True)
        ]
        self._blocks, self._table_of_item = options.blocks.take(block), number[problem.table_of_block[block]]
        profile = options.profile[placement.option_of_table(problem)[tables]]
        self.rows: Ints = self._model.tables.rows[profile]
        self._item = np.repeat(np.arange(len(items)), [len(ranks) for ranks, _ in parts])
        self.rank, self._share = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        self.table: Ints = self._table_of_item[self._item]

    def costs(self, shares: Floats) -> tuple[Floats, Floats]:
        """Seconds [P, L, C] and bytes [P, L, M] with each of L shares of the tables [n, L]."""
        problem, (items, levels) = self._problem, (len(self._blocks), shares.shape[1])
        blocks = self._blocks.take(np.repeat(np.arange(items), levels))
        blocks = replace(blocks, cache_fraction=shares[self._table_of_item].ravel())
        seconds = np.zeros((len(self.rank), levels, len(problem.stage_of_column)))
        size = np.zeros((len(self.rank), levels, len(problem.pool_capacity)))
        for kind in range(problem.kinds):
            costs = costs_of(self._model, blocks, kind)
            here = np.flatnonzero(problem.kind_of_rank[self.rank] == kind)
            item, rows = self._item[here], self._share[here, None, None]
            for target, fixed, by_rows in (
                (seconds, costs.fixed, costs.by_rows),
                (size, costs.bytes_fixed, costs.bytes_by_rows),
            ):
                own = fixed.reshape(items, levels, -1)[item] + by_rows.reshape(items, levels, -1)[item] * rows
                target[here, :, : own.shape[2]] = own
        return seconds, size


def _ranks_and_shares(problem: Problem, block: int, place: int, part: float) -> tuple[Ints, Floats]:
    """The ranks of a placed block, and the share of the table's rows that each of them holds; the block has this `part`
    of them."""
    ranks = problem.sites_of(block).members(place)
    return ranks, problem.row_shares.on_site(block, len(ranks)) * part


def _at_fractions(old: Formulation, placement: Placement, new: Formulation, fractions: Floats) -> Placement:
    """The placement with every cached table at its new share [T]: the same blocks of the new options."""
    options = old.options
    share, of_table = options.cache_fraction, fractions[options.table]
    return among_options(old, placement, new, np.where((share > 0) & (of_table > 0), of_table, share))


def among_options(old: Formulation, placement: Placement, new: Formulation, share: Floats) -> Placement:
    """The placement among new options, which have the same cuts of each table and tier that it uses: each of the old
    options [O] at a share of the rows that is among the new. Raises KeyError where it is not."""
    options, problem, new_options = old.options, old.problem, new.options
    option = problem.block_option[placement.item_block]
    start = {
        (int(new_options.profile[o]), int(new_options.tier[o]), float(new_options.cache_fraction[o])): o
        for o in _group_starts(new_options)[::-1].tolist()
    }
    place_in_group = option - np.maximum.accumulate(_marked(_group_starts(options), len(options.table)))[option]
    of_item = (options.profile[option].tolist(), options.tier[option].tolist(), share[option].tolist())
    new_option = np.array([start[key] for key in zip(*of_item, strict=True)]) + place_in_group
    block = new.problem.block_start[new_option] + placement.item_block - problem.block_start[option]
    return Placement(block, placement.item_place)


def _group_starts(options: Options) -> Ints:
    """First option of each profile, tier and share; the options in between are the same cuts in the same order."""
    keys = np.stack([options.profile, options.tier, options.cache_fraction])
    return np.flatnonzero(np.concatenate([[True], (keys[:, 1:] != keys[:, :-1]).any(axis=0)]))


def _marked(starts: Ints, count: int) -> Ints:
    """[count] the start at each start, else 0."""
    start_of = np.zeros(count, dtype=np.int64)
    start_of[starts] = starts
    return start_of


def _rounded_down(fractions: Floats, rows: Ints) -> Floats:
    """To whole rows and to significant digits, so that what fitted fits."""
    whole = np.maximum(np.floor(rows * fractions * (1 + 1e-12)), 1.0) / rows
    scale = 10.0 ** (FINE_DIGITS - 1 - np.floor(np.log10(whole)))
    return np.clip(np.round(np.floor(whole * scale * (1 + 1e-12)) / scale, 12), LEAST_FRACTION, 1.0)
