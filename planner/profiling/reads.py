"""How often the ids of a feature are read: exact for the hottest, by a sample of the rest that is drawn by hash.

Which ids count as hot is fixed before (from a preview of the data), and whether another id is sampled depends on its
hash alone. So every occurrence of an id is counted or none, the counts of parts of the data add up to those of the
whole, in any order, and all engines arrive at the same. As long as the ids fit the capacity all of them are counted;
then every doubling halves the sample (Gibbons, "Distinct sampling", VLDB 2001; the hot ids beside it take the
variance, as in Cohen and Kaplan, "Summarizing data using bottom-k sketches", PODC 2007).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.profiling.hashing import BITS, Hashes, hashed
from planner.profiling.lists import Counts, Ids
from planner.profiling.tallies import EMPTY, Tally, tally

BLOCK = 1 << 17
"""Ids that are looked at together: their arrays stay in a core's cache."""
BYTES_PER_ENTRY = 64
"""Memory that an id of the sample takes while samples are joined, hot ids included."""
HOT_SHARE = 4
"""Sampled ids for each slot of a hot one."""
LARGEST_CAPACITY = 1 << 20
LEAST_CAPACITY = 1 << 10


def capacity_for(features: int, memory_bytes: float) -> int:
    """How many sampled ids each feature may have; a power of two."""
    each = memory_bytes / BYTES_PER_ENTRY / max(features, 1)
    return int(min(max(1 << int(np.log2(max(each, 1.0))), LEAST_CAPACITY), LARGEST_CAPACITY))


@dataclass(frozen=True)
class HotIds:
    """Ids that are counted whatever their hash: at most one in each slot of the hash's first bits."""

    owners: Ids
    """[slots] the hot id of each slot; where there is none, an id that belongs to another slot."""

    @classmethod
    def of(cls, preview: Tally, capacity: int) -> "HotIds":
        """The hottest of a preview; of two in a slot the one that was read more often, then the smaller."""
        slots = capacity // HOT_SHARE
        owners = np.zeros(slots, np.int64)
        zero = int(_slots_of(hashed(np.zeros(1, np.int64)), slots)[0])
        strangers = np.arange(1, 65)
        owners[zero] = strangers[_slots_of(hashed(strangers), slots) != zero][0]
        order = np.lexsort((-preview.values, preview.counts))[-slots:]
        hot = preview.values[order]
        owners[_slots_of(hashed(hot), slots)] = hot  # the last one in a slot stays
        return cls(owners)

    def present(self) -> NDArray[np.bool_]:
        """[slots] whether a slot has a hot id."""
        return np.asarray(_slots_of(hashed(self.owners), len(self.owners)) == np.arange(len(self.owners)))


def _slots_of(hashes: Hashes, slots: int) -> NDArray[np.uint32]:
    return np.asarray(hashes >> np.uint32(BITS - (slots.bit_length() - 1)))


@dataclass(frozen=True)
class Reads:
    """Counts of a part of the data."""

    hot: Counts
    """[slots] reads of the hot ids."""
    sampled: Tally
    """Other ids whose hash ends in `level` zero bits, and their reads."""
    level: int
    capacity: int

    def __add__(self, other: "Reads") -> "Reads":
        level = max(self.level, other.level)
        sampled = _thinned(self.sampled, level) + _thinned(other.sampled, level)
        while len(sampled) > self.capacity:
            level += 1
            sampled = _thinned(sampled, level)
        return Reads(self.hot + other.hot, sampled, level, self.capacity)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The same as arrays to be stored."""
        of_both = {"values": self.sampled.values, "counts": self.sampled.counts, "hot": self.hot}
        return {**of_both, "limits": np.array([self.level, self.capacity])}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "Reads":
        """What `arrays` gave."""
        level, capacity = map(int, arrays["limits"])
        return cls(arrays["hot"], Tally(arrays["values"], arrays["counts"]), level, capacity)


def no_reads(hot: HotIds, capacity: int) -> Reads:
    """The counts of no data."""
    return Reads(np.zeros(len(hot.owners), np.int64), EMPTY, 0, capacity)


def counted(ids: Ids, hot: HotIds, level: int, capacity: int) -> Reads:
    """The counts of some ids, with a sample that is at least as thin as `level` says."""
    slots = len(hot.owners)
    reads = np.zeros(slots, np.int64)
    last_bits = np.uint32((1 << level) - 1)
    others = []
    for start in range(0, len(ids), BLOCK):
        block = ids[start : start + BLOCK]
        hashes = hashed(block)
        of_block = _slots_of(hashes, slots)
        is_hot = hot.owners[of_block] == block
        reads += np.bincount(of_block[is_hot], minlength=slots)
        others.append(block[~is_hot & ((hashes & last_bits) == 0)])
    empty = Reads(np.zeros(slots, np.int64), EMPTY, level, capacity)
    return Reads(reads, tally(np.concatenate(others)) if others else EMPTY, level, capacity) + empty


def _thinned(sampled: Tally, level: int) -> Tally:
    """Those of a sample whose hash ends in `level` zero bits."""
    stays = (hashed(sampled.values) & np.uint32((1 << level) - 1)) == 0
    return Tally(sampled.values[stays], sampled.counts[stays])
