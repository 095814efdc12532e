"""What a cluster is: node groups with accelerators, memory tiers and links, and the network between nodes.

Every bandwidth is for one direction. A rank is one accelerator; ranks are numbered node by node, in the order
of the groups. All models are frozen and valid from birth.
"""

import hashlib
import itertools
import json
import math
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from topologies.documents import Record
from topologies.flops import LATER
from topologies.hardware import (
    Accelerators,
    Count,
    DescribedMemory,
    Host,
    Links,
    MemoryTier,
    Name,
    RemoteHosts,
    Reserve,
)
from topologies.units import (
    DollarsPerHour,
    Seconds,
    Watts,
)

MOST_RANKS = 1 << 18
"""A slip in a count must not take hours and all memory; the largest clusters have some ten thousands."""


def equal_domains(nodes: int, most: int) -> int | None:
    """The nodes of each of the fewest equal scale-up domains, of `most` nodes or fewer, that so many nodes make; None
    where these would have fewer than half of them, as where a prime number of nodes makes domains of one."""
    return next((each for each in range(most, 0, -1) if nodes % each == 0 and 2 * each >= most), None)


def _whole_domains(domain: int, nodes: int, accelerators: int) -> str:
    """How to write nodes that do not fill scale-up domains of so many ranks."""
    if domain % accelerators:
        return "choose a domain or a count so that whole nodes fill whole domains, or a part of one"
    most = domain // accelerators
    full, share = nodes // most * most, equal_domains(nodes, most)
    words = f"{full} or {full + most} nodes fill whole domains"
    if share is not None:
        words += f", and domain: {share * accelerators} makes {nodes // share} equal ones of {nodes} nodes"
    return f"{words}; or make {nodes - full} nodes a node group of their own"


