"""What a plan of RecShard's form costs: hot rows read in HBM, cold ones in place, pooled into one vector of the table.

Its two halves are two tables to the cost model: the hot one with the reads that it takes, the cold one with the rest of
the curve. The table itself says what is exchanged and written, once.
"""

import numpy as np

from benchmarks.recshard import Split
from benchmarks.tier_greedy import whole_tables
from cost_models.cost_arrays import BlockCosts
from cost_models.shards import DDR, HBM, Floats
from cost_models.step import StepModel
from cost_models.workload.table_profile import TableProfile
from topologies.cluster import Topology

LOOKED_UP = ("lookup_forward", "lookup_backward", "cache_fetch")
"""Stages that rows are read and written in; in all others a table counts whole."""
POINTS = 24
"""Points of the curve of the cold rows."""
FEWEST = 1e-9
"""Reads per sample of a half that has none."""


def split_stages(model: StepModel, topology: Topology, split: Split) -> Floats:
    """[S] seconds of the stages of a split plan."""
    hot, cold = _halves(model, split.hot)
    zeros = np.zeros(len(split.rank))
    in_hbm, below = np.full(len(zeros), HBM), np.full(len(zeros), DDR)
    whole = model.block_costs(whole_tables(model, in_hbm, zeros), 0)
    seconds = _seconds(whole)
    rows = np.zeros_like(seconds)
    for profiles, tier in ((hot, in_hbm), (cold, below)):
        half = StepModel(topology, model.workload.model_copy(update={"tables": profiles}))
        rows += half.block_costs(whole_tables(half, tier, zeros), 0).by_rows
    found = np.zeros(len(model.stages))
    for c, column in enumerate(model.columns):
        is_looked_up = model.stages[column.stage] in LOOKED_UP
        load = whole.fixed[:, c] + rows[:, c] if is_looked_up else seconds[:, c]
        of_rank = np.bincount(split.rank, weights=load, minlength=len(model.kind_of_rank))
        of_rank += model.base_loads[0, c] + whole.everywhere[:, c].sum()
        busiest = np.bincount(model.resource_of_rank(column.resource), weights=of_rank).max()
        found[column.stage] = max(found[column.stage], busiest)
    return np.asarray(found + model.constants)


def _seconds(costs: BlockCosts) -> Floats:
    return np.asarray(costs.fixed + costs.by_rows)


def _halves(model: StepModel, hot: Floats) -> tuple[tuple[TableProfile, ...], tuple[TableProfile, ...]]:
    """The tables' hot rows with their reads, and the cold rest."""
    access, above, below = model.tables.access, [], []
    for t, (table, share) in enumerate(zip(model.workload.tables, hot.tolist(), strict=True)):
        hot_rows = int(np.clip(round(table.rows * share), 1, table.rows))
        cold_rows = max(table.rows - hot_rows, 1)
        hits = float(access.hit_rate(np.array([t]), np.array([hot_rows / table.rows]))[0]) if share > 0 else 0.0
        upper = table.model_copy(update={"rows": hot_rows, "pooling_factor": max(table.pooling_factor * hits, FEWEST)})
        lower = {"rows": cold_rows, "pooling_factor": max(table.pooling_factor * (1 - hits), FEWEST)}
        if hits < 1:
            x = np.unique(np.concatenate([np.geomspace(1 / cold_rows, 1.0, POINTS), [1.0]]))
            at = (hot_rows + x * cold_rows) / table.rows if share > 0 else x
            reads = access.hit_rate(np.full(len(x), t), np.minimum(at, 1.0))
            y = (reads - hits) / (1 - hits)
            y[-1] = 1.0
            lower |= {"zipf_alpha": None, "access_cdf": tuple(zip(x.tolist(), y.tolist(), strict=True))}
        above.append(upper)
        below.append(table.model_copy(update=lower))
    return tuple(above), tuple(below)
