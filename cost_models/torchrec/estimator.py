"""TorchRec 1.8.0's default performance estimator, for many shards at once.

The formulas of torchrec/distributed/planner/estimator/estimator.py with the configuration `default_estimator`, on
cuda; see docs/explanation/torchrec-objective.md. Times do not depend on how many rows a shard holds, except of a
replicated table, and each shard counts by its own width.
"""

from dataclasses import dataclass

import numpy as np

from cost_models.shards import DATA_PARALLEL, DDR, DDR_CACHED, Blocks, Floats
from cost_models.torchrec.constants import TorchRecCoefficients, torchrec_coefficients
from cost_models.torchrec.tables import TorchRecTables
from cost_models.torchrec.topology import TorchRecTopology
from cost_models.torchrec.traffic import ShardTraffic

FORWARD, BACKWARD = range(2)


@dataclass(frozen=True)
class ShardSeconds:
    """The terms of `torchrec.distributed.planner.types.Perf`, in seconds (there: ms); arrays of [n]."""

    forward_compute: Floats
    forward_comms: Floats
    backward_compute: Floats
    backward_comms: Floats
    prefetch_compute: Floats
    input_dist_comms: Floats
    """Shown by TorchRec, but not part of its total."""

    @property
    def total(self) -> Floats:
        """What a rating sums (`Perf.total`)."""
        return (
            self.forward_compute
            + self.backward_compute
            + self.forward_comms
            + self.backward_comms
            + self.prefetch_compute
        )


