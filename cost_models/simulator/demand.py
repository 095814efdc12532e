"""What a placement asks of every rank in a step: rows to read, bytes to send, counted from its shards.

The counts follow the meaning of the shardings, not the closed form's loads; coefficients are the shared ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from cost_models.coefficients import SoftwareCoefficients
from cost_models.kinds import MemoryRates, RankKind
from cost_models.shards import (
    BYTE_ADDRESSABLE,
    DATA_PARALLEL,
    EXTENT_OF_SHARDING,
    HBM,
    HOME,
    IS_CACHED,
    IS_IN_PLACE,
    IS_SPLIT,
    KEEPS_STATE_BELOW,
    MEMORY_TIERS,
    NODE,
    PLACEMENT_TIERS,
    RANK,
    WORLD,
    Floats,
    Ints,
    PlacedShards,
    state_memory,
)
from cost_models.tables import LENGTH_BYTES, Tables

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Demand:
    """Of one step; every array is [W] and every figure is the rank's own, unless it says otherwise."""

    forward_s: Floats
    """[tiers, W] device time of the lookup, by the placement tier of the tables: each has a kernel of its own."""
    backward_s: Floats
    """[tiers, W] device time of the update."""
    forward_host_bytes: Floats
    """[memories, W] over PCIe while the lookup waits: rows read in place."""
    forward_host_s: Floats
    """[memories, W] busy time of the memory for them."""
    backward_host_bytes: Floats
    """[memories, W] over PCIe while the update waits: rows and optimizer state below HBM."""
    backward_host_s: Floats
    """[memories, W]"""
    fetched_bytes: Floats
    """[memories, W] missed rows of caches over each memory, one direction."""
    fetched_s: Floats
    """[memories, W] busy time of the memory for them."""
    ids_per_sample_bytes: Floats
    """Ids, and how many there are of each feature, that the rank sends for each of its samples."""
    raw_ids_per_sample_bytes: float
    """Ids of one sample as they are stored, before deduplication, each once, and their numbers."""
    ids_received_bytes: Floats
    """Ids that the rank gets for the rows it holds, of the whole batch, and their numbers."""
    vectors_to_each_bytes: Floats
    """Whole vectors for the samples of one rank (table- and column-wise blocks), forward."""
    node_sums_bytes: Floats
    """Partial sums of all samples, to be reduced over the ranks of the node, forward."""
    world_sums_bytes: Floats
    """Partial sums of all samples, to be reduced over all ranks, forward."""
    replica_gradient_bytes: Floats
    """Dense gradients of replicated tables."""


@dataclass(frozen=True)
class _Reads:
    """What each of n shards has read in a step; rows in bytes of one."""

    lookups: Floats
    unique: Floats
    missed: Floats
    plain_bytes: Floats
    """As it is stored."""
    full_bytes: Floats
    """As a cache holds it."""
    row_bytes: Floats
    """As the lookup reads it, in whole sectors."""
    state_bytes: Floats
    """Of its optimizer state, in whole sectors."""
    own_state_bytes: Floats
    """The same as it is stored."""
    in_place: Floats
    """Of the lookups, those whose rows are read in host memory."""
    unique_in_place: Floats
    """Distinct rows of them."""


