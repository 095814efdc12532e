"""Measured tables as a file of table profiles."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cost_models.workload.table_profile import TableProfile

SUFFIXES = (".csv", ".parquet", ".yaml", ".yml")


def content(profiles: Sequence[TableProfile], suffix: str) -> bytes:
    """Profiles as CSV, Parquet or YAML."""
    rows = [_row(profile) for profile in profiles]
    columns = [name for name in TableProfile.model_fields if any(name in row for row in rows)]
    if suffix == ".parquet":
        return _parquet([{name: row.get(name) for name in columns} for row in rows])
    if suffix == ".csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_cell(row.get(name)) for name in columns] for row in rows)
        return text.getvalue().encode()
    import yaml

    return str(yaml.safe_dump(rows, sort_keys=False, width=120, default_flow_style=None)).encode()


def _row(profile: TableProfile) -> dict[str, Any]:
    return profile.model_dump(mode="json", exclude_unset=True, exclude_none=True)


def _cell(value: object) -> object:
    if isinstance(value, list) and value and isinstance(value[0], list):
        return "|".join(f"{x!r}:{y!r}" for x, y in value)
    if isinstance(value, list):
        return "|".join(map(str, value))
    return value


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table({name: [_cell(row[name]) for row in rows] for name in rows[0]}), sink)
    return bytes(sink.getvalue().to_pybytes())


def is_known(path: Path) -> bool:
    """Whether a file's name says how profiles are to be written."""
    return path.suffix.lower() in SUFFIXES
