"""The fabric of a cluster as index arrays: which domain, PCIe switch, card and network switches serve each rank.

Traffic takes the scale-up fabric where both ranks are in one domain, else PCIe where they are in one node,
else their own network cards and the network. It is never relayed by a third rank.

Every bandwidth is for one direction, in bytes/s; every latency is in seconds.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from topologies.cluster import NodeGroup, Topology

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Vertex = tuple[str | int, ...]
"""`("rank", 3)`, `("port", 3)`, `("scale-up", 0)`, `("pcie", 1)`, `("host", 0)`, `("nic", 3)`,
`("switch", level, 2)`, `("core",)`, `("ddr", 0)`, `("ssd", 0)`, `("scm", 0)`, `("front-end", 0)`, `("remote", 0)` (the
hosts of a node group); all numbers count over the whole cluster."""


class Fabric:
    """A topology as index arrays. W ranks, N nodes, M cards, S PCIe switches; all indices count from 0.

    Attributes:
        group_of_rank: [W] node group.
        node_of_rank: [W] node.
        local_rank: [W] place within the node.
        domain_of_rank: [W] scale-up domain; the ranks of a node where there is no scale-up fabric.
        scale_up_bytes_per_s: [W] from the rank into its domain; 0 where there is no scale-up fabric.
        port_bytes_per_s: [W] the rank's own PCIe link.
        port_carries_cards: [W] whether traffic with the rank's card crosses that link.
        nic_of_rank: [W] the scale-out card that serves the rank, -1 for none. Several cards of one rank are
            one card with their bandwidths summed.
        nic_bytes_per_s: [M] of each card.
        leaf_of_nic: [M] the switch of level 0 that the card is plugged into; 0 when there are no levels.
        pcie_switch_of_rank: [W] the PCIe switch above the rank.
        pcie_switch_bytes_per_s: [S] its uplink to the host.
        group_of_node: [N] node group.
        switch_of_node: [level][N] the switch above the node. With rails, at level 0, the plane of leaves
            above it: plane p has the leaves p·R … p·R + R − 1 for R rails.
        switch_bytes_per_s: [level][switch] uplink of every switch to the next level.
        rails: how many leaves a plane has; 1 without rails.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        groups = topology.nodes
        nodes = np.array([group.count for group in groups])
        per_node = np.array([group.accelerators.count for group in groups])
        self.group_of_node: Ints = np.repeat(np.arange(len(groups)), nodes)
        ranks_of_node = per_node[self.group_of_node]
        self.node_of_rank: Ints = np.repeat(np.arange(len(self.group_of_node)), ranks_of_node)
        self.group_of_rank: Ints = self.group_of_node[self.node_of_rank]
        first_rank = np.cumsum(ranks_of_node) - ranks_of_node
        self.local_rank: Ints = np.arange(len(self.node_of_rank)) - first_rank[self.node_of_rank]

        ups = [group.links.scale_up for group in groups]
        self.domain_of_rank: Ints = self._shares([group.domain_ranks for group in groups])
        self.scale_up_bytes_per_s: Floats = self._per_rank([up.bandwidth if up else 0.0 for up in ups])

        pcie = [group.links.pcie for group in groups]
        self.port_bytes_per_s: Floats = self._per_rank([link.bandwidth for link in pcie])
        self.port_carries_cards: Flags = self._per_rank([link.carries_scale_out for link in pcie]) > 0
        self.pcie_switch_of_rank: Ints = self._shares([link.accelerators_per_switch for link in pcie])
        self.pcie_switch_bytes_per_s: Floats = self._per_owner(self.pcie_switch_of_rank, self.port_bytes_per_s)
        self._add_cards()
        self._add_levels()

    def _per_rank(self, of_group: Sequence[float]) -> Floats:
        return np.array(of_group, dtype=np.float64)[self.group_of_rank]

    def _shares(self, size_of_group: Sequence[int]) -> Ints:
        """[W] the ranks of every group dealt out in consecutive shares of its size, numbered throughout."""
        size = np.array(size_of_group)[self.group_of_rank]
        first = np.searchsorted(self.group_of_rank, self.group_of_rank)  # of the rank's group
        within = np.arange(len(size)) - first
        starts = within % size == 0
        return np.cumsum(starts) - 1

    @staticmethod
    def _per_owner(owner_of_rank: Ints, value_of_rank: Floats) -> Floats:
        """The value of the first rank of every owner, owners in order."""
        return value_of_rank[np.unique(owner_of_rank, return_index=True)[1]]

    def _add_cards(self) -> None:
        groups = self.topology.nodes
        cards = [_cards(group) for group in groups]
        has = np.array([count > 0 for count, _ in cards])[self.group_of_rank]
        share = [group.accelerators.count // max(count, 1) for group, (count, _) in zip(groups, cards, strict=True)]
        # A group without cards takes one number per node here; they are closed up again below.
        numbers = self._shares(share)
        used, found = np.unique(numbers[has], return_inverse=True)
        self.nic_of_rank: Ints = np.full(len(numbers), -1)
        self.nic_of_rank[has] = found
        first = np.searchsorted(numbers, used)
        self._wire_bytes_per_s: Floats = self._per_rank([bandwidth for _, bandwidth in cards])[first]
        self.nic_bytes_per_s: Floats = self._per_rank([group.scale_out_bytes_per_s for group in groups])[first]
        self._node_of_nic: Ints = self.node_of_rank[first]
        self._rail_of_nic: Ints = self.local_rank[first] // np.array(share)[self.group_of_rank[first]]

    def _add_levels(self) -> None:
        network = self.topology.network
        node = np.arange(len(self.group_of_node))
        self.switch_of_node: tuple[Ints, ...] = tuple(node // level.nodes for level in network.levels)
        self.rails = int(self._rail_of_nic.max(initial=0)) + 1 if network.rails and network.levels else 1
        self.leaf_of_nic: Ints = np.zeros_like(self._node_of_nic)
        if network.levels:
            plane = self.switch_of_node[0][self._node_of_nic]
            self.leaf_of_nic = plane * self.rails + (self._rail_of_nic if self.rails > 1 else 0)
        below, members = self.leaf_of_nic, self._wire_bytes_per_s
        uplinks = []
        for number, level in enumerate(network.levels):
            count = int(self.switch_of_node[number].max()) + 1
            switches = count * (self.rails if number == 0 else 1)
            uplinks.append(np.bincount(below, weights=members, minlength=switches) / level.oversubscription)
            below, members = self._parents(number, switches), uplinks[-1]
        self.switch_bytes_per_s: tuple[Floats, ...] = tuple(uplinks)

    @property
    def rails_are_apart(self) -> bool:
        """Whether each rail has a leaf of its own, and all nodes have as many rails: leaves of a plane are alike."""
        cards = {count for count, _ in map(_cards, self.topology.nodes)}
        return self.rails > 1 and len(cards) == 1

    def _parents(self, level: int, switches: int) -> Ints:
        """[switches of the level] the switch of the next level above each; 0 (the core) above the last."""
        levels = self.topology.network.levels
        if level + 1 == len(levels):
            return np.zeros(switches, dtype=np.int64)
        plane = np.arange(switches) // (self.rails if level == 0 else 1)
        return plane * levels[level].nodes // levels[level + 1].nodes

    def parent(self, level: int, switch: int) -> Vertex:
        """What the switch of a level hangs on; level -1 asks for the card of that number."""
        levels = self.topology.network.levels
        if level + 1 == len(levels):
            return ("core",)
        if level < 0:
            return ("switch", 0, int(self.leaf_of_nic[switch]))
        return ("switch", level + 1, int(self._parents(level, switch + 1)[switch]))


def _cards(group: NodeGroup) -> tuple[int, float]:
    """How many scale-out cards a node has, and the bandwidth of each; the cards of one rank are one."""
    nics = group.links.scale_out
    if nics is None:
        return 0, 0.0
    cards = min(nics.count, group.accelerators.count)
    return cards, nics.bandwidth * nics.count / cards
