"""The ways up from switches of oversubscribed network levels, and what traffic on scale-out cards puts on them.

Where each rail has a leaf of its own, what comes in comes over that of the rank that it is for: a message changes to
its rail before it leaves its node (decision 121). So each of these leaves counts by itself what comes in, and the plane
as one what goes out: of planes with as many nodes each, no leaf sends more than the fullest of its rail receives.

What leaves either of two switches enters the other, so that both take as long as the narrower (decision 124).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cost_models.kinds import RankKind
from cost_models.path_latency import leave_domains
from cost_models.resources import WAYS, Resource, Way
from cost_models.shards import Floats, Ints
from topologies.cluster import Topology
from topologies.fabric import Fabric


@dataclass(frozen=True)
class Uplink:
    """The way up from the switches of an oversubscribed network level, in one direction."""

    resource: Resource
    seconds_per_card_second: Floats
    """[K] load on the uplink for one second of a collective's traffic on the card of a rank."""


def is_of_rail(fabric: Fabric, way: Way | None, level: int | None) -> bool:
    """Whether an uplink is that of one rail's leaf, not of a whole plane of leaves."""
    return level == 0 and way == "in" and fabric.rails_are_apart


def oversubscribed_levels(topology: Topology) -> tuple[int, ...]:
    """The levels that are, of whose switches none holds the whole cluster."""
    return tuple(
        level
        for level, switches in enumerate(topology.network.levels)
        if switches.oversubscription > 1 and switches.nodes < topology.node_count
    )


def exchange_uplinks(topology: Topology, fabric: Fabric, kinds: Sequence[RankKind]) -> tuple[Uplink, ...]:
    """Those that all-to-alls among all ranks of a cluster cross, with cards of K kinds of rank at their rate."""
    if not leave_domains(kinds):
        return ()
    node_ranks = np.bincount(fabric.node_of_rank)

    def leaving(level: int, k: int) -> Floats:
        switch, kind = np.asarray(fabric.switch_of_node[level]), kinds[k]
        below = np.bincount(switch, weights=node_ranks)[switch]
        outside = kind.world_size - np.maximum(below, kind.domain_ranks)
        return np.asarray(outside / max(kind.world_size - kind.domain_ranks, 1) * kind.nic_all_to_all)

    return _uplinks(topology, fabric, oversubscribed_levels(topology), leaving)


def sum_uplinks(
    topology: Topology, fabric: Fabric, kinds: Sequence[RankKind], leaving: Mapping[int, Floats]
) -> tuple[Uplink, ...]:
    """Those that sums cross which go beyond the ranks of a group, whose cluster `topology` is: of what the card of a
    rank carries so much is `leaving` the switch of each level, [K]. The group's share of a switch above several groups
    is that of its cards, since all of them send alike."""
    nodes = np.ones(topology.node_count)
    return _uplinks(
        topology, fabric, tuple(leaving), lambda level, k: nodes * leaving[level][k] * kinds[k].nic_all_reduce
    )


def _uplinks(
    topology: Topology, fabric: Fabric, levels: Sequence[int], leaving: Callable[[int, int], Floats]
) -> tuple[Uplink, ...]:
    """Both directions of some levels: `leaving` are the bytes/s that leave the switch of each node [N] while the card
    of a kind of rank there is busy."""
    uplinks: list[Uplink] = []
    for level in levels:
        rate = _rate_of_node(topology, fabric, level)
        if int(fabric.switch_of_node[level].max()) == 1:
            rate = np.full_like(rate, rate.min())
        factor = np.zeros(len(topology.nodes))
        for k in range(len(factor)):
            own = np.isfinite(rate) & (fabric.group_of_node == k)
            factor[k] = (leaving(level, k)[own] / rate[own]).max(initial=0.0)
        rails = {way: fabric.rails if is_of_rail(fabric, way, level) else 1 for way in WAYS}
        uplinks += [Uplink(Resource("uplink", way, level), factor * rails[way]) for way in WAYS]
    return tuple(uplinks)


def shares_leaving(topology: Topology, group_of_rank: Ints) -> dict[int, Floats]:
    """For each oversubscribed level, [K] of what ranks exchange beyond their domains, among their groups [W], the share
    that leaves their switch of the level; the largest of a kind of rank."""
    fabric, shares = Fabric(topology), dict[int, Floats]()
    for level in oversubscribed_levels(topology):
        shares[level] = np.zeros(len(topology.nodes))
        np.maximum.at(shares[level], fabric.group_of_rank, _leaving(fabric, level, group_of_rank))
    return {level: share for level, share in shares.items() if share.any()}


def uplink_slowdown(topology: Topology, group_of_rank: Ints, card_bytes_per_s: Floats) -> Floats:
    """[K] how much longer the busiest oversubscribed switch above the cards of a kind of rank takes than they do, where
    all ranks send alike around rings in their groups [W], at these rates [K]; 1 where none does."""
    fabric, slowdown = Fabric(topology), np.ones(len(topology.nodes))
    kind, card = fabric.group_of_rank, np.maximum(fabric.nic_of_rank, 0)
    busy = card_bytes_per_s[kind] / np.bincount(card)[card]
    for level in oversubscribed_levels(topology):
        switch = fabric.switch_of_node[level][fabric.node_of_rank]
        rate = _rate_of_node(topology, fabric, level)[fabric.node_of_rank]
        seconds = np.bincount(switch, weights=_leaving(fabric, level, group_of_rank) * busy / rate)[switch]
        np.maximum.at(slowdown, kind, seconds)
    return slowdown


def _leaving(fabric: Fabric, level: int, group_of_rank: Ints) -> Floats:
    """[W] of what each rank exchanges beyond its domain, the share that leaves its switch of a level."""
    switch = fabric.switch_of_node[level][fabric.node_of_rank]
    beyond = _members(group_of_rank) - _members(group_of_rank, fabric.domain_of_rank)
    outside = np.maximum(_members(group_of_rank) - _members(group_of_rank, switch), 0)
    return np.asarray(np.where(beyond > 0, np.minimum(outside / np.maximum(beyond, 1), 1.0), 0.0))


def _rate_of_node(topology: Topology, fabric: Fabric, level: int) -> Floats:
    """[N] bytes/s, one way, of the uplinks of the switch of a level above each node; infinite without cards."""
    nics = [group.links.scale_out for group in topology.nodes]
    card_rate = np.array([each.count * each.bandwidth if each else np.inf for each in nics])[fabric.group_of_node]
    narrowing = np.cumprod([level.oversubscription for level in topology.network.levels])  # of all switches on the way
    switch = np.asarray(fabric.switch_of_node[level])
    return np.asarray(np.bincount(switch, weights=card_rate)[switch] / narrowing[level])


def _members(*labels: Ints) -> Ints:
    """[W] ranks with the same labels [W] as each rank."""
    _, place, count = np.unique(np.stack(labels), axis=1, return_inverse=True, return_counts=True)
    return np.asarray(count[place.ravel()])