class NodeGroup(Record):
    """A number of equal nodes."""

    name: Name
    """What policies, plans and reports call the group."""
    count: Count = 1
    """Nodes of this group."""
    accelerators: Accelerators
    """Those of one node."""
    host: Host = Host()
    """The memory and storage of one node; unset: tables are held in HBM alone."""
    remote: Annotated[RemoteHosts | None, LATER] = None
    """Parameter hosts that the nodes of this group share; they are reached by the cards of links.front_end."""
    links: Links
    """What connects its accelerators."""
    reserve: Reserve = Reserve()
    """What plans leave free."""
    price: DollarsPerHour | None = None
    """Per node. Unset: unknown."""
    power: Watts | None = None
    """Per node, all of it. Unset: unknown."""

    @model_validator(mode="after")
    def _whole_shares(self) -> "NodeGroup":
        accelerators = self.accelerators.count
        up = self.links.scale_up
        if up is not None and up.domain is not None:
            total = accelerators * self.count
            is_part = total < up.domain and up.domain % accelerators == 0
            if not is_part and ((accelerators % up.domain and up.domain % accelerators) or total % up.domain):
                raise ValueError(
                    f"a scale-up domain of {up.domain} does not divide {self.count} nodes of {accelerators}"
                    f" evenly; {_whole_domains(up.domain, self.count, accelerators)}"
                )
        if (nics := self.links.scale_out) and accelerators % nics.count and nics.count % accelerators:
            raise ValueError(
                f"{nics.count} scale-out cards cannot serve {accelerators} accelerators in equal shares;"
                f" one count must be a multiple of the other"
            )
        if accelerators % self.links.pcie.accelerators_per_switch:
            per_switch = self.links.pcie.accelerators_per_switch
            raise ValueError(
                f"{accelerators} accelerators do not fill PCIe switches of {per_switch} each; give a divisor of"
                f" {accelerators} as links.pcie.accelerators_per_switch"
            )
        if self.remote is not None and self.links.front_end is None:
            raise ValueError("remote hosts are reached by the cards of links.front_end; describe these too")
        return self

    @property
    def scale_out_bytes_per_s(self) -> float:
        """One direction, of the scale-out card that serves an accelerator, all cards of one as one; no more than the
        own links of the accelerators that it serves, where its traffic crosses these. 0 without cards."""
        rate, links = self._card_and_links_bytes_per_s
        return min(rate, links) if self.links.pcie.carries_scale_out else rate

    @property
    def cards_wait_for_links(self) -> bool:
        """Whether its scale-out cards are faster than the own links of the accelerators that they serve, which their
        traffic crosses: such cards wait for these."""
        rate, links = self._card_and_links_bytes_per_s
        return self.links.pcie.carries_scale_out and links < rate

    @property
    def _card_and_links_bytes_per_s(self) -> tuple[float, float]:
        """One direction, of the card that serves an accelerator, and of the links of all accelerators that it does."""
        if (nics := self.links.scale_out) is None:
            return 0.0, math.inf
        served = max(1, self.accelerators.count // nics.count)
        return nics.bandwidth * max(1, nics.count // self.accelerators.count), served * self.links.pcie.bandwidth

    def memory(self, tier: MemoryTier) -> DescribedMemory | None:
        """The memory of this tier; None where the nodes have none."""
        if tier == "hbm":
            return self.accelerators.hbm
        if tier == "remote":
            return self.remote
        memory: DescribedMemory | None = getattr(self.host, tier)
        return memory

    @staticmethod
    def memory_path(tier: MemoryTier) -> str:
        """Where it stands in a topology file, below the node group."""
        return {"hbm": "accelerators.hbm", "remote": "remote"}.get(tier, f"host.{tier}")

    def memory_bytes(self, tier: MemoryTier) -> int:
        """Capacity of one pool: HBM of an accelerator, what a node has, all remote hosts; 0 where there is none."""
        memory = self.memory(tier)
        if memory is None:
            return 0
        return memory.capacity * (memory.count if isinstance(memory, RemoteHosts) else 1)

    @property
    def domain_ranks(self) -> int:
        """Accelerators of the group that share a scale-up domain: a node's where none is stated; all of them where the
        group is a part of a larger one, as two trays of a rack are."""
        up = self.links.scale_up
        return (
            self.accelerators.count
            if up is None or up.domain is None
            else min(up.domain, self.accelerators.count * self.count)
        )

    def node_counts(self, most: int, *, is_alone: bool) -> list[int]:
        """The numbers of nodes, up to `most`, that the group may have with its scale-up domain as it is: any within one
        domain, if it is the only group of the cluster, then those that fill whole ones. For others see
        `equal_domain`."""
        ranks, up = self.accelerators.count, self.links.scale_up
        domain = ranks if up is None or up.domain is None else up.domain
        of_domain = math.lcm(domain, ranks) // ranks
        parts = range(1, min(of_domain, most + 1)) if is_alone else ()
        return [*parts, *range(of_domain, most + 1, of_domain)]

    def equal_domain(self, nodes: int) -> int | None:
        """The ranks of each of the fewest equal scale-up domains that so many nodes make, where they are more than one
        of the group's and do not fill several; None where they do, or make none (see `equal_domains`)."""
        ranks, up = self.accelerators.count, self.links.scale_up
        domain = ranks if up is None or up.domain is None else up.domain
        most = domain // ranks
        if domain % ranks or nodes <= most or nodes % most == 0:
            return None
        share = equal_domains(nodes, most)
        return None if share is None else share * ranks


class NetworkLevel(Record):
    """One level of switches above the nodes, counted from below."""

    name: Name
    """What reports call its uplinks."""
    nodes: Count
    """How many nodes stand under one switch (or one plane of rails) of this level."""
    oversubscription: Annotated[float, Field(ge=1, strict=True)] = 1.0
    """Bandwidth below one switch divided by its bandwidth upwards."""
    latency: Seconds = 1e-6


class Network(Record):
    """The network between nodes: levels from the leaves up; above the last, all is joined at full speed."""

    levels: tuple[NetworkLevel, ...] = ()
    """The levels of switches, from the leaves up; none: all nodes are joined at full speed."""
    rails: Annotated[bool, Field(strict=True)] = False
    """Whether equal cards of all nodes share a leaf (rail-optimised). Sums stay on their rail, and other messages
    change to the receiver's inside a node that has a scale-up fabric: what comes in over the uplinks of a leaf is for
    the ranks of its rail."""
    in_network_reduction: Annotated[Literal["none", "sharp"], Field(exclude_if=lambda value: value == "none")] = "none"
    """Whether its switches sum what all-reduces send (SHARP, InfiniBand)."""

    @property
    def reduces(self) -> bool:
        """Whether sums are made in the switches."""
        return self.in_network_reduction != "none"

    @field_validator("levels")
    @classmethod
    def _widening(cls, levels: tuple[NetworkLevel, ...]) -> tuple[NetworkLevel, ...]:
        for below, above in itertools.pairwise(levels):
            if above.nodes <= below.nodes or above.nodes % below.nodes:
                raise ValueError(
                    f"level {above.name!r} ({above.nodes} nodes) must hold whole switches of the level below,"
                    f" {below.name!r} ({below.nodes} nodes)"
                )
        return levels


class Topology(Record):
    """A cluster."""

    name: Name
    """What plans and reports call the cluster."""
    description: str = ""
    """What it is and where its numbers come from; the first line is shown in lists."""
    nodes: tuple[NodeGroup, ...]
    """The node groups; ranks count through them in this order."""
    network: Network = Network()
    """The switches between the nodes; unset: all nodes are joined at full speed."""

    @field_validator("nodes")
    @classmethod
    def _some_and_distinct(cls, nodes: tuple[NodeGroup, ...]) -> tuple[NodeGroup, ...]:
        if not nodes:
            raise ValueError("is empty; describe at least one node group")
        first: dict[str, int] = {}
        for index, group in enumerate(nodes):
            if first.setdefault(group.name, index) != index:
                places = f"nodes.{first[group.name]} and nodes.{index}"
                raise ValueError(f"two node groups are called {group.name!r} ({places}); give each its own name")
        return nodes

    @model_validator(mode="after")
    def _consistent(self) -> "Topology":
        if self.world_size > MOST_RANKS:
            raise ValueError(f"{self.world_size:,} accelerators are more than can be planned for, {MOST_RANKS:,}")
        for group in self.nodes if len(self.nodes) > 1 else ():
            up, ranks = group.links.scale_up, group.count * group.accelerators.count
            if up is not None and up.domain is not None and up.domain > ranks:
                raise ValueError(
                    f"node group {group.name!r} is {ranks} of a scale-up domain of {up.domain}, and others of the"
                    f" cluster's groups might be the rest; domains do not span groups: write domain: {ranks}"
                )
        if self.node_count > 1:
            lonely = [group.name for group in self.nodes if not self._reaches_others(group)]
            if lonely:
                raise ValueError(
                    f"node group {lonely[0]!r} has no links.scale_out,"
                    f" and a cluster of {self.node_count} nodes needs it"
                )
        if self.network.reduces:
            kinds = {group.name: group.links.scale_out.kind for group in self.nodes if group.links.scale_out}
            if others := [name for name, kind in kinds.items() if kind != "infiniband"]:
                raise ValueError(
                    f"network.in_network_reduction is {self.network.in_network_reduction}, which is InfiniBand's,"
                    f" and node group {others[0]!r} has links.scale_out of kind {kinds[others[0]]!r}"
                )
        return self

    def _reaches_others(self, group: NodeGroup) -> bool:
        up = group.links.scale_up
        spans_all = up is not None and (up.domain or 0) >= self.world_size
        return group.links.scale_out is not None or spans_all

    @property
    def node_count(self) -> int:
        """How many nodes there are."""
        return sum(group.count for group in self.nodes)

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return sum(group.count * group.accelerators.count for group in self.nodes)

    @property
    def is_one_domain(self) -> bool:
        """Whether all ranks are on one node, or in one scale-up domain of several."""
        return self.node_count == 1 or (len(self.nodes) == 1 and self.nodes[0].domain_ranks >= self.world_size)

    def resized(self, index: int, nodes: int) -> "Topology":
        """The cluster with another number of nodes in a group, as `--nodes` makes it: alone and more than one scale-up
        domain, they are in equal ones where they do not fill those of the group. Not checked."""
        groups = list(self.nodes)
        group = groups[index].model_copy(update={"count": nodes})
        if len(groups) == 1 and group.links.scale_up and (domain := group.equal_domain(nodes)) is not None:
            scale_up = group.links.scale_up.model_copy(update={"domain": domain})
            group = group.model_copy(update={"links": group.links.model_copy(update={"scale_up": scale_up})})
        groups[index] = group
        return self.model_copy(update={"nodes": tuple(groups)})

    def fingerprint(self) -> str:
        """A content hash over all fields."""
        return fingerprint(self)


def fingerprint(record: Record) -> str:
    """`sha256:…` of the record's canonical JSON: equal content, equal hash."""
    text = json.dumps(record.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
