"""The latency of the longest path between two ranks that exchange."""

from collections.abc import Sequence
from dataclasses import replace
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


def inside_phases(
    topology: Topology, kinds: Sequence[RankKind], protocols: Sequence[tuple[Protocol, ...]], library_s: float
) -> list[tuple[Protocol, ...]]:
    """The protocols of exchanges that cross the domain first and the network then, each of which is waited for: inside,
    the library and the link where no latency was measured; nothing in a domain of one rank, which sends nothing there.
    """
    phases: list[tuple[Protocol, ...]] = []
    for kind, group, of_kind in zip(kinds, topology.nodes, protocols, strict=True):
        own_s = library_s + (group.links.scale_up or group.links.pcie).latency
        if kind.domain_ranks == 1:
            phases.append((Protocol(0.0, of_kind[-1].bytes_per_s),))
        else:
            phases.append(tuple(replace(each, latency_s=_or(each.latency_s, own_s)) for each in of_kind))
    return phases


def _or(measured_s: float | None, otherwise_s: float) -> float:
    return otherwise_s if measured_s is None else measured_s


def _protocols(kind: RankKind, hops_s: Hops) -> tuple[Protocol, ...]:
    return kind.reduction_protocols if hops_s == "reduction_hops_s" else kind.exchange_protocols
