"""Sums that go beyond one group of ranks: those of gradients, over the whole cluster, and those of replicas.

Everything else of a step stays within a group (see `replicas`), whose ranks and share of the nodes are a cluster of
their own. Cards, and the switches above them, are the whole cluster's: other groups load them alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cost_models.exchange_lines import ExchangeLine, end_s, fastest_line
from cost_models.groups import reduce_scatter
from cost_models.kinds import RankKind, rank_kinds
from cost_models.loads import BlockLoad, Loads
from cost_models.memory import Batching, Component, block_bytes
from cost_models.replicas import ReplicatedCluster
from cost_models.resources import LINK_IN, LINK_OUT, NIC_IN, NIC_OUT, WAYS, Resource
from cost_models.shards import DATA_PARALLEL, IS_STASHED, MEMORY_DDR, MEMORY_HBM, Blocks, Floats, Ints
from cost_models.stages import CUT_TERMS
from cost_models.tables import Tables
from cost_models.uplinks import shares_leaving
from cost_models.workload.models import Workload
from topologies.replica_groups import groups_per_card, groups_per_switch, ranks_of_groups


@dataclass(frozen=True)
class Sums:
    """Sums among ranks of several groups."""

    kinds: tuple[RankKind, ...]
    """What each kind of rank achieves in them."""
    leaving: Mapping[int, Floats]
    """For each oversubscribed network level, [K] the share of what a card carries that leaves its switch there."""


class Replication:
    """The groups of a cluster as the costs of one of them see the others; K kinds of rank."""

    def __init__(self, cluster: ReplicatedCluster, workload: Workload) -> None:
        self._cluster, self._workload, self.replicas = cluster, workload, cluster.replicas
        factor, layout = self.replicas.factor, self.replicas.layout
        self.groups_per_card = tuple(groups_per_card(group, factor, layout) for group in cluster.topology.nodes)
        self.groups_per_switch = tuple(groups_per_switch(group, factor, layout) for group in cluster.topology.nodes)

    @cached_property
    def gradients(self) -> Sums:
        """Sums over all ranks."""
        topology = self._cluster.topology
        kinds = rank_kinds(topology, self._workload)
        return self._sums(kinds, np.zeros(topology.world_size, dtype=np.int64))

    @cached_property
    def copies(self) -> Sums:
        """Sums over the ranks that hold the same shards."""
        topology, replicas = self._cluster.topology, self.replicas
        kinds = rank_kinds(topology, self._workload, self._cluster.sharing)
        members = ranks_of_groups(topology.world_size, replicas.factor, replicas.layout)
        sharing = np.empty(topology.world_size, dtype=np.int64)
        sharing[members] = np.arange(members.shape[1])
        return self._sums(kinds, sharing)

    @property
    def kinds(self) -> tuple[RankKind, ...]:
        """Those of all sums."""
        return (*self.gradients.kinds, *self.copies.kinds)

    @property
    def copied_over(self) -> tuple[Resource, ...]:
        """The links between the ranks that hold the same shards."""
        inside = any(kind.domain_ranks > 1 for kind in self.copies.kinds)
        across = any(kind.domain_ranks < kind.world_size for kind in self.copies.kinds)
        above = tuple(Resource("uplink", way, level) for level in self.copies.leaving for way in WAYS)
        return (LINK_OUT, LINK_IN) * inside + (NIC_OUT, NIC_IN) * across + above

    def sums_of(self, term: str) -> Sums | None:
        """Those that a term of the step makes; None for what stays within a group."""
        if term in ("all_reduce", "replica_all_reduce"):
            return self.gradients
        return self.copies if term in ("replica_sync", *CUT_TERMS.values()) else None

    def _sums(self, kinds: tuple[RankKind, ...], group_of_rank: Ints) -> Sums:
        return Sums(kinds, shares_leaving(self._cluster.topology, group_of_rank))

    def cut_shards(self, tables: Tables, blocks: Blocks, kind: int, batching: Batching) -> Loads:
        """What cutting copies over their replicas, and gathering them, loads on a kind of rank."""
        weights, _ = copied_bytes(tables, blocks, batching)
        own = self.copies.kinds[kind]
        moved = reduce_scatter(own.world, weights)
        port_s, card_s = 2 * moved.port / own.link_all_reduce, 2 * moved.card / own.nic_all_reduce
        return over_links(BlockLoad(by_rows=port_s), BlockLoad(by_rows=card_s))

    def cut_wait_s(
        self, lines: Sequence[ExchangeLine], tables: Tables, blocks: Blocks, batching: Batching, ranks: int
    ) -> float:
        """What cutting blocks that are spread evenly over so many `ranks`, or gathering them, takes beyond what
        `cut_shards` loads: first bytes, and rates of few bytes, by the line of a sum that ends first."""
        weights = float(copied_bytes(tables, blocks, batching)[0].sum()) / ranks
        moved = np.array([float(reduce_scatter(kind.world, weights).port) for kind in self.copies.kinds])
        many = np.array([kind.link_all_reduce for kind in self.copies.kinds])
        return end_s(lines[fastest_line(lines, moved)], moved) - float((moved / many).max())

    def cut_copy_bytes(self, tables: Tables, blocks: Blocks, batching: Batching) -> Floats:
        """[n] bytes of HBM for the cut copy beside the gathered one."""
        weights, _ = copied_bytes(tables, blocks, batching)
        return weights / self.replicas.factor * self.replicas.is_fully_sharded


def copied_bytes(tables: Tables, blocks: Blocks, batching: Batching) -> tuple[Floats, Floats]:
    """[n] bytes of weights and of optimizer state of blocks that are copied from group to group: gradients of
    replicated tables are summed over all ranks, so that their copies are equal. What is stashed is back by then."""
    held, kept = block_bytes(tables, blocks, batching), blocks.sharding != DATA_PARALLEL
    is_back = IS_STASHED[blocks.tier]
    parts: tuple[Component, ...] = ("weights", "optimizer")
    weights, state = (
        np.asarray((held[MEMORY_HBM, part].by_rows + is_back * held[MEMORY_DDR, part].by_rows) * kept, dtype=np.float64)
        for part in parts
    )
    return weights, state


def over_links(port: BlockLoad, card: BlockLoad) -> Loads:
    """The loads of a sum, which keeps both ways of ports and cards alike busy."""
    return {LINK_OUT: port, LINK_IN: port, NIC_OUT: card, NIC_IN: card}
