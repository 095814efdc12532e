"""What the flags name, read: clusters and workloads."""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from planner.cli import flags, streams
from planner.cli.outputs import Outputs
from planner.cli.values import path_of, split_overrides

if TYPE_CHECKING:
    from cost_models.workload.models import Workload
    from topologies.cluster import Topology


@dataclass(frozen=True)
class InputChanges:
    """The flags that change what the files of a cluster and a workload say."""

    nodes: flags.NodesFlag = None
    global_batch: flags.GlobalBatchFlag = None
    set_: flags.SetFlag = None


def default_workload(topology: str) -> str:
    """The workload of a command line that names none: `workload.yaml` beside the topology file.

    Raises InputError for a topology that there is not.
    """
    if topology not in flags.catalog_names("topology"):
        from topologies.loading import TOPOLOGIES

        TOPOLOGIES.find(topology)
    beside = Path(topology).with_name("workload.yaml")
    if Path(topology).is_file() and beside.is_file():
        return str(beside)
    where = f"there is no {beside}" if Path(topology).is_file() else f"{topology} has none of its own"
    offered = textwrap.fill(", ".join(flags.catalog_names("workload")), 78, break_on_hyphens=False)
    raise typer.BadParameter(f"{where}; name a file or one of the catalog:\n{offered}", param_hint="--workload")


def load_inputs(
    topology: str, workload: str | None, changes: InputChanges, outputs: Outputs | None = None
) -> tuple["Topology", "Workload"]:
    """The two inputs that the flags describe; none of their files may be one of `outputs`.

    Raises InputError with the faults of both.
    """
    source = workload or default_workload(topology)
    cluster, model = load_given(topology, source, changes, outputs)
    assert cluster is not None
    assert model is not None
    return cluster, model


def load_given(
    topology: str | None, workload: str | None, changes: InputChanges, outputs: Outputs | None = None
) -> tuple["Topology | None", "Workload | None"]:
    """`load_inputs` where each input may be left out."""
    from cost_models.workload.loading import load_workload
    from topologies.errors import Fault, InputError
    from topologies.loading import load_topology

    if topology == workload == "-":
        message = "standard input holds one of the two; name a file for the other"
        raise typer.BadParameter(message, param_hint="--workload")
    nodes, global_batch = changes.nodes, changes.global_batch
    of = split_overrides(changes.set_ or ())
    counts = [text for text in of["topology"] if re.match(r"nodes\.[^.=]+\.count\s*=", text)]
    if nodes is not None and counts:
        flags.expect_unused(f"beside --set topology.{counts[-1]}; give one of them", nodes=nodes)
    batches = [text for text in of["workload"] if path_of(text) in ("global_batch", "batch_per_rank")]
    if global_batch is not None and batches:
        flags.expect_unused(f"beside --set workload.{batches[-1]}; give one of them", global_batch=global_batch)
    cluster, model = None, None
    faults: list[Fault] = []
    outputs = outputs or Outputs({}, {})
    try:
        with outputs.beside("--topology"):
            if topology:
                cluster = load_topology(topology, nodes=nodes, overrides=of["topology"], say=say_note)
    except InputError as error:
        faults += error.faults
    try:
        with outputs.beside("--workload"):
            model = load_workload(workload, global_batch=global_batch, overrides=of["workload"]) if workload else None
    except InputError as error:
        faults += error.faults
    if faults:
        raise InputError(faults)
    return cluster, model


def say_note(words: str) -> None:
    """A note on stderr, of what was made of the inputs."""
    streams.say(f"planner: note: {words}")


def say_doubts(cluster: "Topology") -> None:
    """Say which numbers of a cluster no known device has, as `planner check` does: a slip of a unit is planned for."""
    from topologies.checks import warnings

    for doubt in warnings(cluster):
        streams.say(f"planner: note: {doubt}")
