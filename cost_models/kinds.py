"""Kinds of rank: what the cost terms know of the hardware, one record per node group.

Every rank of a node group is alike, so that a cost is computed once per kind, not once per rank.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from cost_models.arithmetic import ProductRate, product_rates
from cost_models.beside_products import BesideRates
from cost_models.between_domains import NOTHING, BetweenDomains, between_domains
from cost_models.coefficients import (
    CollectiveOperation,
    DeviceCoefficients,
    LinkCoefficients,
    device_coefficients,
    link_coefficients,
)
from cost_models.collective_laws import CollectiveLaw, Protocol, collective_law
from cost_models.groups import RankGroup
from cost_models.lookup_rates import BagRates, LookupRates, bag_rates, either, launch_s, lookup_rates
from cost_models.memory_rates import MemoryRates, front_end_rate, memories_below_hbm, usable_bytes
from cost_models.resources import FRONT_END, PCIE, Resource
from cost_models.small_products import SmallRates, small_rates
from cost_models.software import kernels_of, software_of
from cost_models.tiers import SHARED_BY
from cost_models.workload.formats import wire_bytes as wire_bytes_of
from cost_models.workload.models import Workload
from topologies.cluster import NodeGroup, Topology
from topologies.hardware import MemoryTier


@dataclass(frozen=True)
class RankKind:
    """The hardware that one rank of a node group sees; bandwidths are achieved ones, in bytes/s, one direction."""

    group: str
    world_size: int
    node_ranks: int
    """Ranks on its node."""
    pcie_ranks: int
    """Ranks on its PCIe switch."""
    group_ranks: int
    """Ranks of its node group."""
    domain_ranks: int
    """Ranks in its scale-up domain."""
    tower_domains: int
    """Scale-up domains of its tower."""
    lookup: LookupRates
    lookup_launch_s: float
    """Fixed time of the forward kernels."""
    update_launch_s: float
    """Fixed time of the backward kernels."""
    update_passes: float | None
    """Row reads per lookup of a pooled table's backward pass, where they were measured on the device."""
    update_row_s: float
    """Time of a lookup in that pass beyond the bytes it moves."""
    sorts_ids_apart: bool
    """Whether sorting ids by row before that pass is not part of `update_row_s`: of no calibrated device."""
    update_distinct_row_s: float
    """Time of a distinct row in that pass beyond the bytes it moves."""
    update_row_passes: float
    """Row reads for each distinct row that it rewrites."""
    id_cut_s: float
    """Time of an id that is sorted by the rank that holds its row, for tables cut by rows."""
    dense_update_s: float
    """Time of a byte of a replicated table's gradient: made, averaged and applied as a whole."""
    regroup_s: float
    """Time of a byte of vectors from several kinds of sharding: joined by sample, its gradient taken apart."""
    regroup_piece_s: float
    """Time of a piece of such a vector beyond its bytes."""
    hbm_bytes_per_s: float
    """Peak, for streaming traffic."""
    products: tuple[ProductRate, ...]
    """Rates of matrix products in the workload's dense data type, of which the slowest holds."""
    small_products: SmallRates
    """Those of products within samples, and of layers that no fast kernel takes."""
    beside: BesideRates
    """What kernels beside products take of device memory."""
    exchange_protocols: tuple[Protocol, ...]
    """Those of an all-to-all over the rank's port into its domain (or its PCIe link where there is no scale-up
    fabric), of which the fastest is taken: each waits longer than the one before, and has a higher rate."""
    reduction_protocols: tuple[Protocol, ...]
    """Those of an all-reduce."""
    sums_slowdown: float
    """Time of partial sums that are reduced (or gathered, backwards) over that of an all-to-all of as many bytes."""
    link_takes_turns: bool
    """Whether its port carries what goes out and what comes in one after the other."""
    nic_all_to_all: float
    """Rate of the card that serves the rank (all its cards together); infinite where none is described."""
    nic_node_sums: float
    """The same for sums that the ranks of a node have reduced: higher where the software sends them by rail."""
    nic_peers: float
    """The same among peers: one rank of each tower."""
    in_tower: BetweenDomains
    """What its card achieves in collectives of the ranks of its tower."""
    nic_all_reduce: float
    exchange_hops_s: float
    """Latency that the library adds to that of the card in exchanges."""
    peers_hops_s: float
    """The same in exchanges among peers."""
    reduction_hops_s: float
    """The same in all-reduces."""
    ring_hops_s: float
    """What reduce-scatters and all-gathers between domains add to the latency of an exchange."""
    reduces_in_network: bool
    """Whether the switches between domains reduce, so that sums cross a card once."""
    pcie_bytes_per_s: float
    """Rate of its own link to the host, and of the uplink of its switch."""
    exchanges_over_pcie: bool
    """Whether its port into its domain is its own link to the host."""
    cards_over_pcie: bool
    """Whether traffic with its scale-out card crosses its own link to the host."""
    front_end_bytes_per_s: float
    """Rate of its node's cards for training data and remote hosts; 0 without any."""
    memories: Mapping[MemoryTier, MemoryRates]
    """Those below HBM that it has."""
    memory_bytes: tuple[int, ...]
    """Usable capacity after the reserve of each pool, by memory (see `SHARED_BY`)."""
    bags: BagRates | None = None
    """How long one bag of a pooled table takes, however few there are; None where that was not measured."""
    unpooled: "RankKind | None" = None
    """The rank as tables meet it that are not pooled, beside such as are, where kernels of the software take other
    times of these; None: it is the same for all tables."""

    @property
    def ranks_sharing(self) -> dict[Resource, int]:
        """How many ranks share each thing on the way to the memories below HBM that it has, those included."""
        ranks = {"rank": 1, "node": self.node_ranks, "group": self.group_ranks}
        cards = {FRONT_END: self.node_ranks} if any(each.is_remote for each in self.memories.values()) else {}
        memories = {Resource(memory): ranks[SHARED_BY[memory]] for memory in self.memories}
        return {PCIE: self.pcie_ranks, **memories, **cards}

    def host_link_bytes_per_s(self, bytes_per_s: float) -> float:
        """Rate at which its own link to the host carries what ranks exchange at another rate over a port or a card
        behind it. That one was measured through the link, which is therefore no slower."""
        return max(self.pcie_bytes_per_s, bytes_per_s)

    @property
    def shares_own_link(self) -> bool:
        """Whether its exchanges with neighbours and over a card cross its one link to the host."""
        return self.exchanges_over_pcie and self.cards_over_pcie and 1 < self.domain_ranks < self.world_size

    @property
    def link_all_to_all(self) -> float:
        """Rate at which its port exchanges many bytes."""
        return self.exchange_protocols[-1].bytes_per_s

    @property
    def link_all_reduce(self) -> float:
        """Rate at which its port reduces many bytes."""
        return self.reduction_protocols[-1].bytes_per_s

    @property
    def lookup_bytes_per_s(self) -> float:
        """Rate of device memory for rows."""
        return self.lookup.hbm_bytes_per_s

    @property
    def sector_bytes(self) -> float:
        """Smallest access of device memory."""
        return self.lookup.sector_bytes

    @cached_property
    def world(self) -> RankGroup:
        """All ranks, as this one meets them."""
        return RankGroup(self.node_ranks, self.domain_ranks, self.world_size)

    @cached_property
    def tower(self) -> RankGroup:
        """The ranks of its tower."""
        return _tower(self.world, self.tower_domains)

    @property
    def beyond_tower(self) -> float:
        """Of the ranks beyond its domain, the share that is beyond its tower, too."""
        return (self.world_size - self.tower.size) / (self.world_size - self.domain_ranks)

    @property
    def nic_in_tower(self) -> float:
        """Rate of its card in an exchange with all ranks of its tower."""
        return self.in_tower.all_to_all_bytes_per_s

    @property
    def tower_hops_s(self) -> float:
        """Latency that the library adds to that of the card there."""
        return self.in_tower.exchange_s

    @cached_property
    def extents(self) -> tuple[RankGroup, ...]:
        """The ranks that hold a block of each extent, in the order of `EXTENTS`."""
        node = RankGroup(self.node_ranks, min(self.node_ranks, self.domain_ranks), self.node_ranks)
        alone = RankGroup(1, 1, 1)
        return alone, node, self.world, alone


