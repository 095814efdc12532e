"""Groups of ranks that have a copy of all tables each, as the simulator plays them: every rank of every group.

What one group's ranks do is counted on its own part of the cluster, and dealt out to the ranks of all groups.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from cost_models.kinds import RankKind, rank_kinds
from cost_models.replicas import Replicas, ReplicatedCluster
from cost_models.shards import Floats, Ints, PlacedShards
from cost_models.simulator.demand import Demand
from cost_models.simulator.network import SimulatedNetwork
from cost_models.simulator.process_groups import ProcessGroups
from cost_models.workload.models import Workload
from topologies.cluster import Topology
from topologies.replica_groups import ranks_in_group, ranks_of_groups


@dataclass(frozen=True)
class SimulatedGroups:
    """The groups of a cluster: M of N ranks each, W in all."""

    topology: Topology
    whole_workload: Workload
    replicas: Replicas

    @property
    def _cluster(self) -> ReplicatedCluster:
        return ReplicatedCluster(self.topology, self.replicas)

    @cached_property
    def group(self) -> Topology:
        """The part of the cluster that one group has."""
        return self._cluster.group

    @cached_property
    def workload(self) -> Workload:
        """What one group trains."""
        return self._cluster.workload(self.whole_workload)

    @cached_property
    def members(self) -> Ints:
        """[M, N] the ranks of each group."""
        return ranks_of_groups(self.topology.world_size, self.replicas.factor, self.replicas.layout)

    @cached_property
    def group_of_rank(self) -> Ints:
        """[W]"""
        return self._labels(np.arange(len(self.members))[:, None])

    def _labels(self, labels: Ints) -> Ints:
        of_rank = np.empty(self.members.size, dtype=np.int64)
        of_rank[self.members] = labels
        return of_rank

    @cached_property
    def exchanging_kinds(self) -> tuple[RankKind, ...]:
        """What ranks achieve among those of their group."""
        return rank_kinds(self.group, self.workload)

    @cached_property
    def averaging_kinds(self) -> tuple[RankKind, ...]:
        """What they achieve among those that hold the same shards."""
        return rank_kinds(self.topology, self.whole_workload, self._cluster.sharing)

    def exchanging(self, network: SimulatedNetwork) -> SimulatedNetwork:
        """The network as they exchange over it."""
        return network.seen_by(self.exchanging_kinds, self.group_of_rank)

    def copies(self, network: SimulatedNetwork) -> ProcessGroups:
        """The ranks that hold the same shards."""
        return ProcessGroups(self._labels(np.arange(self.members.shape[1])), network.domain_of_rank)

    def dealt_out(self, counted: Callable[[int, Floats | None], Demand], ids: Floats | None) -> Demand:
        """The demand of all ranks, as `counted` for a group and the ids of its ranks, of [W, tables] or the mean."""
        of_groups = [counted(number, None if ids is None else ids[ranks]) for number, ranks in enumerate(self.members)]
        joined: dict[str, Any] = {}
        for each in fields(Demand):
            parts = [getattr(demand, each.name) for demand in of_groups]
            if isinstance(parts[0], np.ndarray):
                joined[each.name] = self._joined(parts)
        return replace(of_groups[0], **joined)

    def _joined(self, parts: Sequence[Floats]) -> Floats:
        """[..., W] of [..., N] for each group."""
        joined = np.empty((*parts[0].shape[:-1], self.members.size))
        for ranks, part in zip(self.members, parts, strict=True):
            joined[..., ranks] = part
        return joined


def groups_by_copies(
    topology: Topology, workload: Workload, replicas: Replicas | None, placed: PlacedShards
) -> list[tuple[SimulatedGroups | None, PlacedShards]]:
    """The groups that tables with equally many copies are in, fewest first, with the shards that one group has of them;
    None for one world. `placed` are those of one group of the fewest."""
    if replicas is None:
        return [(None, placed)]
    factors = replicas.factors([table.name for table in workload.tables])
    parts: list[tuple[SimulatedGroups | None, PlacedShards]] = []
    world = topology.world_size // replicas.factor
    for factor in np.unique(factors).tolist():
        rank = ranks_in_group(placed.rank, world, factor // replicas.factor, replicas.layout)
        kept = np.flatnonzero((factors[placed.blocks.table] == factor) & (rank >= 0))
        shards = PlacedShards(placed.blocks.take(kept), rank[kept], placed.rows[kept], placed.opens_block[kept])
        parts.append((SimulatedGroups(topology, workload, replicas.alike(factor)) if factor > 1 else None, shards))
    return parts
