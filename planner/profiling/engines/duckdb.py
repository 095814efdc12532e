"""Counting in DuckDB: a query for each table, which DuckDB reads, joins and groups in its own threads.

Needs the extra `profile`. Counts are those of `local`, whose hash the queries compute, too.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from planner.profiling.hashing import FIRST, MASK, SECOND
from planner.profiling.progress import Progress
from planner.profiling.reads import HotIds, Reads, no_reads
from planner.profiling.sources.parquet import ParquetSource
from planner.profiling.sources.tables import TableSource
from planner.profiling.statistics import FeatureCounts
from planner.profiling.tallies import Tally
from topologies.errors import InputError

MACROS = f"""
CREATE OR REPLACE TEMP MACRO folded(id) AS xor(xor(id, id >> 31), id >> 62) & {MASK};
CREATE OR REPLACE TEMP MACRO first_mix(y) AS xor((y * {FIRST}) & {MASK}, ((y * {FIRST}) & {MASK}) >> 15);
CREATE OR REPLACE TEMP MACRO second_mix(y) AS xor((y * {SECOND}) & {MASK}, ((y * {SECOND}) & {MASK}) >> 16);
"""
ROOM = 0.52
"""Share of the capacity from which on a thicker sample would be over it."""


def count_in_duckdb(
    source: TableSource,
    hot: Mapping[str, HotIds],
    progress: Progress,
    capacity: int,
    workers: int,
    stop: Callable[[], bool],
) -> None:
    """Count the tables that are left of `progress`, unless `stop` asks for the end between two. Raises InputError."""
    import duckdb

    parquet = source.source
    if not isinstance(parquet, ParquetSource):
        raise InputError.at("--engine duckdb", "reads Parquet only; leave the flag out")
    with duckdb.connect() as connection:
        connection.execute(f"SET threads = {workers}")
        connection.execute(MACROS)
        for name in source.features:
            positions = [at for at in progress.left if name in progress.tasks[at].features]
            if not positions or stop():
                continue
            try:
                counts = _counts(connection, parquet, source.columns[name], hot[name], capacity)
            except duckdb.Error as error:
                raise InputError.at("--engine duckdb", " ".join(str(error).split()), path=name) from None
            progress.add(positions, {name: counts})


def _counts(
    connection: Any, source: ParquetSource, columns: Sequence[str], hot: HotIds, capacity: int
) -> FeatureCounts:
    import pyarrow as pa

    if words := [name for name in columns if not source.is_whole(name)]:
        message = "holds words, which only the other engines count; leave --engine duckdb out"
        raise InputError.at(str(source.files[0]), message, path=words[0])
    files = ", ".join(_text(str(file)) for file in source.files)
    data = f"read_parquet([{files}])"
    parts = [
        f"SELECT {f'unnest({_name(name)})' if source.is_list(name) else _name(name)}::BIGINT AS id FROM {data}"
        for name in columns
    ]
    ids = f"(SELECT id FROM ({' UNION ALL '.join(parts)}) WHERE id IS NOT NULL)"
    lengths = " + ".join(
        f"coalesce(len(list_filter({_name(name)}, lambda each: each IS NOT NULL)), 0)"
        if source.is_list(name)
        else f"({_name(name)} IS NOT NULL)::BIGINT"
        for name in columns
    )
    owners = np.unique(hot.owners[hot.present()])
    connection.register("hot", pa.table({"id": owners}))
    level = 0
    samples = _rows(connection, f"SELECT {lengths} AS value, count(*) FROM {data} GROUP BY value ORDER BY value")
    (least, largest, distinct) = connection.execute(
        f"SELECT min(id), max(id), approx_count_distinct(id) FROM {ids}"
    ).fetchone()
    if least is None:
        ends = np.iinfo(np.int64)
        return FeatureCounts(samples, no_reads(hot, capacity), int(ends.max), int(ends.min))
    while distinct / 2**level > capacity:
        level += 1
    while True:
        found = _rows(
            connection,
            f"SELECT id, count(*) FROM {ids} WHERE second_mix(first_mix(folded(id))) & {(1 << level) - 1} = 0"
            " OR id IN (SELECT id FROM hot) GROUP BY id ORDER BY id",
        )
        reads = _split(found, hot, level, capacity)
        if level == 0 or len(reads.sampled) > ROOM * capacity or reads.level > level:
            return FeatureCounts(samples, reads, int(least), int(largest))
        level -= 1


def _split(found: Tally, hot: HotIds, level: int, capacity: int) -> Reads:
    """Counts of ids, hot ones apart; thinner where the sample is over its capacity."""
    nothing = no_reads(hot, capacity)
    present = hot.present()
    owners = hot.owners[present]
    at = np.searchsorted(found.values, owners)
    inside = at < len(found)
    inside[inside] = found.values[at[inside]] == owners[inside]
    reads = nothing.hot.copy()
    reads[np.flatnonzero(present)[inside]] = found.counts[at[inside]]
    others = np.ones(len(found), bool)
    others[at[inside]] = False
    return Reads(reads, Tally(found.values[others], found.counts[others]), level, capacity) + nothing


def _rows(connection: Any, query: str) -> Tally:
    table = connection.execute(query).fetchnumpy()
    values, counts = (np.asarray(column).astype(np.int64) for column in table.values())
    return Tally(values, counts)


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
