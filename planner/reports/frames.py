"""Plans as data frames, for notebooks and CSV."""

from typing import TYPE_CHECKING

import numpy as np

from cost_models.shards import MEMORY_TIERS
from planner.document.plan import Plan

if TYPE_CHECKING:
    import pandas as pd

_SHARD_COLUMNS = ("rank", "row_start", "rows", "column_start", "columns", *(f"{tier}_bytes" for tier in MEMORY_TIERS))


def shard_frame(plan: Plan) -> "pd.DataFrame":
    """One row per shard: its table with sharding, tier, dtype and cache fraction, its rectangle, rank and bytes."""
    import pandas as pd

    count = [len(table.shards) for table in plan.tables]
    head = {
        name: np.repeat(np.array([getattr(table, name) for table in plan.tables], dtype=object), count)
        for name in ("name", "sharding", "tier", "dtype", "cache_fraction", "optimizer_state")
    }
    none = np.zeros((0, len(_SHARD_COLUMNS)), dtype=np.int64)
    matrix = np.concatenate([none, *(table.shards.as_matrix() for table in plan.tables)])
    frame = pd.DataFrame({"table": head.pop("name"), **head})
    return frame.join(pd.DataFrame(matrix, columns=list(_SHARD_COLUMNS)))
