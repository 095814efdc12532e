"""The blocks that starts may use: caps on one block's share of a stage and of a memory pool.

Small blocks pack well, but cost more: how small is best shows only when they are placed.
"""

import functools
import itertools
from collections.abc import Iterator

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Floats
from planner.solvers.bound.cutting_planes import FluidSolution
from planner.solvers.bound.load_steps import blocks_in_steps

STAGE_CAPS: tuple[float, ...] = (0.45, 0.6, 0.3, 0.8, 0.5, 0.25, 1.0, 2.0, 8.0)
"""Caps on one block's share of a stage's time, the most promising first: small blocks pack well, but cost more."""
MANY_STAGE_CAPS: tuple[float, ...] = (0.6, 0.45, *STAGE_CAPS[2:])
"""The same where tables are many for the ranks, so that they pack well anyway."""
WIDE_STAGE_CAP = 1.0
"""That of a second start, where tables x ranks are too many for more: its blocks cost less, if they find places."""
OFF_STEP = 0.75
"""A block that keeps ranks off the steps that others' loads come in counts as if it were this share of a stage."""
FEW_TABLES = 200
"""Up to so many, or one for each rank, starts are compared whatever their steps."""
POOL_CAPS = (0.9, 0.6, 0.25, 0.12, 0.05)
"""Caps on one block's share of a memory pool, where memory is scarce; elsewhere the first is enough. A block that
leaves no memory for another one leaves its rank idle."""
SHARED_POOL_CAPS = (0.25, 0.05)
"""Caps on one block's share of a pool that ranks share, where such a tier is tight: there are few such pools, so that
large blocks fill them badly, and what a table takes there costs little more where it is cut."""
NODE_RANK_CAP, NODE_STAGE_CAP = 0.25, 0.6
"""Caps on one block's share of a single rank's pool, and of a stage, where nodes are packed."""
SCARCE_STAGE_CAPS = 5
"""So many of the caps on stages are tried where memory is scarce."""
PoolCaps = tuple[float, float]
"""Caps on one block's share of a pool: of pools in general, and of tight ones that ranks share."""
LEAST_ROOM = 0.1
"""Share of a stage that a block is measured by at least, where the base takes almost all of it."""
BLOCKS_AT_ONCE = 20_000
"""Block types whose loads on all columns are held at once."""


def capped_blocks(problem: Problem, relaxed: FluidSolution, tight: Bools) -> list[tuple[PoolCaps, Bools]]:
    """Return caps on shares of pools, each with the blocks [B] that keep to it and to one on stages; the latter differ.

    Of the `tight` [M] tiers those that ranks share have caps of their own.
    """
    every = capped_one_by_one(problem, relaxed, tight)
    return list({mask.tobytes(): (of_pool, mask) for of_pool, mask in every}.values())


def wide_blocks(problem: Problem, relaxed: FluidSolution, tight: Bools) -> tuple[PoolCaps, Bools]:
    """Return the same of the cap WIDE_STAGE_CAP on stages, and the largest on pools."""
    return next(capped_one_by_one(problem, relaxed, tight, (WIDE_STAGE_CAP,)))


def without_single_ranks(problem: Problem, usable: Bools) -> Bools:
    """Return the `usable` blocks [B] without those of single ranks, of tables that have others.

    Under caps nearly all tables may cost the same on a rank as over a node, and the relaxation has some hundredths of
    each on ranks. Rounded, that is dozens of whole tables on ranks, which find no room once nodes are full.
    """
    elsewhere = usable & ~problem.is_on_rank
    has_others = np.bincount(problem.table_of_block[elsewhere], minlength=problem.tables) > 0
    return np.asarray(np.where(has_others[problem.table_of_block], elsewhere, usable))


def capped_one_by_one(
    problem: Problem, relaxed: FluidSolution, tight: Bools, stage_caps: tuple[float, ...] | None = None
) -> Iterator[tuple[PoolCaps, Bools]]:
    """Yield the same, the most promising first, and some blocks several times; of these `stage_caps`, or the usual
    ones."""
    seconds, size = _largest_share(problem, relaxed.stage_seconds), _largest_pool_shares(problem)
    shared = np.array([len(np.unique(of)) < problem.world for of in problem.pool_of_rank])
    are_many = bool(problem.tables > max(FEW_TABLES, problem.world))
    if are_many:
        seconds = np.where(blocks_in_steps(problem, relaxed), seconds, np.maximum(seconds, OFF_STEP))
    stage_caps = stage_caps or (MANY_STAGE_CAPS if are_many else STAGE_CAPS)
    few = stage_caps[:SCARCE_STAGE_CAPS]
    pool_caps, stage_caps = (POOL_CAPS, few) if tight.any() else (POOL_CAPS[:1], stage_caps)
    both: list[PoolCaps] = [(cap, cap) for cap in pool_caps]
    if (shared & tight).any():
        both[1:1] = [(POOL_CAPS[0], cap) for cap in SHARED_POOL_CAPS]
    caps = [*itertools.product(both, stage_caps), ((np.inf, np.inf), np.inf)]
    for of_pool, those in itertools.groupby(caps, key=lambda pair: pair[0]):
        size_of_pool = _largest_of(size / np.where(shared & tight, of_pool[1], of_pool[0]))
        for _, of_stage in those:
            yield of_pool, _capped(problem, seconds, size_of_pool, of_stage)


