"""The collectives among process groups: what every rank moves inside its domain, and between domains.

Each law takes the groups and the bytes. Sums are reduced inside a domain first, so that what leaves it is a share.
"""

from dataclasses import dataclass

import numpy as np

from cost_models.resources import Way
from cost_models.shards import RANK, Floats
from cost_models.simulator.calls import CollectiveCall, Operation
from cost_models.simulator.graph import Hubs, Use
from cost_models.simulator.network import IN, OUT, SimulatedNetwork
from cost_models.simulator.process_groups import ProcessGroups, numbered
from cost_models.simulator.spreads import KnownHubs, Spreads
from cost_models.simulator.traffic import CardRate, LinkTraffic


@dataclass(frozen=True)
class Flow:
    """What every rank moves at one pace: over its own links, and through hubs over those of others."""

    bytes: Floats
    """[W]"""
    uses: list[Use]
    hubs: list[Use]


@dataclass(frozen=True)
class Transfer:
    """What every rank moves in a collective: inside its domain, or between domains."""

    sent: Floats
    """[W] bytes."""
    received: Floats
    """[W] bytes."""
    flows: list[Flow]
    inside: bool
    reduction: bool = False
    around: bool = False
    """Whether it goes around a ring of domains, one after the other."""
    rate: CardRate = "nic_all_to_all"
    """That of cards, which says whom a rank exchanges with beyond its domain."""
    call: CollectiveCall | None = None
    """The collective that it is a part of."""


class Collectives:
    """The transfers of collectives over the links of a cluster, some of which have a `capacity` [R] below 1."""

    def __init__(
        self, network: SimulatedNetwork, capacity: Floats | None = None, hubs: KnownHubs | None = None
    ) -> None:
        """`hubs` are those that others in the same program go through, too."""
        self._traffic, self.known_hubs = LinkTraffic(network), hubs or KnownHubs()
        self._spreads = Spreads(network, self._traffic, self.known_hubs, capacity)
        self._apart = network.extents[RANK]

    def hubs(self) -> Hubs:
        """What stands behind the hubs of all transfers so far."""
        return self.known_hubs.all()

    def all_to_all(
        self,
        groups: ProcessGroups,
        to_each: Floats,
        way: Way,
        beyond: ProcessGroups | None = None,
        *,
        rate: CardRate = "nic_all_to_all",
    ) -> list[Transfer]:
        """Every rank sends (OUT) or gets (IN) `to_each` [W] bytes to or from every other rank of its group, or every
        rank of its group that is not in its smaller group of `beyond`: between domains at this `rate` of cards."""
        near = beyond or self._apart
        whole, part, close = (
            np.bincount(place, weights=to_each)[place]
            for place in (groups.group_of_rank, groups.part_of_rank, near.group_of_rank)
        )
        shared = numbered(groups.part_of_rank, near.group_of_rank)
        own = np.bincount(shared, weights=to_each)[shared]
        listed = [(True, self._spreads.inside(groups, near, way), part - own)]
        if groups.leave_domains:
            listed.append((False, self._spreads.beyond(groups, near, way, rate), whole - part - close + own))
        call = CollectiveCall("all-to-all", groups, to_each, way, near)
        transfers = []
        for inside, spreads, back in listed:
            flows = [Flow(np.where(each.peers > 0, to_each * each.unit, 0.0), each.uses, each.hubs) for each in spreads]
            there = np.asarray(to_each * sum(each.peers for each in spreads), dtype=np.float64)
            sent, received = (there, np.asarray(back)) if way == OUT else (np.asarray(back), there)
            transfers.append(Transfer(sent, received, flows, inside, rate=rate, call=call))
        return transfers

    def reduce_scatter(
        self, groups: ProcessGroups, size: Floats, way: Way = OUT, *, reduction: bool = False
    ) -> list[Transfer]:
        """Every rank has `size` [W] bytes of sums over its whole group, and is to get its share of the totals; read
        backwards (`way` IN), an all-gather. At the rates of exchanges or (`reduction`) of all-reduces."""
        operation: Operation = "reduce-scatter" if way == OUT else "all-gather"
        return self._rings(CollectiveCall(operation, groups, size, way), passes=1, reduction=reduction)

    def all_reduce(self, groups: ProcessGroups, size: Floats) -> list[Transfer]:
        """Every rank has `size` [W] bytes of sums over its whole group, and is to get all of the totals."""
        return self._rings(CollectiveCall("all-reduce", groups, size), passes=2, reduction=True)

    def _rings(self, call: CollectiveCall, *, passes: int, reduction: bool) -> list[Transfer]:
        """A ring inside the parts of a group, then one among its parts with the shares: every rank sends so much, and
        gets as much."""
        groups, size, traffic, part = call.groups, call.size, self._traffic, call.groups.part_size
        inside = [*traffic.port(OUT, reduction=reduction), *traffic.port(IN, reduction=reduction)]
        near = np.asarray(passes * size * (part - 1) / part)
        transfers = [Transfer(near, near, [Flow(near, inside, [])], True, reduction, call=call)]
        if groups.leave_domains:
            in_network = reduction and passes == 2 and self._traffic.reduces_in_network
            across = np.asarray(size / part if in_network else passes * size / part * (1 - part / groups.size))
            uses = [
                *traffic.card(groups, OUT, reduction=reduction),
                *traffic.card(groups, IN, reduction=reduction),
            ]
            flows = [Flow(across, uses, [])]
            transfers.append(Transfer(across, across, flows, False, reduction, around=not reduction, call=call))
        return transfers