class Counter:
    """Counts the demand of a placement, per shard once, per step with any numbers of ids.

    n shards: replicated tables stand for one shard each and are added to every rank.
    """

    def __init__(
        self,
        tables: Tables,
        placed: PlacedShards,
        kinds: tuple[RankKind, ...],
        kind_of_rank: Ints,
        global_samples: float,
        software: SoftwareCoefficients,
    ) -> None:
        self._world, self._tables, self._kinds, self._software = len(kind_of_rank), tables, kinds, software
        self._kind_of_rank, self._samples = kind_of_rank, global_samples
        replicated = placed.blocks.sharding == DATA_PARALLEL
        kept = ~replicated | placed.opens_block
        self._blocks = placed.blocks.take(np.flatnonzero(kept))
        self._rank, rows = placed.rank[kept], placed.rows[kept].astype(np.float64)
        self._replicated = replicated[kept]
        self._opens = placed.opens_block[kept]
        table = self.table = self._blocks.table
        self._share: Floats = rows / tables.rows[table]
        self._rows = rows
        own_samples = global_samples / self._world
        self._of_samples: Floats = np.where(self._replicated, own_samples, global_samples)
        self.lookups: Floats = self._of_samples * tables.lookups_per_sample[table]
        """[n] of all rows of the table, in an average step."""
        distinct, which = self._blocks.distinct
        asked = (
            np.where(distinct.sharding == DATA_PARALLEL, own_samples, global_samples)
            * tables.lookups_per_sample[distinct.table]
        )
        self._unique: Floats = tables.access.unique_rows(distinct.table, asked)[which]
        tier = self._blocks.tier
        self._precise = tables.precision_cache[table] > 0
        self._cached = IS_CACHED[tier] | ((tier == HBM) & self._precise)
        self._home: Ints = HOME[tier]
        self._state_home: Ints = state_memory(self._blocks)
        self._state_apart = KEEPS_STATE_BELOW[tier] | (self._state_home != self._home)
        self._missed: Floats = self._missed_rows()
        self._hot: Floats = np.where(IS_IN_PLACE[tier], 0.0, 1.0)
        split = IS_SPLIT[tier]
        self._hot[split] = tables.access.hit_rate(table[split], self._blocks.cache_fraction[split])
        self._vectors: Floats = self._of_samples * tables.outputs_per_sample[table]

    def _missed_rows(self) -> Floats:
        """[n] distinct rows of the whole table that its cache lacks."""
        blocks, cached = self._blocks, self._cached
        missed = np.zeros(len(blocks))
        if cached.any():
            fraction = np.where(blocks.tier == HBM, self._tables.precision_cache[blocks.table], blocks.cache_fraction)
            access = self._tables.access
            missed[cached] = access.missed_rows(blocks.table[cached], fraction[cached], self.lookups[cached])
        return missed

    def _cold_rows(self) -> Floats:
        """[n] distinct rows of the whole table that are read in host memory."""
        rows = self._tables.rows[self.table] * (1 - self._blocks.cache_fraction)
        cold = np.minimum.reduce([self.lookups * (1 - self._hot), rows, self._unique])
        return np.where(self._hot < 1, cold, 0.0)

    def count(self, ids: Floats | None = None) -> Demand:
        """The demand of a step in which the samples of each rank have `ids` [W, T] times their average ids."""
        factor = np.ones(len(self.table))
        if ids is not None:
            factor[~self._replicated] = ids.mean(axis=0)[self.table[~self._replicated]]
        own = None if ids is None else ids[:, self.table[self._replicated]]
        parts = [self._on_kind(kind, factor) for kind in self._kinds]
        of_tier = [self._blocks.tier == tier for tier in range(len(PLACEMENT_TIERS))]
        found = {}
        for name, values in parts[0].items():
            if values.ndim == 1:
                rows = [self._summed([part[name] for part in parts], kept, own) for kept in of_tier]
            else:
                every = np.ones(len(self.table), dtype=bool)
                rows = [self._summed([part[name][m] for part in parts], every, own) for m in range(len(values))]
            found[name] = np.stack(rows)
        forward, backward = self._afterwards()
        found["forward_s"][HBM] += forward
        found["backward_s"][HBM] += backward
        tables = self._tables
        raw = float((tables.ids_per_sample * tables.id_bytes + LENGTH_BYTES * tables.features).sum())
        return Demand(**found, **self._exchanged(factor, ids), raw_ids_per_sample_bytes=raw)

    def _afterwards(self) -> tuple[Floats, Floats]:
        """[W] device seconds, forward and backward, for vectors that have come: repeated for the samples that share
        them, and taken out of the format that they travelled in."""
        tables = self._tables
        arrived = self._vectors * self._blocks.columns * ~self._replicated
        arrived = arrived[EXTENT_OF_SHARDING[self._blocks.sharding] == RANK].sum() / self._world
        rates = np.array([kind.hbm_bytes_per_s for kind in self._kinds])[self._kind_of_rank]
        repeats = tables.expanded_per_sample[self.table]
        copied = np.where(repeats > 0, repeats + tables.outputs_per_sample[self.table], 0.0)
        copied = copied * self._blocks.columns * (self._replicated | self._opens)
        copying: Floats = self._samples / self._world * copied.sum() * tables.written_bytes / rates
        other_end: Floats = arrived * self._software.codec_passes.value / rates
        is_part = self._opens & ~self._replicated & (EXTENT_OF_SHARDING[self._blocks.sharding] == RANK)
        is_part &= self._blocks.columns < tables.dim[self.table]
        parts = tables.outputs_per_sample[self.table[is_part]] * self._blocks.columns[is_part]
        torn = self._samples / self._world * parts.sum() * tables.written_bytes
        copying += torn / 2 * np.array([kind.regroup_s for kind in self._kinds])[self._kind_of_rank]
        forward, backward = (copying + other_end * codec for codec in tables.codec_bytes)
        cut = self._opens & ~self._replicated & (EXTENT_OF_SHARDING[self._blocks.sharding] != RANK)
        ids = self._samples / self._world * tables.lookups_per_sample[self.table[cut]].sum()
        forward = forward + ids * np.array([kind.id_cut_s for kind in self._kinds])[self._kind_of_rank]
        return forward, backward * tables.training

    def _summed(self, parts: list[Floats], kept: Flags, own: Floats | None) -> Floats:
        """[W] of the shards that are `kept`, on their ranks; a replicated one counts on every rank, at the cost of its
        kind and for its `own` [W, replicated] ids."""
        total = np.zeros(self._world)
        if not any(part.any() for part in parts):
            return total
        single = np.flatnonzero(~self._replicated & kept)
        for kind, part in enumerate(parts):
            here = self._kind_of_rank == kind
            of_kind = single[here[self._rank[single]]]
            total += np.bincount(self._rank[of_kind], weights=part[of_kind], minlength=self._world)
            everywhere = np.where(kept, part, 0.0)[self._replicated]
            total[here] += everywhere.sum() if own is None else own[here] @ everywhere
        return total

    def _on_kind(self, kind: RankKind, factor: Floats) -> dict[str, Floats]:
        """[n] seconds, and [memories, n] bytes and seconds by memory, of each shard on a rank of this kind."""
        tables, table, columns, dtype = self._tables, self.table, self._blocks.columns, self._blocks.dtype
        sector = kind.lookup.sector_bytes
        plain, full = tables.row_bytes(table, columns, dtype), tables.cached_row_bytes(table, columns, dtype)
        reads = _Reads(
            lookups=self.lookups * self._share * factor,
            unique=self._unique * self._share * factor,
            missed=self._missed * self._share * factor,
            plain_bytes=plain.astype(np.float64),
            full_bytes=full.astype(np.float64),
            row_bytes=np.ceil(np.where(self._cached, full, plain) / sector) * sector,
            state_bytes=np.ceil(tables.row_state_bytes(table, columns) / sector) * sector,
            own_state_bytes=tables.row_state_bytes(table, columns).astype(np.float64),
            in_place=self.lookups * self._share * factor * (1 - self._hot),
            unique_in_place=self._cold_rows() * self._share * factor,
        )
        return self._looked_up(kind, reads) | self._updated(kind, reads) | self._fetched(kind, reads)

    def _looked_up(self, kind: RankKind, reads: _Reads) -> dict[str, Floats]:
        """Ids in, rows in (some out of L2, or over PCIe), vectors out."""
        tables, software, table, rates = self._tables, self._software, self.table, kind.lookup
        hbm_s, row_s = 1 / rates.hbm_bytes_per_s, self._row_s(kind, reads)
        written = self._vectors * self._blocks.columns * tables.written_bytes
        forward = reads.lookups * tables.id_bytes[table] * hbm_s + written * hbm_s
        forward = forward + (reads.lookups - reads.in_place) * (row_s + rates.row_s)
        forward = forward + (reads.unique - reads.unique_in_place) * (rates.distinct_row_s or 0.0)
        forward = forward + np.where(IS_CACHED[self._blocks.tier], reads.unique * software.cache_search_s.value, 0.0)
        if software.vector_s:
            forward = forward + self._vectors * software.vector_s.value
        # Rows change their format on the way into a cache of full precision, and back once they were updated.
        changes = np.where(self._cached & self._precise, 1.0 + tables.training, 0.0)
        codec_s = software.codec_passes.value / kind.hbm_bytes_per_s
        forward = forward + changes * codec_s * reads.missed * (reads.plain_bytes + reads.full_bytes)
        forward = forward + self._sent_elements * codec_s * tables.codec_bytes[0]
        crossing = software.uvm_forward_passes_per_lookup.value * reads.in_place
        crossing = crossing + software.uvm_forward_passes_per_row.value * reads.unique_in_place
        found = {"forward_s": forward, "forward_host_bytes": self._nothing(), "forward_host_s": self._nothing()}
        for m, here, memory in self._memories(kind):
            rows = np.where(here, crossing, 0.0)
            found["forward_host_bytes"][m] = rows * reads.row_bytes
            found["forward_host_s"][m] = rows * _whole(reads.row_bytes, memory.access_bytes) / memory.read_bytes_per_s
        return found

    def _nothing(self) -> Floats:
        """[memories, n]"""
        return np.zeros((len(MEMORY_TIERS), len(self.table)))

    def _memories(self, kind: RankKind) -> Iterator[tuple[int, Flags, MemoryRates]]:
        """Number of each memory below HBM, the shards [n] at home there, and what it achieves."""
        for name, rates in kind.memories.items():
            m = MEMORY_TIERS.index(name)
            yield m, self._home == m, rates

    def _row_s(self, kind: RankKind, reads: _Reads) -> Floats:
        """[n] seconds of a row that is read, out of L2 or device memory."""
        rates = kind.lookup
        from_l2: Floats = np.zeros(len(self.table))
        if rates.distinct_row_s is not None:
            on_device = np.maximum(reads.lookups - reads.in_place, 1e-9)
            from_l2 = 1 - (reads.unique - reads.unique_in_place) / on_device
        elif rates.l2_reach_bytes:
            kept = np.where(IS_SPLIT[self._blocks.tier], self._blocks.cache_fraction, 1.0)
            size = kept * self._tables.rows[self.table] * reads.row_bytes
            from_l2 = (1 + (size / rates.l2_reach_bytes) ** 2) ** -0.5
        return reads.row_bytes * (from_l2 / rates.l2_bytes_per_s + (1 - from_l2) / rates.hbm_bytes_per_s)

    def _updated(self, kind: RankKind, reads: _Reads) -> dict[str, Floats]:
        """Gradients summed row by row, then rows and state rewritten where they are."""
        tables, software, table, tier = self._tables, self._software, self.table, self._blocks.tier
        found = {"backward_s": np.zeros(len(table))}
        found |= {"backward_host_bytes": self._nothing(), "backward_host_s": self._nothing()}
        if not tables.training:
            return found
        hbm_s = 1 / kind.lookup.hbm_bytes_per_s
        hot = reads.unique - reads.unique_in_place
        pooled = np.array([software.backward_passes.by_optimizer[name] for name in tables.optimizer])
        if kind.update_passes is not None:
            pooled = np.full(len(pooled), kind.update_passes)
        passes = np.where(tables.pooled == 1, pooled, software.sequence_backward_passes.value)[table]
        row_s = reads.row_bytes * hbm_s
        if kind.update_passes is not None and kind.lookup.distinct_row_s is None:
            row_s = self._row_s(kind, reads)
        of_gradients = reads.lookups * passes * row_s
        if kind.lookup.distinct_row_s is not None:
            again_s = 1 / kind.lookup.l2_bytes_per_s
            written = self._vectors * self._blocks.columns * tables.written_bytes
            summed = written * (hbm_s - again_s) + (reads.lookups - reads.in_place) * reads.row_bytes * again_s
            of_gradients = passes * (summed + reads.in_place * row_s) + hot * kind.update_distinct_row_s
        rows_again = kind.update_row_passes * hot * row_s
        state_again = software.update_passes.value * tables.state_arrays[table] * hot * row_s
        backward = of_gradients + reads.lookups * kind.update_row_s
        backward = backward + rows_again + np.where(self._state_apart, 0.0, state_again)
        backward = backward + np.where(KEEPS_STATE_BELOW[tier], software.cache_update_s.value * reads.unique, 0.0)
        codec_s = software.codec_passes.value / kind.hbm_bytes_per_s
        found["backward_s"] = backward + self._sent_elements * codec_s * tables.codec_bytes[1]
        again = software.uvm_backward_passes_per_row.value
        states = np.where(self._state_apart, reads.unique, reads.unique_in_place)
        for m, here, rates in self._memories(kind):
            changes = 0.5 / rates.read_bytes_per_s + 0.5 / rates.write_bytes_per_s
            kept_here = self._state_home == m
            if MEMORY_TIERS[m] not in BYTE_ADDRESSABLE:
                continue
            for rows, size in (
                (np.where(here, again * reads.unique_in_place, 0.0), reads.row_bytes),
                (np.where(kept_here, again * states, 0.0), reads.state_bytes),
            ):
                found["backward_host_bytes"][m] += rows * size
                found["backward_host_s"][m] += rows * _whole(size, rates.access_bytes) * changes
        return found

    def _fetched(self, kind: RankKind, reads: _Reads) -> dict[str, Floats]:
        """Cache misses: a missed row comes once and one goes back; where kernels cannot reach its state, that comes
        along."""
        tier = self._blocks.tier
        along = IS_CACHED[tier] & ~self._state_apart
        stored = reads.plain_bytes + np.where(along, reads.own_state_bytes, 0.0)
        found = {"fetched_bytes": self._nothing(), "fetched_s": self._nothing()}
        for m, here, rates in self._memories(kind):
            missed = np.where(here & IS_CACHED[tier], reads.missed, 0.0)
            found["fetched_bytes"][m] = missed * stored
            piece_s = rates.access_bytes * (1 / rates.read_bytes_per_s + 1 / rates.write_bytes_per_s)
            piece_s = max(piece_s, 1 / rates.accesses_per_s)
            row_s = np.maximum(np.ceil(stored / rates.access_bytes) * piece_s, stored / rates.cards_bytes_per_s)
            found["fetched_s"][m] = missed * row_s
        return found

    @cached_property
    def _sent_elements(self) -> Floats:
        """[n] elements of whole vectors that leave for other ranks."""
        alone = ~self._replicated & (EXTENT_OF_SHARDING[self._blocks.sharding] == RANK)
        return np.where(alone, self._vectors * self._blocks.columns, 0.0)

    def _exchanged(self, factor: Floats, drawn: Floats | None) -> dict[str, Floats]:
        """[W] bytes that go between ranks."""
        tables, table, extent = self._tables, self.table, EXTENT_OF_SHARDING[self._blocks.sharding]
        moving = ~self._replicated
        ids = tables.lookups_per_sample[table] * tables.id_bytes[table] * factor
        sequence = np.where(tables.pooled[table] == 1, 1.0, factor)
        element = np.where(extent == RANK, tables.forward_wire_bytes, tables.forward_sum_bytes)
        vector = tables.outputs_per_sample[table] * self._blocks.columns * element * sequence

        def summed(values: Floats, kept: Ints) -> Floats:
            return np.bincount(self._rank[kept], weights=values[kept], minlength=self._world).astype(np.float64)

        own_samples = self._samples / self._world
        elements = (self._rows * self._blocks.columns)[self._replicated].sum() if tables.training else 0.0
        everywhere = np.ones(self._world)
        opened = np.bincount(table[moving & self._opens], minlength=len(tables.rows))
        mean = opened * tables.lookups_per_sample * tables.id_bytes
        lengths = np.where(moving, tables.features[table] * LENGTH_BYTES, 0.0)  # to whoever holds a part
        sent = (everywhere * mean.sum() if drawn is None else drawn @ mean) + lengths.sum()
        return {
            "ids_per_sample_bytes": sent,
            "ids_received_bytes": summed(self._samples * (ids * self._share + lengths), np.flatnonzero(moving)),
            "vectors_to_each_bytes": summed(own_samples * vector, np.flatnonzero(extent == RANK)),
            "node_sums_bytes": summed(self._samples * vector, np.flatnonzero(extent == NODE)),
            "world_sums_bytes": summed(self._samples * vector, np.flatnonzero((extent == WORLD) & moving)),
            "replica_gradient_bytes": everywhere * elements * self._software.gradient_bytes.value,
        }


def _whole(size: Floats, piece: int) -> Floats:
    """Bytes in whole pieces."""
    return np.asarray(np.ceil(size / piece) * piece)
