"""`planner topology`: clusters from what machines print, shown, and in the formats of other tools."""

import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from planner.cli import flags, streams
from planner.cli.group import CommandGroup
from planner.cli.inputs import say_note
from planner.cli.outputs import Outputs
from topologies.sentences import counted

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)

KINDS = (
    "nvidia-smi",
    "rocm-smi",
    "nccl",
    "hwloc",
    "slurm",
    "slurm-yaml",
    "topograph",
    "ibnetdiscover",
    "infragraph",
    "astra-sim",
)
"""The formats that are read; the same as `topologies.importers.kinds.FORMATS`, which help need not load."""


class ExportFormat(StrEnum):
    """The formats that a topology is written in."""

    ASTRA_SIM = "astra-sim"
    INFRAGRAPH = "infragraph"


@app.callback()
def topology() -> None:
    """Import, show and export descriptions of clusters.

    \b
    Example:
      planner topology show dgx-h100
    """


@app.command("import")
def import_(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="What machines print.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the topology here. Unset: to stdout."),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|NAME",
            help="Supplies what no file says. Unset: the catalog's topology of the same device.",
            autocompletion=flags.completion("topology"),
        ),
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="How many nodes there are, where no file lists them.")
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[FILE=]KIND",
            help=f"The format of a file that is not recognised: {', '.join(KINDS)}. May be repeated.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the topology. Unset: that of the output file.")
    ] = None,
) -> None:
    """Describe a cluster by what its machines print.

    Reads nvidia-smi topo -m, nvidia-smi --query-gpu, rocm-smi --showtopo,
    NCCL and hwloc XML, Slurm's topology.conf and topology.yaml, Topograph,
    ibnetdiscover, InfraGraph and ASTRA-sim files, each recognised by its
    content. Several files make one topology. Every value has its source
    beside it; what no file says is marked "assumed". planner doctor
    --cluster prints the commands to run on a node.

    \b
    Examples:
      planner topology import topo.txt gpus.csv -o cluster.yaml
      planner topology import topo.txt gpus.csv hwloc.xml topology.conf \\
        -o cluster.yaml
      planner topology import ibnetdiscover.out --like dgx-h100 \\
        -o cluster.yaml
    """
    forced = _forced(files, kind or [])
    outputs = Outputs({"--output": output}, {"FILE": files, "--like": like})
    from planner.document.files import write_file
    from topologies.importers.imported import imported

    with outputs.beside("--like"):
        found = imported(files, name or (output.stem if output else "cluster"), like=like, nodes=nodes, forced=forced)
    for text in found.contradictions:
        streams.say(f"contradiction: {text}")
    for text in found.remarks:
        streams.say(f"note: {text}")
    if found.assumed:
        listed = ", ".join(dict.fromkeys(re.sub(r"^nodes\.\d+\.", "", path) for path in found.assumed))
        streams.say(f"assumed: {listed}")
    if output is None:
        streams.write_text(found.text.rstrip("\n"))
        return
    write_file(output, found.text.encode())
    cluster = found.topology
    streams.say(f"{output}: {counted(cluster.node_count, 'node')}, {counted(cluster.world_size, 'accelerator')}")


def _forced(files: list[Path], kinds: list[str]) -> dict[Path, str]:
    """The formats that --kind gives, by file."""
    from topologies.messages import did_you_mean

    forced: dict[Path, str] = {}
    for text in kinds:
        file, equals, kind = text.rpartition("=")
        if kind not in KINDS:
            raise typer.BadParameter(f"{kind!r} is no format{did_you_mean(kind, KINDS)}", param_hint="--kind")
        if not equals and len(files) > 1:
            raise typer.BadParameter(f"say of which file: {files[0]}={kind}", param_hint="--kind")
        path = Path(file) if equals else files[0]
        if path not in files:
            raise typer.BadParameter(f"{path} is none of the files", param_hint="--kind")
        forced[path] = kind
    return forced


TopologyArgument = Annotated[
    str,
    typer.Argument(
        metavar="TOPOLOGY",
        help="A YAML file or a catalog name.",
        show_default=False,
        autocompletion=flags.completion("topology"),
    ),
]


@app.command()
def show(
    source: TopologyArgument,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.svg", help="Also draw the cluster as SVG.")
    ] = None,
    nodes: flags.NodesFlag = None,
) -> None:
    """Show a cluster: its network, nodes, accelerators, links and memories.

    \b
    Examples:
      planner topology show gb200-nvl72
      planner topology show cluster.yaml -o cluster.svg
    """
    if output is not None and output.suffix.lower() != ".svg":
        raise typer.BadParameter(f"{output}: only SVG is drawn; name a file .svg", param_hint="--output")
    outputs = Outputs({"--output": output}, {"TOPOLOGY": source})
    from planner.document.files import write_file
    from planner.reports.topology import tree
    from topologies.loading import load_topology

    with outputs.beside("TOPOLOGY"):
        cluster = load_topology(source, nodes=nodes, say=say_note)
    streams.write_text(tree(cluster, streams.width(sys.stdout)))
    if output is not None:
        from planner.reports.topology_picture import picture

        write_file(output, picture(cluster).encode())
        streams.say(f"{output}: drawn")


@app.command()
def export(
    source: TopologyArgument,
    to: Annotated[
        ExportFormat, typer.Option("--to", metavar="FORMAT", help="astra-sim or infragraph.", show_default=False)
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write here. Unset: to stdout.")
    ] = None,
    nodes: flags.NodesFlag = None,
) -> None:
    """Write a cluster in the format of another tool.

    astra-sim: an analytical network (network.yml) of equal accelerators.
    infragraph: devices, instances and links. Neither can say memories and
    FLOP/s; topology import --like brings them back.

    \b
    Examples:
      planner topology export dgx-h100 --nodes 4 --to astra-sim \\
        -o network.yml
      planner topology export cluster.yaml --to infragraph -o graph.yaml
    """
    outputs = Outputs({"--output": output}, {"TOPOLOGY": source})
    from planner.document.files import write_file
    from topologies.errors import InputError
    from topologies.exporters.astra_sim import UnsayableError, network_yaml
    from topologies.exporters.infragraph import infragraph_yaml
    from topologies.loading import load_topology

    with outputs.beside("TOPOLOGY"):
        cluster = load_topology(source, nodes=nodes, say=say_note)
    try:
        text = network_yaml(cluster) if to is ExportFormat.ASTRA_SIM else infragraph_yaml(cluster)
    except UnsayableError as error:
        raise InputError.at(source, str(error)) from None
    if output is None:
        streams.write_text(text.rstrip("\n"))
        return
    write_file(output, text.encode())
    streams.say(f"{output}: {counted(cluster.node_count, 'node')}, {counted(cluster.world_size, 'accelerator')}")
