"""The fabric as a networkx graph, and its paths; `topologies.fabric` says what the vertices and the routing are.

The costs make the cheapest path unique: scale-up before PCIe before the network. Only the links next to a
rank cost something, those between switches almost nothing: were they dear, it would pay to reach another rail
or PCIe switch by way of a neighbour, and traffic is never relayed by a third rank.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import networkx as nx

from topologies.cluster import NodeGroup
from topologies.fabric import Fabric, Vertex
from topologies.hardware import Memory

SCALE_UP_COST, PCIE_COST, CARD_COST, SWITCH_COST = 1.0, 10.0, 1000.0, 1e-3
_FREE = {"latency": 0.0, "cost": PCIE_COST}


@dataclass(frozen=True)
class Link:
    """One directed link of the fabric."""

    start: Vertex
    end: Vertex
    kind: str
    bandwidth_bytes_per_s: float
    latency_s: float

    def __str__(self) -> str:
        start, end = (" ".join(map(str, vertex)) for vertex in (self.start, self.end))
        return f"{self.kind} ({start} → {end})"


class FabricGraph:
    """The links of a fabric and the paths over them."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric

    @cached_property
    def graph(self) -> "nx.DiGraph[Vertex]":
        """The directed graph: `bandwidth` (bytes/s), `latency` (s), `kind` and routing `cost` of each edge.

        Latency stands on the edges that lead upwards, away from the rank, so that the sum over a path counts
        every fabric once. O(ranks + switches).
        """
        return _graph(self._fabric)

    def path(self, a: int, b: int) -> tuple[Link, ...]:
        """The links that traffic from rank `a` to rank `b` crosses, in order; none for `a` to itself."""
        vertices = nx.dijkstra_path(self.graph, ("rank", a), ("rank", b), weight="cost")
        return tuple(self.link(start, end) for start, end in pairwise(vertices))

    def link(self, start: Vertex, end: Vertex) -> Link:
        """The link between two neighbours in the graph."""
        edge = self.graph.edges[start, end]
        return Link(start, end, edge["kind"], edge["bandwidth"], edge["latency"])


class _Builder:
    def __init__(self) -> None:
        self.graph: nx.DiGraph[Vertex] = nx.DiGraph()

    def join(self, below: Vertex, above: Vertex, kind: str, rate: float, latency: float, cost: float) -> None:
        """A link up, which carries the latency, and one down."""
        self.graph.add_edge(below, above, kind=kind, bandwidth=rate, latency=latency, cost=cost)
        self.graph.add_edge(above, below, kind=kind, bandwidth=rate, latency=0.0, cost=cost)


def _graph(fabric: Fabric) -> "nx.DiGraph[Vertex]":
    builder = _Builder()
    groups = fabric.topology.nodes
    for rank, group in enumerate(fabric.group_of_rank.tolist()):
        _add_rank(builder, fabric, rank, groups[group])
    for node, group in enumerate(fabric.group_of_node.tolist()):
        _add_host(builder, fabric, node, groups[group])
    _add_network(builder, fabric)
    return builder.graph


def _add_rank(builder: _Builder, fabric: Fabric, rank: int, group: NodeGroup) -> None:
    links = group.links
    rate = links.pcie.bandwidth
    port, switch = ("port", rank), ("pcie", int(fabric.pcie_switch_of_rank[rank]))
    if up := links.scale_up:
        domain = ("scale-up", int(fabric.domain_of_rank[rank]))
        builder.join(("rank", rank), domain, up.kind, up.bandwidth, up.latency, SCALE_UP_COST)
    builder.join(("rank", rank), port, "pcie", rate, links.pcie.latency, PCIE_COST)
    builder.join(port, switch, "pcie", rate, 0.0, PCIE_COST)
    builder.join(switch, ("host", int(fabric.node_of_rank[rank])), "pcie", rate, 0.0, SWITCH_COST)
    if (nic := int(fabric.nic_of_rank[rank])) >= 0:
        if links.pcie.carries_scale_out:
            builder.join(port, ("nic", nic), "pcie", rate, 0.0, CARD_COST)
        else:
            builder.join(("rank", rank), ("nic", nic), "pcie", float(fabric.nic_bytes_per_s[nic]), 0.0, CARD_COST)


def _add_host(builder: _Builder, fabric: Fabric, node: int, group: NodeGroup) -> None:
    host = ("host", node)
    for kind, memory in group.host:
        if isinstance(memory, Memory):
            builder.join(host, (kind, node), kind, memory.bandwidth, 0.0, PCIE_COST)
        elif memory is not None:
            builder.graph.add_edge(host, (kind, node), kind=kind, bandwidth=memory.write_bandwidth, **_FREE)
            builder.graph.add_edge((kind, node), host, kind=kind, bandwidth=memory.read_bandwidth, **_FREE)
    if nics := group.links.front_end:
        rate = nics.count * nics.bandwidth
        builder.join(host, ("front-end", node), nics.kind, rate, nics.latency, PCIE_COST)
    if hosts := group.remote:
        pool = ("remote", int(fabric.group_of_node[node]))
        rate = hosts.count * hosts.network_bandwidth
        builder.join(("front-end", node), pool, hosts.kind, rate, hosts.latency, CARD_COST)


def _add_network(builder: _Builder, fabric: Fabric) -> None:
    levels = fabric.topology.network.levels
    first = levels[0].latency if levels else 0.0
    group_of_nic = dict(zip(fabric.nic_of_rank.tolist(), fabric.group_of_rank.tolist(), strict=True))
    for nic, rate in enumerate(fabric.nic_bytes_per_s.tolist()):
        card = fabric.topology.nodes[group_of_nic[nic]].links.scale_out
        kind, latency = (card.kind, card.latency) if card else ("", 0.0)
        builder.join(("nic", nic), fabric.parent(-1, nic), kind, rate, latency + first, CARD_COST)
    for number, (level, rates) in enumerate(zip(levels, fabric.switch_bytes_per_s, strict=True)):
        latency = levels[number + 1].latency if number + 1 < len(levels) else 0.0
        for switch, rate in enumerate(rates.tolist()):
            if rate > 0:  # a leaf of a rail that the nodes of its plane do not have
                below = ("switch", number, switch)
                builder.join(below, fabric.parent(number, switch), level.name, rate, latency, SWITCH_COST)
