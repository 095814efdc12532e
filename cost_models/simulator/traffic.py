"""Traffic between ranks: what a byte on its way takes of ports, cards, and switches above them."""

from collections.abc import Iterator
from typing import Literal

import numpy as np

from cost_models.resources import Resource, Way
from cost_models.shards import Floats, Ints
from cost_models.simulator.graph import NONE, Use
from cost_models.simulator.network import IN, OUT, SimulatedNetwork
from cost_models.simulator.process_groups import ProcessGroups

CardRate = Literal["nic_all_to_all", "nic_node_sums", "nic_peers", "nic_in_tower"]
"""What a kind of rank says of its card: what that achieves with all ranks beyond its domain, of sums that the ranks of
a node have reduced, with peers alone, and with the ranks of its tower."""


class LinkTraffic:
    """What the traffic of W ranks asks of a network."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self._network = network
        self.reduces_in_network = network.topology.network.reduces

    def port(self, way: Way, *, reduction: bool = False) -> list[Use]:
        """Every rank's traffic over its own port into its domain. Where both ways of a port take turns, a byte keeps
        half of either busy."""
        network, ranks = self._network, np.arange(self._network.world)
        rate = network.of_kind([kind.link_all_reduce if reduction else kind.link_all_to_all for kind in network.kinds])
        turns = network.takes_turns
        uses = [Use(network.number(Resource("link", way), ranks), np.where(turns, 0.5, 1.0) / rate)]
        if turns.any():
            other = network.number(Resource("link", IN if way == OUT else OUT), ranks)
            uses.append(Use(other, np.where(turns, 0.5, 0.0) / rate))
        crosses = [kind.exchanges_over_pcie for kind in network.kinds]
        return [*uses, *self._host_link(way, rate, crosses)]

    def _host_link(self, way: Way, rate: Floats, crosses: list[bool]) -> list[Use]:
        """Every rank's own link to the host, for the kinds of rank whose traffic `crosses` it; `rate` [W] is what that
        traffic achieves alone."""
        kinds = self._network.kinds
        pcie = self._network.of_kind([kind.pcie_bytes_per_s for kind in kinds])
        share = self._network.of_kind([float(each) for each in crosses])
        return self._network.own_host_link(way, share / np.maximum(pcie, rate))

    def card(self, groups: ProcessGroups, way: Way, *, reduction: bool = False) -> list[Use]:
        """Every rank's traffic with the ranks of its group in other domains: over the card that serves it, and over
        switches above it that are oversubscribed."""
        network = self._network
        return [
            *self.own_card(way, reduction=reduction),
            *(
                Use(network.number(Resource("uplink", way, level), switch), share / rate)
                for level, switch, share, rate in self._above(groups)
            ),
        ]

    def own_card(self, way: Way, *, reduction: bool = False, rate: CardRate = "nic_all_to_all") -> list[Use]:
        """Every rank's traffic over the card that serves it, at this `rate`, and its own link where that is the way
        there."""
        network = self._network
        achieved = [float(getattr(kind, rate)) for kind in network.kinds]
        rates = network.of_kind([kind.nic_all_reduce for kind in network.kinds] if reduction else achieved)
        card = Use(network.number(Resource("nic", way), network.card_of_rank), 1 / rates)
        return [card, *self._host_link(way, rates, [kind.cards_over_pcie for kind in network.kinds])]

    def _above(self, groups: ProcessGroups) -> Iterator[tuple[int, Ints, Floats, Floats]]:
        """(level, [W] switch, [W] share of the rank's traffic beyond its domain that passes it, [W] bytes/s)."""
        network = self._network
        for level in network.oversubscribed:
            switch = network.switch_of_rank(level)
            in_group, in_part = groups.sharing(network.plane_of_rank(level, around=True))
            beyond = groups.size - np.where(switch == NONE, 0, in_group) - groups.part_size + in_part
            share = np.maximum(beyond, 0) / np.maximum(groups.size - groups.part_size, 1)
            rate = np.where(switch == NONE, 1.0, network.fabric.switch_bytes_per_s[level][switch])
            yield level, switch, share, rate
