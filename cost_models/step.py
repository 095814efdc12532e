"""The training step: which resource is busy for how long in which stage, and the step as the sum of the stages.

A stage ends with a collective, so everybody waits for the slowest: a stage takes its constant plus the largest load
of any of its resources, and the step is the sum over the stages. Work that overlaps shares a stage: under the
sparse-dist pipeline the next batch's ids travel while the dense part computes, so their loads join the stage
`dense`, on resources of their own.
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
from topologies.fabric import Fabric

_EXCHANGE = ("link_out", "link_in", "nic_out", "nic_in")
_HOST = ("pcie", "ddr", "ssd")


@dataclass(frozen=True)
class Column:
    """One kind of resource in one stage."""

    stage: int
    resource: Resource


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
        self.fabric = Fabric(topology)
        self.tables = Tables.of(workload, topology.world_size)
        self.kinds: tuple[RankKind, ...] = rank_kinds(topology, workload)
        self.coefficients = CoefficientsUsed.of(topology, workload)
        world = topology.world_size
        samples = workload.batch(world)
        in_flight = BATCHES_IN_FLIGHT[workload.pipeline] if workload.mode == "training" else 1
        self.batching = Batching(samples, samples / world, in_flight)
        self._stage_of_term = self._assign_stages()
        self.stages: tuple[str, ...] = tuple(dict.fromkeys(self._stage_of_term.values()))
        self.columns: tuple[Column, ...] = tuple(dict.fromkeys(self._list_columns()))
        self._index = {(column.stage, column.resource): i for i, column in enumerate(self.columns)}

    # -- stages and columns ------------------------------------------------------------------------------------

    def _assign_stages(self) -> dict[str, str]:
        """Stage of each term, in the order of the step."""
        pipeline, training = self.workload.pipeline, self.workload.mode == "training"
        overlap = self.coefficients.software.all_reduce_overlaps_dense
        stages = {
            "input_dist": "input_dist" if pipeline == "none" or not training else "dense",
            "lookup_forward": "lookup_forward",
            "fetch": "dense" if pipeline == "prefetch" and training else "lookup_forward",
            "output_dist": "output_dist",
            "dense": "dense",
        }
        if training:
            stages["gradient_dist"] = "gradient_dist"
            stages["lookup_backward"] = "lookup_backward"
            stages["all_reduce"] = "dense" if overlap else "all_reduce"
        stages["overhead"] = "overhead"
        order = ("input_dist", "lookup_forward", "output_dist", "dense", "gradient_dist", "lookup_backward")
        rank = {name: i for i, name in enumerate((*order, "all_reduce", "overhead"))}
        return dict(sorted(stages.items(), key=lambda item: rank[item[1]]))

    def _list_columns(self) -> list[Column]:
        exchange = [name for name in _EXCHANGE if self._has(name)] + [name for name, *_ in self._uplinks]
        host = [name for name in _HOST if self._has(name)]
        resources = {
            "input_dist": exchange,
            "lookup_forward": ["device", *host],
            "fetch": ["device" if self._stage_of_term["fetch"] == "lookup_forward" else "host_link", *host],
            "output_dist": exchange,
            "dense": ["device"],
            "gradient_dist": exchange,
            "lookup_backward": ["device", *host],
            "all_reduce": exchange,
            "overhead": [],
        }
        return [
            Column(self.stages.index(stage), resource)
            for term, stage in self._stage_of_term.items()
            for resource in resources[term]
        ]

    def _has(self, resource: Resource) -> bool:
        kinds = self.kinds
        if resource.startswith("nic"):
            return any(kind.domain_ranks < kind.world_size for kind in kinds)
        if resource == "ddr":
            return any(kind.ddr_bytes_per_s for kind in kinds)
        if resource == "ssd":
            return any(kind.ssd_iops for kind in kinds)
        if resource == "pcie":
            return self._has("ddr") or self._has("ssd")
        return True

    @cached_property
    def _uplinks(self) -> list[tuple[Resource, int, Floats, Floats]]:
        """Oversubscribed levels: (name, level, share [K] of a rank's card traffic that leaves it, rate [K])."""
        found: list[tuple[Resource, int, Floats, Floats]] = []
        for number, level in enumerate(self.topology.network.levels):
            if level.oversubscription <= 1 or level.nodes >= self.topology.node_count:
                continue
            leaves, rates = [], []
            for kind, group in zip(self.kinds, self.topology.nodes, strict=True):
                below = min(level.nodes * kind.node_ranks, kind.world_size)
                outside = kind.world_size - max(below, kind.domain_ranks)
                beyond_domain = kind.world_size - kind.domain_ranks
                leaves.append(outside / beyond_domain if beyond_domain else 0.0)
                nics = group.links.scale_out
                node_rate = nics.count * nics.bandwidth if nics else float("inf")
                rates.append(level.nodes * node_rate / level.oversubscription)
            for direction in ("out", "in"):
                found.append((f"uplink{number}_{direction}", number, np.array(leaves), np.array(rates)))
        return found

    @cached_property
    def kind_of_rank(self) -> Ints:
        """[W] node group of each rank."""
        return np.asarray(self.fabric.group_of_rank, dtype=np.int64)

    @cached_property
    def node_of_rank(self) -> Ints:
        """[W]"""
        return np.asarray(self.fabric.node_of_rank, dtype=np.int64)

    def resource_of_rank(self, resource: Resource) -> Ints:
        """[W] which instance of a resource each rank uses, numbered from 0."""
        world = self.topology.world_size
        if resource in {"device", "link_out", "link_in", "host_link"}:
            found = np.arange(world)
        elif resource in {"nic_out", "nic_in"}:
            found = np.asarray(self.fabric.nic_of_rank)
        elif resource == "pcie":
            found = np.asarray(self.fabric.pcie_switch_of_rank)
        elif resource in {"ddr", "ssd"}:
            found = self.node_of_rank
        else:
            level = next(number for name, number, *_ in self._uplinks if name == resource)
            found = np.asarray(self.fabric.switch_of_node[level])[self.node_of_rank]
        return np.unique(found, return_inverse=True)[1].astype(np.int64)

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
    def stage_constants(self) -> Floats:
        """[S] seconds that a stage takes whatever its loads: latencies and the fixed overhead."""
        software = self.coefficients.software
        constants = np.zeros(len(self.stages))
        alone = {"input_dist", "output_dist", "gradient_dist", "all_reduce"}
        for i, stage in enumerate(self.stages):
            if stage in alone and self.topology.world_size > 1:
                constants[i] = software.collective_latency_s.value
            if stage == "overhead":
                constants[i] = software.step_overhead_s.value
        return constants

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
        stage = self.stages.index(self._stage_of_term[term])
        for resource, value in seconds.items():
            if (column := self._index.get((stage, resource))) is not None:
                target[column] += value
            for name, ratio in self._uplink_ratios(resource, kind):
                target[self._index[stage, name]] += value * ratio

    def _uplink_ratios(self, resource: Resource, kind: int) -> list[tuple[Resource, float]]:
        """Seconds on each oversubscribed uplink for one second on a rank's card."""
        if not resource.startswith("nic"):
            return []
        rate = self.kinds[kind].nic_all_to_all
        direction = resource.removeprefix("nic")
        return [
            (name, float(leaves[kind] * rate / rates[kind]))
            for name, _, leaves, rates in self._uplinks
            if name.endswith(direction)
        ]

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
        stage = self.stages.index(self._stage_of_term[term])
        for name, load in loads.items():
            serial = term == "fetch" and self._stage_of_term["fetch"] == "lookup_forward" and name == "host_link"
            resource = "device" if serial else name
            targets = [(resource, 1.0), *self._uplink_ratios(resource, kind)]
            for target, ratio in targets:
                column = self._index.get((stage, target))
                if column is None:
                    continue
                for part, value in zip(parts, (load.fixed, load.by_rows, load.everywhere), strict=True):
                    part[:, column] += value * ratio

    # -- what a placement costs ---------------------------------------------------------------------------------

    def evaluate(self, placed: PlacedShards) -> Evaluation:
        """Stage times and bytes of a placement, summed shard by shard."""
        world, kind_of_shard = self.topology.world_size, self.kind_of_rank[placed.rank]
        load = self.base_loads[self.kind_of_rank].copy()
        stored = np.tile(self.base_bytes, (world, 1))
        share = placed.rows / self.tables.rows[placed.blocks.table]
        distinct, which = placed.blocks.distinct()
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
            instance = self.resource_of_rank(column.resource)
            total = np.bincount(instance, weights=load[:, c])[instance]
            if total.max() > busy[:, column.stage].max():
                binding[column.stage] = column.resource
            busy[:, column.stage] = np.maximum(busy[:, column.stage], total)
        critical = tuple(int(of_stage.argmax()) if of_stage.any() else None for of_stage in busy.T)
        seconds = busy + self.stage_constants
        return Evaluation(seconds.max(axis=0), critical, tuple(binding), seconds, stored)

    def shard_bytes(self, placed: PlacedShards) -> Floats:
        """[n, M] bytes of each shard."""
        size = np.zeros((len(placed.rank), len(MEMORY_TIERS)))
        share = (placed.rows / self.tables.rows[placed.blocks.table])[:, None]
        distinct, which = placed.blocks.distinct()
        kind_of_shard = self.kind_of_rank[placed.rank]
        for k in range(len(self.kinds)):
            costs = self.block_costs(distinct, k)
            here = kind_of_shard == k
            size[here] = costs.bytes_fixed[which[here]] + costs.bytes_by_rows[which[here]] * share[here]
        return size
