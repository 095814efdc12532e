"""The Lagrangian bound of given multipliers: cheapest options, the base, less what the memory is worth.

By weak duality it holds for any multipliers (Geoffrion, Math. Program. Study 2, 1974).
"""

from collections.abc import Iterator

import numpy as np

from planner.certificates.multipliers import Multipliers
from planner.problem.arrays import Problem
from planner.problem.integrality import integrality_floors
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.products import product
from planner.problem.rounding import ROUNDING


def instances_of_columns(problem: Problem) -> tuple[Floats, Bools]:
    """[D, C] instances of each column's resource that the ranks of a capacity region use, or of all kinds where kinds
    share some; and [C] where they do."""
    count = np.stack([_different(problem.resource_of_rank[:, ranks]) for ranks in problem.capacity_regions.ranks])
    everyone = _different(problem.resource_of_rank[:, problem.reach])
    shared = count[: problem.kinds].sum(axis=0) > everyone
    return np.where(shared, everyone, count), shared


def _different(numbers: Ints) -> Floats:
    """[n] how many different numbers each row [n, k] has."""
    ordered = np.sort(numbers, axis=1)
    return np.asarray((np.diff(ordered, axis=1) != 0).sum(axis=1) + float(numbers.shape[1] > 0))


def lagrangian_s(problem: Problem, multipliers: Multipliers, usable: Bools, floors: Floats) -> float:
    """The Lagrangian: cheapest options of all tables and the base, less what the memory is worth, plus the constants,
    and of the seconds `floors` [S] that each stage takes in any case the share that its weights leave."""
    return dual_value_s(problem, multipliers, cheapest_options(problem, multipliers, usable), floors)


def cheapest_options(problem: Problem, multipliers: Multipliers, usable: Bools, peaks: Floats | None = None) -> Floats:
    """[T] what the cheapest option of each table costs of the usable blocks [B]; infinite where it has none.

    The longest block of a fixed option counts for a weight on its table, with what every instance has of all blocks
    where the weight is on the instance. A splittable one is as long as the mean of its
    blocks at least, each counted by its column units. `peaks` [B, S] are the seconds that a block makes a stage last,
    where others than its own extremes are to count.
    """
    peaks = problem.extremes.stage_peaks if multipliers.of_table and peaks is None else peaks
    lone = np.zeros(len(problem.block_option))
    for (table, stage), share in multipliers.of_table.items():
        own = np.arange(*problem.table_block_start[table : table + 2])
        assert peaks is not None
        lone[own] += share * peaks[own, stage]
    block = block_values(problem, multipliers.weight, multipliers.byte)
    for (table, column), share in multipliers.beside.items():
        own = np.arange(*problem.table_block_start[table : table + 2])
        most = problem.extremes.peak_load(0, own, np.array([column]))[:, 0]
        lone[own] += share * (most + problem.extremes.base_of_instance[0, column])
        block += share * problem.extremes.of_all(column)
    block[~usable] = np.inf
    cheapest = np.full(problem.tables, np.inf)
    option_value = np.full(len(problem.option_table), np.inf)
    for free in (False, True):
        options = np.flatnonzero((problem.option_units > 0) == free)
        members = np.flatnonzero(problem.block_is_splittable == free)
        owner = problem.block_option[members]
        if free:
            parts = problem.option_units[owner] / problem.block_units[members]
            np.minimum.at(option_value, owner, block[members] * parts + lone[members])
        elif len(options):
            total = np.bincount(
                owner, weights=block[members] * problem.block_count[members], minlength=len(option_value)
            )
            longest = np.full(len(option_value), -np.inf)
            np.maximum.at(longest, owner, lone[members])
            option_value[options] = total[options] + longest[options]
    np.minimum.at(cheapest, problem.option_table, option_value)
    return cheapest


def dual_value_s(problem: Problem, multipliers: Multipliers, cheapest: Floats, floors: Floats) -> float:
    """The Lagrangian where the tables' cheapest options cost [T] so much; see `lagrangian_s`."""
    if np.isinf(cheapest).any():
        return float("inf")
    weight, byte = multipliers.weight, multipliers.byte
    base = float((problem.base_of_regions * weight).sum())
    memory = float((byte * region_capacity(problem)).sum())
    base += float(product(_idle_shares(problem, multipliers), floors))
    total_s = float(cheapest.sum()) + base - memory + float(problem.stage_constants.sum())
    return total_s - ROUNDING * (float(cheapest.sum()) + abs(base) + memory)


def _idle_shares(problem: Problem, multipliers: Multipliers) -> Floats:
    """[S] share of each stage's weight that lies on no resource and no table."""
    instances, shared = instances_of_columns(problem)
    share = np.zeros(len(problem.stage_constants))
    for c, stage in enumerate(problem.stage_of_column):
        capacity_regions = slice(0, 1) if shared[c] else slice(None)
        share[stage] += float(product(multipliers.weight[capacity_regions, c], instances[capacity_regions, c]))
    for (_, stage), weight in multipliers.of_table.items():
        share[stage] += weight
    for (_, column), weight in multipliers.beside.items():
        share[problem.stage_of_column[column]] += weight
    return np.maximum(1.0 - share, 0.0)


