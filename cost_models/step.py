"""The training step: which resource is busy for how long in which stage, and the step as the sum of the stages.

A stage (see `schedule`) takes its constant plus the largest load of any of its resources; the step is the sum over the
stages. Costs are computed for blocks on a kind of rank, many at once; a placement is summed from them.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cost_models import collectives
from cost_models.dense import dense_bytes, dense_seconds, dense_size
from cost_models.kinds import CoefficientsUsed, RankKind, rank_kinds
from cost_models.loads import Loads, Resource
from cost_models.lookup import Lookup
from cost_models.memory import BATCHES_IN_FLIGHT, Batching, block_bytes, is_supported
from cost_models.schedule import Column, Schedule
from cost_models.shards import (
    MEMORY_HBM,
    MEMORY_TIERS,
    PLACEMENT_TIERS,
    Blocks,
    Floats,
    Ints,
    PlacedShards,
)
from cost_models.tables import Tables
from cost_models.workload.models import Workload
from topologies.cluster import Topology


@dataclass(frozen=True)
class BlockCosts:
    """Costs of n blocks on one kind of rank; C columns of seconds, M = 3 memory tiers of bytes.

    See BlockLoad for the meaning of the three parts. `supported` is False where the kind lacks the tier.
    """

    fixed: Floats
    """[n, C]"""
    by_rows: Floats
    """[n, C]"""
    everywhere: Floats
    """[n, C]"""
    bytes_fixed: Floats
    """[n, M]"""
    bytes_by_rows: Floats
    """[n, M]"""
    supported: np.ndarray
    """[n] bool"""


@dataclass(frozen=True)
class Evaluation:
    """What a placement costs, recomputed from its shards."""

    stage_seconds: Floats
    """[S]"""
    critical_rank: tuple[int | None, ...]
    """[S] first rank of the resource that binds the stage; None where only a constant does."""
    binding: tuple[Resource | None, ...]
    """[S] the resource that binds the stage."""
    rank_stage_seconds: Floats
    """[W, S]"""
    rank_bytes: Floats
    """[W, M] with the dense part; DDR and SSD: the rank's own share of its node's."""

    @property
    def step_s(self) -> float:
        """The sum of the stages."""
        return float(self.stage_seconds.sum())


class StepModel:
    """The physical cost model of one workload on one topology."""

    name = "physical"

    def __init__(self, topology: Topology, workload: Workload) -> None:
        self.topology, self.workload = topology, workload
        self.tables = Tables.of(workload, topology.world_size)
        self.kinds: tuple[RankKind, ...] = rank_kinds(topology, workload)
        self.coefficients = CoefficientsUsed.of(topology, workload)
        world = topology.world_size
        samples = workload.batch(world)
        in_flight = BATCHES_IN_FLIGHT[workload.pipeline] if workload.mode == "training" else 1
        self.batching = Batching(samples, samples / world, in_flight)
        self.schedule = Schedule(topology, workload, self.kinds, self.coefficients.software)
        self.kind_of_rank: Ints = self.schedule.kind_of_rank
        self.node_of_rank: Ints = self.schedule.node_of_rank

    @property
    def stages(self) -> tuple[str, ...]:
        """The S stages in their order."""
        return self.schedule.stages

    @property
    def columns(self) -> tuple[Column, ...]:
        """The C columns: a resource in a stage."""
        return self.schedule.columns

    @cached_property
    def memory_pool_of_rank(self) -> tuple[Ints, Ints, Ints]:
        """Per memory tier, [W] the pool each rank draws on: itself for HBM, its node for DDR and SSD."""
        return np.arange(self.topology.world_size), self.node_of_rank, self.node_of_rank

    @cached_property
    def memory_capacity(self) -> tuple[Floats, Floats, Floats]:
        """Per memory tier, usable bytes of each pool (after the reserve)."""
        of_rank = np.array([kind.memory_bytes for kind in self.kinds], dtype=float)[self.kind_of_rank]
        first_of_node = np.unique(self.node_of_rank, return_index=True)[1]
        return of_rank[:, 0], of_rank[first_of_node, 1], of_rank[first_of_node, 2]

    # -- what no placement changes ------------------------------------------------------------------------------

    @cached_property
    def base_loads(self) -> Floats:
        """[K, C] seconds on each rank's resources before any table is placed: launches and the dense part."""
        base = np.zeros((len(self.kinds), len(self.columns)))
        software, workload = self.coefficients.software, self.workload
        gradient = dense_size(workload).parameters * software.gradient_bytes.value
        for k, kind in enumerate(self.kinds):
            self._put(base[k], "lookup_forward", {"device": software.forward_launch_s.value}, k)
            dense = dense_seconds(
                workload,
                self.batching.samples_per_rank,
                kind.flops_per_s,
                kind.hbm_bytes_per_s,
                software.activation_passes.value,
            )
            self._put(base[k], "dense", {"device": dense}, k)
            if workload.mode == "training":
                self._put(base[k], "lookup_backward", {"device": software.backward_launch_s.value}, k)
                reduce = collectives.all_reduce_seconds(gradient, kind)
                self._put(base[k], "all_reduce", {name: float(value) for name, value in reduce.items()}, k)
        return base

    def _put(self, target: Floats, term: str, seconds: dict[Resource, float], kind: int) -> None:
        for resource, value in seconds.items():
            for column, factor in self.schedule.targets(term, resource, kind):
                target[column] += value * factor

    @cached_property
    def base_bytes(self) -> Floats:
        """[M] bytes on each rank before any table is placed: the dense part and the received embeddings."""
        dense = sum(dense_bytes(self.workload, self.batching.samples_per_rank).values())
        return np.array([dense if tier == MEMORY_HBM else 0.0 for tier in range(len(MEMORY_TIERS))])

    # -- what a block costs -------------------------------------------------------------------------------------

    def block_costs(self, blocks: Blocks, kind: int) -> BlockCosts:
        """Costs of each block if its ranks are of this kind."""
        n, columns, memories = len(blocks), len(self.columns), len(MEMORY_TIERS)
        rank_kind, tables, batching = self.kinds[kind], self.tables, self.batching
        parts = (np.zeros((n, columns)), np.zeros((n, columns)), np.zeros((n, columns)))
        supported = np.array([is_supported(tier, rank_kind.memory_bytes) for tier in range(len(PLACEMENT_TIERS))])
        lookup = Lookup(tables, blocks, rank_kind, batching, self.coefficients.software)
        terms: dict[str, Loads] = {
            "input_dist": collectives.id_exchange(tables, blocks, rank_kind, batching),
            "lookup_forward": lookup.forward(),
            "output_dist": collectives.output_exchange(tables, blocks, rank_kind, batching),
            "fetch": lookup.fetch(),
        }
        if tables.training:
            gradient_bytes = self.coefficients.software.gradient_bytes.value
            terms["gradient_dist"] = collectives.gradient_exchange(tables, blocks, rank_kind, batching)
            terms["lookup_backward"] = lookup.backward()
            terms["all_reduce"] = collectives.replica_all_reduce(tables, blocks, rank_kind, gradient_bytes)
        for term, loads in terms.items():
            self._add(parts, term, loads, kind)
        bytes_fixed, bytes_by_rows = np.zeros((n, memories)), np.zeros((n, memories))
        for (tier, _), load in block_bytes(tables, blocks, batching).items():
            bytes_fixed[:, tier] += load.fixed
            bytes_by_rows[:, tier] += load.by_rows
        return BlockCosts(*parts, bytes_fixed, bytes_by_rows, supported[blocks.tier])

    def _add(self, parts: tuple[Floats, Floats, Floats], term: str, loads: Loads, kind: int) -> None:
        for resource, load in loads.items():
            for column, factor in self.schedule.targets(term, resource, kind):
                for part, value in zip(parts, (load.fixed, load.by_rows, load.everywhere), strict=True):
                    part[:, column] += value * factor

    # -- what a placement costs ---------------------------------------------------------------------------------

    def evaluate(self, placed: PlacedShards) -> Evaluation:
        """Stage times and bytes of a placement, summed shard by shard."""
        world, kind_of_shard = self.topology.world_size, self.kind_of_rank[placed.rank]
        load = self.base_loads[self.kind_of_rank].copy()
        stored = np.tile(self.base_bytes, (world, 1))
        share = placed.rows / self.tables.rows[placed.blocks.table]
        distinct, which = placed.blocks.distinct
        opened = np.bincount(which[placed.opens_block], minlength=len(distinct)).astype(float)
        for k in range(len(self.kinds)):
            costs = self.block_costs(distinct, k)
            load[self.kind_of_rank == k] += opened @ costs.everywhere
            here = np.flatnonzero(kind_of_shard == k)
            block, rank, held = which[here], placed.rank[here], share[here]
            for c in range(load.shape[1]):
                seconds = costs.fixed[block, c] + costs.by_rows[block, c] * held
                load[:, c] += np.bincount(rank, weights=seconds, minlength=world)
            for m in range(stored.shape[1]):
                size = costs.bytes_fixed[block, m] + costs.bytes_by_rows[block, m] * held
                stored[:, m] += np.bincount(rank, weights=size, minlength=world)
        return self._evaluation(load, stored)

    def _evaluation(self, load: Floats, stored: Floats) -> Evaluation:
        """From the loads [W, C] that each rank brings to its resources."""
        busy = np.zeros((len(load), len(self.stages)))
        binding: list[Resource | None] = [None] * len(self.stages)
        for c, column in enumerate(self.columns):
            instance = self.schedule.resource_of_rank(column.resource)
            total = np.bincount(instance, weights=load[:, c])[instance]
            if total.max() > busy[:, column.stage].max():
                binding[column.stage] = column.resource
            busy[:, column.stage] = np.maximum(busy[:, column.stage], total)
        critical = tuple(int(of_stage.argmax()) if of_stage.any() else None for of_stage in busy.T)
        seconds = busy + self.schedule.constants
        return Evaluation(seconds.max(axis=0), critical, tuple(binding), seconds, stored)

    def shard_bytes(self, placed: PlacedShards) -> Floats:
        """[n, M] bytes of each shard."""
        size = np.zeros((len(placed.rank), len(MEMORY_TIERS)))
        share = (placed.rows / self.tables.rows[placed.blocks.table])[:, None]
        distinct, which = placed.blocks.distinct
        kind_of_shard = self.kind_of_rank[placed.rank]
        for k in range(len(self.kinds)):
            costs = self.block_costs(distinct, k)
            here = kind_of_shard == k
            size[here] = costs.bytes_fixed[which[here]] + costs.bytes_by_rows[which[here]] * share[here]
        return size
