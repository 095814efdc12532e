"""The links of a cluster as resources of the engine: what a byte on its way takes of each.

The capacity of every resource is one second per second, and a transfer's weight on it is the seconds that one byte
keeps it busy at the rate that such traffic achieves: exchanges and reductions achieve different rates on one wire.
"""

import copy
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from cost_models.kinds import RankKind
from cost_models.resources import (
    FRONT_END,
    HOST_LINK,
    HOST_LINK_IN,
    HOST_LINK_OUT,
    LINK_IN,
    LINK_OUT,
    NIC_IN,
    NIC_OUT,
    PCIE,
    WAYS,
    Resource,
    Way,
)
from cost_models.shards import BELOW_HBM, EVERYWHERE, SHARED_BY, WORLD, Floats, Ints, MemoryTier
from cost_models.simulator.graph import NONE, Flags, Use
from cost_models.simulator.process_groups import ProcessGroups, numbered, position
from topologies.cluster import Topology
from topologies.fabric import Fabric

OUT, IN = WAYS
_HOPS = {"nic_peers": "peers_hops_s", "nic_in_tower": "tower_hops_s"}
"""What a kind of rank says of latency, by what it says of the rate; where that is not the usual one."""
Instance = tuple[Resource, int]
"""A resource, and the number of its owner: the rank of a port, a card, a switch, a node, a node group."""


