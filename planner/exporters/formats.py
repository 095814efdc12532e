"""The formats that a plan is exported to, and what every exporter takes and returns.

A new format is a module with a function from an `ExportRequest` to an `Exported`, and a row of FORMATS. The choices of
`planner export`, its help and the checks of its flags follow from the rows. Only the standard library is imported here,
because help must appear at once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from planner.document.plan import Plan

Names = Literal["name", "index"]
Setting = Literal["module", "from", "device", "names", "counts", "output"]
"""The flags of `planner export` that a format may use or need."""


@dataclass(frozen=True)
class ExportRequest:
    """A plan to export, and the settings of the export."""

    plan: "Plan"
    source: str
    """What messages call the plan."""
    modules: Sequence[str] = ()
    """Where the tables sit in the model, each `PATH` or `GLOB=PATH`."""
    previous: "Plan | None" = None
    """The plan that the trainer runs."""
    previous_source: str = ""
    device: str = "cuda"
    names: Names = "name"
    counts: Path | None = None
    """How often each id was read."""
    output: Path | None = None
    """Where the caller writes the document; a format that writes a folder writes it there itself."""


@dataclass(frozen=True)
class Exported:
    """The file of a runtime, and what is to be said of it."""

    document: Mapping[str, Any] | None
    """What is to be written as JSON; None where the files are in the folder already."""
    tables: int
    """How many tables it places; 0 where it is about the dense part alone."""
    notes: tuple[str, ...] = ()
    """Sentences about the whole export, said before it is written."""
    companion: str = ""
    """The text of the second file, where the format has one."""
    records: Sequence[Mapping[str, str | int | float | None]] = ()
    """A table to print."""
    shares: tuple[str, ...] = ()
    """The fields of the records that are shares of 1."""
    report: tuple[str, ...] = ()
    """Sentences about what was written, said at the end."""


@dataclass(frozen=True)
class ExportFormat:
    """One row: a format by its name."""

    summary: str
    """What is written, for the help."""
    exporter: str
    """`module:function` in this package."""
    uses: tuple[Setting, ...] = ()
    """Settings that have an effect; others are refused."""
    needs: Mapping[Setting, str] = field(default_factory=dict)
    """Settings that must be given, with the reason."""
    companion: str = ""
    """What is added to the name of the output to name the second file."""
    companion_use: str = ""
    is_folder: bool = False

    def export(self, request: ExportRequest) -> Exported:
        """Raises InputError with every table that the runtime cannot execute, and why."""
        module, _, function = self.exporter.partition(":")
        exporter: Callable[[ExportRequest], Exported] = getattr(import_module(f"planner.exporters.{module}"), function)
        return exporter(request)


SEVERAL_FILES = "more than one file is written"
FORMATS: dict[str, ExportFormat] = {
    "torchrec": ExportFormat("a ShardingPlan", "torchrec:export_plan", uses=("module", "device")),
    "torchrec-reshard": ExportFormat(
        "the tables that change from the plan in use",
        "torchrec_reshard:export",
        uses=("module", "device", "from"),
        needs={"from": "the plan that the trainer runs"},
    ),
    "torchrec-constraints": ExportFormat("ParameterConstraints for TorchRec's planner", "torchrec:export_constraints"),
    "hugectr": ExportFormat("shard_matrix and shard_strategy", "hugectr:export", uses=("names",)),
    "torcheasyrec": ExportFormat(
        "the plan file of a checkpoint, and its environment in FILE.env",
        "torchrec:export_easyrec",
        uses=("module",),
        needs={"module": "it stands in TorchEasyRec's plan file", "output": SEVERAL_FILES},
        companion=".env",
        companion_use="source it before torchrun",
    ),
    "remap": ExportFormat(
        "a folder with the new row of every id of tables in ddr_split, and the plan that names these files",
        "remap:export",
        uses=("counts",),
        needs={"counts": "rows are numbered by it", "output": SEVERAL_FILES},
        is_folder=True,
    ),
    "fsdp2": ExportFormat("how PyTorch holds the dense part: units, device mesh, formats", "fsdp2:export"),
    "inputs": ExportFormat(
        "a folder with the cluster, workload and policy of the plan, as planner plan takes them",
        "inputs:export",
        needs={"output": SEVERAL_FILES},
        is_folder=True,
    ),
}


def users_of(setting: Setting) -> str:
    """The names of the formats that use a setting."""
    return ", ".join(name for name, row in FORMATS.items() if setting in row.uses)
