"""Node groups whose nodes are under switches of unlike fill, taken apart for costs.

What an oversubscribed switch takes depends on how many nodes share it and how many are beyond it: of five nodes under
leaves of four, one has a leaf to itself. Ranks under unlike switches are therefore of different kinds, as if a topology
stated them as node groups of their own. Nodes, and the order of the ranks, stay as they are.
"""

import itertools
from collections.abc import Iterator

import numpy as np

from cost_models.uplinks import oversubscribed_levels
from topologies.cluster import NodeGroup, Topology
from topologies.fabric import Fabric


def by_switch_fill(topology: Topology) -> Topology:
    """The same cluster with node groups whose nodes are each under alike oversubscribed switches; itself where they
    are, or where a group cannot be taken apart (`_divides`)."""
    levels = oversubscribed_levels(topology)
    if not levels or topology.is_one_domain:
        return topology
    fills, first = _fills(topology, levels), 0
    groups: list[NodeGroup] = []
    for group in topology.nodes:
        nodes = range(first, first + group.count)
        runs = [list(run) for _, run in itertools.groupby(nodes, key=lambda node: fills[node])]
        groups += _parts(group, runs, first) if len(runs) > 1 and _divides(group, runs) else [group]
        first += group.count
    return topology if len(groups) == len(topology.nodes) else topology.model_copy(update={"nodes": tuple(groups)})


def _divides(group: NodeGroup, runs: list[list[int]]) -> bool:
    """Whether a node group can be taken apart into runs of nodes: where no scale-up domain crosses their ends, and the
    group shares no remote hosts, whose memory is one pool."""
    up, ranks = group.links.scale_up, group.accelerators.count
    domain = ranks if up is None or up.domain is None else up.domain
    return group.remote is None and all(len(run) * ranks % domain == 0 for run in runs)


def unlike_fills(topology: Topology) -> Iterator[tuple[int, list[int]]]:
    """Each oversubscribed level (its number) with the nodes under its switches, ascending, where those above a node
    group have unlike numbers of them."""
    fabric = Fabric(topology)
    for level in oversubscribed_levels(topology):
        nodes = np.bincount(fabric.switch_of_node[level])[fabric.switch_of_node[level]]
        groups = fabric.group_of_node
        if any(len(set(nodes[groups == number].tolist())) > 1 for number in range(len(topology.nodes))):
            yield level, sorted(set(nodes.tolist()))


def _fills(topology: Topology, levels: tuple[int, ...]) -> list[tuple[tuple[int, ...], ...]]:
    """[N] for each level, how many nodes of each group are under the switch above a node."""
    fabric, fills = Fabric(topology), []
    for level in levels:
        switch = fabric.switch_of_node[level]
        nodes = np.zeros((int(switch.max()) + 1, len(topology.nodes)), dtype=np.int64)
        np.add.at(nodes, (switch, fabric.group_of_node), 1)
        fills.append([tuple(of_groups) for of_groups in nodes[switch].tolist()])
    return list(zip(*fills, strict=True))


def _parts(group: NodeGroup, runs: list[list[int]], first: int) -> Iterator[NodeGroup]:
    """A group for each run of nodes, which count from 0 in the name; `first` is that of the group in the cluster."""
    for run in runs:
        begin, end = run[0] - first, run[-1] - first
        which = f"node {begin}" if begin == end else f"nodes {begin} to {end}"
        yield group.model_copy(update={"name": f"{group.name} ({which})", "count": len(run)})
