"""How the shards of a table cover it: every element once, the way its sharding says."""

import numpy as np

from cost_models.shards import (
    DATA_PARALLEL,
    EXTENT_OF_SHARDING,
    EXTENTS,
    SHARDING_ROWS,
    SHARDINGS,
    Ints,
    block_rows,
    copied_extent,
)
from planner.document.plan import TablePlan
from planner.document.shards import Shards
from planner.formulation.option_space import COLUMN_UNIT
from planner.formulation.rank_words import rank_ranges


def coverage_fault(
    table: TablePlan,
    shape: tuple[int, int],
    node_of_rank: Ints,
    colocated: tuple[int, ...],
    copies: int = 1,
    *,
    apart: bool = False,
    one_domain: bool,
) -> str | None:
    """What is wrong with how a table's shards cover it; None when every element is held as the sharding says.

    `shape` are its stored rows and its columns; `node_of_rank` is [W]; `colocated` are shardings of which the blocks
    are on different ranks of one node; so many ranks have `copies` of each shard, neighbours or whole nodes `apart`;
    `one_domain`: whether all ranks are on one node, or in one scale-up domain.
    """
    shards, world, (rows, columns) = table.shards, len(node_of_rank), shape
    sharding = SHARDINGS.index(table.sharding)
    if not len(shards) or shards.rank.max() >= world:
        return "has no shards, or one on a rank that does not exist"
    blocks = _column_blocks(shards)
    if blocks is None or blocks[0][0] != 0 or blocks[-1][1] != columns:
        return "its column blocks do not tile the columns"
    if (np.diff(shards.column_start) < 0).any():
        return "its shards are not in the order of their columns"
    if fault := _block_fault(table, blocks):
        return fault
    nodes = node_of_rank[shards.rank]
    if sharding in colocated and (len(set(nodes.tolist())) != 1 or len(set(shards.rank.tolist())) != len(shards)):
        return f"{table.sharding} needs different ranks of one node"
    site_of_rank = copied_extent(EXTENT_OF_SHARDING[sharding], copies, apart=apart).site_of_rank(node_of_rank)
    if SHARDING_ROWS[table.sharding].cuts_into_sites:
        if SHARDING_ROWS[table.sharding].is_within_domain and not one_domain:
            return f"{table.sharding} needs a cluster of one node, or of one scale-up domain"
        return _parts_fault(table, rows, site_of_rank)
    for _, _, index in blocks:
        ranks = np.flatnonzero(site_of_rank == site_of_rank[shards.rank[index[0]]])
        if not np.array_equal(shards.rank[index], ranks):
            where = (
                f"ranks {rank_ranges(ranks.tolist())} here, and they are on {rank_ranges(shards.rank[index].tolist())}"
            )
            return f"{table.sharding} needs one shard on each of its ranks, in their order: {where}"
        held = block_rows(np.array(rows), len(ranks) // copies, np.arange(len(ranks) // copies))
        in_turn = np.tile if apart else np.repeat
        rank_rows, start = in_turn(held, copies), in_turn(np.cumsum(held) - held, copies)
        if sharding == DATA_PARALLEL:
            rank_rows, start = np.full(len(ranks), rows), np.zeros(len(ranks), dtype=np.int64)
        if not (np.array_equal(shards.rows[index], rank_rows) and np.array_equal(shards.row_start[index], start)):
            return f"its row blocks are not those of {table.sharding}: ceil(rows / ranks) each, in order"
    return None


def _parts_fault(table: TablePlan, rows: int, site_of_rank: Ints) -> str | None:
    """What is wrong with a table whose rows are cut into parts of ceil(rows / sites), in any order of the sites, each
    of which is cut over the ranks of its site; `site_of_rank` [W]."""
    shards = table.shards
    site = site_of_rank[shards.rank]
    begins = np.flatnonzero(np.diff(site, prepend=-1) != 0)
    sites, world = site[begins], len(np.unique(site_of_rank))
    called = EXTENTS[SHARDING_ROWS[table.sharding].extent].sites
    if len(np.unique(sites)) < len(sites) or not 1 < len(sites) < world:
        return f"{table.sharding} needs several of the {called}, not all, each of them once"
    ranks = [np.flatnonzero(site_of_rank == each) for each in sites.tolist()]
    if len(np.unique(np.bincount(site_of_rank))) > 1:
        return f"{table.sharding} needs as many ranks on every node"
    if not np.array_equal(shards.rank, np.concatenate(ranks)):
        return f"{table.sharding} needs one shard on each rank of its nodes, in their order"
    parts = block_rows(np.array(rows), len(sites), np.arange(len(sites)))
    held = [block_rows(part, len(ranks[0]), np.arange(len(ranks[0]))) for part in parts]
    rank_rows = np.concatenate(held)
    start = np.cumsum(rank_rows) - rank_rows
    if (parts == 0).any() or not (np.array_equal(shards.rows, rank_rows) and np.array_equal(shards.row_start, start)):
        return f"its row blocks are not those of {table.sharding}: ceil(rows / {called}) each, cut over their ranks"
    return None


def _block_fault(table: TablePlan, blocks: list[tuple[int, int, Ints]]) -> str | None:
    """What is wrong with the column blocks of a table that tile it; see `_column_blocks`."""
    sharding, columns = SHARDINGS.index(table.sharding), table.shards.columns
    if any(np.unique(columns[index]).size != 1 or (stop - start) % COLUMN_UNIT for start, stop, index in blocks):
        return f"a column block is not a multiple of {COLUMN_UNIT} columns wide"
    row = SHARDING_ROWS[table.sharding]
    if row.most_blocks is not None and len(blocks) > row.most_blocks:
        return f"{table.sharding} has one column block, not {len(blocks)}"
    if len(blocks) < row.least_blocks:
        return f"{table.sharding} has two column blocks at least; one is table_row_wise"
    if sharding == DATA_PARALLEL and table.tier != "hbm":
        return "replicas are held in HBM"
    return None


def _column_blocks(shards: Shards) -> list[tuple[int, int, Ints]] | None:
    """(first column, last + 1, shards) of each column block from the left; None where blocks overlap or leave gaps."""
    starts = np.unique(shards.column_start)
    blocks, reached = [], 0
    for start in starts.tolist():
        index = np.flatnonzero(shards.column_start == start)
        if start != reached:
            return None
        reached = start + int(shards.columns[index[0]])
        blocks.append((start, reached, index))
    return blocks
