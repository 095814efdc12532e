"""The flows of an all-to-all over every kind of link, counted in closed form, and the link that binds them.

Between two ranks of the group flows one unit each way, so what goes up a link equals what comes down, and
only the upward links are counted.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from topologies.fabric import Fabric, Floats, Ints, Vertex

Ends = tuple[Vertex, Vertex]


@dataclass(frozen=True)
class Flow:
    """One kind of link: per link, the ordered pairs of ranks whose traffic crosses it, and its bandwidth."""

    pairs: Ints
    bytes_per_s: Floats
    ends: Callable[[int], Ends]


@dataclass(frozen=True)
class Bottleneck:
    """What each of a group of ranks can send at most, and the link that binds it."""

    bytes_per_s: float
    ends: Ends | None
    """Start and end of the link, the one next to the ranks when several bind; None: one rank sends nothing."""


def all_to_all_bottleneck(fabric: Fabric, ranks: Sequence[int] | Ints) -> Bottleneck:
    """The bytes/s that each of `ranks` can send when every one sends equally to every other, and what binds them.

    Raises ValueError for an empty group and for a rank that is given twice.
    """
    group = np.asarray(ranks, dtype=np.int64)
    if not len(group) or len(np.unique(group)) < len(group):
        raise ValueError("a group has at least one rank, and none twice")
    bottleneck = Bottleneck(float("inf"), None)
    for flow in upward_flows(fabric, group):
        crossing = flow.pairs > 0
        if not crossing.any():
            continue
        bound = flow.bytes_per_s[crossing] * (len(group) - 1) / flow.pairs[crossing]
        tightest = int(np.argmin(bound))
        if bound[tightest] < bottleneck.bytes_per_s:
            bottleneck = Bottleneck(float(bound[tightest]), flow.ends(int(np.flatnonzero(crossing)[tightest])))
    return bottleneck


def upward_flows(fabric: Fabric, group: Ints) -> Iterator[Flow]:
    """The flows of an all-to-all of the distinct ranks `group` [k], from the ranks upwards.

    O(k log k). The links that go from a port to its switch and to its card are left out: the port's own link
    has the same bandwidth and at least their traffic. So are lanes of a rank to its card, which have that of the card.
    """
    peers = _Peers(fabric, group)
    up = fabric.scale_up_bytes_per_s[group] > 0
    domain, switch, nic = (
        owner[group] for owner in (fabric.domain_of_rank, fabric.pcie_switch_of_rank, fabric.nic_of_rank)
    )
    over_pcie, over_network = peers.over_pcie(np.zeros_like(group)), peers.over_network(np.zeros_like(group))

    in_domain = np.where(up, peers.together(domain) - 1, 0)
    yield Flow(
        in_domain,
        fabric.scale_up_bytes_per_s[group],
        lambda i: (("rank", int(group[i])), ("scale-up", int(domain[i]))),
    )
    yield Flow(
        over_pcie + np.where(fabric.port_carries_cards[group], over_network, 0),
        fabric.port_bytes_per_s[group],
        lambda i: (("rank", int(group[i])), ("port", int(group[i]))),
    )
    uplink = fabric.pcie_switch_bytes_per_s
    yield Flow(
        _sums(switch, over_pcie - peers.over_pcie(switch), len(uplink)),
        uplink,
        lambda s: (
            ("pcie", s),
            ("host", int(fabric.node_of_rank[np.searchsorted(fabric.pcie_switch_of_rank, s)])),
        ),
    )
    if not len(fabric.nic_bytes_per_s) or not over_network.any():
        return
    yield Flow(
        _sums(nic, over_network, len(fabric.nic_bytes_per_s)),
        fabric.nic_bytes_per_s,
        lambda i: (("nic", i), fabric.parent(-1, i)),
    )
    for level, rates in enumerate(fabric.switch_bytes_per_s):
        above = fabric.leaf_of_nic[nic] if level == 0 else fabric.switch_of_node[level][fabric.node_of_rank[group]]
        yield Flow(
            _sums(above, over_network - peers.over_network(above), len(rates)),
            rates,
            partial(_uplink, fabric, level),
        )


def _uplink(fabric: Fabric, level: int, switch: int) -> Ends:
    return ("switch", level, switch), fabric.parent(level, switch)


def _sums(owner: Ints, value: Ints, count: int) -> Ints:
    """[count] the sum of `value` over the ranks of every owner; ranks without one (-1) are left out."""
    owned = owner >= 0
    return np.bincount(owner[owned], weights=value[owned], minlength=count).astype(np.int64)


class _Peers:
    """For every rank of a group, how many others it reaches which way, among those with its own label."""

    def __init__(self, fabric: Fabric, group: Ints) -> None:
        self.node = fabric.node_of_rank[group]
        # A rank without scale-up is alone in its domain.
        up = fabric.scale_up_bytes_per_s[group] > 0
        self.domain = np.where(up, fabric.domain_of_rank[group], -1 - np.arange(len(group)))

    @staticmethod
    def together(*labels: Ints) -> Ints:
        """[k] how many ranks of the group, itself included, share all labels with each."""
        key = np.zeros_like(labels[0])
        for label in labels:
            _, number = np.unique(label, return_inverse=True)
            key = np.unique(key * (number.max() + 1) + number, return_inverse=True)[1]
        return np.asarray(np.bincount(key)[key], dtype=np.int64)

    def over_pcie(self, label: Ints) -> Ints:
        """[k] peers of the same label, in the node but outside the domain."""
        return self.together(label, self.node) - self.together(label, self.node, self.domain)

    def over_network(self, label: Ints) -> Ints:
        """[k] peers of the same label, outside both the node and the domain."""
        return (
            self.together(label)
            - self.together(label, self.node)
            - self.together(label, self.domain)
            + self.together(label, self.node, self.domain)
        )
