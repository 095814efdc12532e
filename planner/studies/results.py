"""The results of a study: a tidy table, one row per point, with what its columns mean; and its file."""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from planner.document import spreadsheets
from planner.document.files import read_json, write_file
from planner.document.versions import Upgrade, upgraded
from topologies.errors import InputError, shown

KIND = "study_results"
UPGRADES: tuple[Upgrade, ...] = ()
"""What leads from each version of these documents to the next: there is one so far."""
STAGE_PREFIX, SECONDS_SUFFIX = "stage_", "_s"
"""`stage_lookup_s`: seconds of a stage of the step."""
SAVES_PREFIX, SAVES_SUFFIX = "plus10_", "_saves"
"""`plus10_nic_bandwidth_saves`: share of the step that 10 % more of a resource would save."""
METADATA = b"shardplan"
SUFFIXES = (".parquet", ".csv", ".json")
Row = dict[str, Any]

FIGURES: Mapping[str, str] = {
    "nodes": "",
    "ranks": "",
    "samples_per_step": "samples",
    "step_s": "s",
    "lower_bound_s": "s",
    "gap": "share",
    "samples_per_s": "samples/s",
    "simulated_step_s": "s",
    "simulated_samples_per_s": "samples/s",
    "measured_samples_per_s": "samples/s",
    "usd_per_hour": "USD/h",
    "usd_per_billion_samples": "USD",
    "kilowatts": "kW",
    "joules_per_sample": "J",
    "kg_co2e_per_hour": "kg/h",
    "kg_co2e_per_billion_samples": "kg",
}
"""Columns of numbers that every study has, and their units; NaN where unknown, or where there is no plan."""


@dataclass(frozen=True)
class Axis:
    """One thing that the study varies: a column of the table."""

    column: str
    """As in `topology.nodes.0.count`; one with a unit ends in it: `…hbm.capacity_bytes`."""
    label: str
    """Short, for people: `hbm capacity`."""
    unit: str
    """`B`, `B/s`, `s`, … or empty."""
    is_number: bool


@dataclass(frozen=True)
class StudyResults:
    """All points of a study.

    The columns of `frame`: `point` (from 0), `scenario` (where there are scenarios), those of the `axes`, `status`
    (optimal, feasible, infeasible, timeout, error), `reason` (why there is no plan, or which constraint it breaks),
    `meets` (whether there is a plan that keeps the constraints), the `FIGURES`, `exchange` (how vectors are exchanged,
    where a policy leaves that open), `checkpointing` (the same of it), `limit` (what takes most of the step:
    hbm, network, dense, host, storage, overhead, memory), `stage_*_s`, `<memory>_used_bytes` and
    `<memory>_capacity_bytes` of each memory, `plus10_*_saves`, and `on_pareto`.
    """

    name: str
    description: str
    axes: tuple[Axis, ...]
    objective: str
    """The column that is best, one of `FIGURES`."""
    findings: tuple[str, ...]
    """A sentence each."""
    pareto: tuple[str, str]
    """The two columns of the frontier."""
    frame: pd.DataFrame

    @cached_property
    def rows(self) -> list[Row]:
        """The rows of the table as plain data; None where a figure is unknown."""
        plain = self.frame.astype(object).where(self.frame.notna(), None)
        return [{str(name): value for name, value in row.items()} for row in plain.to_dict("records")]

    @cached_property
    def varied(self) -> tuple[Axis, ...]:
        """The axes with more than one value."""
        return tuple(axis for axis in self.axes if self.frame[axis.column].nunique(dropna=False) > 1)

    @property
    def stages(self) -> list[str]:
        """The columns of the step's stages, in their order."""
        return [c for c in self.frame.columns if c.startswith(STAGE_PREFIX) and c.endswith(SECONDS_SUFFIX)]

    @property
    def gains(self) -> list[str]:
        """The columns of what more of each resource would save."""
        return [c for c in self.frame.columns if c.startswith(SAVES_PREFIX) and c.endswith(SAVES_SUFFIX)]

    @property
    def memories(self) -> list[str]:
        """The names of the memories."""
        return [c.removesuffix("_used_bytes") for c in self.frame.columns if c.endswith("_used_bytes")]


def write_results(results: StudyResults, path: str | Path) -> None:
    """Write Parquet, CSV (the table alone) or JSON, by the file's suffix; whole or not at all.

    Raises InputError for another suffix, or a place that cannot be written.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        content = _parquet(results)
    elif suffix == ".csv":
        content = spreadsheets.of_frame(results.frame).encode()
    elif suffix == ".json":
        content = (json.dumps(as_document(results), indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
    else:
        raise InputError.at(str(path), f"results are written as {', '.join(SUFFIXES)}; choose one of these suffixes")
    write_file(path, content)


def as_document(results: StudyResults) -> dict[str, Any]:
    """The results as plain data; None where a figure is unknown."""
    return {**_head(results), "points": results.rows}


def read_results(path: str | Path) -> StudyResults:
    """The results that a Parquet or JSON file holds. Raises InputError for anything else."""
    path = Path(path)
    if path.suffix.lower() == ".json":
        data = read_json(path)
        if data.get("kind") != KIND:
            raise InputError.at(str(path), "holds no results of a study (`planner study … -o results.json`)")
        with _wholeness(path):
            data = upgraded(data, UPGRADES, str(path))
            return _from_head(data, pd.DataFrame(data["points"]))
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except OSError as error:
        raise InputError.at(str(path), f"cannot be read: {error.strerror or error}") from None
    except (pa.ArrowException, UnicodeDecodeError):  # its own words may be no text
        raise InputError.at(str(path), "is no Parquet file; name results of `planner study`") from None
    head = (table.schema.metadata or {}).get(METADATA)
    if head is None:
        raise InputError.at(str(path), "holds no results of a study (`planner study … -o results.parquet`)")
    with _wholeness(path):
        return _from_head(upgraded(json.loads(head), UPGRADES, str(path)), table.to_pandas())


@contextmanager
def _wholeness(path: Path) -> Iterator[None]:
    """Turn what goes wrong meanwhile into an InputError: the results lack a part, or it is of another kind."""
    try:
        yield
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        message = f"holds no whole results of a study: {shown(error)}; write them again with planner study"
        raise InputError.at(str(path), message) from None


def _parquet(results: StudyResults) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(results.frame, preserve_index=False)
    head = json.dumps(_head(results), ensure_ascii=False, separators=(",", ":")).encode()
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), METADATA: head})
    target = io.BytesIO()
    pq.write_table(table, target)
    return target.getvalue()


def _head(results: StudyResults) -> dict[str, Any]:
    return {
        "kind": KIND,
        "schema_version": len(UPGRADES) + 1,
        "name": results.name,
        "description": results.description,
        "axes": [asdict(axis) for axis in results.axes],
        "objective": results.objective,
        "pareto": list(results.pareto),
        "findings": list(results.findings),
    }


def _from_head(head: Mapping[str, Any], frame: pd.DataFrame) -> StudyResults:
    axes: Sequence[Mapping[str, Any]] = head["axes"]
    first, second = head["pareto"]
    return StudyResults(
        name=head["name"],
        description=head["description"],
        axes=tuple(Axis(**axis) for axis in axes),
        objective=head["objective"],
        findings=tuple(head["findings"]),
        pareto=(first, second),
        frame=frame,
    )
