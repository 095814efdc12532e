"""A cluster as a tree of text: the network, the nodes, what is in them and how it is linked."""

import textwrap
from collections.abc import Iterator

from topologies.cluster import NodeGroup, Topology
from topologies.hardware import DescribedMemory, Memory, Nics, RemoteHosts
from topologies.sentences import counted
from topologies.units import format_bytes

LABEL = 14
"""Columns of what a line speaks of."""


def tree(topology: Topology, width: int = 80) -> str:
    """The cluster in lines of `width` characters: fabric, node groups, accelerators, links, memories."""
    head = f"{topology.name}: {counted(topology.node_count, 'node')}, {counted(topology.world_size, 'accelerator')}"
    lines = [*textwrap.wrap(head, width), *textwrap.wrap(topology.description, width)]
    parts = [("network", list(network_lines(topology)))] if topology.node_count > 1 else []
    parts += [(_title(group), list(group_lines(group))) for group in topology.nodes]
    for number, (title, below) in enumerate(parts):
        last = number + 1 == len(parts)
        bough, aside = ("└─ ", "   ") if last else ("├─ ", "│  ")
        lines += textwrap.wrap(title, width, initial_indent=bough, subsequent_indent=aside)
        for index, (label, words) in enumerate(below):
            branch = f"{aside}{'└─' if index + 1 == len(below) else '├─'} {label:<{LABEL}}"
            rest = f"{aside}{'   ' if index + 1 == len(below) else '│  '}{'':<{LABEL}}"
            lines += textwrap.wrap(words, width, initial_indent=branch, subsequent_indent=rest, break_on_hyphens=False)
    return "\n".join(line.rstrip() for line in lines)


def _title(group: NodeGroup) -> str:
    return f"{group.name}: {counted(group.count, 'node')} of {counted(group.accelerators.count, 'accelerator')}"


def network_lines(topology: Topology) -> Iterator[tuple[str, str]]:
    """The levels of switches, the highest first, each with its label."""
    network = topology.network
    core = "joins all at full speed" if network.levels else "joins all nodes at full speed"
    yield "core", core + (", sums all-reduces (SHARP)" if network.reduces else "")
    for number, level in reversed(list(enumerate(network.levels))):
        switches = -(-topology.node_count // level.nodes)
        rails = number == 0 and network.rails
        planes = "plane" if rails else "switch"
        what = f"{switches} {planes}{'' if switches == 1 else 's' if rails else 'es'}"
        yield (
            level.name[: LABEL - 1],
            f"{what} of {counted(level.nodes, 'node')}{', a leaf for each rail' if rails else ''};"
            f" oversubscribed {level.oversubscription:.4g}:1, {duration(level.latency)}",
        )


def group_lines(group: NodeGroup) -> Iterator[tuple[str, str]]:
    """What is in a node of a group, each with its label."""
    accelerators, links = group.accelerators, group.links
    flops = accelerators.flops
    peak = next(
        ((kind, f) for kind in ("bf16", "fp16", "tf32", "fp32") if (f := getattr(flops, kind))), ("fp32", flops.fp32)
    )
    yield "accelerators", f"{accelerators.count} x {accelerators.device}, {peak[1] / 1e12:,.5g} TFLOP/s {peak[0]} each"
    yield "hbm", f"{memory_words(accelerators.hbm)} each"
    if up := links.scale_up:
        domain = group.domain_ranks
        yield "scale-up", f"{up.kind}, {rate(up.bandwidth)} each, {domain} together, {duration(up.latency)}"
    pcie = links.pcie
    shared = f", {pcie.accelerators_per_switch} share an uplink" if pcie.accelerators_per_switch > 1 else ""
    yield "pcie", f"{rate(pcie.bandwidth)} each{shared}, {duration(pcie.latency)}"
    for label, nics in (("scale-out", links.scale_out), ("front-end", links.front_end)):
        if nics is not None:
            yield label, cards_words(nics)
    for tier in ("ddr", "ssd", "scm", "remote"):
        if (memory := group.memory(tier)) is not None:
            yield tier, memory_words(memory)


def cards_words(nics: Nics) -> str:
    """The cards of a node."""
    return f"{nics.count} x {nics.kind}, {rate(nics.bandwidth)} each, {duration(nics.latency)}"


def memory_words(memory: DescribedMemory) -> str:
    """How much a memory holds, and how fast it is."""
    if isinstance(memory, Memory):
        return f"{format_bytes(memory.capacity)} at {rate(memory.bandwidth)}"
    if isinstance(memory, RemoteHosts):
        size = format_bytes(memory.capacity)
        return f"{memory.count} hosts of {size} at {rate(memory.network_bandwidth)}, shared by all nodes of the group"
    speeds = f"{rate(memory.read_bandwidth)} read, {rate(memory.write_bandwidth)} written"
    return f"{format_bytes(memory.capacity)} at {speeds}"


def rate(bytes_per_s: float) -> str:
    """A bandwidth for people: `450 GB/s`."""
    for factor, unit in ((1e12, "TB/s"), (1e9, "GB/s")):
        if bytes_per_s >= factor:
            return f"{bytes_per_s / factor:.4g} {unit}"
    return f"{bytes_per_s / 1e6:.4g} MB/s"


def duration(seconds: float) -> str:
    """A latency for people: `2 us`."""
    return f"{seconds * 1e6:.4g} us"
