"""The numbering of split tables: for each a file with the row of every id, a manifest, and the plan that names them."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

import numpy as np

from planner.document.files import make_folder, replacing, write_file
from planner.document.plan import Plan, Remap, TablePlan, write_plan
from planner.document.remaps import Counts, hottest, is_split, numbering_fault, rows_of_ids, sha256_of
from planner.exporters.formats import Exported, ExportRequest
from planner.exporters.refusals import Placed, expect_own_tables
from planner.importers.counts import CountSource
from planner.verification.coverage import coverage_fault
from topologies.documents import did_you_mean
from topologies.errors import Fault, InputError
from topologies.sentences import counted
from topologies.sources import behind_links

PLAN, MANIFEST = "plan.json", "remap.json"
TOLERANCE = 0.02
"""Share of all reads by which hot rows may take more or less than the access curve promised, without a warning."""
LONGEST_NAME = 160
"""Characters of a file's name; of longer ones the end is a digest."""
SHOWN = 5
"""Tables of which a warning tells; the others are counted."""


@dataclass(frozen=True)
class Remapped:
    """What was written of a table, and what its counts say of the plan."""

    name: str
    path: str
    """Relative to the manifest."""
    sha256: str
    dtype: str
    rows: int
    hot_rows: int
    reads: int
    """The reads of all ids that were counted."""
    hot_share: float
    """The share of these reads that the hot rows take."""
    planned_hot_share: float
    """What the workload's access curve promised."""

    @property
    def is_off(self) -> bool:
        """Whether the two differ by more than the tolerance."""
        return abs(self.hot_share - self.planned_hot_share) > TOLERANCE


def export(request: ExportRequest) -> Exported:
    """Write the remap tables into the folder, and report what the counts say of the plan; see `write_remaps`."""
    assert request.counts is not None
    assert request.output is not None
    source = CountSource(request.counts)
    remapped = write_remaps(request.plan, source, request.output, source=request.source)
    return Exported(
        None, len(remapped), records=records(remapped), shares=SHARES, report=tuple(_report(remapped, source, request))
    )


def _report(remapped: list[Remapped], counts: CountSource, request: ExportRequest) -> Iterator[str]:
    """What was written, and the tables whose counts differ from the curve that the plan was made with."""
    assert request.output is not None
    tables = counted(len(remapped), "table")
    yield f"{request.output / PLAN}: {tables} remapped, {request.output / MANIFEST} lists their files"
    if unused := len(counts.names) - len(remapped):
        yield f"{counts.path}: {unused} of its tables are not split by the plan and stay as they are"
    off = [table for table in remapped if table.is_off]
    for table in off[:SHOWN]:
        yield (
            f"warning: {table.name}: its hot rows take {table.hot_share:.1%} of the reads, its access curve promised"
            f" {table.planned_hot_share:.1%}"
        )
    if off:
        yield (
            f"warning: {len(off)} of {tables}: off by more than {TOLERANCE:.0%} of the reads;"
            " set the counted curve as their access_cdf and plan again"
        )


