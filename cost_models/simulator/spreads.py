"""All-to-alls as a few flows: what a byte from every rank to each of its receivers takes of both ends' links.

Every message is a transfer of its own, and all of them share links max-min fairly. Messages of a rank to receivers that
are alike are at one pace, so that one flow stands for them: behind a *hub* are the links of all receivers, less those
that the rank does not send to (its own, and those of the ranks near it). Where ranks are not alike, receivers are told
apart: one by one where that makes few flows, else by domain, else by their links.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cost_models.resources import WAYS, Resource, Way
from cost_models.shards import Floats, Ints
from cost_models.simulator.graph import NONE, Flags, Hubs, Use
from cost_models.simulator.network import IN, OUT, SimulatedNetwork
from cost_models.simulator.process_groups import ProcessGroups, members, numbered, position
from cost_models.simulator.traffic import CardRate, LinkTraffic

MOST_FLOWS = 8192
"""For which receivers are told apart; more would take longer than a step may be simulated."""


@dataclass(frozen=True)
class Spread:
    """Traffic of every rank with each rank of some alike. All flows of an all-to-all have one unit: a byte for each of
    the same number of receivers, so that the messages of all ranks grow alike where nothing holds them up."""

    peers: Ints
    """[W] how many of them there are for each rank."""
    unit: int
    """Receivers that a unit is a byte for."""
    uses: list[Use]
    """Of a unit."""
    hubs: list[Use]


class KnownHubs:
    """The hubs of a program, each once."""

    def __init__(self) -> None:
        self._behind: list[tuple[Ints, Ints, Floats]] = []
        self._first: dict[tuple[bytes, ...], int] = {}
        self._count = 0

    def all(self) -> Hubs:
        """What stands behind every hub that was asked for."""
        if not self._behind:
            return Hubs.none()
        hub, resource, weight = zip(*self._behind, strict=True)
        return Hubs(np.concatenate(hub), np.concatenate(resource), np.concatenate(weight))

    def of(self, use: Use, place: Ints, receives: Flags) -> Ints:
        """[W] number of the hub of each rank's place, behind which are those of its ranks that receive; NONE where
        there are none."""
        behind = receives & (use.of != NONE)
        key = (use.of.tobytes(), use.weight.tobytes(), place.tobytes(), behind.tobytes())
        if key not in self._first:
            self._first[key] = self._count
            self._count += int(place.max()) + 1
            self._behind.append((self._first[key] + place[behind], use.of[behind], use.weight[behind]))
        first = self._first[key]
        return np.where(members(place, behind) > 0, first + place, NONE)


class Spreads:
    """The all-to-alls of W ranks, and the hubs that they go through."""

    def __init__(
        self, network: SimulatedNetwork, traffic: LinkTraffic, hubs: KnownHubs, capacity: Floats | None = None
    ) -> None:
        self._network, self._traffic, self._hubs = network, traffic, hubs
        capacity = np.ones(network.count) if capacity is None else capacity
        self._port, self._signature = _ports(network, capacity), _signatures(network, capacity)
        self._known: dict[tuple[ProcessGroups, ProcessGroups, Way, str], list[Spread]] = {}

    def inside(self, groups: ProcessGroups, near: ProcessGroups, way: Way) -> list[Spread]:
        """Of every rank with the others of its part, but for those of its own group of `near`: over their ports."""
        key = (groups, near, way, "inside")
        if key not in self._known:
            close = numbered(groups.part_of_rank, near.group_of_rank)
            self._known[key] = self._inside(groups.part_of_rank, close, self._told_apart_inside(groups), way)
        return self._known[key]

    def _inside(self, part: Ints, close: Ints, alike: Ints, way: Way) -> list[Spread]:
        unit, spreads = int((members(part) - members(close)).max()), []
        own, other = self._traffic.port(way), self._traffic.port(IN if way == OUT else OUT)
        for number in range(int(alike.max()) + 1):
            receives = alike == number
            peers = members(part, receives) - members(close, receives)
            if not peers.any():
                continue
            uses = [Use(use.of, use.weight * peers / unit) for use in own]
            hubs = [hub for use in other for hub in self._without(use, part, [close], receives, unit)]
            spreads.append(Spread(peers, unit, uses, hubs))
        return spreads

    def _told_apart_inside(self, groups: ProcessGroups) -> Ints:
        """[W] receivers of traffic inside a part with one number where they are taken as alike."""
        part, turns = groups.part_of_rank, self._network.takes_turns
        if not turns.any() and int(numbered(part, self._port).max()) == int(part.max()):
            return np.zeros_like(part)
        places = position(part)
        return places if (int(places.max()) + 1) * self._network.world <= MOST_FLOWS else self._port

    def beyond(
        self, groups: ProcessGroups, near: ProcessGroups, way: Way, rate: CardRate = "nic_all_to_all"
    ) -> list[Spread]:
        """Of every rank with those of its group that are in other domains, and not in its own group of `near`: over
        cards, which achieve this `rate`, and oversubscribed switches above them."""
        key = (groups, near, way, rate)
        if key not in self._known:
            part, close = groups.part_of_rank, numbered(groups.group_of_rank, near.group_of_rank)
            is_larger = members(close) > members(part)  # one of them holds the other
            here = numbered(is_larger.astype(np.int64), np.where(is_larger, close, part))
            cards = [self._traffic.own_card(each, rate=rate) for each in (way, IN if way == OUT else OUT)]
            self._known[key] = self._beyond(groups.group_of_rank, here, self._told_apart(), way, cards)
        return self._known[key]

    def _told_apart(self) -> Ints:
        """[W] receivers of traffic between domains with one number where they are taken as alike."""
        world = self._network.world
        if not self._signature.any():
            return self._signature
        for labels in (np.arange(world), numbered(self._network.domain_of_rank, self._signature)):
            if (int(labels.max()) + 1) * world <= MOST_FLOWS:
                return labels
        return self._signature

    def _beyond(self, group: Ints, here: Ints, alike: Ints, way: Way, cards: list[list[Use]]) -> list[Spread]:
        network, other, (own, theirs) = self._network, IN if way == OUT else OUT, cards
        unit, spreads = int((members(group) - members(here)).max()), []
        levels = [(level, *self._switches(level)) for level in network.oversubscribed]
        for number in range(int(alike.max()) + 1):
            receives = alike == number
            peers = members(group, receives) - members(here, receives)
            if not peers.any():
                continue
            uses = [Use(use.of, use.weight * peers / unit) for use in own]
            hubs = [hub for use in theirs for hub in self._without(use, group, [here], receives, unit)]
            for level, switch, rate in levels:
                plane = _apart(network.plane_of_rank(level))
                below, both = numbered(group, plane), numbered(here, plane)
                above = peers - members(below, receives) + members(both, receives)
                of, into = (network.number(Resource("uplink", each, level), switch) for each in (way, other))
                changes = level == 0 and network.changes_rails
                if changes and way == OUT:
                    uses += self._out_of_leaves(group, here, below, receives, unit)
                else:
                    uses.append(Use(of, np.where(switch == NONE, 0.0, above / unit / rate)))
                if changes and way == IN:
                    climbs = self._hubs_of_own_rail(group, [here, below], receives, unit)
                else:
                    climbs = self._without(Use(into, 1 / rate), group, [here, below], receives, unit)
                hubs += [Use(np.where(above > 0, hub.of, NONE), hub.weight) for hub in climbs]
            spreads.append(Spread(peers, unit, uses, hubs))
        return spreads

    def _out_of_leaves(self, group: Ints, here: Ints, below: Ints, receives: Flags, unit: int) -> Iterator[Use]:
        """What each rank sends up from the leaf of every rail beside its node, to receivers on that rail."""
        network, both = self._network, numbered(here, below)
        for rail in range(network.fabric.rails):
            on_rail = receives & (network.rail_of_rank == rail)
            above = members(group, on_rail) - members(here, on_rail) - members(below, on_rail) + members(both, on_rail)
            yield self._out_of_leaf(rail, above / unit)

    def _hubs_of_own_rail(self, group: Ints, left_out: list[Ints], sends: Flags, unit: int) -> list[Use]:
        """Hubs of the leaves of each rank's own rail that ranks send to it from."""
        network, found = self._network, list[Use]()
        for rail in range(network.fabric.rails):
            hubs = self._without(self._out_of_leaf(rail, np.ones(network.world)), group, left_out, sends, unit)
            found = found or hubs
            is_own = network.rail_of_rank == rail
            found = [Use(np.where(is_own, a.of, b.of), b.weight) for a, b in zip(hubs, found, strict=True)]
        return found

    def _out_of_leaf(self, rail: int, times: Floats) -> Use:
        """Traffic up from the leaf of a rail beside each rank's node, so many `times` [W]."""
        leaf = self._network.leaf_of_rank(rail)
        rate = np.where(leaf == NONE, 1.0, self._network.fabric.switch_bytes_per_s[0][leaf])
        return Use(self._network.number(Resource("uplink", OUT, 0), leaf), np.where(leaf == NONE, 0.0, times / rate))

    def _switches(self, level: int) -> tuple[Ints, Floats]:
        """([W] switch of each rank, [W] its bytes/s); NONE, and 1, for ranks without a card."""
        network = self._network
        switch = network.switch_of_rank(level)
        return switch, np.where(switch == NONE, 1.0, network.fabric.switch_bytes_per_s[level][switch])

    # --- hubs ------------------------------------------------------------------------------------------------------

    def _without(self, use: Use, place: Ints, left_out: list[Ints], receives: Flags, unit: int) -> list[Use]:
        """Hubs of the ranks of each rank's `place` [W] that receive, but for those that share one of the places that
        are `left_out` with it: what is in none of two sets is all, less either, and what is in both again."""
        signed = [(1.0, place), *((-1.0, each) for each in left_out)]
        if len(left_out) == 2:
            first, second = left_out
            both = numbered(first, second)
            if np.array_equal(members(both, receives), members(first, receives)):  # the second holds the first
                signed = [(1.0, place), (-1.0, second)]
            else:
                signed.append((1.0, both))
        return [Use(self._hubs.of(use, each, receives), np.full(len(place), sign / unit)) for sign, each in signed]


