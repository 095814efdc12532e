"""`planner init`: starters to edit, or a workload read from a model."""

from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from planner.cli import flags, streams
from planner.cli.workload_files import workload_text

SHIPPED = resources.files("planner.cli") / "starters"
STARTERS = ("topology.yaml", "workload.yaml", "tables.csv", "policy.yaml")
WORKLOAD = "workload.yaml"
SHOWN = 5
"""Tables in a warning."""
UNSAID = (
    "pooling_factor: mean ids of a sample, summed over a table's features (here one each)",
    "batch_per_rank, pipeline, communication; dense.optimizer, where it applies none in the backward pass",
)
BATCH_PER_RANK = 512
"""Samples per rank where none are given, as TorchRec's planner assumes."""


def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Created if it does not exist.", show_default=False)],
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    from_model: Annotated[
        str | None,
        typer.Option(
            metavar="FILE:CALLABLE",
            help="Write workload.yaml for the model that this builds, as in model.py:build or package.model:build.",
        ),
    ] = None,
    batch_per_rank: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help=f"With --from-model: samples per rank. Unset: {BATCH_PER_RANK}."),
    ] = None,
) -> None:
    """Write commented files to start from.

    Writes topology.yaml, workload.yaml, tables.csv and policy.yaml, which
    work as they are. Existing files are kept. With --from-model only
    workload.yaml: the tables of a TorchRec model, built on the meta device,
    and the size of its dense part (needs the extra torchrec).

    \b
    Examples:
      planner init my-model
      planner plan --topology my-model/topology.yaml
      planner init my-model --from-model train.py:build --batch-per-rank 4096
    """
    if from_model is None:
        flags.expect_unused("without --from-model", batch_per_rank=batch_per_rank)
        _expect_free(directory, STARTERS, force=force)
        for name in STARTERS:
            _write(directory / name, (SHIPPED / name).read_bytes())
        streams.say(f"Next: planner plan --topology {directory / 'topology.yaml'}")
        return
    for package in ("torch", "torchrec"):
        flags.expect_extra(package, "torchrec", "--from-model")
    _expect_free(directory, (WORKLOAD,), force=force)
    _write(directory / WORKLOAD, _workload_text(from_model, directory, batch_per_rank or BATCH_PER_RANK).encode())
    streams.say(f"Next: planner plan --topology dgx-a100-80 --workload {directory / WORKLOAD} --runtime torchrec")


def _workload_text(target: str, directory: Path, batch_per_rank: int) -> str:
    """The workload file of a model, with what a model does not say as comments."""
    from planner.integrations.torchrec_model import read_model
    from topologies.documents import Document
    from topologies.sentences import counted

    model = read_model(target)
    data = model.workload(directory.resolve().name or "model", batch_per_rank)
    text = workload_text(Document(data, target), "A model", UNSAID)
    streams.say(f"{counted(len(model.tables), 'table')}, {model.dense.get('parameters', 0):,} other parameters")
    if model.others:
        streams.say(
            f"warning: macs_per_sample has the linear layers, each used once, and nothing of {', '.join(model.others)}"
        )
    unsaid = [table["name"] for table in model.tables if "optimizer" not in table]
    if unsaid:
        more = f" and {len(unsaid) - SHOWN:,} more" if len(unsaid) > SHOWN else ""
        streams.say(
            f"warning: the model applies no optimizer to {', '.join(unsaid[:SHOWN])}{more} in its backward pass; say"
            " it with embedding.optimizer"
        )
    return text


def _expect_free(directory: Path, names: tuple[str, ...], *, force: bool) -> None:
    """Raise InputError with every file that would be overwritten."""
    from topologies.errors import Fault, InputError

    in_the_way = [path for path in (directory / name for name in names) if path.exists()]
    if in_the_way and not force:
        message = "exists; choose another directory, or overwrite with --force"
        raise InputError(Fault(str(path), 0, 0, "", message) for path in in_the_way)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    streams.write_text(str(path))
