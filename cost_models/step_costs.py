"""The costs of a training step: which resource is busy for how long in which stage.

A stage (see `schedule`) takes its constant plus the largest load of any of its resources; the step is the sum over the
stages. Costs are computed for blocks on a kind of rank, many at once; a placement is summed from them.
"""

import numpy as np

from cost_models import collectives
from cost_models.amounts import NO_RESERVE, Reserve
from cost_models.coefficients_used import StepCoefficients
from cost_models.dense import dense_seconds
from cost_models.dense_size import dense_size
from cost_models.kinds import RankKind, rank_kinds
from cost_models.loads import Loads
from cost_models.lookup import Lookup
from cost_models.memory import Batching, block_bytes, has_way_to_update, is_supported
from cost_models.model import BATCH_COPY, BlockCosts, BlockMemory, CostModel
from cost_models.peak import Peak
from cost_models.resources import DEVICE, FETCHES, PCIE, Resource
from cost_models.schedule import Schedule
from cost_models.shards import (
    DATA_PARALLEL,
    HBM,
    MEMORY_HBM,
    MEMORY_TIERS,
    TABLE_WISE,
    Blocks,
    Floats,
    Ints,
)
from cost_models.tables import LENGTH_BYTES, NUMBER_BYTES, Tables
from cost_models.workload.models import Workload
from topologies.cluster import Topology

_DISTRIBUTIONS = frozenset({"input_dist", "output_dist", "gradient_dist"})