def rank_kinds(
    topology: Topology, workload: Workload, among: Callable[[NodeGroup], RankGroup] | None = None
) -> tuple[RankKind, ...]:
    """One kind per node group, in the order of the groups; `among` are the ranks that those of a group exchange with,
    where they are not all that there are."""
    own, kinds = kernels_of(workload), []
    for group in topology.nodes:
        world, name = (among or world_of(topology))(group), group.accelerators.device
        plain, device = device_coefficients(name), device_coefficients(name, own)
        kind = _kind(topology, group, workload, world, device)
        if device != plain and not all(table.pooled for table in workload.tables):
            kind = replace(kind, unpooled=_kind(topology, group, workload, world, plain))
        kinds.append(kind)
    return tuple(kinds)


def domains_per_tower(topology: Topology, workload: Workload) -> int:
    """Scale-up domains of each tower: one, unless the workload has fewer towers than the cluster has domains."""
    if workload.towers is None:
        return 1
    return max(
        1, topology.world_size // min(topology.nodes[0].domain_ranks, topology.world_size) // workload.towers.count
    )


def _tower(world: RankGroup, domains: int) -> RankGroup:
    """The ranks of a tower of so many domains, of all."""
    return RankGroup(min(world.per_node, world.per_domain), world.per_domain, domains * world.per_domain)