def _apart(switch: Ints) -> Ints:
    """[W] the same, with a number of its own for every rank that has none."""
    return np.where(switch == NONE, int(switch.max()) + 1 + np.arange(len(switch)), switch)


def _ports(network: SimulatedNetwork, capacity: Floats) -> Ints:
    """[W] ranks of one number have ports of one rate, in one state."""
    ranks = np.arange(network.world)
    links = [(Resource("link", way), ranks) for way in WAYS]
    return numbered(network.kind_of_rank, *_states(network, capacity, [*links, *_host_links(network)]))


def _host_links(network: SimulatedNetwork) -> list[tuple[Resource, Ints]]:
    """Either way of the own link of each rank to its host, where exchanges meet other traffic there."""
    ranks = np.arange(network.world)
    return [(Resource("host_link", way), ranks) for way in WAYS] if network.host_traffic else []


def _states(network: SimulatedNetwork, capacity: Floats, links: list[tuple[Resource, Ints]]) -> list[Ints]:
    """Of each resource, [W] ranks of one number have as much left of theirs; none left where they have none."""
    left = [np.where(of == NONE, 0.0, capacity[network.number(resource, of)]) for resource, of in links]
    return [np.unique(each, return_inverse=True)[1] for each in left]


def _signatures(network: SimulatedNetwork, capacity: Floats) -> Ints:
    """[W] ranks of one number are alike as receivers from other domains: of one kind, behind cards and switches in one
    state, which as many share. All are 0 where the whole cluster is alike."""
    card = network.card_of_rank
    labels = [network.kind_of_rank, members(network.domain_of_rank), members(_apart(card))]
    links = [(Resource("nic", way), card) for way in WAYS]
    for level in network.oversubscribed:
        switch = network.switch_of_rank(level)
        labels.append(members(_apart(switch)))
        links += [(Resource("uplink", way, level), switch) for way in WAYS]
    return numbered(*labels, *_states(network, capacity, [*links, *_host_links(network)]))
