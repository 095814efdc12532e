"""What one lookup kernel costs: seconds from counts of lookups, distinct rows and missed rows.

All functions take arrays of one shape (or numbers) and give seconds on the device unless they say otherwise. A *pass*
is one crossing of the row's bytes, in whole sectors.
"""

from dataclasses import dataclass

import numpy as np

from cost_models.coefficients import SoftwareCoefficients
from cost_models.kinds import RankKind
from cost_models.lookup_rates import LookupRates
from cost_models.memory_rates import MemoryRates
from cost_models.shards import Floats

Numbers = Floats | float


@dataclass(frozen=True)
class Reads:
    """What a pass over some tables reads."""

    lookups: Numbers
    unique: Numbers
    """Distinct rows."""
    id_bytes: Numbers
    """Bytes of one id with its weight."""
    row_bytes: Numbers
    """Bytes of one row, in whole sectors."""
    output_bytes: Numbers
    """Bytes of all vectors that the forward pass writes."""
    table_bytes: Numbers
    """Bytes of the table's rows: what a cache of the device would have to hold."""
    from_memory: Numbers | None = None
    """Reads of rows that the caches of a device do not hold which other tables push each other out of."""
    state_bytes: Numbers = 0.0
    """Optimizer state of one row, in whole sectors."""
    state_arrays: Numbers = 0.0
    """Element-wise optimizer state arrays."""


def in_sectors(row_bytes: Numbers, sector_bytes: float) -> Floats:
    """Bytes that reading a row moves: whole sectors."""
    return np.asarray(np.ceil(np.asarray(row_bytes) / sector_bytes) * sector_bytes)


def l2_share(table_bytes: Numbers, rates: LookupRates) -> Floats:
    """Share of the reads of a table that the L2 cache serves: 1 / sqrt(1 + (bytes / reach)^2)."""
    size = np.asarray(table_bytes, dtype=np.float64)
    if not rates.l2_reach_bytes:
        return np.zeros_like(size)
    return np.asarray(1 / np.sqrt(1 + (size / rates.l2_reach_bytes) ** 2))


def cache_share(reads: Reads, rates: LookupRates) -> Floats:
    """Share of the reads that a cache serves: of a small table most of them; where the tables of a rank push each
    other's rows out from step to step, those of rows that the batch has read before and the cache still holds."""
    if rates.distinct_row_s is None:
        return l2_share(reads.table_bytes, rates)
    from_memory = reads.unique if reads.from_memory is None else reads.from_memory
    return np.asarray(1 - np.asarray(from_memory) / np.maximum(reads.lookups, 1e-9))


def cached_reads(reads: Reads, rates: LookupRates) -> Floats:
    """Time of reading rows over that of reading them all from device memory."""
    share = cache_share(reads, rates)
    return np.asarray(1 - share + share * rates.hbm_bytes_per_s / rates.l2_bytes_per_s)


def read_rows(reads: Reads, rates: LookupRates) -> Floats:
    """Rows of device memory, some of them out of the L2 cache."""
    share = cache_share(reads, rates)
    per_byte = share / rates.l2_bytes_per_s + (1 - share) / rates.hbm_bytes_per_s
    each = np.asarray(reads.lookups) * (reads.row_bytes * per_byte + rates.row_s)
    return np.asarray(each + np.asarray(reads.unique) * (rates.distinct_row_s or 0.0))


def stream(reads: Reads, rates: LookupRates) -> tuple[Floats, Floats]:
    """(reading the ids, writing the outputs): what every forward pass does, wherever the rows are."""
    ids = np.asarray(reads.lookups) * reads.id_bytes / rates.hbm_bytes_per_s
    return np.asarray(ids), np.asarray(np.asarray(reads.output_bytes) / rates.hbm_bytes_per_s)


def cache_search(reads: Reads, software: SoftwareCoefficients) -> Floats:
    """Finding the ids of a table below HBM in its cache: distinct rows are sorted out and looked for."""
    return np.asarray(np.asarray(reads.unique) * software.cache_search_s.value)


def kept_reads(hottest: Numbers, lookups: Numbers, kept_rows: Numbers) -> Floats:
    """Reads of the `kept_rows` hottest rows in place, which get this share of the lookups, beyond the first of each."""
    return np.asarray(np.maximum(np.asarray(hottest) * lookups - kept_rows, 0.0))


