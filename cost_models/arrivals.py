"""What the cards of a part of a cluster carry of blocks that are elsewhere, on the mean of the part.

A rank receives the vectors that holders beyond its domain have, so what it holds itself spares the cards of its domain
as much. Each holder therefore loads the cards of every part of the cluster, less those of its own domain: a sum over
blocks, divided by the cards of the part. No placement lets the busiest of these take less than their mean. Where parts
are alike the mean is no more than what the busiest card sends, and nothing is counted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cost_models.kinds import RankKind
from cost_models.path_latency import leave_domains
from cost_models.resources import Resource, Way
from cost_models.shards import Floats, Ints
from cost_models.switch_fill import switches_of_groups
from cost_models.uplinks import rate_of_node
from topologies.cluster import Topology
from topologies.fabric import Fabric

ARRIVALS: dict[str, Way] = {"input_dist": "out", "output_dist": "in", "gradient_dist": "out"}
"""Terms of exchanges between holders and all ranks, and what these do with each byte."""


@dataclass(frozen=True)
class Part:
    """Alike cards of a node group, or alike oversubscribed switches."""

    number: int
    """The first node group of it."""
    level: int | None
    """Of the switches; None for cards."""
    is_below: tuple[bool, ...]
    """[K] whether the ranks of a kind are below them."""
    ranks: int
    """Below them all."""
    near: tuple[int, ...]
    """[K] of these, the ranks that a rank of each kind does not reach through them; 0 of those that are not below."""
    count: int
    """Cards, or switches."""
    bytes_per_s: float | None
    """Of a switch; None for cards, whose rate depends on the exchange."""

    def resource(self, way: Way | None) -> Resource:
        """What stands for it in one direction."""
        return Resource("arrivals", way, self.level, part=self.number)

    def seconds(self, kind: int, card_bytes_per_s: Callable[[RankKind], float], kinds: Sequence[RankKind]) -> float:
        """Seconds of one of them, on the mean, for a byte that a rank of a kind exchanges with every rank."""
        rate = self.bytes_per_s or card_bytes_per_s(kinds[self.number])
        return (self.ranks - self.near[kind]) / self.count / rate


def parts_of(topology: Topology, fabric: Fabric, kinds: Sequence[RankKind]) -> tuple[Part, ...]:
    """Those of a cluster; none where they are all alike, or where no rank leaves its domain."""
    if len(kinds) == 1 or not leave_domains(kinds):
        return ()
    switches = list(switches_of_groups(topology))
    cards = {(kind.domain_ranks, kind.nic_all_to_all / _card_ranks(fabric, k)) for k, kind in enumerate(kinds)}
    if len(cards) == 1 and all(len(set(above)) == 1 for _, above in switches):
        return ()
    found = [_cards_of(fabric, kinds, k) for k in range(len(kinds)) if np.isfinite(kinds[k].nic_all_to_all)]
    for level, above in switches:
        rates = rate_of_node(topology, fabric, level)
        for signature in dict.fromkeys(above):
            members = np.array([each == signature for each in above])
            found.append(_switches_of(fabric, kinds, level, members, rates))
    return tuple(found)


def _card_ranks(fabric: Fabric, k: int) -> float:
    """Ranks of a kind that share a card."""
    own = fabric.nic_of_rank[fabric.group_of_rank == k]
    return len(own) / len(np.unique(own))


def _cards_of(fabric: Fabric, kinds: Sequence[RankKind], k: int) -> Part:
    own = fabric.group_of_rank == k
    is_below = tuple(number == k for number in range(len(kinds)))
    near = tuple(max(kinds[k].domain_ranks, kinds[k].node_ranks) if below else 0 for below in is_below)
    return Part(k, None, is_below, int(own.sum()), near, len(np.unique(fabric.nic_of_rank[own])), None)


def _switches_of(fabric: Fabric, kinds: Sequence[RankKind], level: int, members: np.ndarray, rates: Floats) -> Part:
    own: np.ndarray = members[fabric.group_of_rank]
    switch: Ints = fabric.switch_of_node[level][fabric.node_of_rank][own]
    count = len(np.unique(switch))
    below = int(own.sum()) // count
    near = tuple(max(below, kind.domain_ranks) if is_in else 0 for kind, is_in in zip(kinds, members, strict=True))
    first = int(np.flatnonzero(members)[0])
    rate = float(rates[fabric.group_of_node == first][0])
    return Part(first, level, tuple(members.tolist()), int(own.sum()), near, count, rate)


def means(
    parts: Sequence[Part],
    kinds: Sequence[RankKind],
    kind: int,
    resource: Resource,
    reached: Sequence[tuple[Resource, float]],
    card_bytes_per_s: Callable[[RankKind], float],
) -> list[tuple[Resource, float]]:
    """What a second of a load of a rank of a kind (of `arrivals`, a byte for every rank) brings to the means of parts;
    `reached` are its card and the switches above, with seconds of each."""
    if resource.kind == "arrivals":
        return [(part.resource(resource.way), part.seconds(kind, card_bytes_per_s, kinds)) for part in parts]
    above = {one.level: factor for one, factor in reached} if resource.kind == "nic" else {}
    return [
        (part.resource(resource.way), above[part.level] / part.count)
        for part in parts
        if part.is_below[kind] and part.level in above
    ]
