"""Tables of measured kernels: ours (see `kernels.COLUMNS`), and those that benchmarks of embedding kernels write."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from cost_models.calibration import kineto
from cost_models.calibration.kernels import COLUMNS, NEEDED
from cost_models.calibration.tables import as_numbers
from cost_models.workload.formats import FORMATS
from topologies.errors import Fault, InputError

ALIASES: dict[str, tuple[tuple[str, float], ...]] = {
    "seconds": (("time_ms", 1e-3), ("time_us", 1e-6), ("dur_us", 1e-6), ("t_us", 1e-6)),
    "lookups": (("avg_total_lookups", 1.0), ("indices", 1.0)),
}
"""Other columns that may stand for ours, with the factor to our unit."""
OPERATION_OF_PASS = {"forward": "lookup", "backward": "update"}
DEVICE_MEMORY = ("hbm", "device", "dram")
_NUMBERS = tuple(name for name in COLUMNS if name not in ("operation", "dtype"))


def is_of_kernels(path: Path) -> bool:
    """Whether a file is a trace, or a table whose header is that of kernels, not of collectives."""
    if path.name.endswith((".json", ".json.gz")):
        return True
    if path.suffix != ".csv":
        return False
    try:
        header = set(pd.read_csv(path, nrows=0).columns)
    except (OSError, ValueError):
        return False
    return not {"ranks", "buffer_bytes"} <= header and bool({"lookups", "dim", "pass", "kernel", "bytes", "m"} & header)


def read(paths: Sequence[Path], where: Mapping[str, str] | None = None) -> pd.DataFrame:
    """The kernels of all files: traces (`kineto.lookups`) and tables. Raises InputError with the faults of each."""
    frames: list[pd.DataFrame] = []
    faults: list[Fault] = []
    for path in paths:
        try:
            frames.append(kineto.lookups(path) if path.suffix != ".csv" else read_csv(path, where))
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(faults)
    return pd.concat(frames, ignore_index=True)


def read_csv(path: Path, where: Mapping[str, str] | None = None) -> pd.DataFrame:
    """The rows of kernels with COLUMNS, those whose columns have the values of `where`.

    Passes that are neither forward nor backward, and tables outside of device memory, are left out. Raises InputError
    with every fault: a column of `where` or one that a kind of kernel needs is missing, numbers are not above 0, no
    row is left.
    """
    try:
        rows = pd.read_csv(path)
    except (OSError, ValueError, OverflowError) as error:
        raise InputError.at(str(path), f"cannot be read as CSV: {error}") from error
    rows["line"] = np.arange(len(rows)) + 2
    for column, value in (where or {}).items():
        if column not in rows:
            raise InputError.at(
                str(path), f"has no column {column!r} to choose rows by; it has {', '.join(map(str, rows.columns))}"
            )
        rows = rows[rows[column].astype(str) == value]
    rows = _in_our_words(rows)
    if rows.empty:
        chosen = ", ".join(f"{column}={value}" for column, value in (where or {}).items())
        raise InputError.at(
            str(path), f"has no lookup, update, copy, stream or matmul{' where ' * bool(chosen)}{chosen}"
        )
    faults = list(_faults(rows, path))
    if faults:
        raise InputError(faults)
    return rows[list(COLUMNS)].reset_index(drop=True)


def _in_our_words(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of kernels with COLUMNS and the line of the file; empty columns where the table has none."""
    rows = _kernels(rows.copy())
    if rows.empty:
        return rows
    if "rows" not in rows and {"rows_per_table", "num_tables"} <= set(rows):
        rows["rows"] = _numbers(rows, "rows_per_table") * _numbers(rows, "num_tables")
    for name in COLUMNS:
        if name not in rows:
            rows[name] = np.nan if name in _NUMBERS else None
    if "batch" in rows and "num_tables" in rows:
        lookups = _numbers(rows, "batch") * _numbers(rows, "num_tables") * _numbers(rows, "pooling").fillna(1.0)
        rows["lookups"] = _numbers(rows, "lookups").fillna(lookups)
    rows["dtype"] = rows.dtype.astype(object).fillna("fp32")
    for name in _NUMBERS:
        if rows[name].dtype != np.float64:
            rows[name] = _numbers(rows, name)
    return rows


def _kernels(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of kernels in device memory, with our name of their operation and of what `ALIASES` has."""
    for name, others in ALIASES.items():
        for other, factor in others:
            if name not in rows and other in rows:
                rows[name] = _numbers(rows, other) * factor
    if "operation" not in rows and "pass" in rows:
        rows["operation"] = rows["pass"].map(OPERATION_OF_PASS)
    elif "operation" not in rows and "kernel" in rows:
        ids = _numbers(rows, "lookups") if "lookups" in rows else pd.Series(0.0, rows.index)
        forward = rows.kernel.astype(str).str.contains("forward") & (ids > 0)
        rows["operation"] = forward.map({True: "lookup", False: ""})
    is_kernel = rows.operation.isin(list(NEEDED)) if "operation" in rows else pd.Series(data=False, index=rows.index)
    if "placement" in rows:
        is_kernel &= rows.placement.isin(DEVICE_MEMORY)
    return rows[is_kernel].copy()


def _numbers(rows: pd.DataFrame, name: str) -> "pd.Series[float]":
    """A column as numbers; NaN for what is none."""
    return as_numbers(rows[name]).astype(float)


def _faults(rows: pd.DataFrame, path: Path) -> list[Fault]:
    faults = [
        Fault(str(path), int(line), 1, "dtype", f"is {dtype!r}; known: {', '.join(FORMATS)}")
        for line, dtype, operation in zip(rows.line, rows.dtype, rows.operation, strict=True)
        if dtype not in FORMATS and (operation, dtype) != ("matmul", "tf32")  # which nothing is stored in
    ]
    for operation, needed in NEEDED.items():
        part = rows[rows.operation == operation]
        if part.empty:
            continue
        for name in (*needed, "seconds"):
            bad = part[~(part[name] > 0)]
            if len(bad) == len(part):
                faults.append(Fault(str(path), 1, 1, name, f"is needed for every {operation}; {_remedy(name)}"))
            else:
                faults += [Fault(str(path), int(line), 1, name, "must be a number above 0") for line in bad.line]
    return faults


def _remedy(name: str) -> str:
    if name == "dim":
        return "a rate in bytes cannot be told without the width of a row: add a column dim"
    return f"add a column {name}"
