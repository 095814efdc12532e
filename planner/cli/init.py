"""`planner init`: starters to edit."""

from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from planner.cli import streams

SHIPPED = resources.files("planner.cli") / "starters"
STARTERS = ("topology.yaml", "workload.yaml", "tables.csv", "policy.yaml")


def init(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Made if it does not exist.", show_default=False)],
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that are there.")] = False,
) -> None:
    """Write commented files to start from.

    Four commented files that work as they are: topology.yaml, workload.yaml,
    tables.csv and policy.yaml. Files that are there already are kept.

    \b
    Example:
      planner init my-model
      planner plan --topology my-model/topology.yaml
    """
    from topologies.errors import Fault, InputError

    in_the_way = [path for path in (directory / name for name in STARTERS) if path.exists()]
    if in_the_way and not force:
        message = "exists; choose another directory, or overwrite with --force"
        raise InputError(Fault(str(path), 0, 0, "", message) for path in in_the_way)
    directory.mkdir(parents=True, exist_ok=True)
    for name in STARTERS:
        (directory / name).write_bytes((SHIPPED / name).read_bytes())
        streams.write_text(str(directory / name))
    streams.say(f"Next: planner plan --topology {directory / 'topology.yaml'}")
