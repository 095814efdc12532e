"""`planner doctor`: is this machine fit to plan, and what to put into a bug report."""

import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata, resources, util
from typing import Annotated

import typer

from planner._version import VERSION
from planner.cli import flags, streams
from planner.cli.exits import ExitCode
from planner.cli.streams import Format

EXTRAS = ("torch", "matplotlib", "plotly", "distributed")
OLDEST_PYTHON = (3, 11)


@dataclass(frozen=True)
class Observation:
    """One thing looked at."""

    subject: str
    value: str
    ok: bool = True


CLUSTER = """\
# On one node: accelerators, their links, memory
nvidia-smi topo -m > topo.txt
nvidia-smi --query-gpu=name,memory.total --format=csv > gpus.csv
# On one node: host memory, PCIe, cards
lstopo --of xml hwloc.xml
# On one node, in any job with NCCL on all its accelerators: links as NCCL sees them
NCCL_TOPO_DUMP_FILE=nccl.xml torchrun --nproc-per-node gpu your_job.py
# Once: which nodes there are, and the switches above them
scontrol show topology > topology.conf
ibnetdiscover > ibnetdiscover.out
# Anywhere, with the files that you have (the first two suffice for one node)
planner topology import topo.txt gpus.csv hwloc.xml nccl.xml topology.conf ibnetdiscover.out -o cluster.yaml
planner topology show cluster.yaml"""
"""What describes a cluster, as commands to paste."""


def doctor(
    cluster: Annotated[
        bool, typer.Option("--cluster", help="Print the commands that describe a cluster, and end.")
    ] = False,
    output_format: flags.FormatFlag = Format.TABLE,
) -> None:
    """Check this machine's installation.

    Checks Python, the dependencies, a small plan, optional extras,
    processors, memory and the terminal. Paste the output into a bug report.
    Exits with 1 if the planner cannot work here. With --cluster, prints the
    commands to run on a node, and the one that makes a topology of them.

    \b
    Examples:
      planner doctor
      planner doctor --cluster
    """
    if cluster:
        if output_format is not Format.TABLE:
            raise typer.BadParameter("has no effect with --cluster", param_hint="--format")
        streams.write_text(CLUSTER)
        return
    observations = list(observe())
    streams.write_records(
        [
            {"subject": seen.subject, "value": seen.value, "verdict": "ok" if seen.ok else "PROBLEM"}
            for seen in observations
        ],
        output_format,
    )
    if problems := [seen.subject for seen in observations if not seen.ok]:
        streams.say(f"planner cannot work here: {', '.join(problems)}")
        raise typer.Exit(ExitCode.BUG)


def observe() -> Iterator[Observation]:
    """Everything worth knowing about this machine."""
    yield Observation("planner", VERSION)
    yield Observation("python", platform.python_version(), sys.version_info >= OLDEST_PYTHON)
    yield Observation("platform", platform.platform())
    yield from _dependencies()
    yield _small_plan()
    for name in EXTRAS:
        yield Observation(f"{name} (optional)", "present" if util.find_spec(name) else "absent")
    yield Observation("cores", str(_cores()))
    yield Observation("memory", _memory())
    columns, _ = shutil.get_terminal_size()
    lively = streams.is_lively(sys.stdout)
    yield Observation("terminal", f"{columns} columns, {'colour' if lively else 'no colour'}")


def _dependencies() -> Iterator[Observation]:
    """The distributions that this one requires, without its extras."""
    try:
        requirements = metadata.requires("shardplan") or []
    except metadata.PackageNotFoundError:
        yield Observation("shardplan", "a checkout that is not installed; what it requires is not checked")
        return
    for requirement in requirements:
        if "extra ==" in requirement:
            continue
        match = re.match(r"[\w.-]+", requirement)
        assert match is not None
        try:
            yield Observation(match[0], metadata.version(match[0]))
        except metadata.PackageNotFoundError:
            yield Observation(match[0], f"missing; this planner needs {requirement}", ok=False)


def _small_plan() -> Observation:
    """Plan what `planner init` writes: every library loads and the solver answers."""
    try:
        from cost_models.workload.loading import load_workload
        from planner.cli.templates import SHIPPED
        from planner.planning.planning import plan
        from topologies.loading import load_topology
        from topologies.units import format_seconds

        with resources.as_file(SHIPPED) as directory:
            small = plan(load_topology(directory / "topology.yaml"), load_workload(directory / "workload.yaml"))
    except (ImportError, AttributeError, OSError, RuntimeError) as error:
        return Observation("a small plan", f"fails: {error}", ok=False)
    if small.objective is None:
        return Observation("a small plan", f"comes out {small.status}", ok=False)
    return Observation("a small plan", f"{small.status}, a step of {format_seconds(small.objective.step_s)}")


def _cores() -> int:
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1


def _memory() -> str:
    from topologies.units import format_bytes

    try:
        return format_bytes(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return "unknown"