def in_place_rows(reads: Reads, software: SoftwareCoefficients, kept: Numbers = 0.0) -> Floats:
    """Rows that a forward pass over rows below HBM brings over PCIe, some of them more than once; of the hottest ones
    so many reads are `kept` from crossing."""
    per_lookup, per_row = software.uvm_forward_passes_per_lookup.value, software.uvm_forward_passes_per_row.value
    return np.asarray(per_lookup * (np.asarray(reads.lookups) - kept) + per_row * np.asarray(reads.unique))


def rewritten_rows(rows: Numbers, software: SoftwareCoefficients) -> Floats:
    """Rows, or their optimizer state, that updating so many distinct ones below HBM brings over PCIe."""
    return np.asarray(software.uvm_backward_passes_per_row.value * np.asarray(rows))


def read_seconds(rows: Numbers, row_bytes: Numbers, rates: MemoryRates) -> Floats:
    """Time of a memory that rows are read in, in whole accesses."""
    return np.asarray(np.asarray(rows) * in_sectors(row_bytes, rates.access_bytes) / rates.read_bytes_per_s)


def update_seconds(rows: Numbers, row_bytes: Numbers, rates: MemoryRates) -> Floats:
    """Time of a memory that rows are updated in: half of the crossings read, half write."""
    both_ways = (1 / rates.read_bytes_per_s + 1 / rates.write_bytes_per_s) / 2
    return np.asarray(np.asarray(rows) * in_sectors(row_bytes, rates.access_bytes) * both_ways)


def exchange_seconds(rows: Numbers, row_bytes: Numbers, rates: MemoryRates) -> Floats:
    """Time of a memory that missed rows come from while as many go back: what it streams in whole accesses, single
    accesses, or the cards before it, whichever takes longest."""
    pieces = np.asarray(rows) * np.ceil(np.asarray(row_bytes) / rates.access_bytes)
    moved = pieces * rates.access_bytes
    stream = moved / rates.read_bytes_per_s + moved / rates.write_bytes_per_s
    cards = np.asarray(rows) * row_bytes / rates.cards_bytes_per_s
    return np.asarray(np.maximum.reduce([stream, pieces / rates.accesses_per_s, cards]))


def fetched_bytes(missed: Numbers, row_bytes: Numbers, software: SoftwareCoefficients) -> Floats:
    """Bytes over PCIe to bring missed distinct rows into a cache, one direction; as many go back."""
    return np.asarray(software.cache_fetch_passes.value * np.asarray(missed) * row_bytes)


def id_sort(lookups: Numbers, rates: LookupRates, software: SoftwareCoefficients) -> Floats:
    """Sorting the ids of a backward pass by row, so that the gradients of a row are summed: by ids, whatever the width.

    Every block of a table's columns has an update of its own, and sorts all of its ids.
    """
    moved = software.id_sort_bytes.value if software.id_sort_bytes else 0.0
    return np.asarray(np.asarray(lookups) * moved / rates.hbm_bytes_per_s)


def backward(reads: Reads, passes: Numbers, rates: LookupRates, software: SoftwareCoefficients) -> Floats:
    """Gradients summed by row, rows and the state that is there too read and written, all on the device.

    `passes` counts crossings for each lookup; each distinct row adds its update and that of its state arrays.
    """
    update = software.row_update_passes.value + software.update_passes.value * np.asarray(reads.state_arrays)
    crossings = np.asarray(passes) * reads.lookups + update * np.asarray(reads.unique)
    return np.asarray(crossings * reads.row_bytes / rates.hbm_bytes_per_s)


def evicted_backward(
    reads: Reads, passes: Numbers, kind: RankKind, software: SoftwareCoefficients
) -> tuple[Floats, Floats]:
    """(for all vectors, for the rows) the same where the tables of a rank push each other's rows out of the caches.

    The gradient of a vector comes from memory once, for further lookups from a cache; distinct rows come from memory.
    """
    once, again = 1 / kind.lookup.hbm_bytes_per_s, 1 / kind.lookup.l2_bytes_per_s
    update = kind.update_row_passes + software.update_passes.value * np.asarray(reads.state_arrays)
    rewritten = np.asarray(reads.unique) * (update * reads.row_bytes * once + kind.update_distinct_row_s)
    gradients = np.asarray(passes) * reads.lookups * reads.row_bytes * again
    return np.asarray(np.asarray(passes) * reads.output_bytes * (once - again)), np.asarray(gradients + rewritten)


def backward_in_place(reads: Reads, passes: Numbers, rates: LookupRates) -> Floats:
    """The device's part with rows in host memory: summing gradients."""
    return np.asarray(np.asarray(passes) * reads.lookups * reads.row_bytes / rates.hbm_bytes_per_s)