class PerfEstimator:
    """`EmbeddingPerfEstimator` of one topology and one set of tables."""

    def __init__(self, topology: TorchRecTopology, tables: TorchRecTables) -> None:
        self._topology, self._tables = topology, tables
        self._numbers: TorchRecCoefficients = torchrec_coefficients()

    def estimate(self, blocks: Blocks) -> ShardSeconds:
        """Seconds of one shard of each block."""
        traffic = ShardTraffic(self._topology, self._tables, blocks, self._numbers)
        device = self._device_bytes_per_s(blocks)
        forward = self._forward_compute(traffic, device)
        zero = np.zeros(len(blocks))
        return ShardSeconds(
            forward_compute=forward,
            forward_comms=self._exchange(traffic, FORWARD),
            backward_compute=self._backward_compute(blocks, forward) if self._tables.training else zero,
            backward_comms=self._backward_comms(traffic, device) if self._tables.training else zero,
            prefetch_compute=self._prefetch(traffic),
            input_dist_comms=self._input_dist(traffic),
        )

    def _device_bytes_per_s(self, blocks: Blocks) -> Floats:
        """[n] of the kernel: dense, fused, fused_uvm_caching or fused_uvm (constants.py: kernel_bw_lookup)."""
        numbers, hbm, host = self._numbers, self._topology.hbm_bytes_per_s, self._topology.hbm_to_ddr_bytes_per_s
        slowdown = numbers.uvm_slowdown.value
        cached = (blocks.cache_fraction * hbm + (1 - blocks.cache_fraction) * host) / slowdown
        if self._tables.pipeline == "prefetch":
            cached = np.full(len(blocks), hbm)
        rate = np.where(blocks.tier == DDR_CACHED, cached, hbm)
        rate = np.where(blocks.tier == DDR, host / slowdown, rate)
        return np.where(blocks.sharding == DATA_PARALLEL, numbers.dense_bandwidth_share.value * hbm, rate)

    def _comms_bytes_per_s(self, ranks: int) -> float:
        """The bandwidth of a collective over so many consecutive ranks: intra-host or, beyond one host, inter-host."""
        topology = self._topology
        within = ranks <= topology.local_world_size
        return topology.intra_host_bytes_per_s if within else topology.inter_host_bytes_per_s

    def _element_bytes(self, traffic: ShardTraffic, direction: int) -> Floats:
        """[n] on the wire: of a reduce-scatter where rows are cut, else of an all-to-all; replicated: the weights'."""
        table, tables = traffic.blocks.table, self._tables
        reduced = traffic.over_group | (traffic.over_world & tables.pooled[table])
        size = np.where(
            reduced, tables.reduce_scatter_bytes[table, direction], tables.all_to_all_bytes[table, direction]
        )
        return np.where(traffic.replicated, tables.element_bytes[table], size)

    def _forward_compute(self, traffic: ShardTraffic, device: Floats) -> Floats:
        """(ids + rows read + vectors written) x penalty / bandwidth; _default_fwd_comp."""
        blocks, numbers, tables = traffic.blocks, self._numbers, self._tables
        whole_rows = ~(traffic.replicated | traffic.over_world | traffic.over_group)
        read = np.where(whole_rows, np.maximum(blocks.columns, numbers.least_columns.value), blocks.columns)
        half = np.where(
            blocks.columns >= numbers.half_block_columns.value,
            numbers.half_block_penalty.value,
            numbers.quarter_block_penalty.value,
        )
        penalty = np.where(whole_rows & (blocks.columns < numbers.full_block_columns.value), half, 1.0)
        id_bytes = traffic.id_bytes * np.where(tables.weighted[blocks.table], 2.0, 1.0)
        row_bytes = traffic.ids * read * tables.element_bytes[blocks.table]
        vector_bytes = traffic.output_bytes(self._element_bytes(traffic, FORWARD))
        return (id_bytes + row_bytes + vector_bytes) * penalty / device

    def _backward_compute(self, blocks: Blocks, forward: Floats) -> Floats:
        """A multiple of the forward time, and the gradient of the weights of a weighted table; _default_bwd_comp."""
        topology, weighted = self._topology, self._tables.weighted[blocks.table]
        ratio = np.where(weighted, topology.backward_ratio * topology.weighted_backward_ratio, topology.backward_ratio)
        return forward * ratio + np.where(weighted, forward * self._numbers.weighted_kernel_ratio.value, 0.0)

    def _exchange(self, traffic: ShardTraffic, direction: int) -> Floats:
        """The outputs to their samples, or their gradients back; _default_fwd_comms.

        Over the world in one collective; of group-wide shards inside the group, then among the groups.
        """
        topology, table = self._topology, traffic.blocks.table
        size = traffic.output_bytes(self._element_bytes(traffic, direction))
        groups = max(1, topology.world_size // topology.group_size)
        hierarchical = size / self._comms_bytes_per_s(topology.group_size)
        if groups > 1:
            element = self._tables.all_to_all_bytes[table, direction]
            among = self._tables.batch_outputs[table] * groups * traffic.blocks.columns * element
            hierarchical = hierarchical + among / topology.inter_host_bytes_per_s
        flat = size / self._comms_bytes_per_s(topology.world_size)
        return np.where(traffic.replicated, 0.0, np.where(traffic.over_group, hierarchical, flat))

    def _backward_comms(self, traffic: ShardTraffic, device: Floats) -> Floats:
        """The exchange backwards, the copy of what row-cut shards receive, the all-reduce of replicated tables."""
        size = traffic.output_bytes(self._element_bytes(traffic, BACKWARD))
        copied = np.where(traffic.over_world | traffic.over_group, size * self._numbers.batched_copy_passes.value, 0.0)
        exchanged = self._exchange(traffic, BACKWARD) + copied / device
        return np.where(traffic.replicated, self._all_reduce(traffic.blocks, device), exchanged)

    def _all_reduce(self, blocks: Blocks, device: Floats) -> Floats:
        """The time of a replicated table's gradient and its element-wise kernels (DataParallelEvaluator)."""
        topology, tables = self._topology, self._tables
        size = tables.rows[blocks.table] * blocks.columns * tables.element_bytes[blocks.table]
        nodes = min(topology.world_size / topology.local_world_size, 2)
        ring = size * (2 * nodes - 1) / nodes / (topology.inter_host_bytes_per_s * topology.local_world_size)
        if topology.world_size > 2 * topology.local_world_size:
            ring = ring * 2
        return np.asarray(ring + size * self._numbers.elementwise_passes.value / device)

    def _prefetch(self, traffic: ShardTraffic) -> Floats:
        """Missed rows over the host link, where cache statistics are known; _default_prefetch_comp."""
        blocks, cache = traffic.blocks, self._tables.cache
        if cache is None:
            return np.zeros(len(blocks))
        missed = cache.expected_misses(blocks.table, blocks.cache_fraction) / traffic.row_cuts
        size = missed * blocks.columns * self._tables.element_bytes[blocks.table]
        cached = (blocks.tier == DDR_CACHED) & ~traffic.replicated
        return np.where(cached, size / self._topology.hbm_to_ddr_bytes_per_s, 0.0)

    def _input_dist(self, traffic: ShardTraffic) -> Floats:
        """The ids of all ranks, unweighted, in an all-to-all; _default_input_dist_comms."""
        world = self._topology.world_size
        ids = self._tables.batch_inputs[traffic.blocks.table] * world * self._numbers.id_bytes.value
        return np.where(traffic.replicated, 0.0, np.ceil(ids) / self._comms_bytes_per_s(world))
