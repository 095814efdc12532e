"""Collectives among groups of ranks that are neighbours, or have the same place in all such groups."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cost_models.coefficients import CollectiveOperation, SoftwareCoefficients
from cost_models.dense_units import neighbours, same_shard
from cost_models.kinds import RankKind, measured_law, rank_kinds
from cost_models.resources import Way
from cost_models.shards import Floats, Ints
from cost_models.simulator.collectives import Collectives
from cost_models.simulator.exchanges import Exchanges
from cost_models.simulator.network import IN, OUT, SimulatedNetwork
from cost_models.simulator.process_groups import ProcessGroups, position
from cost_models.simulator.program import Label, Streams, Wait
from cost_models.workload.models import Workload


class GroupCollectives:
    """What the ranks of each group call, at the rates that they achieve among so many."""

    def __init__(
        self,
        streams: Streams,
        network: SimulatedNetwork,
        software: SoftwareCoefficients,
        groups: ProcessGroups,
        kinds: tuple[RankKind, ...],
    ) -> None:
        """`kinds` are what ranks achieve among as many as a group has."""
        self._groups, self._world = groups, network.world
        plain = network.seen_by(kinds)
        collectives = Collectives(plain, hubs=streams.hubs)
        self._plain = collectives, Exchanges(streams, plain, collectives, software)
        self._of: dict[Way, tuple[Collectives, Exchanges]] = {}
        operations: dict[Way, CollectiveOperation] = {OUT: "reduce_scatter", IN: "all_gather"}
        for way, operation in operations.items():
            own = network.seen_by(_measured(kinds, network, operation))
            self._of[way] = Collectives(own), Exchanges(streams, own, Collectives(own), software)

    @classmethod
    def everyone(
        cls, streams: Streams, network: SimulatedNetwork, workload: Workload, software: SoftwareCoefficients
    ) -> "GroupCollectives":
        """All ranks."""
        kinds = rank_kinds(network.topology, workload, lambda group: neighbours(group, network.world))
        return cls(streams, network, software, network.everyone, kinds)

    @classmethod
    def of_nodes(
        cls, streams: Streams, network: SimulatedNetwork, workload: Workload, software: SoftwareCoefficients
    ) -> "GroupCollectives":
        """The ranks of each node."""
        nodes = ProcessGroups(network.node_of_rank, network.domain_of_rank)
        size = int(nodes.size[0])
        kinds = rank_kinds(network.topology, workload, lambda group: neighbours(group, size))
        return cls(streams, network, software, nodes, kinds)

    @classmethod
    def of_peers(
        cls, streams: Streams, network: SimulatedNetwork, workload: Workload, software: SoftwareCoefficients
    ) -> "GroupCollectives":
        """The ranks at the same place of all nodes."""
        peers = ProcessGroups(position(network.node_of_rank), network.domain_of_rank)
        size = network.world // int(peers.size[0])
        kinds = rank_kinds(network.topology, workload, lambda group: same_shard(group, network.world, size))
        return cls(streams, network, software, peers, kinds)

    @property
    def size(self) -> int:
        """Members of a group."""
        return int(self._groups.size[0])

    def gather(self, label: Label, size: float, after: Sequence[Wait]) -> Ints:
        """Every rank gets all of `size` bytes, of which each has its part."""
        return self._ring(label, size, after, IN)

    def scatter(self, label: Label, size: float, after: Sequence[Wait]) -> Ints:
        """Every rank has `size` bytes of sums, and gets its part of the totals."""
        return self._ring(label, size, after, OUT)

    def all_reduce(self, label: Label, size: float, after: Sequence[Wait]) -> Ints:
        """Every rank gets all totals of `size` bytes."""
        collectives, exchanges = self._plain
        return exchanges.exchange(label, self._groups, collectives.all_reduce(self._groups, self._each(size)), after)

    def all_to_all(self, label: Label, size: float, after: Sequence[Wait]) -> Ints:
        """Every rank has `size` bytes, and sends each its part of them."""
        collectives, exchanges = self._plain
        to_each = self._each(size / self.size)
        return exchanges.exchange(label, self._groups, collectives.all_to_all(self._groups, to_each, OUT), after)

    def _each(self, size: float) -> Floats:
        return np.full(self._world, size)

    def _ring(self, label: Label, size: float, after: Sequence[Wait], way: Way) -> Ints:
        collectives, exchanges = self._of[way]
        transfers = collectives.reduce_scatter(self._groups, self._each(size), way, reduction=True)
        around = [replace(transfer, around=not transfer.inside) for transfer in transfers]
        return exchanges.exchange(label, self._groups, around, after)


def _measured(
    kinds: Sequence[RankKind], network: SimulatedNetwork, operation: CollectiveOperation
) -> tuple[RankKind, ...]:
    """What ranks achieve in an operation: over ports what was measured of it, or what they achieve in exchanges."""
    own = []
    for kind, group in zip(kinds, network.topology.nodes, strict=True):
        law = measured_law(operation, group, kind.domain_ranks)
        protocols = kind.exchange_protocols if law is None else law.protocols
        own.append(replace(kind, reduction_protocols=protocols, reduction_hops_s=kind.exchange_hops_s))
    return tuple(own)
