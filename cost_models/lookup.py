"""The lookup: rows read and written on the device and, for tables below HBM, over the host's links."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cost_models import lookup_terms as terms
from cost_models.batch_copy import MEETS_COPIES, waited_s
from cost_models.coefficients import SoftwareCoefficients
from cost_models.kinds import RankKind
from cost_models.loads import BlockLoad, Loads
from cost_models.long_bags import bag_row_s, in_place_of, longest_bags
from cost_models.memory import Batching, cached_share, is_cached_beside
from cost_models.memory_rates import MemoryRates
from cost_models.resources import (
    DEVICE,
    FETCHES,
    FRONT_END,
    HOST_LINK,
    HOST_LINK_IN,
    HOST_LINK_OUT,
    PCIE,
    Resource,
    with_rows,
)
from cost_models.shards import (
    BYTE_ADDRESSABLE,
    DATA_PARALLEL,
    EXTENT_OF_SHARDING,
    HOME,
    IS_CACHED,
    IS_IN_PLACE,
    IS_SPLIT,
    KEEPS_STATE_BELOW,
    MEMORY_TIERS,
    RANK,
    Blocks,
    Floats,
    Ints,
    MemoryTier,
    state_memory,
)
from cost_models.tables import Tables

IDLE = 0.999
"""Share counted of the time for which something idles: of two that ranks use in turn, the busier one is the limit."""


@dataclass(frozen=True)
class _Crossing:
    """What kernels read and write of one memory in place; [n]."""

    bytes: Floats
    """Over PCIe."""
    busy_s: Floats
    """Busy time of the memory."""


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
        self._of_unpooled: Lookup | None = None
        if kind.unpooled is not None and not tables.pooled[table].all():
            self._of_unpooled = Lookup(tables, blocks, kind.unpooled, batching, software)
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
        self._home: Ints = HOME[blocks.tier]
        self._hot: Floats = np.where(IS_IN_PLACE[blocks.tier], 0.0, 1.0)  # share of the lookups that HBM serves
        split = np.flatnonzero(IS_SPLIT[blocks.tier])
        if len(split):
            self._hot[split] = tables.access.hit_rate(table[split], blocks.cache_fraction[split])
        self._cached = IS_CACHED[blocks.tier] | is_cached_beside(tables, blocks)
        cached_row = tables.cached_row_bytes(blocks).astype(float)
        row: Floats = np.where(self._cached, cached_row, self._stored_row)
        copied = (row != self._stored_row) | is_cached_beside(tables, blocks)
        self._encoded_bytes: Floats = np.where(copied, row + self._stored_row, 0.0)
        self._state_home: Ints = state_memory(blocks)
        self._state_below = KEEPS_STATE_BELOW[blocks.tier] | (self._state_home != self._home)
        travels = IS_CACHED[blocks.tier] & ~self._state_below
        self._fetched_row: Floats = self._stored_row + np.where(travels, state, 0.0)
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
            state_arrays=np.where(self._state_below, 0.0, tables.state_arrays[table]),
        )
        cold = np.where(IS_IN_PLACE[blocks.tier], self._unique, 0.0)
        if len(split):
            cold[split] = tables.access.rows_beyond(table[split], blocks.cache_fraction[split], self._lookups[split])
        missed, without_place, read = self._misses(is_prefetched=batching.is_prefetched)
        self._missed: Floats = missed - without_place  # rows that come into caches
        read, cold = read + (1 - self._hot) * self._lookups, cold + without_place
        in_place_row = np.where(IS_CACHED[blocks.tier], self._stored_row, row)
        self._in_place = replace(
            self._reads, lookups=read, unique=cold, row_bytes=terms.in_sectors(in_place_row, sector)
        )
        self._kept = np.zeros(len(blocks))  # reads of rows in place that do not cross
        if software.uvm_kept_rows and len(i := np.flatnonzero(IS_IN_PLACE[blocks.tier] | IS_SPLIT[blocks.tier])):
            kept_rows = software.uvm_kept_rows.value
            in_hbm = np.where(IS_SPLIT[blocks.tier[i]], blocks.cache_fraction[i], 0.0)
            kept = np.minimum(kept_rows / tables.rows[table[i]], 1 - in_hbm)
            hit_rate = tables.access.hit_rate
            hottest = hit_rate(table[i], in_hbm + kept) - hit_rate(table[i], in_hbm)
            self._kept[i] = terms.kept_reads(hottest, self._lookups[i], kept * tables.rows[table[i]])
        in_hbm = tables.rows[table] * np.where(IS_SPLIT[blocks.tier], blocks.cache_fraction, 1.0)
        self._on_device = replace(
            self._reads,
            lookups=self._lookups - read,
            unique=self._unique - cold,
            table_bytes=in_hbm * row_bytes,
        )
        if kind.lookup.distinct_row_s is not None:
            self._on_device = replace(self._on_device, from_memory=self._read_from_memory())

    def _read_from_memory(self) -> Floats:
        """[n] reads on the device of rows that its L2 cache lacks. Kernels look table after table up, so that each has
        all of it to itself for a time; of rows that several ranks hold, each holds a part in its own."""
        kind, blocks, on_device = self._kind, self._blocks, self._on_device
        holders = np.array([group.size for group in kind.extents])[EXTENT_OF_SHARDING[blocks.sharding]]
        held = holders * kind.lookup.l2_bytes / (self._tables.rows[blocks.table] * self._reads.row_bytes)
        missed = self._tables.access.read_from_memory(blocks.table, held, self._lookups)
        return np.maximum(missed - self._in_place.lookups, on_device.unique)

    def _misses(self, *, is_prefetched: bool) -> tuple[Floats, Floats, Floats]:
        """Expected distinct rows per step that the cache does not hold; of them those that find no place in it and are
        read in place, where kernels reach their memory; and the reads of these."""
        blocks, access, none = self._blocks, self._tables.access, np.zeros(len(self._blocks))
        fraction = cached_share(self._tables, blocks)
        missed, rows, reads = none, none.copy(), none.copy()
        if len(i := np.flatnonzero(self._cached)):
            missed[i] = access.missed_rows(blocks.table[i], fraction[i], self._lookups[i])
        if len(i := np.flatnonzero(KEEPS_STATE_BELOW[blocks.tier])):
            rows[i], reads[i] = access.without_place(
                blocks.table[i], fraction[i], self._lookups[i], is_prefetched=is_prefetched
            )
        return missed, rows, reads

    def with_repeats(self) -> "Lookup":
        """The same with twice the ids, where those beyond read rows that are read anyway. Such rows are the hottest:
        they are on the device where any are, and their reads in place are kept from crossing where any are."""
        other, more, in_place = copy.copy(self), self._lookups, IS_IN_PLACE[self._blocks.tier]
        other._lookups = 2 * self._lookups
        other._reads = replace(self._reads, lookups=other._lookups)
        there, here = np.where(in_place, more, 0.0), np.where(in_place, 0.0, more)
        other._in_place = replace(self._in_place, lookups=self._in_place.lookups + there)
        other._on_device = replace(self._on_device, lookups=self._on_device.lookups + here)
        if self._software.uvm_kept_rows:
            other._kept = self._kept + there
        other._of_unpooled = None if self._of_unpooled is None else self._of_unpooled.with_repeats()
        return other

    def forward(self) -> Loads:
        """Ids and rows read, pooled outputs written; UVM rows come over PCIe while the kernel waits."""
        other = self._of_unpooled
        return self._forward() if other is None else self._by_kernel(self._forward(), other.forward())

    def _by_kernel(self, pooled: Loads, unpooled: Loads) -> Loads:
        """The loads of blocks of tables that are pooled, and of the others, each of its own kernels."""
        is_pooled = self._tables.pooled[self._blocks.table] == 1
        return {
            resource: BlockLoad(
                np.where(is_pooled, load.fixed, unpooled[resource].fixed),
                np.where(is_pooled, load.by_rows, unpooled[resource].by_rows),
                np.where(is_pooled, load.everywhere, unpooled[resource].everywhere),
            )
            for resource, load in pooled.items()
        }

    def _forward(self) -> Loads:
        kind, software, reads = self._kind, self._software, self._reads
        ids, outputs = terms.stream(reads, kind.lookup)
        rows = terms.read_rows(self._on_device, kind.lookup)
        search = np.where(IS_CACHED[self._blocks.tier], terms.cache_search(reads, software), 0.0)
        codec = self._codec_seconds(self._tables.codec_bytes[0])
        on_device = BlockLoad(
            fixed=outputs + self._by_vector() + codec,
            by_rows=ids + rows + search + self._cache_codec_seconds(),
            everywhere=codec / kind.world_size + self._arranging_seconds() + kind.id_cut_s * self._cut_ids,
        )
        return self._in_turn(on_device, self._read_in_place())

    def _by_vector(self) -> Floats:
        """[n] seconds of vectors beyond their bytes."""
        vectors, more = self._samples * self._tables.outputs_per_sample[self._blocks.table], self._software.vector_s
        return np.asarray(vectors * (self._kind.lookup.vector_s + (more.value if more else 0.0)))

    def beside_misses(self) -> Loads:
        """What kernels read and update in place keeps busy of what the next batch's misses come over."""
        read, updated = self._read_in_place(), self._updated_in_place()
        both = {
            name: _Crossing(each.bytes + updated[name].bytes, each.busy_s + updated[name].busy_s)
            for name, each in read.items()
        }
        loads = self._in_turn(BlockLoad(by_rows=np.zeros(len(self._blocks))), both)
        waited = loads.pop(DEVICE)
        met = {with_rows(resource): load for resource, load in loads.items()}
        return met | dict.fromkeys((HOST_LINK_OUT, HOST_LINK_IN), waited)

    def _read_in_place(self) -> dict[MemoryTier, _Crossing]:
        """What the forward pass reads in place of each memory."""
        brought, row = terms.in_place_rows(self._in_place, self._software, self._kept), self._in_place.row_bytes
        host: dict[MemoryTier, _Crossing] = {}
        for name, rates in self._addressed():
            here = np.where(self._at(name), brought, 0.0)
            host[name] = _Crossing(here * row, terms.read_seconds(here, row, rates))
        return host

    def _updated_in_place(self) -> dict[MemoryTier, _Crossing]:
        """What the update reads and writes in place of each memory: rows and optimizer state."""
        cold, software, state_bytes = self._in_place, self._software, self._reads.state_bytes
        rows = terms.rewritten_rows(cold.unique, software)
        states = terms.rewritten_rows(np.where(self._state_below, self._unique, cold.unique), software)
        host: dict[MemoryTier, _Crossing] = {}
        for name, rates in self._addressed():
            here = np.where(self._at(name), rows, 0.0)
            state = np.where(self._state_home == MEMORY_TIERS.index(name), states, 0.0)
            busy_s = terms.update_seconds(here, cold.row_bytes, rates)
            busy_s = busy_s + terms.update_seconds(state, state_bytes, rates)
            host[name] = _Crossing(here * cold.row_bytes + state * state_bytes, busy_s)
        return host

    def fetch(self, memory: MemoryTier) -> Loads:
        """Missed distinct rows of caches over this memory brought in, evicted ones written back the other way.

        The rank waits for the part that the search of the cache does not hide; what is shared carries all of it.
        """
        kind, missed = self._kind, np.where(self._at(memory) & IS_CACHED[self._blocks.tier], self._missed, 0.0)
        moved = missed * self._fetched_row
        waited = terms.fetched_bytes(missed, self._fetched_row, self._software)
        loads: Loads = {
            HOST_LINK: BlockLoad(by_rows=waited / kind.pcie_bytes_per_s),
            PCIE: BlockLoad(by_rows=moved / kind.pcie_bytes_per_s),
        }
        if rates := kind.memories.get(memory):
            loads[Resource(memory)] = BlockLoad(by_rows=terms.exchange_seconds(missed, self._fetched_row, rates))
            if rates.is_remote:
                loads[FRONT_END] = BlockLoad(by_rows=moved / kind.front_end_bytes_per_s)
        return loads

    def fetches(self, *, is_prefetched: bool) -> Loads:
        """Misses of all caches: a rank brings them from one memory after the other.

        A rank that fetches alone waits for whatever takes longest on the way to each memory (`fetches`). What ranks
        share idles while they fetch from elsewhere: for as long as that takes if they are there at the same time, as
        ranks with as much from each memory are; prefetched, when ranks drift apart, for as long as it takes one alone.
        Its own link is free while it waits for a memory: what it exchanges over the link meets rows, either way, for as
        long as these cross it.
        """
        sharing = self._kind.ranks_sharing
        seconds = {
            resource: np.zeros(len(self._blocks)) for resource in (*sharing, FETCHES, HOST_LINK_OUT, HOST_LINK_IN)
        }
        for memory in self._kind.memories:
            busy = {resource: np.asarray(load.by_rows) for resource, load in self.fetch(memory).items()}
            seconds[FETCHES] += np.maximum.reduce(list(busy.values()))
            for resource, ranks in sharing.items():
                beside = {other: 1 if is_prefetched else sharing.get(other, 1) for other in busy}
                takes = [load * beside[other] for other, load in busy.items() if beside[other] <= ranks]
                seconds[resource] += np.maximum(busy.get(resource, 0.0), IDLE * np.maximum.reduce(takes) / ranks)
            for resource in filter(busy.__contains__, sharing if is_prefetched else ()):
                carried = seconds.setdefault(with_rows(resource), np.zeros(len(self._blocks)))
                carried += busy[resource]
            for way in (HOST_LINK_OUT, HOST_LINK_IN):
                seconds[way] += busy[PCIE]
        return {resource: BlockLoad(by_rows=of_blocks) for resource, of_blocks in seconds.items()}

    def waits_for_copy(self, *, is_prefetched: bool) -> Loads:
        """What a rank waits longer for cache misses, unless these are prefetched, and for the rows that the forward
        pass reads in place, as long as a batch is copied over their switch (see `batch_copy`)."""
        kind, waits_s = self._kind, np.zeros(len(self._blocks))
        if not is_prefetched:
            busy = self.fetch(MEETS_COPIES)
            waits_s += waited_s(np.asarray(busy[PCIE].by_rows), np.asarray(busy[HOST_LINK].by_rows), kind.pcie_ranks)
        if read := self._read_in_place().get(MEETS_COPIES):
            link_s = read.bytes / kind.memories[MEETS_COPIES].link_bytes_per_s
            waits_s += waited_s(read.bytes / kind.pcie_bytes_per_s, link_s, kind.pcie_ranks)
        return {HOST_LINK: BlockLoad(by_rows=waits_s)}

    def backward(self) -> Loads:
        """Gradients of the rows summed, rows and optimizer state read and written.

        State of a table in byte-addressable memory stays there, whether or not its rows are cached.
        """
        other = self._of_unpooled
        return self._backward() if other is None else self._by_kernel(self._backward(), other.backward())

    def _backward(self) -> Loads:
        kind, software, tables = self._kind, self._software, self._tables
        by_optimizer = software.backward_passes.by_optimizer
        pooled_passes = np.array([by_optimizer[name] for name in tables.optimizer])
        if kind.update_passes is not None:
            pooled_passes = np.full(len(pooled_passes), kind.update_passes)
        passes = np.where(tables.pooled == 1, pooled_passes, software.sequence_backward_passes.value)
        passes = passes[self._blocks.table]
        hot, cold = self._on_device, self._in_place
        by_row: Floats = self._lookups * kind.update_row_s + self.id_sort()
        if kind.lookup.distinct_row_s is not None:
            of_vectors, on_device = terms.evicted_backward(hot, passes, kind, software)
        else:
            of_vectors, on_device = np.zeros(len(passes)), terms.backward(hot, passes, kind.lookup, software)
            by_row = by_row + hot.unique * kind.update_distinct_row_s
        on_device = on_device + terms.backward_in_place(cold, passes, kind.lookup)
        managed = KEEPS_STATE_BELOW[self._blocks.tier]
        on_device = on_device + np.where(managed, self._unique * software.cache_update_s.value, 0.0)
        if kind.update_passes is not None and kind.lookup.distinct_row_s is None:
            # a calibrated device: its cache serves the update as it does the lookup
            on_device = on_device * terms.cached_reads(self._on_device, kind.lookup)
        codec = self._codec_seconds(self._tables.codec_bytes[1])
        coded = software.codec_passes.value * tables.gradient_codec_bytes / kind.hbm_bytes_per_s
        whole = (kind.dense_update_s * tables.gradient_held_bytes + coded) * self._replicated_elements
        everywhere = codec / kind.world_size + self._arranging_seconds()
        load = BlockLoad(codec + whole + of_vectors, on_device + by_row, everywhere)
        return self._in_turn(load, self._updated_in_place())

    def bags(self, of_table: Ints) -> tuple[Loads, Loads]:
        """What resources of long bags have beyond the loads of the device, forward and backward, where blocks read bags
        of the tables of these numbers [n], or none of their own (-1)."""
        rates, reads, lookup = self._kind.bags, self._reads, self._kind.lookup
        if rates is None:
            return {}, {}
        is_pooled = self._tables.pooled[self._blocks.table].astype(float)
        ids, outputs = terms.stream(reads, lookup)
        forward = BlockLoad(outputs + self._by_vector(), ids + terms.read_rows(self._on_device, lookup))
        backward = BlockLoad(by_rows=self._lookups * min(rates.id_s / rates.at_once, self._kind.update_row_s))
        longest = longest_bags(self._tables, self._blocks.table, self._samples)
        longest = np.where(longest > rates.long_from, longest, 0.0)
        bags = longest * bag_row_s(rates, np.asarray(reads.table_bytes)), np.asarray(longest * rates.id_s)
        return in_place_of(forward * is_pooled, bags[0], of_table), in_place_of(backward * is_pooled, bags[1], of_table)

    def id_sort(self) -> Floats:
        """[n] seconds on the device that sorting ids by row takes of `backward`; of a calibrated device it is part of
        each lookup's time."""
        if self._of_unpooled is not None:
            return np.where(self._tables.pooled[self._blocks.table] == 1, self._id_sort(), self._of_unpooled.id_sort())
        return self._id_sort()

    def _id_sort(self) -> Floats:
        if not self._kind.sorts_ids_apart:
            return np.zeros(len(self._blocks))
        return terms.id_sort(self._lookups, self._kind.lookup, self._software)

    def _at(self, memory: MemoryTier) -> NDArray[np.bool_]:
        """[n] whether what HBM does not hold of a block is in this memory."""
        return np.asarray(self._home == MEMORY_TIERS.index(memory))

    def _addressed(self) -> Iterator[tuple[MemoryTier, MemoryRates]]:
        """The memories that kernels read and write in place."""
        return ((name, rates) for name, rates in self._kind.memories.items() if name in BYTE_ADDRESSABLE)

    def _codec_seconds(self, element_bytes: float) -> Floats:
        """Encoding (or decoding) the vectors of all samples that go one by one to the ranks of the samples.

        The holder takes that long; every rank takes its share of it for the other end.
        """
        blocks, kind = self._blocks, self._kind
        sent = EXTENT_OF_SHARDING[blocks.sharding] == RANK
        elements = self._samples * self._tables.outputs_per_sample[blocks.table] * blocks.columns
        moved = self._software.codec_passes.value * elements * element_bytes
        return np.where(sent, moved / kind.hbm_bytes_per_s, 0.0)

    def _arranging_seconds(self) -> Floats:
        """On each rank: deduplicated vectors copied to every sample that has them, or the gradients of these summed;
        and vectors whose columns were cut put in order, or torn again, where that was measured."""
        tables, blocks = self._tables, self._blocks
        table = blocks.table
        once = tables.outputs_per_sample[table] + tables.expanded_per_sample[table]
        seconds = np.where(tables.expanded_per_sample[table] > 0, once, 0.0) / self._kind.hbm_bytes_per_s
        is_cut = (EXTENT_OF_SHARDING[blocks.sharding] == RANK) & (blocks.columns < tables.dim[table])
        pieces = np.where(is_cut, tables.outputs_per_sample[table], 0.0)
        seconds = (seconds + pieces * self._kind.regroup_s / 2) * blocks.columns * tables.written_bytes
        return (seconds + pieces * self._kind.regroup_piece_s / 2) * self._samples_per_rank

    def _cache_codec_seconds(self) -> Floats:
        """Missed rows decoded into a cache of another format; in training as many are encoded back."""
        ways = 2 if self._tables.training else 1
        moved = self._software.codec_passes.value * ways * self._missed * self._encoded_bytes
        return np.asarray(moved / self._kind.hbm_bytes_per_s)

    def _in_turn(self, on_device: BlockLoad, host: dict[MemoryTier, _Crossing]) -> Loads:
        """A rank works on its device, then over the host's links. What ranks share idles meanwhile, for as long as
        they work on their devices on average: in step where the load is balanced."""
        kind, none = self._kind, np.zeros(len(self._blocks))
        waited_s = sum((each.bytes / kind.memories[name].link_bytes_per_s for name, each in host.items()), none)
        moved = sum((each.bytes for each in host.values()), none)
        own_s = {Resource(name): each.busy_s for name, each in host.items()}
        own_s[PCIE] = moved / kind.pcie_bytes_per_s
        shared = {name: _after(on_device, ranks, own_s.get(name, none)) for name, ranks in kind.ranks_sharing.items()}
        return {DEVICE: _after(on_device, 1, waited_s), **shared}


def _after(on_device: BlockLoad, ranks: int, seconds: Floats) -> BlockLoad:
    """What a resource that so many ranks share has of their work on the device, and then of its own."""
    part = on_device / ranks
    return BlockLoad(part.fixed, part.by_rows + seconds, part.everywhere)
