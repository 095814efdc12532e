"""Tables that every rank holds a part of, whatever the plan: what they load is there beside every other block.

A block of all ranks is everywhere. So is an option of as many blocks as there are nodes, where the limits on stages let
no node hold two of them: each node holds one (the pigeonhole principle).
"""

from typing import TYPE_CHECKING

import numpy as np

from planner.problem.numbers import Bools, Floats

if TYPE_CHECKING:
    from planner.problem.arrays import Problem


def company(problem: "Problem") -> Floats:
    """[T, C] seconds that every rank has of a table at least; 0 of tables that some plan keeps away from some rank.

    Only where stages are limited, and all ranks are of one kind.
    """
    least = np.zeros((problem.tables, len(problem.stage_of_column)))
    if problem.stage_limits is None or problem.kinds > 1:
        return least
    roofs = problem.stage_limits.roofs
    usable, wide, one_each = usable_options(problem), _are_world_wide(problem), have_one_each(problem)
    is_elsewhere = np.zeros(problem.tables, dtype=bool)
    is_elsewhere[problem.option_table[usable & ~wide & ~one_each]] = True
    is_elsewhere[problem.option_table[~np.isin(problem.option_table, problem.option_table[usable])]] = True
    for table in np.flatnonzero(~is_elsewhere).tolist():
        start, stop = problem.option_start[table : table + 2].tolist()
        options = (start + np.flatnonzero(usable[start:stop])).tolist()
        if all(wide[each] or (pair_peaks(problem, each) >= roofs).any() for each in options):
            least[table] = np.min([_least_of_rank(problem, each) for each in options], axis=0)
    return least


def usable_options(problem: "Problem") -> Bools:
    """[O] options of which all blocks may be somewhere, or some block of a splittable one."""
    start, allowed = problem.block_start[:-1], problem.allowed.any(axis=0)
    every, some = np.logical_and.reduceat(allowed, start), np.logical_or.reduceat(allowed, start)
    return np.where(problem.option_units > 0, some, every)


def have_one_each(problem: "Problem") -> Bools:
    """[O] options of as many alike blocks over groups of ranks as there are groups, of the same rows in one copy."""
    start, extent = problem.block_start[:-1], problem.block_extent
    sites = np.array([each.count if each.reach == "group" else 0 for each in problem.sites])
    blocks = np.add.reduceat(problem.block_count, start)
    is_alike = np.ones(len(start), dtype=bool)
    for values in (extent, problem.block_rows, problem.block_copies):
        is_alike &= np.minimum.reduceat(values, start) == np.maximum.reduceat(values, start)
    single = (problem.block_copies[start] == 1) & ~problem.block_replicated[start]
    return np.asarray((blocks == sites[extent[start]]) & is_alike & single & (problem.option_units == 0))


def pair_peaks(problem: "Problem", option: int) -> Floats:
    """[S] seconds that two blocks of an option on one site make of each stage at least; infinite where there may be no
    two."""
    stages = np.zeros(len(problem.stage_constants))
    if problem.option_apart[option]:
        return stages + np.inf
    blocks = np.arange(problem.block_start[option], problem.block_start[option + 1])
    loads = 2 * problem.extremes.peak_load(0, blocks).min(axis=0) + problem.extremes.base_of_instance[0]
    np.maximum.at(stages, problem.stage_of_column, loads)
    return stages


def roofs_of_company(problem: "Problem") -> Floats:
    """[T, S] the seconds that a stage must be shorter than for each rank to hold a part of the table, by an option of
    one block for each group; 0 where there is no such time. Ranks of one kind."""
    start, splittable = problem.block_start[:-1], problem.option_units > 0
    peaks = problem.extremes.stage_peaks
    alone_s = np.where(splittable[:, None], np.minimum.reduceat(peaks, start), np.maximum.reduceat(peaks, start))
    usable = usable_options(problem)
    one_each = usable & have_one_each(problem)
    barred_s = np.where((usable & ~_are_world_wide(problem))[:, None], alone_s, np.inf)
    for option in np.flatnonzero(one_each).tolist():
        barred_s[option] = pair_peaks(problem, option)
    of_table = problem.option_start[:-1]
    held_s = np.minimum.reduceat(np.where(one_each[:, None], alone_s, np.inf), of_table)
    roofs = np.minimum.reduceat(barred_s, of_table)
    return np.where((held_s < roofs) & np.isfinite(roofs), roofs, 0.0)


def _are_world_wide(problem: "Problem") -> Bools:
    """[O] options of blocks of all ranks alone."""
    return np.logical_and.reduceat(problem.is_world_wide, problem.block_start[:-1])


def _least_of_rank(problem: "Problem", option: int) -> Floats:
    """[C] seconds that every rank has at least of an option that is everywhere: of all its world-wide blocks, or of one
    that is over its group."""
    blocks = np.arange(problem.block_start[option], problem.block_start[option + 1])
    count = problem.block_count[blocks][:, None]
    share = np.array([problem.row_shares.on_every_site(block).min() for block in blocks.tolist()])[:, None]
    held = problem.fixed[0, blocks] + problem.by_rows[0, blocks] * share
    part = (held * count).sum(axis=0) if problem.is_world_wide[blocks[0]] else held.min(axis=0)
    return np.asarray(part + (problem.everywhere[0, blocks] * count).sum(axis=0))
