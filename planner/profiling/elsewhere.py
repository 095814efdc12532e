"""Counts that were made elsewhere: results of our query, NVTabular's categories, Apache DataSketches."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from planner.profiling.curves import rows_by_reads
from planner.profiling.queries import COLUMNS, LARGEST, LEAST, LENGTH, READS, STATISTICS
from planner.profiling.sources.files import UNREADABLE, opened, plain_name
from planner.profiling.statistics import NO_BATCH, TableStatistics
from planner.profiling.tallies import Tally
from topologies.errors import Fault, InputError

CATEGORIES = "unique."
"""How NVTabular's Categorify names its files: unique.<column>.parquet."""
FREQUENT, DISTINCT = ".frequent", ".hll"
"""How files of sketches end: frequent items (longs), and HyperLogLog."""


def is_query_result(file: Path) -> bool:
    """Whether a file is the result of our query."""
    if not plain_name(file).endswith((".csv", ".parquet")):
        return False
    try:
        names = _frame(file, rows=1).columns
    except (InputError, ValueError):
        return False
    return set(COLUMNS) <= set(names)


def of_query_result(files: Sequence[Path]) -> dict[str, TableStatistics]:
    """The statistics of each feature in results of `queries.query`, as CSV or Parquet. Raises InputError.

    Engines write a result as several files, and cut it where they like: all files count as one.
    """
    import pandas as pd

    frames = {file: _result(file) for file in files}
    whole = pd.concat(list(frames.values()), ignore_index=True)
    first = {str(name): file for file in reversed(files) for name in frames[file]["feature"]}
    return {
        str(name): _of_feature(first[str(name)], str(name), rows) for name, rows in whole.groupby("feature", sort=False)
    }


def _result(file: Path) -> Any:
    """The rows of one file of a result. Raises InputError."""
    frame = _frame(file)
    faults: list[Fault] = []
    message = "holds something other than whole numbers; export them as integers"
    faults += [
        Fault(str(file), 1, 1, name, message)
        for name in ("value", "count")
        if len(frame) and frame[name].dtype.kind not in "iu"
    ]
    if frame["feature"].isna().any():
        faults.append(Fault(str(file), 1, 1, "feature", "is missing in a line; name the feature in each"))
    if unknown := sorted({str(each) for each in frame["statistic"]} - set(STATISTICS)):
        faults.append(Fault(str(file), 1, 1, "statistic", f"{unknown[0]!r} is none of {', '.join(STATISTICS)}"))
    if faults:
        raise InputError(faults)
    return frame.astype({"value": "int64", "count": "int64"}) if len(frame) else frame.astype({"feature": object})


def _of_feature(file: Path, name: str, frame: Any) -> TableStatistics:
    of: dict[str, Any] = {kind: frame[frame["statistic"] == kind] for kind in STATISTICS}
    missing = [kind for kind in STATISTICS if not len(of[kind])]
    if missing:
        message = f"lacks the statistic {', '.join(missing)}; run the whole query, and name all files of its result"
        raise InputError.at(str(file), message, path=name)
    if any(len(of[kind]) > 1 for kind in (LEAST, LARGEST)):
        message = "is in several results; ids of one cannot be matched with those of another: query all data at once"
        raise InputError.at(str(file), message, path=name)
    if (frame["count"] < 0).any() or (of[READS]["value"] < 1).any() or (of[LENGTH]["value"] < 0).any():
        raise InputError.at(str(file), "has counts below 0, or reads below 1", path=name)
    lengths = of[LENGTH].groupby("value", sort=True)["count"].sum()
    tally = Tally(lengths.index.to_numpy(np.int64), lengths.to_numpy(np.int64))
    rows = rows_by_reads(of[READS]["value"].to_numpy(float), of[READS]["count"].to_numpy(float))
    ids = int((tally.values * tally.counts).sum())
    if abs(rows.total - ids) > 0.5:
        message = (
            f"counts {rows.total:,.0f} reads of ids and {ids:,} ids in samples; run the query on one state of the data"
        )
        raise InputError.at(str(file), message, path=name)
    least, largest = (int(of[kind]["value"].iloc[0]) for kind in (LEAST, LARGEST))
    return TableStatistics(tally, rows, least, largest, are_numbers=True, batches=NO_BATCH)


