"""The collectives among process groups: what every rank moves inside its domain, and between domains.

Each law takes the groups and the bytes. Sums are reduced inside a domain first, so that what leaves it is a share.
"""

from dataclasses import dataclass

import numpy as np

from cost_models.resources import Way
from cost_models.shards import Floats
from cost_models.simulator.graph import Use
from cost_models.simulator.network import IN, OUT
from cost_models.simulator.process_groups import ProcessGroups
from cost_models.simulator.traffic import LinkTraffic


@dataclass(frozen=True)
class Transfer:
    """What every rank moves in a collective: inside its domain, or between domains."""

    bytes: Floats
    """[W]"""
    uses: list[Use]
    hubs: list[Use]
    inside: bool
    reduction: bool = False
    around: bool = False
    """Whether it goes around a ring of domains, one after the other."""


class Collectives:
    """The transfers of collectives over the links of a cluster."""

    def __init__(self, traffic: LinkTraffic) -> None:
        self._traffic = traffic

    def all_to_all(
        self, groups: ProcessGroups, to_each: Floats, way: Way, beyond: ProcessGroups | None = None
    ) -> list[Transfer]:
        """Every rank sends (OUT) or gets (IN) `to_each` [W] bytes to or from every other rank of its group, or every
        rank of its group that is not in its smaller group of `beyond`."""
        traffic, other = self._traffic, IN if way == OUT else OUT
        near, near_inside = (1, 1) if beyond is None else (beyond.size, beyond.part_size)
        inside = groups.part_size - near_inside
        transfers = [Transfer(to_each * inside, traffic.port(way, spread=groups), traffic.to_part(groups, other), True)]
        if groups.leave_domains:
            outside = groups.size - near - inside
            uses, hubs = traffic.card(groups, way), traffic.to_group(groups, other)
            transfers.append(Transfer(to_each * outside, uses, hubs, False))
        return transfers

    def reduce_scatter(self, groups: ProcessGroups, size: Floats) -> list[Transfer]:
        """Every rank has `size` [W] bytes of sums over its whole group, and is to get its share of the totals; read
        backwards, an all-gather."""
        return self._rings(groups, size, passes=1, reduction=False)

    def all_reduce(self, groups: ProcessGroups, size: Floats) -> list[Transfer]:
        """Every rank has `size` [W] bytes of sums over its whole group, and is to get all of the totals."""
        return self._rings(groups, size, passes=2, reduction=True)

    def _rings(self, groups: ProcessGroups, size: Floats, *, passes: int, reduction: bool) -> list[Transfer]:
        """A ring inside the parts of a group, then one among its parts with the shares: every rank sends so much, and
        gets as much."""
        traffic, part = self._traffic, groups.part_size
        inside = [*traffic.port(OUT, reduction=reduction), *traffic.port(IN, reduction=reduction)]
        transfers = [Transfer(np.asarray(passes * size * (part - 1) / part), inside, [], True, reduction)]
        if groups.leave_domains:
            in_network = reduction and self._traffic.reduces_in_network
            across = size / part if in_network else passes * size / part * (1 - part / groups.size)
            uses = [
                *traffic.card(groups, OUT, reduction=reduction),
                *traffic.card(groups, IN, reduction=reduction),
            ]
            transfers.append(Transfer(np.asarray(across), uses, [], False, reduction, not reduction))
        return transfers
