"""How the rows of split tables are numbered: of every row block the hot rows first, then the others."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_models.memory import cached_rows, remap_row_bytes
from cost_models.shards import TIERS, Ints
from planner.document.plan import Plan, Remap, TablePlan
from planner.document.shards import Shards

Rows = NDArray[np.signedinteger[Any]]
"""Row numbers, int32 where that holds them, else int64."""
Counts = NDArray[np.integer[Any]]
"""How often each id was read."""


CHUNK = 1 << 22
"""Ids that are looked at at once."""
TALLIED = 1 << 16
"""Counts below this are tallied."""


def is_split(table: TablePlan) -> bool:
    """Whether a part of the table's rows is in HBM and the others are read in place."""
    return TIERS[table.tier].how == "split"


def hot_row_count(rows: int, share: float) -> int:
    """Hot rows of a table of which this share is to be in HBM: whole rows, rounded up."""
    return int(cached_rows(np.array(rows), np.array(share)))


def hot_rows_of_shards(shards: Shards, hot_rows: int, rows: int) -> Ints:
    """[n] hot rows of each shard of a table of `rows` rows: its part of them, in whole rows that sum up to `hot_rows`.

    Before row r of the table there are r x hot_rows // rows of them.
    """
    spans = zip(shards.row_start.tolist(), shards.rows.tolist(), strict=True)
    return np.array([(first + n) * hot_rows // rows - first * hot_rows // rows for first, n in spans], dtype=np.int64)


def hottest(counts: Counts, hot_rows: int) -> Ints:
    """[hot_rows] the ids that are read most, the first one most often; of ids that are read equally often the lower.

    `counts` are not below 0; beside them it takes the memory of a few chunks and of the result.
    """
    if not hot_rows:
        return np.zeros(0, dtype=np.int64)
    least, tied = _least_hot(counts, hot_rows)
    above: list[Ints] = []
    equal: list[Ints] = []
    for start in range(0, len(counts), CHUNK):
        part = counts[start : start + CHUNK]
        above.append(start + np.flatnonzero(part > least))
        if tied:
            equal.append(start + np.flatnonzero(part == least)[:tied])
            tied -= len(equal[-1])
    ids = np.concatenate(above)
    ids = ids[np.argsort(-counts[ids].astype(np.int64), kind="stable")]
    return np.concatenate([ids, *equal])


def _least_hot(counts: Counts, hot_rows: int) -> tuple[int, int]:
    """The count of the last hot id, and how many hot ids have it. Small counts are tallied, large ones (few) sorted."""
    tally = np.zeros(TALLIED + 1, dtype=np.int64)
    large: list[Counts] = []
    for start in range(0, len(counts), CHUNK):
        part = counts[start : start + CHUNK]
        tally += np.bincount(np.minimum(part, TALLIED).astype(np.int64), minlength=TALLIED + 1)
        large.append(part[part >= TALLIED])
    reached = np.cumsum(tally[::-1])[::-1]  # ids that are read so often or more
    least = int(np.flatnonzero(reached >= hot_rows)[-1])
    if least < TALLIED:
        return least, hot_rows - int(reached[least + 1])
    falling = -np.sort(-np.concatenate(large).astype(np.int64))
    least = int(falling[hot_rows - 1])
    return least, hot_rows - int((falling > least).sum())


def rows_of_ids(shards: Shards, hot: Ints) -> Rows:
    """[rows] the row of every id of a split table whose ids `hot`, the hottest first, are in HBM.

    The hot ids are dealt to the row blocks in turn, so that each block has its part of the reads, then the others in
    their order. A block that has all its rows is passed over.
    """
    assert shards.hot_rows is not None
    block = shards.column_start == shards.column_start[0]
    first, rows_of_block, held_hot = shards.row_start[block], shards.rows[block], shards.hot_rows[block]
    rows = int(rows_of_block.sum())
    dtype = np.dtype(f"i{remap_row_bytes(np.array(rows))}")
    row_of_id, is_cold = np.empty(rows, dtype=dtype), np.ones(rows, dtype=bool)
    is_cold[hot] = False
    row_of_id[hot] = _dealt(first.astype(dtype), held_hot)
    row_of_id[is_cold] = _dealt((first + held_hot).astype(dtype), rows_of_block - held_hot)
    return row_of_id


def _dealt(first: Rows, count: Ints) -> Rows:
    """The rows from `first` on, `count` of each block, one of each block in turn; [sum of count]."""
    dealt_rows = np.empty(int(count.sum()), dtype=first.dtype)
    dealt = filled = 0
    for level in np.unique(count[count > 0]).tolist():
        steps, open_blocks = np.arange(dealt, level, dtype=first.dtype), first[count >= level]
        size = len(steps) * len(open_blocks)
        np.add(steps[:, None], open_blocks, out=dealt_rows[filled : filled + size].reshape(-1, len(open_blocks)))
        dealt, filled = level, filled + size
    return dealt_rows


def numbering_fault(table: TablePlan, rows: int) -> str | None:
    """What is wrong with how many rows of a table of `rows` rows are said to be hot; None where nothing is."""
    remap, of_shards = table.remap, table.shards.hot_rows
    if (remap is not None, of_shards is not None) != (is_split(table),) * 2:
        return "remap and hot_rows go with split tables, and only with them"
    if remap is None or of_shards is None or table.cache_fraction is None:
        return None
    hot_rows = hot_row_count(rows, table.cache_fraction)
    if remap.hot_rows != hot_rows:
        return f"has {hot_rows} hot rows, by its cache fraction; the remap says {remap.hot_rows}"
    if not np.array_equal(of_shards, hot_rows_of_shards(table.shards, hot_rows, rows)):
        return "the hot rows of its shards are not their parts of those of the table"
    return None


def faults_of_files(plan: Plan, folder: Path) -> Iterator[str]:
    """What is wrong with the files of mapped ids, which lie relative to the folder of the plan."""
    for table in plan.tables:
        if table.remap is not None and table.remap.path is not None:
            fault = _file_fault(table.remap, folder / table.remap.path, _row_count(table))
            if fault is not None:
                yield f"table {table.name}: its remap {table.remap.path} {fault}"


def _row_count(table: TablePlan) -> int:
    return int((table.shards.row_start + table.shards.rows).max())


def _file_fault(remap: Remap, file: Path, rows: int) -> str | None:
    try:
        row_of_id = np.load(file, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except (ValueError, EOFError):
        return "is not a .npy file"
    if (
        not isinstance(row_of_id, np.ndarray)
        or row_of_id.shape != (rows,)
        or row_of_id.dtype not in (np.int32, np.int64)
    ):
        return f"is not an array of {rows} int32 or int64"
    if (digest := sha256_of(file)) != remap.sha256:
        return f"has the digest {digest}, the plan says {remap.sha256}"
    if row_of_id.min() < 0 or row_of_id.max() >= rows:
        return f"names rows that are not below {rows}"
    is_named = np.zeros(rows, dtype=bool)
    is_named[row_of_id] = True
    if not is_named.all():
        return f"gives {int(rows - is_named.sum())} rows no id: it is no permutation"
    return None


def sha256_of(file: Path) -> str:
    """Hash of a file's bytes, in hexadecimal."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
