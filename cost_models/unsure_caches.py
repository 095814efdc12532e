"""How far it is unsure what a device's cache serves of a lookup.

Of kernels that were not measured on a device two laws are known: a share by the size of a table, fitted to uniform ids
on an A100, and that of the rows which a cache still holds, met by FBGEMM's kernels on an H100. Where they differ,
nobody knows which is right. See docs/decisions/0122-tables-one-after-the-other.md.
"""

import numpy as np

from cost_models.lookup_terms import in_sectors, l2_share
from cost_models.shards import DATA_PARALLEL, EXTENT_OF_SHARDING, HBM, Blocks, Floats
from cost_models.step_costs import StepCosts


def unsure_cache_s(model: StepCosts, blocks: Blocks, kind: int) -> Floats:
    """[n] seconds of reading rows in a step, for each 1 of a table's rows, by which both laws differ on ranks of a
    kind; of tables in HBM."""
    own, tables, table = model.kinds[kind], model.tables, blocks.table
    rates, none = own.lookup, np.zeros(len(blocks))
    if rates.distinct_row_s is not None or not rates.l2_reach_bytes or np.isinf(rates.l2_bytes):
        return none
    batching = model.batching
    samples = np.where(blocks.sharding == DATA_PARALLEL, batching.samples_per_rank, batching.global_samples)
    lookups = samples * tables.lookups_per_sample[table]
    stored = tables.row_bytes(table, blocks.columns, blocks.dtype).astype(float)
    row_bytes = in_sectors(stored, rates.sector_bytes)
    table_bytes = tables.rows[table] * row_bytes
    holders = np.array([group.size for group in own.extents])[EXTENT_OF_SHARDING[blocks.sharding]]
    missed = tables.access.read_from_memory(table, holders * rates.l2_bytes / table_bytes, lookups)
    differ = np.abs(l2_share(table_bytes, rates) - (1 - missed / np.maximum(lookups, 1e-9)))
    saved_s = lookups * row_bytes * (1 / rates.hbm_bytes_per_s - 1 / rates.l2_bytes_per_s)
    return np.where(blocks.tier == HBM, differ * saved_s, none)