class StepCosts(CostModel):
    """The physical cost model of one workload on one topology."""

    name = "physical"
    chooses_dtypes = True
    coefficients: StepCoefficients

    def __init__(self, topology: Topology, workload: Workload, reserve: Reserve = NO_RESERVE) -> None:
        super().__init__(topology, workload, reserve)
        self.tables = Tables.of(workload, topology.world_size)
        self.kinds: tuple[RankKind, ...] = rank_kinds(topology, workload)
        self.coefficients = StepCoefficients.of(topology, workload)
        self.peak = Peak(
            workload,
            topology.world_size,
            loads_ids=not self.coefficients.software.ids_arrive_sharded,
            static_buffers=self.coefficients.software.static_buffers,
            hbm_bytes=max(float(kind.memory_bytes[MEMORY_HBM]) for kind in self.kinds),
        )
        self.batching: Batching = self.peak.batching
        self.schedule = Schedule(topology, workload, self.kinds, self.coefficients.software)
        self.kind_of_rank: Ints = self.schedule.kind_of_rank
        self.node_of_rank: Ints = self.schedule.node_of_rank
        self.stages, self.columns = self.schedule.stages, self.schedule.columns
        self.hidden = self.schedule.hidden
        self.constants: Floats = self.schedule.constants.copy()
        self.base_loads: Floats = self._base_loads()
        self._let_the_next_batch_hide()
        if not self.coefficients.software.ids_arrive_sharded:
            self._add_copy()
        beside = sum(self.peak.rank_bytes.values())
        self.base_bytes: Floats = np.where(np.arange(len(self.memories)) == MEMORY_HBM, beside, 0.0)
        self.pool_bytes = self._pool_bytes()

    def _pool_bytes(self) -> tuple[Floats, ...]:
        of_rank = np.array([kind.memory_bytes for kind in self.kinds], dtype=float)[self.kind_of_rank]
        pools = (np.unique(pool, return_index=True)[1] for pool in self.memory_pool_of_rank)
        return tuple(of_rank[first, MEMORY_TIERS.index(tier)] for tier, first in zip(self.memories, pools, strict=True))

    def resource_of_rank(self, resource: Resource) -> Ints:
        """[W] which instance of a resource each rank uses, numbered from 0, ascending along the ranks."""
        return self.schedule.resource_of_rank(resource)

    def _base_loads(self) -> Floats:
        """[K, C] seconds on each rank's resources before any table is placed: launches, first answers, the dense
        part."""
        base = np.zeros((len(self.kinds), len(self.columns)))
        software, workload = self.coefficients.software, self.workload
        gradient = dense_size(workload).parameters * software.gradient_bytes.value
        for k, kind in enumerate(self.kinds):
            self._put(base[k], "lookup_forward", _in_step(DEVICE, kind.lookup_launch_s, kind), k)
            answers_s = sum(rates.latency_s for rates in kind.memories.values())
            self._put(base[k], "cache_fetch", _in_step(FETCHES, answers_s, kind), k)
            dense = dense_seconds(
                workload,
                self.batching.samples_per_rank,
                kind.flops_per_s,
                kind.hbm_bytes_per_s,
                software.activation_passes.value,
            )
            self._put(base[k], "dense", {DEVICE: dense.rest_s}, k)
            self._put(base[k], "bottom_mlp_forward", {DEVICE: dense.bottom_forward_s}, k)
            if workload.mode == "training":
                self._put(base[k], "lookup_backward", _in_step(DEVICE, kind.update_launch_s, kind), k)
                self._put(base[k], "bottom_mlp_backward", {DEVICE: dense.bottom_backward_s}, k)
                reduce = collectives.all_reduce_seconds(gradient, kind)
                self._put(base[k], "all_reduce", {resource: float(value) for resource, value in reduce.items()}, k)
        return base

    def _add_copy(self) -> None:
        """The batch comes to the devices before its ids are exchanged or, with a pipeline, beside the step before; a
        step is then no shorter than that. Where whatever is placed hides it, there is no stage for it."""
        copy_seconds = self._copy_seconds()
        if self.workload.mode == "training" and self.workload.pipeline == "none":
            self.constants[self.stages.index("input_dist")] += copy_seconds.max()
            return
        if copy_seconds.max() > self.fixed_step_s:
            self.copy_seconds = copy_seconds
            self.stages, self.constants = (*self.stages, BATCH_COPY), np.append(self.constants, 0.0)

    def _copy_seconds(self) -> Floats:
        """[W] for ids with their lengths, numerical features and labels of a batch, over the switch of each rank."""
        dense, tables = self.workload.dense, self.tables
        per_sample = float((tables.ids_per_sample * tables.id_bytes + LENGTH_BYTES * tables.features).sum())
        moved = self.batching.samples_per_rank * (per_sample + NUMBER_BYTES * (dense.numerical_features + 1))
        seconds = np.array([moved / kind.pcie_bytes_per_s for kind in self.kinds])[self.kind_of_rank]
        switch = self.resource_of_rank(PCIE)
        return np.asarray(np.bincount(switch, weights=seconds)[switch])

    def _hidden_seconds(self) -> float:
        """How long the update of the embeddings and the fixed overhead hide the next batch's ids, which travel from one
        forward pass to the one that needs them. Under the prefetch pipeline, a step earlier, the lookups hide them too,
        and cache misses beside them. It is the least of all kinds of rank, for a load spread evenly.
        """
        count, world = len(self.tables.rows), self.topology.world_size
        zeros = np.zeros(count, dtype=np.int64)
        blocks = Blocks(np.arange(count), zeros + TABLE_WISE, zeros + HBM, self.tables.dim, np.zeros(count))
        passes = 2 if self.workload.pipeline == "prefetch" else 1
        hidden = []
        for kind in self.kinds:
            lookup = Lookup(self.tables, blocks, kind, self.batching, self.coefficients.software)
            parts = [loads[DEVICE] for loads in (lookup.backward(), lookup.forward())[:passes]]
            hidden.append(sum(float(np.sum(part.fixed) + np.sum(part.by_rows)) for part in parts) / world)
        return min(hidden) + self.coefficients.software.step_overhead_s.value

    def _let_the_next_batch_hide(self) -> None:
        """Ids and prefetched misses that others hide are no part of the stage that they share with the dense part.

        Everything else in that stage is given the hidden seconds on top, and its constant takes them off again, so that
        no load is below zero.
        """
        if not (self.schedule.ids_overlap or self.schedule.is_prefetched):
            return
        stage, hidden = self.stages.index("dense"), self._hidden_seconds()
        self.constants[stage] -= hidden
        for c, column in enumerate(self.columns):
            hides = column.resource.with_ids or column.resource in self.schedule.fetched_over
            if column.stage != stage or hides:
                continue
            instance = self.resource_of_rank(column.resource)
            sharing = np.bincount(instance)[instance]
            for k in range(len(self.kinds)):
                self.base_loads[k, c] += hidden / sharing[self.kind_of_rank == k].max()

    def _put(self, target: Floats, term: str, seconds: dict[Resource, float], kind: int) -> None:
        for resource, value in seconds.items():
            for column, factor in self.schedule.targets(term, resource, kind):
                target[column] += value * factor

    def block_costs(self, blocks: Blocks, kind: int) -> BlockCosts:
        """Costs of each block if its ranks are of this kind."""
        n, columns = len(blocks), len(self.columns)
        rank_kind, tables, batching = self.kinds[kind], self.tables, self.batching
        parts = (np.zeros((n, columns)), np.zeros((n, columns)), np.zeros((n, columns)))
        lookup = Lookup(tables, blocks, rank_kind, batching, self.coefficients.software)
        terms: dict[str, Loads] = {
            "lookup_forward": lookup.forward(),
            "output_dist": collectives.output_exchange(tables, blocks, rank_kind, batching),
            "cache_fetch": lookup.fetches(is_prefetched=self.schedule.is_prefetched),
        }
        if not self.coefficients.software.ids_arrive_sharded:
            terms["input_dist"] = collectives.id_exchange(tables, blocks, rank_kind, batching)
        if tables.training:
            gradient_bytes = self.coefficients.software.gradient_bytes.value
            terms["gradient_dist"] = collectives.gradient_exchange(tables, blocks, rank_kind, batching)
            terms["lookup_backward"] = lookup.backward()
            terms["replica_all_reduce"] = collectives.replica_all_reduce(tables, blocks, rank_kind, gradient_bytes)
        for term, loads in terms.items():
            self._add(parts, term, loads, kind)
        memory = self.block_memory(blocks, kind)
        return BlockCosts(*parts, memory.fixed, memory.by_rows, memory.supported)

    def block_memory(self, blocks: Blocks, kind: int) -> BlockMemory:
        """The bytes among the costs of each block."""
        supported = is_supported(blocks, self.kinds[kind].memory_bytes) & has_way_to_update(self.tables, blocks)
        fixed, by_rows = np.zeros((len(blocks), len(MEMORY_TIERS))), np.zeros((len(blocks), len(MEMORY_TIERS)))
        for (tier, _), load in block_bytes(self.tables, blocks, self.batching).items():
            fixed[:, tier] += load.fixed
            by_rows[:, tier] += load.by_rows
        counted = [MEMORY_TIERS.index(tier) for tier in self.memories]
        return BlockMemory(fixed[:, counted], by_rows[:, counted], supported)

    def mixing_seconds(self, shardings: Ints) -> float:
        """Kernels and exchanges of every kind of sharding beyond the first one, and their vectors joined. 0 for devices
        on which the latter was not measured."""
        per_byte, used = max(kind.regroup_s for kind in self.kinds), set(shardings.tolist())
        if not per_byte or len(used) < 2:
            return 0.0
        vectors = sum(table.vectors_per_sample * table.dim for table in self.workload.tables)
        launches_s = max(kind.lookup_launch_s + kind.update_launch_s for kind in self.kinds) * (len(used) - 1)
        exchanges = [i for i, stage in enumerate(self.stages) if stage in _DISTRIBUTIONS]
        exchanges_s = self.schedule.constants[exchanges].sum() * max(len(used - {DATA_PARALLEL}) - 1, 0)
        if DATA_PARALLEL in used:  # replicas are reduced apart from the dense part
            exchanges_s += max(kind.link_all_reduce_latency_s or 0.0 for kind in self.kinds)
        joined_s = per_byte * NUMBER_BYTES * vectors + max(kind.regroup_piece_s for kind in self.kinds) * len(used)
        joined_s *= self.batching.samples_per_rank
        return float(launches_s + exchanges_s + joined_s)

    def _add(self, parts: tuple[Floats, Floats, Floats], term: str, loads: Loads, kind: int) -> None:
        for resource, load in loads.items():
            for column, factor in self.schedule.targets(term, resource, kind):
                for part, value in zip(parts, (load.fixed, load.by_rows, load.everywhere), strict=True):
                    part[:, column] += value * factor


def _in_step(own: Resource, seconds: float, kind: RankKind) -> dict[Resource, float]:
    """What a wait of every rank takes of the rank, and keeps what ranks share waiting (see `Lookup`)."""
    return {own: seconds} | {name: seconds / ranks for name, ranks in kind.ranks_sharing.items()}
