"""The latency of the longest path between two ranks that exchange."""

from collections.abc import Sequence
from typing import Literal

from cost_models.collective_laws import Protocol
from cost_models.kinds import RankKind
from topologies.cluster import Topology

Hops = Literal["exchange_hops_s", "reduction_hops_s", "peers_hops_s", "tower_hops_s"]
"""Fields of a kind of rank: the latency that the library adds."""


def leave_domains(kinds: Sequence[RankKind]) -> bool:
    """Whether ranks of these kinds exchange with some beyond their domains."""
    return any(kind.domain_ranks < kind.world_size for kind in kinds)


def inside_latency_s(topology: Topology) -> float:
    """That between two ranks of a domain."""
    return max((group.links.scale_up or group.links.pcie).latency for group in topology.nodes)


def path_latency_s(topology: Topology, kinds: Sequence[RankKind], hops_s: Hops) -> float:
    """That in a domain or, where ranks leave theirs, over the network, with what the library adds in such a collective
    of their kind; no less than in a domain whose own was not measured."""
    if not leave_domains(kinds):
        return inside_latency_s(topology)
    inside_s = [
        (group.links.scale_up or group.links.pcie).latency
        for kind, group in zip(kinds, topology.nodes, strict=True)
        if _protocols(kind, hops_s)[0].latency_s is None
    ]
    cards = [
        group.links.scale_out.latency + float(getattr(kind, hops_s))
        for kind, group in zip(kinds, topology.nodes, strict=True)
        if group.links.scale_out
    ]
    across_s = max(cards, default=0.0) + sum(level.latency for level in topology.network.levels)
    return max(across_s, *inside_s, 0.0)


def _protocols(kind: RankKind, hops_s: Hops) -> tuple[Protocol, ...]:
    return kind.reduction_protocols if hops_s == "reduction_hops_s" else kind.exchange_protocols