def _largest_share(problem: Problem, stage_seconds: Floats) -> Floats:
    """Return the largest share of a stage [B], but for its base, that the block takes of one resource.

    Infinite if it fits nowhere, and where the option cannot be cut into blocks like it without a remainder: the fluid
    optimum counts parts in fractions, and what it took for 2.3 blocks would cost as much as 3.
    """
    aim = np.maximum(stage_seconds - problem.stage_constants, 1e-12)[problem.stage_of_column]
    room = np.maximum(aim - problem.extremes.base_of_instance, LEAST_ROOM * aim)
    peaks = np.empty((problem.kinds, len(problem.block_option)))
    for kind in range(problem.kinds):
        loaded = np.flatnonzero(problem.loaded_columns[kind])
        for begin in range(0, peaks.shape[1], BLOCKS_AT_ONCE):
            some = slice(begin, begin + BLOCKS_AT_ONCE)
            load = problem.extremes.peak_load(kind, some, loaded)
            peaks[kind, some] = (load / room[kind, loaded]).max(axis=1, initial=0.0)
    whole = problem.option_units[problem.block_option] % np.maximum(problem.block_units, 1) == 0
    somewhere = np.where(problem.allowed & whole, peaks, np.inf).min(axis=0)
    everywhere = np.where(problem.allowed.all(axis=0), 0.0, np.inf)
    return np.where(problem.is_world_wide, everywhere, somewhere)


def small_blocks(problem: Problem, relaxed: FluidSolution, of_stage: float, led: Bools) -> Bools:
    """Return the blocks [B] for starts of few blocks on each site: those that take at most the share `of_stage` of a
    stage that none of the tables has `led` [S].

    A table without any other option of such blocks keeps those of its smallest one, or is on all ranks.
    """
    size = _largest_of(_largest_pool_shares(problem) / POOL_CAPS[0])
    seconds = _largest_share(problem, np.where(led, np.inf, relaxed.stage_seconds))
    possible = problem.allowed.any(axis=0)
    small = without_single_ranks(problem, _capped(problem, seconds, size, of_stage) & possible)
    has_some = np.bincount(problem.table_of_block[small], minlength=problem.tables) > 0
    return np.asarray(small | (possible & ~has_some[problem.table_of_block]))


def blocks_for_nodes(problem: Problem, relaxed: FluidSolution) -> Bools:
    """Return the blocks [B] that nodes are packed with: small for single ranks, as large as they are for pools that
    ranks share."""
    shared = np.array([len(np.unique(of)) < problem.world for of in problem.pool_of_rank])
    size = _largest_of(_largest_pool_shares(problem) / np.where(shared, 1.0, NODE_RANK_CAP))
    return _capped(problem, _largest_share(problem, relaxed.stage_seconds), size, NODE_STAGE_CAP)


def _largest_pool_shares(problem: Problem) -> Floats:
    """Return the largest share of a pool of each tier [B, M] that one block takes, world-wide ones aside."""
    share = np.where(problem.allowed[..., None], problem.extremes.pool_demand, 0.0).max(axis=0)
    share[problem.is_world_wide] = 0.0
    return np.asarray(share)


def _largest_of(values: Floats) -> Floats:
    """[B] the largest in each row of [B, M]: column by column, as rows are short and many."""
    return np.asarray(functools.reduce(np.maximum, values.T))


def _capped(problem: Problem, seconds: Floats, size: Floats, of_stage: float) -> Bools:
    """Return the blocks [B] that take at most this share of a stage and whose `size` [B] is at most 1, world-wide ones
    among them.

    A table without any other option of such blocks keeps those of its smallest one.
    """
    fits = np.isfinite(seconds) & problem.usual
    peak = np.where(fits, np.maximum(np.where(fits, seconds, 0.0) / of_stage, size), np.inf)
    start = problem.block_start[:-1]
    worst = np.where(problem.option_units > 0, np.minimum.reduceat(peak, start), np.maximum.reduceat(peak, start))
    worst[problem.is_world_wide[start]] = np.inf
    smallest = np.minimum.reduceat(worst, problem.option_start[:-1])
    smallest[np.isinf(smallest)] = 0.0
    return np.asarray(peak <= np.maximum(1.0, smallest)[problem.option_table[problem.block_option]])
