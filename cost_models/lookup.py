"""The lookup: rows read and written on the device and, for tables below HBM, over the host's links."""

import numpy as np

from cost_models.coefficients import SoftwareCoefficients
from cost_models.kinds import RankKind
from cost_models.loads import BlockLoad, Loads
from cost_models.memory import Batching
from cost_models.shards import DATA_PARALLEL, DDR, DDR_CACHED, SSD_CACHED, Blocks, Floats
from cost_models.tables import Tables


class Lookup:
    """Lookup costs of blocks on one kind of rank; each method returns seconds by resource.

    A rank that holds a share of the rows serves that share of the lookups (ids are hashed, so hot rows are spread).
    Kernels of one rank are fused into one launch per pass; that launch is a constant of the step, not of a table.
    """

    def __init__(
        self, tables: Tables, blocks: Blocks, kind: RankKind, batching: Batching, software: SoftwareCoefficients
    ) -> None:
        table = blocks.table
        self._kind, self._software, self._blocks, self._tables = kind, software, blocks, tables
        replicated = blocks.sharding == DATA_PARALLEL
        self._samples: Floats = np.where(replicated, batching.samples_per_rank, batching.global_samples)
        self._lookups: Floats = self._samples * tables.lookups_per_sample[table]
        self._unique: Floats = tables.access.unique_rows(table, self._lookups)
        self._row_bytes: Floats = tables.row_bytes(table, blocks.columns).astype(float)
        sector = kind.sector_bytes
        self._touched: Floats = np.ceil(self._row_bytes / sector) * sector
        self._host_row: Floats = self._row_bytes + tables.row_state_bytes(table, blocks.columns)
        self._in_place = blocks.tier == DDR
        self._cached = (blocks.tier == DDR_CACHED) | (blocks.tier == SSD_CACHED)
        self._missed: Floats = self._missed_rows()

    def _missed_rows(self) -> Floats:
        """Expected distinct rows per step that the cache does not hold: at most the cold rows, the misses, all."""
        blocks = self._blocks
        if not self._cached.any():
            return np.zeros(len(blocks))
        missed = np.zeros(len(blocks))
        i = np.flatnonzero(self._cached)
        table, fraction = blocks.table[i], blocks.cache_fraction[i]
        misses = self._lookups[i] * (1 - self._tables.access.hit_rate(table, fraction))
        cold = self._tables.rows[table] * (1 - fraction)
        missed[i] = np.minimum(np.minimum(misses, cold), self._unique[i])
        return missed

    def forward(self) -> Loads:
        """Ids and rows read, pooled outputs written; UVM rows come over PCIe while the kernel waits."""
        table, blocks, kind, software = self._blocks.table, self._blocks, self._kind, self._software
        ids = self._lookups * self._tables.id_bytes[table]
        rows = np.where(self._in_place, 0.0, self._lookups * self._touched)
        outputs = (
            self._samples * self._tables.outputs_per_sample[table] * blocks.columns * self._tables.forward_wire_bytes
        )
        index = np.where(self._cached, self._lookups * kind.cache_lookup_s, 0.0)
        host = np.where(
            self._in_place,
            software.uvm_forward_passes_per_lookup.value * self._lookups * self._touched
            + software.uvm_forward_passes_per_row.value * self._unique * self._touched,
            0.0,
        )
        device = BlockLoad(
            fixed=outputs / kind.lookup_bytes_per_s,
            by_rows=(ids + rows) / kind.lookup_bytes_per_s + index + host / kind.pcie_bytes_per_s,
        )
        return {"device": device, **self._shared_host(host, host)}

    def fetch(self) -> Loads:
        """Missed distinct rows brought in, evicted ones written back in the other direction of the link."""
        moved = self._software.cache_fetch_passes.value * self._missed * self._host_row
        from_ddr = np.where(self._blocks.tier == DDR_CACHED, moved, 0.0)
        loads: Loads = {"host_link": BlockLoad(by_rows=moved / self._kind.pcie_bytes_per_s)}
        loads.update(self._shared_host(moved, 2 * from_ddr))
        if self._kind.ssd_iops:
            loads["ssd"] = BlockLoad(by_rows=self._ssd_seconds())
        return loads

    def backward(self) -> Loads:
        """Gradients of the rows summed, rows and optimizer state read and written."""
        table, kind, software = self._blocks.table, self._kind, self._software
        tables = self._tables
        by_optimizer = software.backward_passes.by_optimizer
        pooled_passes = np.array([by_optimizer[name] for name in tables.optimizer])
        passes = np.where(tables.pooled == 1, pooled_passes, software.sequence_backward_passes.value)[table]
        arrays = tables.state_arrays[table]
        on_device = passes * self._lookups + software.update_passes.value * arrays * self._unique
        rows = np.where(self._in_place, 0.0, on_device * self._touched)
        host_passes = software.uvm_backward_passes_per_row.value * (1 + arrays)
        host = np.where(self._in_place, host_passes * self._unique * self._touched, 0.0)
        seconds = rows / kind.lookup_bytes_per_s + host / kind.pcie_bytes_per_s
        return {"device": BlockLoad(by_rows=seconds), **self._shared_host(host, host)}

    def _shared_host(self, pcie_bytes: Floats, ddr_bytes: Floats) -> Loads:
        """Load on what the ranks of a switch and of a node share."""
        kind = self._kind
        loads: Loads = {"pcie": BlockLoad(by_rows=pcie_bytes / kind.pcie_bytes_per_s)}
        if kind.ddr_bytes_per_s:
            loads["ddr"] = BlockLoad(by_rows=ddr_bytes / kind.ddr_bytes_per_s)
        return loads

    def _ssd_seconds(self) -> Floats:
        """Whole blocks read and written back, or single accesses, whichever takes longer."""
        kind = self._kind
        missed = np.where(self._blocks.tier == SSD_CACHED, self._missed, 0.0)
        blocks_per_row = np.ceil(self._host_row / kind.ssd_block_bytes)
        moved = missed * blocks_per_row * kind.ssd_block_bytes
        stream = moved / kind.ssd_read_bytes_per_s + moved / kind.ssd_write_bytes_per_s
        return np.maximum(stream, missed * blocks_per_row / kind.ssd_iops)