def block_values(problem: Problem, weight: Floats, byte: Floats, more: Floats | None = None) -> Floats:
    """[B] the least that one block of each type adds, on the kind of rank where that is least; `more` [K, B] on top."""
    blocks, capacity_regions, kinds = len(problem.block_option), problem.capacity_regions, problem.kinds
    rows, copies = problem.block_rows, problem.block_copies
    size = -(-rows // (problem.world // copies))
    least = np.full(blocks, np.inf)
    everywhere, world_wide = np.zeros(blocks), np.zeros(blocks)
    set_of_block = problem.table_rank_set[problem.table_of_block]
    sums = [
        (capacity_regions.of_set(weight, number, kinds), capacity_regions.of_set(byte, number, kinds))
        for number in range(len(problem.rank_sets))
    ]
    for k in range(kinds):
        ranks = np.flatnonzero(problem.kind_of_rank == k)
        rows_held = np.zeros(blocks)
        for first, last in _runs(ranks):
            rows_held += np.minimum(rows, (last + 1) // copies * size) - np.minimum(rows, first // copies * size)
        share = np.where(problem.block_replicated, len(ranks), rows_held / rows)
        holders = problem.row_shares.holders[k]
        row_parts = np.where(problem.is_world_wide, share, 1.0)
        local = np.zeros(blocks) if more is None else more[k].copy()
        for number, (seconds, multiplier) in enumerate(sums):
            mine = np.flatnonzero(set_of_block == number)
            fixed = product(problem.fixed[k, mine], seconds[k])
            fixed += product(problem.bytes_fixed[k, mine], multiplier[k])
            by_rows = product(problem.by_rows[k, mine], seconds[k])
            by_rows += product(problem.bytes_by_rows[k, mine], multiplier[k])
            local[mine] += fixed * holders[mine] + by_rows * row_parts[mine]
        least = np.minimum(least, np.where(problem.allowed[k], local, np.inf))
        world_wide += np.where(problem.allowed[k], local, np.inf)
    for d, kind in enumerate(capacity_regions.kind.tolist()):
        everywhere += capacity_regions.ranks[d].sum() * product(problem.everywhere[kind], weight[d])
    return np.where(problem.is_world_wide, world_wide, least) + everywhere


def _runs(ranks: np.ndarray) -> Iterator[tuple[int, int]]:
    """First and last of each run of consecutive ranks."""
    breaks = np.flatnonzero(np.diff(ranks) != 1)
    starts = np.concatenate([ranks[:1], ranks[breaks + 1]])
    ends = np.concatenate([ranks[breaks], ranks[-1:]])
    return zip(starts.tolist(), ends.tolist(), strict=True)


def region_capacity(problem: Problem) -> Floats:
    """[D, M] bytes that tables may use in the pools of each capacity region together."""
    capacity_of_region = np.zeros((len(problem.capacity_regions.kind), len(problem.pool_capacity)))
    for d, ranks in enumerate(problem.capacity_regions.ranks):
        for m, capacity in enumerate(problem.pool_capacity):
            pools = np.unique(problem.pool_of_rank[m][ranks])
            capacity_of_region[d, m] = capacity[pools].sum() - ranks.sum() * problem.base_bytes[m]
    return capacity_of_region


def least_stage_s(problem: Problem, multipliers: Multipliers) -> Floats:
    """[S] seconds that each stage takes at least, by its own weights alone."""
    constants = float(problem.stage_constants.sum())
    anything: Bools = np.asarray(problem.allowed.any(axis=0))
    of_stage, floors = [], integrality_floors(problem)
    for s in range(len(problem.stage_constants)):
        alone = multipliers.of_stage(s, problem.stage_of_column)
        own = np.where(np.arange(len(floors)) == s, floors, 0.0)
        of_stage.append(lagrangian_s(problem, alone, anything, own) - constants)
    return np.maximum(of_stage, floors)


def least_step_of_block_s(problem: Problem, multipliers: Multipliers) -> Floats:
    """[B] what a step takes at least if a plan holds the block: stage by stage the block's own load beside what every
    rank has of other tables, or what the weights of that stage alone prove."""
    stages = range(len(problem.stage_constants))
    constants = float(problem.stage_constants.sum())
    least = least_stage_s(problem, multipliers)
    blocks = np.arange(len(problem.block_option))
    least_step = np.full(len(blocks), np.inf)
    for k in range(problem.kinds):
        load = problem.extremes.peak_load(k, blocks) + problem.extremes.base_of_instance[k]
        load += problem.extremes.beside(blocks)
        step = np.full(len(blocks), constants)
        for s in stages:
            of_stage = load[:, problem.stage_of_column == s]
            step += np.maximum(of_stage.max(axis=1, initial=0.0), least[s])
        least_step = np.where(problem.allowed[k], np.minimum(least_step, step), least_step)
    least_step[problem.is_world_wide] = float(least.sum()) + constants
    return least_step * (1 - ROUNDING)
