"""Groups of ranks that train replicas of the same tables: which ranks they have, and the cluster that one of them has.

In `intra` layout M consecutive ranks hold the same shards, and group i has the ranks i, M + i, 2M + i, ...; in `inter`
layout a group is a run of consecutive ranks (TorchRec 1.8.0, `DMPCollection`; `use_inter_host_allreduce`). All groups
are alike, so that what holds for one on its part of the cluster holds for all.
"""

from typing import Literal, TypeVar, get_args

import numpy as np

from topologies.cluster import NodeGroup, Topology
from topologies.errors import InputError
from topologies.fabric import Ints
from topologies.hardware import Memory, Nics, Pcie, RemoteHosts, Storage, StorageClass
from topologies.sentences import counted

Layout = Literal["intra", "inter"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
Part = TypeVar("Part", Memory, Storage, StorageClass, Nics, RemoteHosts)


def ranks_of_groups(world: int, factor: int, layout: Layout) -> Ints:
    """[M, N] the ranks of each of `factor` groups, in the order of the shards' ranks."""
    return np.arange(world).reshape(-1, factor).T if layout == "intra" else np.arange(world).reshape(factor, -1)


def ranks_in_group(rank: Ints, world: int, factor: int, layout: Layout) -> Ints:
    """[n] the numbers that ranks [n] of a world have in the first of its groups; -1 for those of other groups."""
    number = np.full(world, -1)
    number[ranks_of_groups(world, factor, layout)[0]] = np.arange(world // factor)
    return np.asarray(number[rank])


def group_of(topology: Topology, factor: int, layout: Layout) -> Topology:
    """The cluster that one of `factor` groups has while all of them work: its ranks, and its share of the memory that
    it has in common with others. Cards and PCIe switches are those that serve its ranks, at their own rates, though
    other groups may load them alike (see `groups_per_card`). Raises InputError where groups would not be alike."""
    if factor == 1:
        return topology
    if topology.world_size % factor:
        _refuse(topology, factor, layout, f"{topology.world_size} ranks are no multiple of {factor}")
    shared = _intra if layout == "intra" else _inter
    name = f"a group of {topology.world_size // factor} of the {topology.world_size} ranks of {topology.name}"
    return shared(topology, factor).model_copy(update={"name": name[:120]})


def groups_per_card(group: NodeGroup, factor: int, layout: Layout) -> float:
    """How many of `factor` groups the scale-out card of a rank of a node group serves."""
    nics, ranks = group.links.scale_out, group.accelerators.count
    if nics is None or layout == "inter":
        return 1.0
    return max(1.0, factor * min(nics.count, ranks // factor) / nics.count)


def groups_per_switch(group: NodeGroup, factor: int, layout: Layout) -> float:
    """How many of `factor` groups the PCIe switch of a rank of a node group serves."""
    ranks = group.links.pcie.accelerators_per_switch
    return 1.0 if layout == "inter" else ranks / max(1, ranks // factor)


def _refuse(topology: Topology, factor: int, layout: Layout, why: str) -> None:
    raise InputError.at("replicas", f"{factor} groups in {layout} layout on {topology.name}: {why}")


def _intra(topology: Topology, factor: int) -> Topology:
    """The same nodes with one of `factor` ranks in each."""
    for group in topology.nodes:
        _divide(
            topology, factor, f"node group {group.name!r} has {group.accelerators.count} accelerators a node", group
        )
    return topology.model_copy(update={"nodes": tuple(_part_of_nodes(group, factor) for group in topology.nodes)})


def _divide(topology: Topology, factor: int, whose: str, group: NodeGroup) -> None:
    up, per_switch = group.links.scale_up, group.links.pcie.accelerators_per_switch
    if group.accelerators.count % factor:
        _refuse(topology, factor, "intra", f"{whose}, no multiple of {factor}; replicas are within one node")
    if up is not None and up.domain is not None and up.domain % factor:
        _refuse(topology, factor, "intra", f"its scale-up domain of {up.domain} is no multiple of {factor}")
    if per_switch % factor and factor % per_switch:
        _refuse(topology, factor, "intra", f"{per_switch} accelerators share a PCIe switch, which groups cut unevenly")
    cards = group.links.scale_out.count if group.links.scale_out else group.accelerators.count
    sharing = max(1, group.accelerators.count // cards)
    if sharing % factor and factor % sharing:
        _refuse(topology, factor, "intra", f"{sharing} accelerators share a scale-out card, which groups cut unevenly")


def _part_of_nodes(group: NodeGroup, factor: int) -> NodeGroup:
    """The nodes as a group in `intra` layout has them."""
    ranks, links = group.accelerators.count // factor, group.links
    up = links.scale_up
    if up is not None and up.domain is not None:
        up = up.model_copy(update={"domain": up.domain // factor})
    cards = links.scale_out and _cards(links.scale_out, group.accelerators.count, factor)
    own = {
        "accelerators": group.accelerators.model_copy(update={"count": ranks}),
        "host": group.host.model_copy(
            update={
                "ddr": _scaled(group.host.ddr, factor, "capacity", "bandwidth"),
                "ssd": _scaled(group.host.ssd, factor, "capacity", "read_bandwidth", "write_bandwidth", "iops"),
                "scm": _scaled(group.host.scm, factor, "capacity", "read_bandwidth", "write_bandwidth"),
            }
        ),
        "remote": _remote(group.remote, factor),
        "links": links.model_copy(
            update={
                "pcie": _switches(links.pcie, factor),
                "scale_up": up,
                "scale_out": cards,
                "front_end": _scaled(links.front_end, factor, "bandwidth"),
            }
        ),
        "price": None,
        "power": None,
    }
    return group.model_copy(update=own)


def _switches(pcie: Pcie, factor: int) -> Pcie:
    """The switches above the ranks of one group; what others load them with is not said."""
    return pcie.model_copy(update={"accelerators_per_switch": max(1, pcie.accelerators_per_switch // factor)})


def _cards(nics: Nics, ranks: int, factor: int) -> Nics:
    """The cards that serve the ranks of one group; what others load them with is not said."""
    count = min(nics.count, ranks // factor) if nics.count <= ranks else nics.count // factor
    return nics.model_copy(update={"count": count})


def _remote(hosts: RemoteHosts | None, factor: int) -> RemoteHosts | None:
    """The hosts that all nodes of a group share."""
    return _scaled(hosts, factor, "capacity", "bandwidth", "network_bandwidth")


def _scaled(part: Part | None, factor: int, *names: str) -> Part | None:
    """The same with a share of these amounts."""
    if part is None:
        return None
    shares: dict[str, float] = {name: getattr(part, name) / factor for name in names}
    return part.model_copy(update={name: int(share) if name == "capacity" else share for name, share in shares.items()})


def _inter(topology: Topology, factor: int) -> Topology:
    """A run of whole nodes."""
    if len(topology.nodes) > 1:
        _refuse(topology, factor, "inter", f"it has {len(topology.nodes)} node groups, and groups must be alike")
    (group,) = topology.nodes
    nodes = group.count // factor
    if group.count % factor:
        whole = f"{counted(group.count, 'node')} cannot be dealt out to {factor} groups of whole nodes"
        _refuse(topology, factor, "inter", f"{whole}; {topology.world_size // factor} ranks cut a node")
    own = nodes * group.accelerators.count
    if own % group.domain_ranks and group.domain_ranks % own:
        _refuse(topology, factor, "inter", f"{own} ranks cut scale-up domains of {group.domain_ranks} unevenly")
    for level in topology.network.levels:
        if nodes % level.nodes and level.nodes % nodes:
            _refuse(topology, factor, "inter", f"{nodes} nodes cut the {level.nodes} under a {level.name} unevenly")
    part = group.model_copy(update={"count": nodes, "remote": _remote(group.remote, factor)})
    return topology.model_copy(update={"nodes": (part,)})
