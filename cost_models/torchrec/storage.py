"""TorchRec 1.8.0's storage estimator, for many shards at once: bytes in HBM and in the rank's share of DDR.

The formulas of torchrec/distributed/planner/shard_estimators.py (EmbeddingStorageEstimator with its defaults) on
cuda. Of a cached table HBM holds a share of weights and state, and DDR all of them.
"""

import math

import numpy as np

from cost_models.shards import DDR, DDR_CACHED, EVERYWHERE, HBM, MEMORY_DDR, MEMORY_HBM, Blocks, Floats, Ints
from cost_models.torchrec.constants import TorchRecCoefficients, torchrec_coefficients
from cost_models.torchrec.tables import TorchRecTables
from cost_models.torchrec.topology import TorchRecTopology
from cost_models.torchrec.traffic import ShardTraffic


class StorageEstimator:
    """`EmbeddingStorageEstimator` of one topology and one set of tables."""

    def __init__(self, topology: TorchRecTopology, tables: TorchRecTables) -> None:
        self._topology, self._tables = topology, tables
        self._numbers: TorchRecCoefficients = torchrec_coefficients()

    def estimate(self, blocks: Blocks, rows: Ints) -> Floats:
        """[n, M] whole bytes of one shard of each block that holds `rows` [n] rows."""
        out = self.held(blocks, rows)
        out[:, MEMORY_HBM] += self.in_flight(blocks, rows)
        return out

    def held(self, blocks: Blocks, rows: Ints) -> Floats:
        """[n, M] weights, optimizer state and cache (_calculate_storage_specific_sizes)."""
        tables, table = self._tables, blocks.table
        whole = tables.rows[table] * tables.dim[table] * tables.element_bytes[table]
        own = rows * blocks.columns * tables.element_bytes[table]
        cached = blocks.tier == DDR_CACHED
        cache = np.where(cached, np.rint(whole * blocks.cache_fraction), 0.0)
        cache = self._share(cache, rows * blocks.columns, tables.rows[table] * tables.dim[table])
        in_hbm = np.where(blocks.tier == HBM, own, cache)
        in_ddr = np.where(cached | (blocks.tier == DDR), own, 0)
        out = np.zeros((len(blocks), len(EVERYWHERE)))
        out[:, MEMORY_HBM], out[:, MEMORY_DDR] = in_hbm, in_ddr
        if not tables.training:
            return out
        out += np.ceil(out * tables.state_per_weight[table][:, None])
        per_row = self._numbers.cache_index_bytes_per_row.value
        per_slot = self._numbers.cache_index_bytes_per_slot.value
        out[:, MEMORY_HBM] += np.where(cached, np.ceil(rows * (per_row + blocks.cache_fraction * per_slot)), 0.0)
        return out

    def in_flight(self, blocks: Blocks, rows: Ints) -> Floats:
        """[n] ids and outputs that HBM holds beside the shard (calculate_pipeline_io_cost); none of an empty shard."""
        tables, numbers = self._tables, self._numbers
        if not tables.training:
            return np.zeros(len(blocks))
        traffic = ShardTraffic(self._topology, tables, blocks, numbers)
        ids = traffic.id_bytes
        if tables.pipeline == "none":
            size = ids + np.ceil(traffic.output_bytes(tables.output_bytes[blocks.table]))
        elif tables.pipeline == "sparse-dist":
            size = ids * numbers.sparse_dist_inputs.value
        else:
            burst = np.where(blocks.tier == DDR_CACHED, numbers.prefetch_burst_inputs.value, 0.0)
            size = ids * (numbers.prefetch_inputs.value + burst)
        return np.where(rows > 0, size, 0.0)

    @staticmethod
    def _share(size: Floats, part: Ints, whole: Ints) -> Floats:
        """[n] size x part / whole, rounded up, in whole numbers: the products do not fit a float's 53 bits."""
        out = size.copy()
        for i in np.flatnonzero((part != whole) & (size > 0)).tolist():
            out[i] = math.ceil(int(size[i]) * int(part[i]) / int(whole[i]))
        return out
