"""Lookup and update of every shard on ranks of one kind: device seconds, and bytes to and from memories below HBM."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cost_models.coefficients import SoftwareCoefficients
from cost_models.kinds import RankKind
from cost_models.memory_rates import MemoryRates
from cost_models.shards import (
    BYTE_ADDRESSABLE,
    IS_CACHED,
    IS_IN_PLACE,
    IS_SPLIT,
    KEEPS_STATE_BELOW,
    MEMORY_TIERS,
    PLACEMENT_TIERS,
    TIERS,
    Floats,
)
from cost_models.simulator.long_bags import BagWork, bag_work
from cost_models.simulator.shard_counts import Flags, ShardCounts


@dataclass(frozen=True)
class ShardReads:
    """What each of n shards has read in a step: rows, and bytes of one row."""

    lookups: Floats
    unique: Floats
    missed: Floats
    plain_bytes: Floats
    """A row as it is stored."""
    full_bytes: Floats
    """A row as a cache holds it."""
    row_bytes: Floats
    """A row as the lookup reads it, in whole sectors."""
    host_row_bytes: Floats
    """A row as it is read in host memory, in whole sectors."""
    state_bytes: Floats
    """The optimizer state of a row, in whole sectors."""
    own_state_bytes: Floats
    """The same as it is stored."""
    in_place: Floats
    """The lookups whose rows are read in host memory."""
    unique_in_place: Floats
    """Distinct rows of them."""

    @classmethod
    def of(cls, counts: ShardCounts, kind: RankKind, factor: Floats) -> "ShardReads":
        """The reads of a step with `factor` [n] times the average ids, on ranks of this kind."""
        tables, table, blocks = counts.tables, counts.table, counts.blocks
        sector = kind.lookup.sector_bytes
        tier, plain, full = blocks.tier, counts.row_bytes(), counts.cached_row_bytes()
        state = tables.row_state_bytes(table, blocks.columns)
        return cls(
            lookups=counts.lookups * counts.share * factor,
            unique=counts.unique * counts.share * factor,
            missed=counts.missed * counts.share * factor,
            plain_bytes=plain,
            full_bytes=full,
            row_bytes=np.ceil(np.where(counts.cached, full, plain) / sector) * sector,
            host_row_bytes=np.ceil(np.where(counts.cached & ~IS_CACHED[tier], full, plain) / sector) * sector,
            state_bytes=np.ceil(state / sector) * sector,
            own_state_bytes=state.astype(np.float64),
            in_place=counts.lookups * counts.share * factor * (1 - counts.hot),
            unique_in_place=counts.cold * counts.share * factor,
        )


class LookupWork:
    """The work of n shards on ranks of one kind in one step.

    Every result is a dictionary of fields of a demand: [n] seconds, or [memories, n] bytes and seconds by memory.
    """

    def __init__(self, counts: ShardCounts, kind: RankKind, software: SoftwareCoefficients, factor: Floats) -> None:
        self._counts, self._kind, self._software, self._factor = counts, kind, software, factor
        self._reads = ShardReads.of(counts, kind, factor)

    def all(self) -> dict[str, Floats]:
        """The lookup, the update, cache misses, and what is stashed meanwhile."""
        found = self._looked_up() | self._updated() | self._fetched() | {"stashed_bytes": self._stashed()}
        if self._kind.unpooled is None:
            return found
        counts = self._counts
        others = LookupWork(counts, self._kind.unpooled, self._software, self._factor).all()
        is_pooled = counts.tables.pooled[counts.table] == 1
        return {name: np.where(is_pooled, each, others[name]) for name, each in found.items()}

    def bags(self) -> tuple[BagWork, BagWork]:
        """What the longest bags take in the lookup and in the update, and what goes on beside them."""
        counts, reads, software = self._counts, self._reads, self._software
        vector_s = self._kind.lookup.vector_s + (software.vector_s.value if software.vector_s else 0.0)
        kernel_s = self._kernel_s() + counts.vectors * vector_s
        return bag_work(counts, self._kind, reads.lookups, reads.row_bytes, kernel_s)

    def _kernel_s(self) -> Floats:
        """[n] device seconds of reading ids and rows, and of writing vectors."""
        counts, reads, rates = self._counts, self._reads, self._kind.lookup
        hbm_s = 1 / rates.hbm_bytes_per_s
        written = counts.vectors * counts.blocks.columns * counts.tables.written_bytes
        forward = reads.lookups * counts.tables.id_bytes[counts.table] * hbm_s + written * hbm_s
        forward = forward + (reads.lookups - reads.in_place) * (self._row_s() + rates.row_s)
        return np.asarray(forward + (reads.unique - reads.unique_in_place) * (rates.distinct_row_s or 0.0))

    def _looked_up(self) -> dict[str, Floats]:
        """Ids in, rows in (some out of L2, or over PCIe), vectors out."""
        counts, reads, kind, software = self._counts, self._reads, self._kind, self._software
        tables, rates, forward = counts.tables, kind.lookup, self._kernel_s()
        forward = forward + np.where(IS_CACHED[counts.blocks.tier], reads.unique * software.cache_search_s.value, 0.0)
        forward = forward + counts.vectors * rates.vector_s
        if software.vector_s:
            forward = forward + counts.vectors * software.vector_s.value
        # Rows change their format on the way into a cache of full precision, and back once they were updated.
        changes = np.where(counts.cached & counts.precise, 1.0 + tables.training, 0.0)
        codec_s = software.codec_passes.value / kind.hbm_bytes_per_s
        forward = forward + changes * codec_s * reads.missed * (reads.plain_bytes + reads.full_bytes)
        forward = forward + counts.whole_elements * codec_s * tables.codec_bytes[0]
        crossing = software.uvm_forward_passes_per_lookup.value * (reads.in_place - self._read_again())
        crossing = crossing + software.uvm_forward_passes_per_row.value * reads.unique_in_place
        host_bytes, host_s = self._nothing(), self._nothing()
        for m, here, memory in self._memories():
            rows = np.where(here, crossing, 0.0)
            host_bytes[m] = rows * reads.host_row_bytes
            host_s[m] = rows * _whole(reads.host_row_bytes, memory.access_bytes) / memory.read_bytes_per_s
        return {"forward_s": forward, "forward_host_bytes": host_bytes, "forward_host_s": host_s}

    def _read_again(self) -> Floats:
        """[n] reads of the few hottest rows in host memory that find them on the device, all but the first."""
        counts, kept = self._counts, self._software.uvm_kept_rows
        there = IS_IN_PLACE[counts.blocks.tier] | IS_SPLIT[counts.blocks.tier]
        if kept is None or not there.any():
            return np.zeros(len(counts))
        return np.where(there, counts.read_again(kept.value) * counts.share * self._factor, 0.0)

    def _row_s(self) -> Floats:
        """[n] seconds of a row that is read, out of L2 or device memory."""
        counts, reads, rates = self._counts, self._reads, self._kind.lookup
        from_l2: Floats = np.zeros(len(counts))
        if rates.distinct_row_s is not None:
            on_device, hot = np.maximum(reads.lookups - reads.in_place, 1e-9), reads.unique - reads.unique_in_place
            holders = np.array([group.size for group in self._kind.extents])[counts.extent]
            missed = counts.read_from_memory(holders * rates.l2_bytes / reads.row_bytes) * counts.share * self._factor
            from_l2 = 1 - np.maximum(missed - reads.in_place, hot) / on_device
        elif rates.l2_reach_bytes:
            kept = np.where(IS_SPLIT[counts.blocks.tier], counts.blocks.cache_fraction, 1.0)
            size = kept * counts.tables.rows[counts.table] * reads.row_bytes
            from_l2 = 1 / np.sqrt(1 + (size / rates.l2_reach_bytes) ** 2)
        return np.asarray(reads.row_bytes * (from_l2 / rates.l2_bytes_per_s + (1 - from_l2) / rates.hbm_bytes_per_s))

    def _updated(self) -> dict[str, Floats]:
        """Gradients summed row by row, then rows and state rewritten where they are."""
        counts, reads, software = self._counts, self._reads, self._software
        host_bytes, host_s = self._nothing(), self._nothing()
        if not counts.tables.training:
            return {"backward_s": np.zeros(len(counts)), "backward_host_bytes": host_bytes, "backward_host_s": host_s}
        again = software.uvm_backward_passes_per_row.value
        states = np.where(counts.state_apart, reads.unique, reads.unique_in_place)
        for m, here, rates in self._memories():
            if MEMORY_TIERS[m] not in BYTE_ADDRESSABLE:
                continue
            changes = 0.5 / rates.read_bytes_per_s + 0.5 / rates.write_bytes_per_s
            for rows, size in (
                (np.where(here, again * reads.unique_in_place, 0.0), reads.host_row_bytes),
                (np.where(counts.state_home == m, again * states, 0.0), reads.state_bytes),
            ):
                host_bytes[m] += rows * size
                host_s[m] += rows * _whole(size, rates.access_bytes) * changes
        return {"backward_s": self._update_s(), "backward_host_bytes": host_bytes, "backward_host_s": host_s}

    def _update_s(self) -> Floats:
        """[n] device seconds of the update."""
        counts, reads, kind, software = self._counts, self._reads, self._kind, self._software
        tables, table = counts.tables, counts.table
        hbm_s = 1 / kind.lookup.hbm_bytes_per_s
        hot = reads.unique - reads.unique_in_place
        row_s = reads.row_bytes * hbm_s
        if kind.update_passes is not None and kind.lookup.distinct_row_s is None:
            row_s = self._row_s()
        rows_again = kind.update_row_passes * hot * row_s
        state_again = software.update_passes.value * tables.state_arrays[table] * hot * row_s
        backward = self._gradient_s(row_s) + reads.lookups * kind.update_row_s
        if software.id_sort_bytes and kind.sorts_ids_apart:
            backward = backward + reads.lookups * software.id_sort_bytes.value * hbm_s
        backward = backward + rows_again + np.where(counts.state_apart, 0.0, state_again)
        keeps_below = KEEPS_STATE_BELOW[counts.blocks.tier]
        backward = backward + np.where(keeps_below, software.cache_update_s.value * reads.unique, 0.0)
        codec_s = software.codec_passes.value / kind.hbm_bytes_per_s
        return np.asarray(backward + counts.whole_elements * codec_s * tables.codec_bytes[1])

    def _gradient_s(self, row_s: Floats) -> Floats:
        """[n] device seconds of the passes over gradients, a row of which takes `row_s` [n]."""
        counts, reads, kind, software = self._counts, self._reads, self._kind, self._software
        tables = counts.tables
        pooled = np.array([software.backward_passes.by_optimizer[name] for name in tables.optimizer])
        if kind.update_passes is not None:
            pooled = np.full(len(pooled), kind.update_passes)
        passes = np.where(tables.pooled == 1, pooled, software.sequence_backward_passes.value)[counts.table]
        hot = reads.unique - reads.unique_in_place
        if kind.lookup.distinct_row_s is None:
            return np.asarray(reads.lookups * passes * row_s + hot * kind.update_distinct_row_s)
        hbm_s, again_s = 1 / kind.lookup.hbm_bytes_per_s, 1 / kind.lookup.l2_bytes_per_s
        written = counts.vectors * counts.blocks.columns * tables.written_bytes
        summed = written * (hbm_s - again_s) + (reads.lookups - reads.in_place) * reads.row_bytes * again_s
        return np.asarray(passes * (summed + reads.in_place * row_s) + hot * kind.update_distinct_row_s)

    def _fetched(self) -> dict[str, Floats]:
        """Cache misses: a missed row comes once and one goes back; where kernels cannot reach its state, that comes
        along."""
        counts, reads = self._counts, self._reads
        is_cached = IS_CACHED[counts.blocks.tier]
        stored = reads.plain_bytes + np.where(is_cached & ~counts.state_apart, reads.own_state_bytes, 0.0)
        fetched_bytes, fetched_s = self._nothing(), self._nothing()
        for m, here, rates in self._memories():
            missed = np.where(here & is_cached, reads.missed, 0.0)
            fetched_bytes[m] = missed * stored
            access_s = rates.access_bytes * (1 / rates.read_bytes_per_s + 1 / rates.write_bytes_per_s)
            access_s = max(access_s, 1 / rates.accesses_per_s)
            row_s = np.maximum(np.ceil(stored / rates.access_bytes) * access_s, stored / rates.cards_bytes_per_s)
            fetched_s[m] = missed * row_s
        return {"fetched_bytes": fetched_bytes, "fetched_s": fetched_s}

    def _stashed(self) -> Floats:
        """[n] bytes of the rows of a shard, of their optimizer state, or of both."""
        counts, blocks = self._counts, self._counts.blocks
        state = counts.tables.row_state_bytes(counts.table, blocks.columns)
        row = np.zeros(len(counts))
        for tier in np.unique(blocks.tier).tolist():
            of_row = {"weights": counts.row_bytes(), "optimizer": state}
            for part in TIERS[PLACEMENT_TIERS[tier]].stashes:
                row += np.where(blocks.tier == tier, of_row[part], 0.0)
        return counts.rows * row

    def _nothing(self) -> Floats:
        """[memories, n] zeros."""
        return np.zeros((len(MEMORY_TIERS), len(self._counts)))

    def _memories(self) -> Iterator[tuple[int, Flags, MemoryRates]]:
        """Number of each memory below HBM, the shards [n] at home there, and what it achieves."""
        for name, rates in self._kind.memories.items():
            m = MEMORY_TIERS.index(name)
            yield m, self._counts.home == m, rates


def _whole(size: Floats, access_bytes: int) -> Floats:
    """Bytes in whole accesses."""
    return np.asarray(np.ceil(size / access_bytes) * access_bytes)
