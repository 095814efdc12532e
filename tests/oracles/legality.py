"""Whether the tables of a plan document keep to the rules, as `document_rules` reads them."""

from collections.abc import Iterator, Sequence

import numpy as np

from cost_models.model import CostModel
from planner.document.plan import TablePlan
from planner.document.planned import placed_tables
from tests.oracles.choices import SEVERAL, SEVERAL_RANKS, row_blocks
from tests.oracles.document_rules import Rules, TableRules

ROUNDED_BYTES = 1.0
"""By which a memory may seem overfull."""


def faults(model: CostModel, rules: Rules, tables: Sequence[TablePlan]) -> list[str]:
    """Everything about a plan's tables that the rules do not allow, in words."""
    if [table.name for table in tables] != [of.name for of in rules.tables]:
        return ["the tables are not those of the workload"]
    found = [
        f"{table.name}: {words}"
        for table, of in zip(tables, rules.tables, strict=True)
        for words in _faults_of_table(model, of, table)
    ]
    found += _faults_of_groups(rules, tables)
    stored = model.evaluate(placed_tables(tables)).rank_bytes
    for m, (pool, capacity) in enumerate(zip(model.memory_pool_of_rank, rules.capacity, strict=True)):
        taken = np.bincount(pool, weights=stored[:, m], minlength=len(capacity))
        if (taken > capacity + ROUNDED_BYTES).any():
            found.append(f"{model.memories[m]} is overfull")
    return found


def _faults_of_table(model: CostModel, rules: TableRules, table: TablePlan) -> Iterator[str]:
    shards = table.shards
    variant = (table.tier, table.cache_fraction or 0.0, table.dtype, table.optimizer_state)
    if table.sharding not in rules.shardings:
        yield f"{table.sharding} is not allowed"
    if variant not in rules.variants:
        yield f"{variant} is not allowed"
    if not set(shards.rank.tolist()) <= set(rules.ranks):
        yield f"is on ranks {sorted(set(shards.rank.tolist()) - set(rules.ranks))}"
    if table.sharding != "data_parallel" and len(shards) > rules.max_shards:
        yield f"is in {len(shards)} parts, {rules.max_shards} are allowed"
    starts = sorted(set(shards.column_start.tolist()))
    widths = np.diff([*starts, rules.dim]).tolist()
    if len(starts) > 1 and (not rules.step or any(width % rules.step for width in widths)):
        yield f"has column blocks of {widths}, not of multiples of {rules.step}"
    node_of_rank = np.asarray(model.node_of_rank)
    nodes: list[int] = []
    if table.sharding in SEVERAL:
        yield from _faults_of_parts(node_of_rank, rules, table)
        return
    for start, width in zip(starts, widths, strict=True):
        block = np.flatnonzero(shards.column_start == start)
        ranks = shards.rank[block].tolist()
        nodes.append(int(node_of_rank[ranks[0]]))
        if table.sharding in ("data_parallel", "row_wise"):
            expected = list(range(len(node_of_rank)))
        elif table.sharding in ("table_row_wise", "grid_shard"):
            expected = np.flatnonzero(node_of_rank == nodes[-1]).tolist()
        else:
            expected = ranks[:1]
        rows = list(zip(shards.row_start[block].tolist(), shards.rows[block].tolist(), strict=True))
        if ranks != expected or (shards.columns[block] != width).any():
            yield f"columns from {start} are on ranks {ranks}"
        elif rows != row_blocks(rules.rows, len(ranks), table.sharding):
            yield f"columns from {start} have rows {rows}"
    yield from _faults_of_blocks(model, table, widths, nodes, rules.step)


def _faults_of_parts(node_of_rank: np.ndarray, rules: TableRules, table: TablePlan) -> Iterator[str]:
    site_of_rank = node_of_rank
    if table.sharding == SEVERAL_RANKS:
        site_of_rank = np.arange(len(node_of_rank))
        if node_of_rank.any():
            yield f"is {table.sharding} on several nodes"
    shards, ranks_of_site = table.shards, np.bincount(site_of_rank)
    ranks = shards.rank.tolist()
    each, world = int(ranks_of_site[0]), len(ranks_of_site)
    sites = [int(site_of_rank[rank]) for rank in ranks[::each]]
    if len(set(ranks_of_site.tolist())) > 1 or not 1 < len(sites) < world or len(set(sites)) < len(sites):
        yield f"its rows are over sites {sites} of {ranks_of_site.tolist()} ranks"
    if ranks != [rank for site in sites for rank in np.flatnonzero(site_of_rank == site).tolist()]:
        yield f"its rows are on ranks {ranks}, which are not all of some sites"
    expected, first = [], 0
    for _, part in row_blocks(rules.rows, len(sites), table.sharding):
        expected += [(first + start, held) for start, held in row_blocks(part, each, table.sharding)]
        first += part
    if expected != list(zip(shards.row_start.tolist(), shards.rows.tolist(), strict=True)):
        yield "its row blocks are not those of sites and then ranks"
    if shards.column_start.any() or (shards.columns != rules.dim).any():
        yield "its columns are cut, too"


def _faults_of_blocks(
    model: CostModel, table: TablePlan, widths: list[int], nodes: list[int], step: int
) -> Iterator[str]:
    tied = table.sharding == "table_column_wise" or (table.sharding == "column_wise" and model.name == "hugectr")
    if tied and (len(set(nodes)) > 1 or len(set(table.shards.rank.tolist())) < len(table.shards)):
        yield "its blocks are not on different ranks of one node"
    if table.sharding == "grid_shard" and len(widths) > max(8, len(set(model.node_of_rank.tolist()))):
        yield "has more column blocks than there are nodes, and than 8"
    is_cut = table.sharding in ("column_wise", "table_column_wise", "grid_shard")
    if (len(widths) > 1 and not is_cut) or (len(widths) == 1 and table.sharding == "grid_shard"):
        yield f"{table.sharding} in {len(widths)} column blocks"
    if table.sharding == "grid_shard" and max(widths) - min(widths) > step:
        yield f"has column blocks of {widths}"
    if table.sharding == "data_parallel" and table.tier != "hbm":
        yield "replicas are held in HBM"


def _faults_of_groups(rules: Rules, tables: Sequence[TablePlan]) -> Iterator[str]:
    for group in rules.groups:
        zones = [{group.zone_of_rank[rank] for rank in tables[t].shards.rank.tolist()} for t in group.tables]
        if group.together and len(set().union(*zones)) > 1:
            yield f"tables {group.tables} are not together"
        if not group.together and len(set().union(*zones)) < sum(map(len, zones)):
            yield f"tables {group.tables} are not apart"