def world_of(topology: Topology) -> Callable[[NodeGroup], RankGroup]:
    """All ranks, as those of a node group meet them."""
    world = topology.world_size
    return lambda group: RankGroup(group.accelerators.count, min(group.domain_ranks, world), world)


def _kind(
    topology: Topology, group: NodeGroup, workload: Workload, world: RankGroup, device: DeviceCoefficients
) -> RankKind:
    software = software_of(workload)
    ranks, domain = group.accelerators.count, world.per_domain
    up = group.links.scale_up
    link = link_coefficients(up.kind if up else "pcie", "default-scale-up")
    port = up.bandwidth if up else group.links.pcie.bandwidth
    hbm = group.accelerators.hbm
    host_rate = either(device.copy_bytes_per_s, group.links.pcie.bandwidth * device.pcie_efficiency.value)
    all_reduce = _protocols("all_reduce", group, domain, _rate(link, port, link.all_reduce_efficiency.value))
    towers = domains_per_tower(topology, workload)
    beyond, in_tower = _beyond(topology, group, world, all_reduce[-1].bytes_per_s, towers, software.exchange_in_phases)
    launches_s = (
        launch_s(device.lookup_launch_s, software.forward_launch_s),
        launch_s(device.update_launch_s, software.backward_launch_s),
    )
    alone, pads = not software.fits_products, workload.software_mode == "compiled"
    return RankKind(
        group=group.name,
        world_size=world.size,
        node_ranks=world.per_node,
        pcie_ranks=min(ranks, group.links.pcie.accelerators_per_switch),
        group_ranks=ranks * group.count,
        domain_ranks=domain,
        tower_domains=towers,
        lookup=lookup_rates(group, device, host_rate),
        lookup_launch_s=launches_s[0],
        update_launch_s=launches_s[1],
        update_passes=device.update_passes_per_lookup.value if device.update_passes_per_lookup else None,
        update_row_s=either(device.update_row_s, 0.0),
        sorts_ids_apart=device.update_row_s is None and device.update_passes_per_lookup is None,
        update_distinct_row_s=either(device.update_distinct_row_s, 0.0),
        update_row_passes=either(device.update_passes_per_row, software.row_update_passes.value),
        id_cut_s=either(device.id_cut_s, 0.0),
        dense_update_s=1 / device.dense_update_bytes_per_s.value if device.dense_update_bytes_per_s else 0.0,
        regroup_s=1 / device.regroup_bytes_per_s.value if device.regroup_bytes_per_s else 0.0,
        regroup_piece_s=either(device.regroup_piece_s, 0.0),
        hbm_bytes_per_s=either(device.stream_bytes_per_s, hbm.bandwidth * device.activation_efficiency.value),
        products=product_rates(group, workload.dense.dtype, device, alone=alone),
        small_products=small_rates(group, workload.dense.dtype, device, alone=alone, pads=pads),
        beside=BesideRates.of(workload, software),
        exchange_protocols=_protocols("all_to_all", group, domain, _rate(link, port, link.all_to_all_efficiency.value)),
        reduction_protocols=all_reduce,
        sums_slowdown=_sums_slowdown(group, domain, workload, world.size),
        link_takes_turns=_takes_turns(group, domain),
        nic_all_to_all=beyond.all_to_all_bytes_per_s,
        nic_node_sums=beyond.by_rail_bytes_per_s if software.node_sums_by_rail else beyond.all_to_all_bytes_per_s,
        nic_peers=beyond.by_peers_bytes_per_s,
        in_tower=in_tower,
        nic_all_reduce=beyond.all_reduce_bytes_per_s,
        exchange_hops_s=beyond.exchange_s,
        peers_hops_s=beyond.peers_s,
        reduction_hops_s=beyond.reduction_s,
        ring_hops_s=beyond.ring_s,
        reduces_in_network=topology.network.reduces,
        pcie_bytes_per_s=host_rate,
        exchanges_over_pcie=up is None,
        cards_over_pcie=group.links.pcie.carries_scale_out,
        front_end_bytes_per_s=front_end_rate(group),
        memories=memories_below_hbm(group, device, host_rate),
        memory_bytes=usable_bytes(group),
        bags=bag_rates(group, device, sum(launches_s)),
    )