def _frame(file: Path, rows: int | None = None) -> Any:
    import pandas as pd
    import pyarrow

    try:
        frame = pd.read_parquet(file) if file.suffix == ".parquet" else _csv(file, rows)
    except (*UNREADABLE, ValueError, OverflowError, pyarrow.ArrowException) as error:
        raise InputError.at(str(file), f"cannot be read: {' '.join(str(error).split())}") from None
    return frame


def _csv(file: Path, rows: int | None) -> Any:
    import pandas as pd

    with opened(file) as stream:
        return pd.read_csv(stream, nrows=rows)


def of_categories(files: Sequence[Path]) -> dict[str, TableStatistics]:
    """The statistics of NVTabular's categories: `unique.<column>.parquet` with a column `<column>_size`.

    Rows are the categories, in the order of NVTabular's codes; lists' lengths are not known. Raises InputError.
    """
    found = {}
    for file in files:
        name = file.name.removeprefix(CATEGORIES).removesuffix(".parquet")
        frame = _frame(file)
        size = f"{name}_size"
        if size not in frame.columns:
            message = f"has no column {size}; run Categorify with freq_threshold or on a version that writes sizes"
            raise InputError.at(str(file), message)
        reads = frame[size].dropna().to_numpy(float)
        if (reads < 0).any():
            raise InputError.at(str(file), "has sizes below 0", path=size)
        rows = rows_by_reads(reads, np.ones(len(reads)))
        found[name] = TableStatistics(None, rows, 0, len(frame) - 1, are_numbers=True, batches=NO_BATCH)
    return found


def of_sketches(files: Sequence[Path]) -> dict[str, TableStatistics]:
    """The statistics of sketches: `<table>.frequent`, a frequent items sketch of longs, beside `<table>.hll`.

    The frequent ids have their estimates; what is left is spread evenly over the other distinct ids, so that the curve
    is exact at the head and flat behind it. Raises InputError.
    """
    by_name: dict[str, dict[str, Path]] = {}
    for file in files:
        by_name.setdefault(file.stem, {})[file.suffix] = file
    found = {}
    for name, parts in by_name.items():
        if missing := [suffix for suffix in (FREQUENT, DISTINCT) if suffix not in parts]:
            message = f"is without {name}{missing[0]}: the frequent items and the distinct ids are needed"
            raise InputError.at(str(next(iter(parts.values()))), message)
        found[name] = _of_sketch(parts)
    return found


def _of_sketch(parts: Mapping[str, Path]) -> TableStatistics:
    import datasketches

    library: Any = datasketches
    loaded = {}
    for suffix, kinds in ((FREQUENT, ("frequent_items_sketch",)), (DISTINCT, ("hll_sketch",))):
        file = parts[suffix]
        try:
            loaded[suffix] = getattr(library, kinds[0]).deserialize(*_arguments(library, suffix, file.read_bytes()))
        except Exception as error:  # noqa: BLE001 - whatever the library raises for garbage
            message = f"is no {kinds[0]} of Apache DataSketches: {error}"
            raise InputError.at(str(file), message) from None
    sketch = loaded[FREQUENT]
    items = sketch.get_frequent_items(library.frequent_items_error_type.NO_FALSE_POSITIVES)
    heads = np.array([float(item[1]) for item in items])
    total, distinct = float(sketch.total_weight), max(float(loaded[DISTINCT].get_estimate()), float(len(heads)))
    rest, others = max(total - float(heads.sum()), 0.0), distinct - len(heads)
    reads, rows = heads, np.ones(len(heads))
    if rest and others >= 1:
        reads, rows = np.append(heads, rest / others), np.append(rows, others)
    return TableStatistics(None, rows_by_reads(reads, rows), 0, 0, are_numbers=False, batches=NO_BATCH)


def _arguments(library: Any, suffix: str, content: bytes) -> tuple[Any, ...]:
    return (content, library.PyLongsSerDe()) if suffix == FREQUENT else (content,)
