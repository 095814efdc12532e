"""The lookup: rows read and written on the device and, for tables below HBM, over the host's links."""

from dataclasses import replace

import numpy as np

from cost_models import lookup_terms as terms
from cost_models.coefficients import SoftwareCoefficients
from cost_models.kinds import RankKind
from cost_models.loads import BlockLoad, Loads
from cost_models.memory import Batching, cached_share, is_cached_beside
from cost_models.shards import (
    DATA_PARALLEL,
    DDR,
    DDR_CACHED,
    DDR_SPLIT,
    EXTENT_OF_SHARDING,
    RANK,
    SSD_CACHED,
    Blocks,
    Floats,
)
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
        self._samples_per_rank = batching.samples_per_rank
        self._replicated_elements: Floats = np.where(replicated, tables.rows[table] * blocks.columns, 0)
        self._lookups: Floats = self._samples * tables.lookups_per_sample[table]
        self._unique: Floats = tables.access.unique_rows(table, self._lookups)
        cut = (EXTENT_OF_SHARDING[blocks.sharding] != RANK) & ~replicated
        self._cut_ids: Floats = np.where(cut, batching.samples_per_rank * tables.lookups_per_sample[table], 0.0)
        self._stored_row: Floats = tables.row_bytes(table, blocks.columns, blocks.dtype).astype(float)
        state: Floats = tables.row_state_bytes(table, blocks.columns).astype(float)
        self._hot: Floats = np.where(blocks.tier == DDR, 0.0, 1.0)  # share of the lookups that HBM serves
        split = np.flatnonzero(blocks.tier == DDR_SPLIT)
        self._hot[split] = tables.access.hit_rate(table[split], blocks.cache_fraction[split])
        below = (blocks.tier == DDR_CACHED) | (blocks.tier == SSD_CACHED)
        self._cached = below | is_cached_beside(tables, blocks)
        cached_row = tables.cached_row_bytes(table, blocks.columns, blocks.dtype).astype(float)
        row: Floats = np.where(self._cached, cached_row, self._stored_row)
        self._encoded_bytes: Floats = np.where(row != self._stored_row, row + self._stored_row, 0.0)
        self._fetched_row: Floats = self._stored_row + np.where(blocks.tier == SSD_CACHED, state, 0.0)
        sector = kind.sector_bytes
        row_bytes = terms.in_sectors(row, sector)
        self._reads = terms.Reads(
            lookups=self._lookups,
            unique=self._unique,
            id_bytes=tables.id_bytes[table].astype(float),
            row_bytes=row_bytes,
            output_bytes=self._samples * tables.outputs_per_sample[table] * blocks.columns * tables.written_bytes,
            table_bytes=tables.rows[table] * row_bytes,
            state_bytes=terms.in_sectors(state, sector),
            state_arrays=tables.state_arrays[table].astype(float),
        )
        cold = np.minimum((1 - self._hot) * self._lookups, (1 - blocks.cache_fraction) * tables.rows[table])
        cold = np.minimum(cold, self._unique) * (self._hot < 1)
        self._in_place = replace(self._reads, lookups=(1 - self._hot) * self._lookups, unique=cold)
        in_hbm = tables.rows[table] * np.where(blocks.tier == DDR_SPLIT, blocks.cache_fraction, 1.0)
        self._on_device = replace(
            self._reads,
            lookups=self._hot * self._lookups,
            unique=self._unique - cold,
            table_bytes=in_hbm * row_bytes,
        )
        self._missed: Floats = self._missed_rows()

    def _missed_rows(self) -> Floats:
        """Expected distinct rows per step that the cache does not hold."""
        blocks, missed = self._blocks, np.zeros(len(self._blocks))
        i = np.flatnonzero(self._cached)
        if len(i):
            fraction = cached_share(self._tables, blocks)[i]
            missed[i] = self._tables.access.missed_rows(blocks.table[i], fraction, self._lookups[i])
        return missed

    def forward(self) -> Loads:
        """Ids and rows read, pooled outputs written; UVM rows come over PCIe while the kernel waits."""
        kind, software, reads = self._kind, self._software, self._reads
        ids, outputs = terms.stream(reads, kind.lookup)
        rows = terms.read_rows(self._on_device, kind.lookup)
        search = np.where(self._cached, terms.cache_search(reads, software), 0.0)
        host = terms.in_place_bytes(self._in_place, software)
        vectors = self._samples * self._tables.outputs_per_sample[self._blocks.table]
        by_vector = vectors * (software.vector_s.value if software.vector_s else 0.0)
        codec = self._codec_seconds(self._tables.codec_bytes[0])
        on_device = BlockLoad(
            fixed=outputs + by_vector + codec,
            by_rows=ids + rows + search + self._cache_codec_seconds(),
            everywhere=codec / kind.world_size + self._expanding_seconds() + kind.id_cut_s * self._cut_ids,
        )
        return self._in_turn(on_device, host)

    def fetch(self, tier: int) -> Loads:
        """Missed distinct rows of caches over this placement tier brought in, evicted ones written back in the other
        direction of the link.

        The rank waits for the part that the search of the cache does not hide; the shared links carry all of it.
        """
        kind, missed = self._kind, np.where(self._blocks.tier == tier, self._missed, 0.0)
        moved = missed * self._fetched_row
        waited = terms.fetched_bytes(missed, self._fetched_row, self._software)
        loads: Loads = {
            "host_link": BlockLoad(by_rows=waited / kind.pcie_bytes_per_s),
            "pcie": BlockLoad(by_rows=moved / kind.pcie_bytes_per_s),
        }
        if tier == DDR_CACHED and kind.ddr_bytes_per_s:
            loads["ddr"] = BlockLoad(by_rows=2 * moved / kind.ddr_bytes_per_s)
        if tier == SSD_CACHED and kind.ssd_iops:
            loads["ssd"] = BlockLoad(by_rows=self._ssd_seconds(missed))
        return loads

    def backward(self) -> Loads:
        """Gradients of the rows summed, rows and optimizer state read and written.

        State of a table in host memory stays there, whether or not its rows are cached.
        """
        kind, software, tables, reads = self._kind, self._software, self._tables, self._reads
        by_optimizer = software.backward_passes.by_optimizer
        pooled_passes = np.array([by_optimizer[name] for name in tables.optimizer])
        if kind.update_passes is not None:
            pooled_passes = np.full(len(pooled_passes), kind.update_passes)
        passes = np.where(tables.pooled == 1, pooled_passes, software.sequence_backward_passes.value)
        passes = passes[self._blocks.table]
        hot, cold = self._on_device, self._in_place
        in_cache = self._blocks.tier == DDR_CACHED
        on_device = np.where(
            in_cache,
            terms.backward_on_cache(reads, passes, kind.lookup, software),
            terms.backward(hot, passes, kind.lookup, software) + terms.backward_in_place(cold, passes, kind.lookup),
        )
        host = terms.row_in_place_bytes(cold, software)
        host = host + terms.state_in_place_bytes(
            replace(cold, unique=np.where(in_cache, self._unique, cold.unique)), software
        )
        if kind.update_passes is not None:  # a calibrated device: its cache serves the update as it does the lookup
            on_device = on_device * terms.cached_reads(self._on_device, kind.lookup)
        seconds = on_device + self._lookups * kind.update_row_s
        codec = self._codec_seconds(self._tables.codec_bytes[1])
        whole = kind.dense_update_s * software.gradient_bytes.value * self._replicated_elements
        everywhere = codec / kind.world_size + self._expanding_seconds()
        return self._in_turn(BlockLoad(fixed=codec + whole, by_rows=seconds, everywhere=everywhere), host)

    def _codec_seconds(self, element_bytes: float) -> Floats:
        """Encoding (or decoding) the vectors of all samples that go one by one to the ranks of the samples.

        The holder takes that long; every rank takes its share of it for the other end.
        """
        blocks, kind = self._blocks, self._kind
        sent = EXTENT_OF_SHARDING[blocks.sharding] == RANK
        elements = self._samples * self._tables.outputs_per_sample[blocks.table] * blocks.columns
        moved = self._software.codec_passes.value * elements * element_bytes
        return np.where(sent, moved / kind.hbm_bytes_per_s, 0.0)

    def _expanding_seconds(self) -> Floats:
        """Deduplicated vectors copied to every sample that has them, or the gradients of these summed, on each rank."""
        tables, table = self._tables, self._blocks.table
        once = tables.outputs_per_sample[table] + tables.expanded_per_sample[table]
        vectors = np.where(tables.expanded_per_sample[table] > 0, once, 0.0) * self._samples_per_rank
        return vectors * self._blocks.columns * tables.written_bytes / self._kind.hbm_bytes_per_s

    def _cache_codec_seconds(self) -> Floats:
        """Missed rows decoded into a cache of another format; in training as many are encoded back."""
        ways = 2 if self._tables.training else 1
        moved = self._software.codec_passes.value * ways * self._missed * self._encoded_bytes
        return np.asarray(moved / self._kind.hbm_bytes_per_s)

    def _in_turn(self, on_device: BlockLoad, host_bytes: Floats) -> Loads:
        """A rank works on its device, then over the host's links. What ranks share idles meanwhile, for as long as
        they work on their devices on average: in step where the load is balanced."""
        kind = self._kind
        rates = {"device": (kind.pcie_bytes_per_s, 1), "pcie": (kind.pcie_bytes_per_s, kind.pcie_ranks)}
        if kind.ddr_bytes_per_s:
            rates["ddr"] = (kind.ddr_bytes_per_s, kind.node_ranks)
        return {
            resource: BlockLoad(
                fixed=on_device.fixed / ranks,
                by_rows=on_device.by_rows / ranks + host_bytes / rate,
                everywhere=on_device.everywhere / ranks,
            )
            for resource, (rate, ranks) in rates.items()
        }

    def _ssd_seconds(self, missed: Floats) -> Floats:
        """Whole blocks read and written back, or single accesses, whichever takes longer."""
        kind = self._kind
        blocks_per_row = np.ceil(self._fetched_row / kind.ssd_block_bytes)
        moved = missed * blocks_per_row * kind.ssd_block_bytes
        stream = moved / kind.ssd_read_bytes_per_s + moved / kind.ssd_write_bytes_per_s
        return np.maximum(stream, missed * blocks_per_row / kind.ssd_iops)
