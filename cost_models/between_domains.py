"""What collectives achieve between scale-up domains, over the cards of their ranks.

An all-to-all slows down with the *peers* of a card: the ranks beyond its domain with which one rank exchanges. A flat
exchange has all of them, one in phases (inside the domain first, then along the rails) a single one of each other
domain, one among the peers of towers a single one of each other tower, and one by rail (of what the ranks of a node
have summed) a single one of each other node. Sums climb a tree of domains and come down again, or go around a ring of
them. No collective is faster than the wire: nothing takes more of a card than its few-peer exchanges do.
"""

import math
from dataclasses import dataclass

import numpy as np

from cost_models.coefficients import LinkCoefficients
from cost_models.groups import RankGroup
from topologies.cluster import Topology

FEW_PEERS = 8
"""The fewest that were measured in flat exchanges; with fewer a card is no faster."""


@dataclass(frozen=True)
class BetweenDomains:
    """What the card of a rank achieves in collectives of the world."""

    all_to_all_bytes_per_s: float
    by_rail_bytes_per_s: float
    """The same where each rank exchanges with those at its place in the other nodes only."""
    by_peers_bytes_per_s: float
    """The same where each rank exchanges with those at its place in the other towers only."""
    all_reduce_bytes_per_s: float
    exchange_s: float
    """Latency of an all-to-all beyond that of a card and the switches above it."""
    peers_s: float
    """The same where each rank exchanges with those at its place in the other towers only."""
    reduction_s: float
    """That of an all-reduce."""
    ring_s: float
    """That of a reduce-scatter or an all-gather, beyond an exchange's."""


NOTHING = BetweenDomains(np.inf, np.inf, np.inf, np.inf, 0.0, 0.0, 0.0, 0.0)
"""Where no card is described, or no rank is beyond the domain."""


def between_domains(
    link: LinkCoefficients,
    bytes_per_s: float,
    world: RankGroup,
    inside_bytes_per_s: float,
    *,
    in_phases: bool,
    in_network: bool,
    towers: float | None = None,
) -> BetweenDomains:
    """What a card of a line rate achieves in collectives of all ranks.

    `inside_bytes_per_s` is the rate of reductions inside a domain; `in_phases`: exchanges are hierarchical;
    `in_network`: switches reduce; `towers`: how many there are, where a tower is several domains.
    """
    domains = world.domains
    others = (domains if towers is None else towers) - 1
    peers = domains - 1 if in_phases else world.size - world.per_domain
    doublings = 1.0 if in_network else math.log2(max(domains, 1.0))
    return BetweenDomains(
        all_to_all_rate(link, bytes_per_s, peers),
        all_to_all_rate(link, bytes_per_s, min(rail_peers(world), peers)),
        all_to_all_rate(link, bytes_per_s, others),
        all_reduce_rate(link, bytes_per_s, domains, world.per_domain, inside_bytes_per_s, in_network=in_network),
        exchange_latency_s(link, peers),
        exchange_latency_s(link, others),
        float(2 * doublings * _seconds(link, "tree_hop_s")),
        float(max(domains - 2, 0.0) * _seconds(link, "ring_hop_s")),
    )


def sums_in_switches(topology: Topology) -> bool:
    """Whether switches sum what all-reduces of all ranks send: they do so (SHARP), and some ranks are beyond others'
    domains."""
    apart = any(group.domain_ranks < topology.world_size for group in topology.nodes)
    return topology.network.reduces and apart


def rail_peers(world: RankGroup) -> float:
    """Of those beyond the domain of a rank, and beyond its node, the ranks at its place in their nodes."""
    return (world.size - max(world.per_domain, world.per_node)) / world.per_node


def _seconds(link: LinkCoefficients, name: str) -> float:
    coefficient = getattr(link, name)
    return 0.0 if coefficient is None else float(coefficient.value)


def exchange_latency_s(link: LinkCoefficients, peers: float) -> float:
    """Latency that the library adds to that of a card in an all-to-all with so many peers: a hop, and each further
    peer's message."""
    return _seconds(link, "hop_s") + max(peers - 1, 0.0) * _seconds(link, "peer_s")


def all_to_all_rate(link: LinkCoefficients, bytes_per_s: float, peers: float) -> float:
    """Achieved rate of a card in an all-to-all with so many peers, in bytes/s: less the more of them there are."""
    doublings = math.log2(max(peers, FEW_PEERS) / FEW_PEERS)
    lost = link.all_to_all_loss_per_doubling.value * doublings if link.all_to_all_loss_per_doubling else 0.0
    return _limited(link, bytes_per_s * link.all_to_all_efficiency.value * 2.0 ** -float(lost))


def all_reduce_rate(
    link: LinkCoefficients,
    bytes_per_s: float,
    domains: float,
    domain_ranks: int,
    inside_bytes_per_s: float,
    *,
    in_network: bool = False,
) -> float:
    """Rate at which 2 (1 - 1/domains) / domain_ranks of the buffer would cross a card in the time of an all-reduce, or
    1 / domain_ranks of it where switches reduce.

    With a measured growth that time is the reduction inside the domain and, after it, for each doubling of the
    domains a share of the time in which 2 / domain_ranks of the buffer would cross the card at line rate. With few
    ranks in a domain that share is less than the wire takes: the card's best exchange is the limit then.
    """
    if in_network or link.all_reduce_growth is None or domains <= 1:
        return _limited(link, bytes_per_s * link.all_reduce_efficiency.value)
    inside = (domain_ranks - 1) / domain_ranks / inside_bytes_per_s
    between = link.all_reduce_growth.value * math.log2(domains) / domain_ranks / bytes_per_s
    by_growth = float((1 - 1 / domains) / domain_ranks / (inside + between))
    return _limited(link, min(by_growth, bytes_per_s * link.all_to_all_efficiency.value))


def _limited(link: LinkCoefficients, achieved: float) -> float:
    return min(achieved, link.ceiling_bytes_per_s.value) if link.ceiling_bytes_per_s else achieved