def write_remaps(plan: Plan, counts: CountSource, folder: Path, *, source: str = "plan") -> list[Remapped]:
    """Number the rows of all split tables by their counts, and write the files into a folder, made where there is none.

    The same plan and counts give the same bytes. Nothing is written where anything is wrong: raises InputError with
    every table whose counts cannot be used, and for a plan without split tables.
    """
    placed = Placed.of(plan, source)
    expect_own_tables(placed)
    profiles = placed.model.workload.tables
    split = [number for number, table in enumerate(plan.tables) if is_split(table)]
    if not split:
        tiers = plan.provenance.policy.tiers
        remedy = "others were better" if "ddr_split" in tiers else f"plan with --tiers {','.join(tiers)},ddr_split"
        raise InputError.at(source, f"has no split table; {remedy}", path="tables")
    if (counts.path / MANIFEST).exists():
        raise InputError.at(str(counts.path), "holds remap tables, which an export wrote, not counts")
    if behind_links(counts.path) == behind_links(folder):
        raise InputError.at(str(folder), "holds the counts; write the remap tables into another folder")
    _expect_counts(placed, counts, split)
    make_folder(folder)
    tables, remapped = list(plan.tables), []
    for number in split:
        table, rows = plan.tables[number], placed.model.workload.stored_rows(profiles[number])
        planned = float(placed.model.tables.access.hit_rate(np.array([number]), np.array([table.cache_fraction]))[0])
        written = _remapped(table, counts.of(table.name, rows), folder, planned)
        remap = Remap(hot_rows=written.hot_rows, ids="mapped", path=written.path, sha256=written.sha256)
        tables[number] = table.model_copy(update={"remap": remap})
        remapped.append(written)
    manifest = {"kind": "remap", "plan": PLAN, "tables": [asdict(table) for table in remapped]}
    write_file(folder / MANIFEST, f"{json.dumps(manifest, indent=1, ensure_ascii=False)}\n".encode())
    write_plan(plan.model_copy(update={"tables": tuple(tables)}), folder / PLAN)
    return remapped


def _expect_counts(placed: Placed, counts: CountSource, split: list[int]) -> None:
    """Raise InputError with everything that is wrong with the split tables or their counts."""
    model, known = placed.model, [table.name for table in placed.plan.tables]
    faults = [
        Fault(str(counts.path), 0, 0, name, f"is counted, and the plan has no such table{did_you_mean(name, known)}")
        for name in counts.names
        if name not in known
    ]
    for number in split:
        table, profile = placed.plan.tables[number], model.workload.tables[number]
        rows, columns = model.workload.stored_shape(profile)
        nodes, one_domain = model.node_of_rank, model.topology.is_one_domain
        fault = coverage_fault(table, (rows, columns), nodes, model.node_colocated_shardings, one_domain=one_domain)
        if fault := fault or numbering_fault(table, rows):
            faults.append(Fault(placed.source, 0, 0, f"tables.{number}", f"{table.name}: {fault}; make the plan again"))
        if (compressor := model.workload.compressor_of(profile)).has_two_parts:
            message = f"{table.name}: is {compressor}, and a map of ids is of one row each; plan it with another tier"
            faults.append(Fault(placed.source, 0, 0, f"tables.{number}", message))
        try:
            counts.of(table.name, rows)
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(faults)


def _remapped(table: TablePlan, counts: Counts, folder: Path, planned_hot_share: float) -> Remapped:
    assert table.remap is not None
    hot = hottest(counts, table.remap.hot_rows)
    new = rows_of_ids(table.shards, hot)
    path = f"{file_name(table.name)}.npy"
    with replacing(folder / path) as file:
        np.save(file, new)
    reads = int(counts.sum(dtype=np.int64))
    return Remapped(
        name=table.name,
        path=path,
        sha256=sha256_of(folder / path),
        dtype=str(new.dtype),
        rows=len(new),
        hot_rows=len(hot),
        reads=reads,
        hot_share=int(counts[hot].sum(dtype=np.int64)) / reads,
        planned_hot_share=planned_hot_share,
    )


def file_name(table: str) -> str:
    """The name of a table's file, without its ending: what a file may not have is written as in URLs."""
    name = quote(table, safe=" ")
    if len(name) > LONGEST_NAME:
        name = f"{name[:LONGEST_NAME]}-{hashlib.sha256(table.encode()).hexdigest()[:16]}"
    return name


SHARES = ("hot_share", "planned")
"""Fields of the records that are shares of the reads."""


def records(remapped: list[Remapped]) -> list[dict[str, str | int | float | None]]:
    """A record for each table: what its counts say of the plan."""
    return [
        {
            "table": table.name,
            "rows": table.rows,
            "hot_rows": table.hot_rows,
            "hot_share": table.hot_share,
            "planned": table.planned_hot_share,
        }
        for table in remapped
    ]
