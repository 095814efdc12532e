"""Traffic between ranks: what a byte on its way takes of ports, cards, and switches above them.

An all-to-all goes through hubs: one for each direction and each part of a process group, behind which are the ports
of its ranks, and one for each direction and group, behind which are their cards.
"""

from collections.abc import Iterator

import numpy as np

from cost_models.resources import Resource, Way
from cost_models.shards import Floats, Ints
from cost_models.simulator.graph import NONE, Hubs, Use
from cost_models.simulator.network import IN, OUT, SimulatedNetwork
from cost_models.simulator.process_groups import ProcessGroups


class LinkTraffic:
    """What the traffic of W ranks asks of a network. Hubs are made for the groups that are asked for."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self._network = network
        self.reduces_in_network = network.topology.network.reduces
        self._first_hub: dict[ProcessGroups, int] = {}
        self._hub_count = 0

    def port(self, way: Way, *, reduction: bool = False, spread: ProcessGroups | None = None) -> list[Use]:
        """Every rank's traffic over its own port into its domain; what is `spread` over the ranks of its part goes
        through their hub too.

        Where both ways of a port take turns, a byte keeps half of either busy at both ends. The hub brings a share of
        what is spread back to its sender, which is taken off here.
        """
        network = self._network
        rate = network.of_kind([kind.link_all_reduce if reduction else kind.link_all_to_all for kind in network.kinds])
        own: Floats = np.full(network.world, 0.5)
        if spread is not None:
            own -= 0.5 / np.maximum(spread.part_size - 1, 1)
        return self._both_ways(way, 1 / rate, own / rate)

    def _both_ways(self, way: Way, one: Floats, turning: Floats) -> list[Use]:
        """Uses of ports: `one` [W] seconds for each byte this way, or `turning` [W] both ways where they take turns."""
        network, ranks = self._network, np.arange(self._network.world)
        turns = np.array([kind.link_takes_turns for kind in network.kinds])[network.kind_of_rank]
        uses = [Use(network.number(Resource("link", way), ranks), np.where(turns, turning, one))]
        if turns.any():
            other = network.number(Resource("link", IN if way == OUT else OUT), ranks)
            uses.append(Use(other, np.where(turns, turning, 0.0)))
        return uses

    def card(self, groups: ProcessGroups, way: Way, *, reduction: bool = False) -> list[Use]:
        """Every rank's traffic with the ranks of its group in other domains: over the card that serves it, and over
        switches above it that are oversubscribed."""
        network = self._network
        rate = network.of_kind([kind.nic_all_reduce if reduction else kind.nic_all_to_all for kind in network.kinds])
        return [
            Use(network.number(Resource("nic", way), network.card_of_rank), 1 / rate),
            *(
                Use(network.number(Resource("uplink", way, level), switch), share / rate)
                for level, switch, share, rate in self._above(groups)
            ),
        ]

    def _above(self, groups: ProcessGroups) -> Iterator[tuple[int, Ints, Floats, Floats]]:
        """(level, [W] switch, [W] share of the rank's traffic beyond its domain that passes it, [W] bytes/s)."""
        network = self._network
        for level in network.oversubscribed:
            switch = network.switch_of_rank(level)
            in_group, in_part = groups.sharing(switch)
            beyond = groups.size - np.where(switch == NONE, 0, in_group) - groups.part_size + in_part
            share = np.maximum(beyond, 0) / np.maximum(groups.size - groups.part_size, 1)
            rate = np.where(switch == NONE, 1.0, network.fabric.switch_bytes_per_s[level][switch])
            yield level, switch, share, rate

    # --- hubs ------------------------------------------------------------------------------------------------------

    def to_part(self, groups: ProcessGroups, way: Way) -> list[Use]:
        """Every rank's traffic from (OUT) or to (IN) all ranks of its part alike."""
        first = self._hubs_of(groups) + (groups.part_count if way == IN else 0)
        return [Use(groups.part_of_rank + first, np.ones(self._network.world))]

    def to_group(self, groups: ProcessGroups, way: Way) -> list[Use]:
        """Every rank's traffic from (OUT) or to (IN) all ranks of its group in other domains alike."""
        first = self._hubs_of(groups) + 2 * groups.part_count + (groups.count if way == IN else 0)
        return [Use(groups.group_of_rank + first, np.ones(self._network.world))]

    def _hubs_of(self, groups: ProcessGroups) -> int:
        """The first hub of these groups: those of their parts (OUT, then IN), then their own (OUT, then IN)."""
        if groups not in self._first_hub:
            self._first_hub[groups] = self._hub_count
            self._hub_count += 2 * (groups.part_count + groups.count)
        return self._first_hub[groups]

    def hubs(self) -> Hubs:
        """What stands behind every hub that was asked for."""
        hub, resource, weight = [], [], []
        for groups in self._first_hub:
            for way in (OUT, IN):
                rate = self._network.of_kind([kind.link_all_to_all for kind in self._network.kinds])
                others = np.maximum(groups.part_size - 1, 1)
                for port in self._both_ways(way, 1 / rate / groups.part_size, 0.5 / rate / others):
                    hub.append(self.to_part(groups, way)[0].of)
                    resource.append(port.of)
                    weight.append(port.weight)
            if not groups.leave_domains:
                continue
            for way in (OUT, IN):
                for use in self.card(groups, way):
                    used = use.of != NONE
                    hub.append(self.to_group(groups, way)[0].of[used])
                    resource.append(use.of[used])
                    weight.append((use.weight / groups.size)[used])
        return Hubs(np.concatenate(hub), np.concatenate(resource), np.concatenate(weight)) if hub else Hubs.none()
