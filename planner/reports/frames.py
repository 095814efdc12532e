"""Plans as data frames, for notebooks and CSV."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

import numpy as np

from cost_models.shards import MEMORY_TIERS
from planner.document.plan import Plan
from topologies.documents import did_you_mean
from topologies.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

_SHARD_COLUMNS = ("rank", "row_start", "rows", "column_start", "columns", *(f"{tier}_bytes" for tier in MEMORY_TIERS))

_TABLE_COLUMNS = ("name", "sharding", "tier", "dtype", "cache_fraction", "optimizer_state", "variant")
Part = Literal["tables", "shards", "ranks", "tiers", "stages"]


def plan_frame(plan: Plan, of: Part = "tables") -> "pd.DataFrame":
    """A plan as a data frame, with a row for each of its tables, shards, ranks, tiers or stages.

    `tables`: how each is held, in how many shards, and its bytes in each memory over all ranks. `shards`: see
    `shard_frame`. `ranks`: the node, bytes and usable bytes in each memory, and seconds per stage. `tiers`: tables,
    shards and bytes of those that are at home there. `stages`: seconds, and the rank that all wait for. A plan that
    places nothing has no rows. Raises InputError for any other word.
    """
    if of not in _FRAMES:
        raise InputError.at("of", f"{of!r} is none of {', '.join(_FRAMES)}{did_you_mean(of, _FRAMES)}")
    return _FRAMES[of](plan)


def table_frame(plan: Plan) -> "pd.DataFrame":
    """One row per table."""
    import pandas as pd

    frame = pd.DataFrame(
        [[getattr(table, name) for name in _TABLE_COLUMNS] + [len(table.shards)] for table in plan.tables],
        columns=["table", *_TABLE_COLUMNS[1:], "shards"],
    )
    none = np.zeros((0, len(MEMORY_TIERS)), dtype=np.int64)
    size = np.vstack([none, *(table.shards.bytes.sum(axis=0) for table in plan.tables)])
    return frame.join(pd.DataFrame(size, columns=[f"{tier}_bytes" for tier in MEMORY_TIERS]))


def rank_frame(plan: Plan) -> "pd.DataFrame":
    """One row per rank."""
    import pandas as pd

    rows = [
        {"rank": rank.rank, "node": rank.node}
        | {f"{tier}_bytes": rank.bytes[tier] for tier in MEMORY_TIERS}
        | {f"{tier}_usable_bytes": rank.capacity[tier] for tier in MEMORY_TIERS}
        | {f"{stage}_s": seconds for stage, seconds in rank.seconds.items()}
        for rank in plan.ranks
    ]
    return pd.DataFrame(rows)


def tier_frame(plan: Plan) -> "pd.DataFrame":
    """One row per tier that has tables, in the order of the tables."""
    frame = table_frame(plan)
    sums = frame.drop(columns=["table", *_TABLE_COLUMNS[1:]]).groupby(frame.tier, sort=False).sum()
    sums.insert(0, "tables", frame.groupby("tier", sort=False).size())
    return sums.reset_index()


def stage_frame(plan: Plan) -> "pd.DataFrame":
    """One row per stage of the step, in its order."""
    import pandas as pd

    rows = [(stage.name, stage.seconds, stage.critical_rank) for stage in plan.stages]
    return pd.DataFrame(rows, columns=["stage", "seconds", "critical_rank"])


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


_FRAMES: dict[str, Callable[[Plan], "pd.DataFrame"]] = {
    "tables": table_frame,
    "shards": shard_frame,
    "ranks": rank_frame,
    "tiers": tier_frame,
    "stages": stage_frame,
}