def _balanced_wire_bytes(workload: Workload, world: int, domain: int) -> float:
    """Bytes on each port when the outputs are spread evenly."""
    vectors = sum(table.vectors_per_sample * table.dim for table in workload.tables)
    outputs = vectors * wire_bytes_of(workload.communication.forward) * workload.batch(world) / world
    return outputs * (domain - 1) / world


def _protocols(operation: CollectiveOperation, group: NodeGroup, domain: int, spec_rate: float) -> tuple[Protocol, ...]:
    """Those of a collective inside the domain; without measurements one, at the rate of the link's share."""
    law = measured_law(operation, group, domain)
    return law.protocols if law else (Protocol(None, spec_rate),)


def _sums_slowdown(group: NodeGroup, domain: int, workload: Workload, world: int) -> float:
    """1 unless the measurements of the device's own link tell reduce-scatters and all-gathers apart.

    Sums have collectives of their own, whose latency only plans with such tables pay: it is spread over the bytes that
    they have where every table's rows are cut, `world` times those of vectors.
    """
    laws = {
        operation: measured_law(operation, group, domain)
        for operation in ("all_to_all", "reduce_scatter", "all_gather")
    }
    apart = [law for law in laws.values() if law is not None and law.sums_apart]
    wire = _balanced_wire_bytes(workload, world, domain)
    if len(apart) < len(laws) or not wire:
        return 1.0
    vectors, *sums = apart
    each = [float(law.seconds(world * wire)) / (world * wire) for law in sums]
    return max(1.0, sum(each) / len(each) * vectors.line_at(wire)[1])


def _takes_turns(group: NodeGroup, domain: int) -> bool:
    """Whether the measurements say so of the group's ports."""
    law = measured_law("all_to_all", group, domain)
    return law is not None and law.takes_turns


def measured_law(operation: CollectiveOperation, group: NodeGroup, domain: int) -> CollectiveLaw | None:
    """That of an operation over the ports of a node group, among so many ranks of a domain."""
    up = group.links.scale_up
    link, port = (up.kind, up.bandwidth) if up else ("pcie", group.links.pcie.bandwidth)
    return collective_law(operation, group.accelerators.device, link, port, domain)


def _rate(link: LinkCoefficients, bandwidth: float, efficiency: float) -> float:
    achieved = bandwidth * efficiency
    return min(achieved, link.ceiling_bytes_per_s.value) if link.ceiling_bytes_per_s else achieved


def _beyond(
    topology: Topology,
    group: NodeGroup,
    world: RankGroup,
    inside_bytes_per_s: float,
    tower_domains: int,
    in_phases: bool,
) -> tuple[BetweenDomains, BetweenDomains]:
    """What the card that serves a rank achieves, with all that it has: in collectives of all ranks, and of those of a
    tower, whose exchanges have no phases."""
    nics = group.links.scale_out
    if nics is None:
        return NOTHING, NOTHING
    link, in_network = link_coefficients(nics.kind, "default-scale-out"), topology.network.reduces
    rates = link, group.scale_out_bytes_per_s
    tower, towers = _tower(world, tower_domains), world.domains / tower_domains
    return (
        between_domains(*rates, world, inside_bytes_per_s, in_phases=in_phases, in_network=in_network, towers=towers),
        between_domains(*rates, tower, inside_bytes_per_s, in_phases=False, in_network=in_network),
    )
