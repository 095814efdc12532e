"""A placement that fits, whatever its step: options by the multipliers of their bytes, blocks by first fit decreasing.

First fit decreasing (Johnson, 1973) leaves little of a memory unused where blocks are small for it. Tables whose blocks
are left over are cut finer, and all is packed again.
"""

import itertools
from collections.abc import Callable

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.block_sizes import block_shares, choice_shares, smallest_shares
from planner.problem.load_state import LoadState, place_block, place_world, spread
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.placement import Placement
from planner.problem.sites import NOWHERE
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.infeasible import shortage
from planner.solvers.construct.capacity_regions import units_of
from planner.solvers.construct.rounding import round_choices

HEADROOMS = (1.0, 0.98, 0.95, 0.9, 0.8)
"""Shares of the memory that the first choice of options may use."""
CAPS = (0.25, 1.0, 0.08)
"""Largest share of a pool that one block of the first choice may take, where the table has smaller ones."""
REPAIRS = 8
"""How often tables that are left over are cut finer."""
WORK = 1.5e8
"""Tables x (ranks + RANKS_OF_A_TABLE) that all choices and fillings may take together; there are at least four."""
RANKS_OF_A_TABLE = 500
"""What a table costs beside the ranks that are looked at for it, in ranks."""
FINER = 0.75
"""How much smaller the blocks of a finer cut are at least."""


def pack(problem: Problem, is_over: Callable[[], bool] = lambda: False, work: float = WORK) -> Placement | None:
    """Return a placement that fits, or None where none is found; `is_over` is asked now and then whether to give up.

    Tables that a policy confines or groups are beyond it: with those there is None.
    """
    if units_of(problem):
        return None
    left_to_do = max(4, int(work / (problem.tables * (problem.world + RANKS_OF_A_TABLE))))
    bare = problem.without_seconds()
    fluid, share = Fluid(bare), block_shares(bare)
    masks = [bare.usual] if bare.usual.all() else [bare.usual, np.ones_like(bare.usual)]
    for mask, headroom, cap in itertools.product(masks, HEADROOMS, CAPS):
        if left_to_do <= 0 or is_over():
            break
        size = np.where(mask, share, np.inf)
        smallest = smallest_shares(bare, size)[bare.option_table[bare.block_option]]
        usable, left_to_do = mask & (size <= np.maximum(cap, smallest)), left_to_do - 1
        if shortage(fluid, usable, headroom) is not None:
            continue
        relaxed = solve_relaxation(fluid, usable=usable, headroom=headroom, tolerance=1e-4)
        values = np.where(mask, fluid.choice_values(relaxed.multipliers), np.inf)
        choices: Ints | None = round_choices(fluid, relaxed)
        for _ in range(REPAIRS):
            if choices is None or left_to_do <= 0 or is_over():
                break
            placement, left = _first_fit(bare, choices, share)
            if placement is not None:
                return placement
            left_to_do -= 1
            choices = _cut_finer(bare, choices, left, values, share)
    return None


def _cut_finer(problem: Problem, choices: Ints, left: Ints, values: Floats, share: Floats) -> Ints | None:
    """Return the choices with each table of `left` in its cheapest option of smaller blocks; None where none has
    one."""
    largest, changed = choice_shares(problem, share), choices.copy()
    for table in left.tolist():
        members = np.arange(*problem.table_block_start[table : table + 2])
        finer = members[(largest[members] <= FINER * largest[choices[table]]) & np.isfinite(values[members])]
        if len(finer):
            changed[table] = finer[values[finer].argmin()]
    return changed if (changed != choices).any() else None


def _first_fit(problem: Problem, choices: Ints, share: Floats) -> tuple[Placement | None, Ints]:
    """Place the blocks of the chosen options, world-wide ones first, then those of groups, then single ranks', the
    largest first, each where it first fits; return that, or the tables to cut finer, as some are left over."""
    state = LoadState(problem)
    members = [(block, choice) for choice in choices.tolist() for block in problem.blocks_of_choice(choice)]
    blocks = np.array([block for block, _ in members], dtype=np.int64)
    table = problem.option_table[problem.block_option[blocks]]
    placed = problem.is_world_wide[blocks]
    place_world(problem, state, blocks[placed])
    if state.overflow_bytes() > 0:
        return None, table[placed]
    where = np.full(len(blocks), NOWHERE)
    order = np.lexsort((np.arange(len(blocks)), -share[blocks], ~problem.is_on_group[blocks]))
    option = problem.block_option[blocks]
    is_tied = problem.option_colocated[option] | problem.option_apart[option]
    for i in order[~placed[order]].tolist():
        taken = where[(table == table[i]) & placed] if is_tied[i] else where[:0]
        place = _place_for(problem, state, int(blocks[i]), taken)
        if place is not None:
            place_block(problem, state, int(blocks[i]), place)
            where[i], placed[i] = place, True
    if not placed.all():
        return None, _to_cut(table, share[blocks], placed)
    sequence = np.argsort(blocks, kind="stable")
    return Placement(blocks[sequence], where[sequence]), np.zeros(0, dtype=np.int64)


def _to_cut(table: Ints, share: Floats, placed: Bools) -> Ints:
    """Return the largest of the tables that have blocks left over, as many as take together what is left over."""
    left = np.unique(table[~placed])
    size = np.bincount(table, weights=share)[left]
    order = np.argsort(-size, kind="stable")
    enough = np.searchsorted(size[order].cumsum(), share[~placed].sum()) + 1
    return left[order[:enough]]


def _place_for(problem: Problem, state: LoadState, block: int, taken: Ints) -> int | None:
    """Return the first rank (or group) with room for the block; of a node-colocated option's, beside its other blocks'
    ranks `taken`; of a part of rows, not on the groups `taken` by the others."""
    if problem.is_on_group[block]:
        return _group_for(problem, state, block, taken)
    size = problem.bytes_fixed[:, block] + problem.bytes_by_rows[:, block]
    fits = (state.free >= size[problem.kind_of_rank].T).all(axis=0) & problem.may_hold(block)
    if len(taken):
        fits &= problem.node_of_rank == problem.node_of_rank[taken[0]]
        fits[taken] = False
    rank = int(fits.argmax())
    return rank if fits[rank] else None


def _group_for(problem: Problem, state: LoadState, block: int, taken: Ints) -> int | None:
    """Return the first group of ranks, but for those `taken`, whose pools have room for what all its ranks hold of the
    block."""
    _, size = spread(problem, block, problem.row_shares.on_every_site(block), problem.kind_of_rank)
    fits = problem.may_hold(block).copy()
    for m, pool in enumerate(problem.pool_of_rank):
        fits &= np.bincount(pool, weights=size[m])[pool] <= state.free[m]
    is_roomy = problem.sites_of(block).all(fits)
    is_roomy[taken] = False
    site = int(is_roomy.argmax())
    return site if is_roomy[site] else None
