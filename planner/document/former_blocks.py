"""The blocks by which an old plan held a table, among the options of a new question."""

from collections import defaultdict

import numpy as np

from cost_models.shards import (
    EXTENT_OF_SHARDING,
    PLACEMENT_TIERS,
    SHARDING_ROWS,
    SHARDINGS,
    STATE_PLACES,
    Ints,
)
from cost_models.workload.formats import DTYPES
from planner.document.plan import TablePlan
from planner.formulation.formulation import Formulation
from planner.formulation.options import Options
from planner.problem.arrays import Problem
from planner.problem.sites import NOWHERE, Sites

GONE = -2
"""The place of a block whose ranks are no longer there."""


def blocks_as_before(formulation: Formulation, table: int, old: TablePlan, rank_after: Ints) -> list[tuple[int, int]]:
    """Blocks that hold a table as the old plan did, with their places (or GONE); empty where no option does.

    Where the memory tier is no longer an option, the same blocks in another. `rank_after` is [ranks before].
    """
    options, problem = formulation.options, formulation.problem
    tier, sharding = PLACEMENT_TIERS.index(old.tier), SHARDINGS.index(old.sharding)
    sites = problem.sites[int(formulation.model.extent_of(np.array([table]), np.array([sharding]))[0])]
    opens = np.unique(old.shards.column_start, return_index=True)[1]
    if SHARDING_ROWS[old.sharding].cuts_into_sites:
        opens = _opens_of_parts(rank_after[old.shards.rank], sites)
    width, rank = old.shards.columns[opens], rank_after[old.shards.rank[opens]]
    candidates = np.arange(*problem.option_start[table : table + 2])
    unlike = np.abs(options.cache_fraction[candidates] - (old.cache_fraction or 0.0))
    unlike += 10.0 * (options.tier[candidates] != tier)
    unlike += 2.0 * (options.dtype[candidates] != DTYPES.index(old.dtype))
    unlike += 1.5 * (options.state[candidates] != STATE_PLACES.index(old.optimizer_state))
    place = np.where(rank >= 0, sites.of_rank[rank], GONE) if sites.reach != "world" else np.full(len(rank), NOWHERE)
    for option in candidates[np.argsort(unlike, kind="stable")].tolist():
        blocks = _blocks_of_widths(options, problem, option, sharding, width)
        if blocks is None or not _is_legal(problem, option, blocks, place):
            continue
        return list(zip(blocks.tolist(), place.tolist(), strict=True))
    return []


def _opens_of_parts(rank: Ints, sites: Sites) -> Ints:
    """The first shard of each part of a table's rows, whose shards are on these ranks (-1: gone) now; none where a
    part is no longer on the ranks of one site."""
    size = int(sites.sizes.max())
    parts = rank[: len(rank) // size * size].reshape(-1, size)
    site = np.where(parts >= 0, sites.of_rank[parts], -1)
    is_whole = len(rank) % size == 0 and bool((site == site[:, :1]).all())
    return np.arange(0, len(rank) if is_whole else 0, size)


def _blocks_of_widths(options: Options, problem: Problem, option: int, sharding: int, width: Ints) -> Ints | None:
    """Block types of the option that have these widths, in this order; None where the option is not cut like that."""
    types = np.arange(*problem.block_start[option : option + 2])
    columns = options.block_columns[types]
    if problem.option_units[option]:
        if not _is_on_rank(problem, sharding):
            return None
        order = np.argsort(columns, kind="stable")
        block = order[np.minimum(np.searchsorted(columns[order], width), len(order) - 1)]
        return types[block] if np.array_equal(columns[block], width) else None
    of = int(options.block_sharding[types[0]])
    if problem.option_apart[option]:
        parts = np.repeat(types, options.block_count[types])
        return parts if of == sharding and len(parts) == len(width) else None
    is_same = of == sharding or (_is_on_rank(problem, of) and _is_on_rank(problem, sharding))
    taken = np.repeat(columns, options.block_count[types])
    if not is_same or not np.array_equal(np.sort(taken), np.sort(width)):
        return None
    of_width = defaultdict(int, zip(columns.tolist(), types.tolist(), strict=True))
    return np.array([of_width[w] for w in width.tolist()], dtype=np.int64)


def _is_on_rank(problem: Problem, sharding: int) -> bool:
    return problem.sites[int(EXTENT_OF_SHARDING[sharding])].reach == "rank"


def _is_legal(problem: Problem, option: int, blocks: Ints, place: Ints) -> bool:
    """Whether the places that are still there may hold the blocks."""
    for block, where in zip(blocks.tolist(), place.tolist(), strict=True):
        if where == NOWHERE:
            kinds = np.arange(problem.kinds)
        elif where >= 0:
            kinds = problem.kind_of_rank[problem.sites_of(block).first[[where]]]
        else:
            kinds = np.zeros(0, dtype=np.int64)
        if not problem.allowed[kinds, block].all():
            return False
        if where == GONE and not problem.allowed[:, block].any():
            return False
    if problem.option_colocated[option]:
        return bool((place >= 0).all() and len(set(place.tolist())) == len(place)) and _on_one_node(problem, place)
    if problem.option_apart[option]:
        return len(np.unique(place[place >= 0])) == int((place >= 0).sum())
    return True


def _on_one_node(problem: Problem, ranks: Ints) -> bool:
    return len(np.unique(problem.node_of_rank[ranks])) == 1
