"""The blocks by which an old plan held a table, among the options of a new question."""

from collections import defaultdict

import numpy as np

from cost_models.shards import EXTENT_OF_SHARDING, PLACEMENT_TIERS, SHARDINGS, STATE_PLACES, Ints
from cost_models.workload.formats import DTYPES
from planner.document.plan import TablePlan
from planner.formulation.formulation import Formulation
from planner.formulation.options import Options
from planner.problem.arrays import Problem
from planner.problem.extents import NODE, RANK


def blocks_as_before(formulation: Formulation, table: int, old: TablePlan, rank_after: Ints) -> list[tuple[int, int]]:
    """Blocks that hold a table as the old plan did, with their places (-2: gone); empty where no option does.

    Where the memory tier is no longer an option, the same blocks in another. `rank_after` is [ranks before].
    """
    options, problem = formulation.options, formulation.problem
    opens = np.unique(old.shards.column_start, return_index=True)[1]
    width, rank = old.shards.columns[opens], rank_after[old.shards.rank[opens]]
    tier, sharding = PLACEMENT_TIERS.index(old.tier), SHARDINGS.index(old.sharding)
    extent = int(EXTENT_OF_SHARDING[sharding])
    candidates = np.arange(*problem.option_start[table : table + 2])
    unlike = np.abs(options.cache_fraction[candidates] - (old.cache_fraction or 0.0))
    unlike += 10.0 * (options.tier[candidates] != tier)
    unlike += 2.0 * (options.dtype[candidates] != DTYPES.index(old.dtype))
    unlike += 1.5 * (options.state[candidates] != STATE_PLACES.index(old.optimizer_state))
    if extent != RANK:
        place = np.full(len(rank), -1)
        if extent == NODE:
            place = np.where(rank >= 0, problem.node_of_rank[rank], -2)
    else:
        place = np.where(rank >= 0, rank, -2)
    for option in candidates[np.argsort(unlike, kind="stable")].tolist():
        blocks = _blocks_of_widths(options, problem, option, sharding, width)
        if blocks is None or not _is_legal(problem, option, blocks, place):
            continue
        return list(zip(blocks.tolist(), place.tolist(), strict=True))
    return []


def _blocks_of_widths(options: Options, problem: Problem, option: int, sharding: int, width: Ints) -> Ints | None:
    """Block types of the option that have these widths, in this order; None where the option is not cut like that."""
    types = np.arange(*problem.block_start[option : option + 2])
    columns = options.block_columns[types]
    if problem.option_units[option]:
        if EXTENT_OF_SHARDING[sharding] != RANK:
            return None
        order = np.argsort(columns, kind="stable")
        block = order[np.minimum(np.searchsorted(columns[order], width), len(order) - 1)]
        return types[block] if np.array_equal(columns[block], width) else None
    of = int(options.block_sharding[types[0]])
    is_same = of == sharding or (EXTENT_OF_SHARDING[[of, sharding]] == RANK).all()
    taken = np.repeat(columns, options.block_count[types])
    if not is_same or not np.array_equal(np.sort(taken), np.sort(width)):
        return None
    of_width = defaultdict(int, zip(columns.tolist(), types.tolist(), strict=True))
    return np.array([of_width[w] for w in width.tolist()], dtype=np.int64)


def _is_legal(problem: Problem, option: int, blocks: Ints, place: Ints) -> bool:
    """Whether the places that are still there may hold the blocks."""
    for block, where in zip(blocks.tolist(), place.tolist(), strict=True):
        extent = problem.block_extent[block]
        if where == -1:
            kinds = np.arange(problem.kinds)
        elif where >= 0:
            rank = where if extent == RANK else int(problem.node_start[where])
            kinds = problem.kind_of_rank[rank : rank + 1]
        else:
            kinds = np.zeros(0, dtype=np.int64)
        if not problem.allowed[kinds, block].all():
            return False
        if where == -2 and not problem.allowed[:, block].any():
            return False
    if problem.option_colocated[option]:
        return bool((place >= 0).all() and len(set(place.tolist())) == len(place)) and _on_one_node(problem, place)
    return True


def _on_one_node(problem: Problem, ranks: Ints) -> bool:
    return len(np.unique(problem.node_of_rank[ranks])) == 1