class SimulatedNetwork:
    """Resources of one cluster, and the process groups that shardings know. W ranks, R resources.

    A resource has one instance for every rank (its port into its domain, its own PCIe link), card, PCIe switch,
    node, node group or switch of the network that owns it. Instances are numbered one resource after the other.

    `group_of_rank` [W] says which ranks shard tables among themselves; all of them where it is None. Their domains, or
    the parts of these that they have, make up so many `towers`; each is one where that is None.

    Where there is `host_traffic` in a step (tables below HBM), it shares each rank's own link to the host with what the
    rank exchanges over it, either way apart; so do exchanges with neighbours and over cards that cross the same link.
    """

    def __init__(
        self,
        topology: Topology,
        kinds: tuple[RankKind, ...],
        lost_cards: Sequence[int] = (),
        *,
        host_traffic: bool = False,
        group_of_rank: Ints | None = None,
        towers: int | None = None,
    ) -> None:
        self.host_traffic = host_traffic or any(kind.shares_own_link for kind in kinds)
        self.topology, self.kinds, self.fabric = topology, kinds, Fabric(topology)
        self.card_of_rank: Ints = self._cards(lost_cards)
        self.world = topology.world_size
        self.kind_of_rank: Ints = self.fabric.group_of_rank
        self.node_of_rank: Ints = self.fabric.node_of_rank
        self.domain_of_rank: Ints = self.fabric.domain_of_rank
        one: Ints = np.zeros(self.world, dtype=np.int64)
        self.everyone = ProcessGroups(one, self.domain_of_rank)
        """All ranks as one group."""
        self._tower_count = towers
        self._shard_among(one if group_of_rank is None else group_of_rank)
        self.first: dict[Resource, int] = {}
        """The number of the first instance of every resource."""
        self.count = 0
        """Instances of all resources: R."""
        for resource, instances in self._instances():
            self.first[resource] = self.count
            self.count += instances

    def seen_by(self, kinds: tuple[RankKind, ...], group_of_rank: Ints | None = None) -> "SimulatedNetwork":
        """The same links as ranks use them that achieve other rates in some collectives, or shard tables among others:
        those of their group, `group_of_rank` [W]."""
        other = copy.copy(self)
        other.kinds = kinds
        if group_of_rank is not None:
            other._shard_among(group_of_rank)
        return other

    def _shard_among(self, sharding: Ints) -> None:
        """Let the ranks of each group [W] shard tables together."""
        alone = np.arange(self.world)
        holders = alone, numbered(self.node_of_rank, sharding), sharding, alone
        self.extents: tuple[ProcessGroups, ...] = tuple(ProcessGroups(each, self.domain_of_rank) for each in holders)
        """The groups of every extent of a block, in the order of `EXTENTS`, among the ranks that shard together."""
        self.tower_of_rank: Ints = _dealt(self.domain_of_rank, sharding, self._tower_count)
        """[W] number of each rank's tower among those of the ranks that shard with it."""
        self.towers = ProcessGroups(numbered(sharding, self.tower_of_rank), self.domain_of_rank)
        """The ranks of each tower."""
        self.peers = ProcessGroups(numbered(sharding, position(self.towers.group_of_rank)), self.domain_of_rank)
        """The ranks at one place in all towers of theirs."""

    @property
    def has_towers(self) -> bool:
        """Whether ranks that shard together are in several towers, of which some have several ranks."""
        size = self.towers.size
        return bool(((size > 1) & (size < self.extents[WORLD].size)).any())

    def _instances(self) -> Iterator[tuple[Resource, int]]:
        """Every resource, and how many instances it has."""
        yield from ((resource, self.world) for resource in (LINK_OUT, LINK_IN))
        yield from ((resource, len(self.fabric.nic_bytes_per_s)) for resource in (NIC_OUT, NIC_IN))
        yield HOST_LINK, self.world
        if self.host_traffic:
            yield from ((resource, self.world) for resource in (HOST_LINK_OUT, HOST_LINK_IN))
        yield PCIE, int(self.fabric.pcie_switch_of_rank.max()) + 1
        always = [tier for tier in BELOW_HBM if tier in EVERYWHERE]
        yield from ((Resource(tier), self._pools(tier)) for tier in always)
        yield FRONT_END, self.topology.node_count
        described = [tier for tier in BELOW_HBM if tier not in always]
        yield from ((Resource(tier), self._pools(tier)) for tier in described if self._has(tier))
        for level, switches in self.oversubscribed.items():
            yield from ((Resource("uplink", way, level), switches) for way in WAYS)

    def _has(self, tier: MemoryTier) -> bool:
        return any(tier in kind.memories for kind in self.kinds)

    def _pools(self, tier: MemoryTier) -> int:
        return int(self.pool_of_rank(tier).max()) + 1

    def pool_of_rank(self, tier: MemoryTier) -> Ints:
        """[W] number of the pool of a memory below HBM that each rank draws on."""
        return self.kind_of_rank if SHARED_BY[tier] == "group" else self.node_of_rank

    def _cards(self, lost: Sequence[int]) -> Ints:
        """[W] the scale-out card that each rank uses; ranks of a lost one use the next of their node.

        Raises ValueError for a card that there is not, and for a node without any left.
        """
        serving = self.fabric.nic_of_rank
        cards = len(self.fabric.nic_bytes_per_s)
        if unknown := [card for card in lost if not 0 <= card < cards]:
            raise ValueError(f"there is no scale-out card {unknown[0]}; there are {cards}, numbered from 0")
        used = serving.copy()
        for rank in np.flatnonzero(np.isin(serving, list(lost))):
            of_node = np.unique(serving[self.fabric.node_of_rank == self.fabric.node_of_rank[rank]])
            left = of_node[~np.isin(of_node, list(lost))]
            if not len(left):
                raise ValueError(f"node {self.fabric.node_of_rank[rank]} has no scale-out card left")
            used[rank] = left[np.searchsorted(left, serving[rank]) % len(left)]
        return used

    def of_kind(self, values: list[float]) -> Floats:
        """[W] a value of each kind, for every rank."""
        return np.array(values, dtype=np.float64)[self.kind_of_rank]

    @cached_property
    def takes_turns(self) -> Flags:
        """[W] whether a rank's port carries what goes out and what comes in one after the other."""
        return np.array([kind.link_takes_turns for kind in self.kinds])[self.kind_of_rank]

    @cached_property
    def instances(self) -> list[Instance]:
        """[R] every instance of every resource."""
        counts = np.diff([*self.first.values(), self.count])
        return [(resource, i) for resource, count in zip(self.first, counts, strict=True) for i in range(count)]

    def number(self, resource: Resource, instance: Ints) -> Ints:
        """Numbers of these instances of a resource; NONE stays NONE."""
        return np.where(instance == NONE, NONE, instance + self.first[resource])

    # --- traffic between ranks -------------------------------------------------------------------------------------

    @cached_property
    def oversubscribed(self) -> dict[int, int]:
        """How many switches every level has that is oversubscribed and does not hold the whole cluster."""
        return {
            level: len(self.fabric.switch_bytes_per_s[level])
            for level, switches in enumerate(self.topology.network.levels)
            if switches.oversubscription > 1
            and switches.nodes < self.topology.node_count
            and self.everyone.leave_domains
        }

    def switch_of_rank(self, level: int) -> Ints:
        """[W] the switch of a level above the card that serves each rank; NONE for ranks without a card."""
        plane = self.fabric.switch_of_node[level][self.node_of_rank]
        above = self.fabric.leaf_of_nic[self.card_of_rank] if level == 0 else plane
        return np.where(self.card_of_rank == NONE, NONE, above)

    def plane_of_rank(self, level: int, *, around: bool = False) -> Ints:
        """[W] the switches of a level, as one, among which a rank's traffic needs no higher level; NONE without a card.

        With rails these are all leaves of a plane: sums go `around` rings of equal cards, and other messages change to
        the receiver's rail inside the node, over its fabric (PXN of NCCL 2.12, which is the default). Where some nodes
        have no fabric, messages between rails cross the uplinks of their leaves.
        """
        if level or not (around or all(group.links.scale_up for group in self.topology.nodes)):
            return self.switch_of_rank(level)
        return np.where(self.card_of_rank == NONE, NONE, self.fabric.switch_of_node[level][self.node_of_rank])

    @cached_property
    def changes_rails(self) -> bool:
        """Whether messages go up from the leaf of the receiver's rail above their node, not from the sender's."""
        return self.fabric.rails_are_apart and all(group.links.scale_up for group in self.topology.nodes)

    @property
    def rail_of_rank(self) -> Ints:
        """[W] the rail of the card that serves each rank; NONE without a card."""
        return np.where(self.card_of_rank == NONE, NONE, self.fabric.leaf_of_nic[self.card_of_rank] % self.fabric.rails)

    def leaf_of_rank(self, rail: Ints | int) -> Ints:
        """[W] the leaf of a rail, one for all or each its own, that the cards of each rank's node hang on; NONE without
        a card."""
        plane = self.fabric.switch_of_node[0][self.node_of_rank]
        return np.where(self.card_of_rank == NONE, NONE, plane * self.fabric.rails + rail)

    def latency_s(self, overhead_s: float, *, reduction: bool = False, rate: str = "") -> tuple[Floats, float]:
        """[W] latency of the smallest exchange inside each rank's domain, and that of one across domains, where cards
        achieve this `rate` of a kind of rank."""
        hops = "reduction_hops_s" if reduction else _HOPS.get(rate, "exchange_hops_s")
        groups, levels = self.topology.nodes, self.topology.network.levels
        inside = []
        for kind, group in zip(self.kinds, groups, strict=True):
            measured = (kind.reduction_protocols if reduction else kind.exchange_protocols)[0].latency_s
            by_path = overhead_s + (group.links.scale_up or group.links.pcie).latency
            inside.append(by_path if measured is None else measured)
        cards = [
            group.links.scale_out.latency + float(getattr(kind, hops))
            for kind, group in zip(self.kinds, groups, strict=True)
            if group.links.scale_out
        ]
        across = overhead_s + max(cards, default=0.0) + sum(level.latency for level in levels)
        return self.of_kind(inside), max(across, *inside)

    def protocol_s(self, size: Floats, *, reduction: bool = False) -> Floats:
        """[W] what a collective that moves `size` [W] bytes over a rank's port takes alone, by the fastest protocol for
        so many, beyond the latency of the smallest one."""
        seconds: Floats = np.zeros(self.world)
        for number, kind in enumerate(self.kinds):
            here = np.flatnonzero(self.kind_of_rank == number)
            protocols = kind.reduction_protocols if reduction else kind.exchange_protocols
            waits = np.array([each.latency_s or 0.0 for each in protocols])
            rates = np.array([each.bytes_per_s for each in protocols])
            seconds[here] = (waits - waits[0] + size[here, None] / rates).min(axis=1)
        return seconds

    # --- traffic with the host -------------------------------------------------------------------------------------

    def host(self, *, waited: float = 1.0, received: float = 1.0, sent: float = 0.0) -> list[Use]:
        """Every rank's traffic with its host: `waited` passes over its own link, one over the switch; of each byte so
        much is `received` by the rank, and so much `sent`."""
        pcie = self.of_kind([kind.pcie_bytes_per_s for kind in self.kinds])
        uses = [
            Use(self.number(HOST_LINK, np.arange(self.world)), waited / pcie),
            Use(self.number(PCIE, self.fabric.pcie_switch_of_rank), 1 / pcie),
        ]
        return [*uses, *self.own_host_link("in", received / pcie), *self.own_host_link("out", sent / pcie)]

    def own_host_link(self, way: Way, seconds_per_byte: Floats) -> list[Use]:
        """One way of every rank's own link to its host, for those whose bytes [W] cross it; nothing where it carries
        nothing else."""
        if not self.host_traffic or not seconds_per_byte.any():
            return []
        numbers = self.number(Resource("host_link", way), np.arange(self.world))
        return [Use(np.where(seconds_per_byte > 0, numbers, NONE), seconds_per_byte)]

    def in_place(self, tier: MemoryTier, seconds_per_byte: Floats, written: float) -> list[Use]:
        """Every rank's kernels that read a memory of its node and, for a share of the bytes, write it."""
        rates = [kind.memories[tier].link_bytes_per_s if tier in kind.memories else np.inf for kind in self.kinds]
        link, *others = self.host(received=1 - written, sent=written)
        return [Use(link.of, 1 / self.of_kind(rates)), *others, self._memory(tier, seconds_per_byte)]

    def fetch(self, tier: MemoryTier, seconds_per_byte: Floats, waited: float) -> list[Use]:
        """Every rank's traffic with a memory below HBM that missed rows come from, and as many evicted ones go to."""
        uses = [*self.host(waited=waited, sent=1.0), self._memory(tier, seconds_per_byte)]
        if any(kind.memories[tier].is_remote for kind in self.kinds if tier in kind.memories):
            rate = self.of_kind([kind.front_end_bytes_per_s or np.inf for kind in self.kinds])
            uses.append(Use(self.number(FRONT_END, self.node_of_rank), 1 / rate))
        return uses

    def _memory(self, tier: MemoryTier, seconds_per_byte: Floats) -> Use:
        return Use(self.number(Resource(tier), self.pool_of_rank(tier)), seconds_per_byte)

    def memories(self) -> list[Use]:
        """The memories below HBM that every rank draws on, in their order."""
        tiers = [tier for tier in BELOW_HBM if Resource(tier) in self.first]
        return [self._memory(tier, np.zeros(self.world)) for tier in tiers]

    def first_answer_s(self, tier: MemoryTier) -> Floats:
        """[W] from a request for missed rows until the first one is there."""
        return self.of_kind([kind.memories[tier].latency_s if tier in kind.memories else 0.0 for kind in self.kinds])

    def front_end(self) -> list[Use] | None:
        """Training data on its way to a rank's node; None where no card is described."""
        cards = [group.links.front_end for group in self.topology.nodes]
        if not all(cards):
            return None
        rate = self.of_kind([card.count * card.bandwidth for card in cards if card])
        return [Use(self.number(FRONT_END, self.node_of_rank), 1 / rate)]


def _dealt(domain: Ints, sharding: Ints, towers: int | None) -> Ints:
    """[W] the domains of the ranks that shard together dealt out to so many towers, consecutive ones to each."""
    tower = np.empty_like(domain)
    for group in range(int(sharding.max()) + 1):
        here = sharding == group
        place = np.unique(domain[here], return_inverse=True)[1]
        domains = int(place.max()) + 1
        tower[here] = place * (towers or domains) // domains
    return tower
