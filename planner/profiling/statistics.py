"""What the ids of a feature say: samples, lengths of lists, reads of ids, and what whole batches hold."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.profiling.curves import CountedRows, counted_rows
from planner.profiling.lists import Lists
from planner.profiling.reads import HotIds, Reads, counted, no_reads
from planner.profiling.tallies import EMPTY, Tally, tally


@dataclass(frozen=True)
class FeatureCounts:
    """Counts of a part of a feature's data; counts of parts are added."""

    lengths: Tally
    """How many samples have how many ids."""
    reads: Reads
    least: int
    largest: int
    """The smallest and the largest id; `least` is above `largest` where there are no ids."""

    @property
    def ids(self) -> int:
        """Ids that were read."""
        return int((self.lengths.values * self.lengths.counts).sum())

    def __add__(self, other: "FeatureCounts") -> "FeatureCounts":
        return FeatureCounts(
            self.lengths + other.lengths,
            self.reads + other.reads,
            min(self.least, other.least),
            max(self.largest, other.largest),
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The same as arrays to be stored."""
        lengths = {"lengths": self.lengths.values, "samples": self.lengths.counts}
        return {**lengths, "ends": np.array([self.least, self.largest]), **self.reads.arrays()}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "FeatureCounts":
        """What `arrays` gave."""
        least, largest = map(int, arrays["ends"])
        return cls(Tally(arrays["lengths"], arrays["samples"]), Reads.of_arrays(arrays), least, largest)


def no_counts(hot: HotIds, capacity: int) -> FeatureCounts:
    """The counts of no data."""
    ends = np.iinfo(np.int64)
    return FeatureCounts(EMPTY, no_reads(hot, capacity), int(ends.max), int(ends.min))


def counts_of(lists: Lists, hot: HotIds, level: int, capacity: int) -> FeatureCounts:
    """The counts of some samples."""
    nothing = no_counts(hot, capacity)
    if not len(lists.ids):
        return FeatureCounts(tally(lists.lengths), nothing.reads, nothing.least, nothing.largest)
    reads = counted(lists.ids, hot, level, capacity)
    return FeatureCounts(tally(lists.lengths), reads, int(lists.ids.min()), int(lists.ids.max()))


@dataclass(frozen=True)
class BatchCounts:
    """What whole batches of a feature hold, summed over the batches."""

    batches: int
    ids: int
    distinct: int
    """Distinct ids, counted in each batch."""
    samples: int = 0
    sessions: int = 0
    """Sessions, counted in each batch; 0 where no sessions are known."""
    followers: int = 0
    """Ids of samples that have a sample of their session before them in the batch."""
    repeated: int = 0
    """Those of them that the sample before has, too."""

    def __add__(self, other: "BatchCounts") -> "BatchCounts":
        return BatchCounts(
            self.batches + other.batches,
            self.ids + other.ids,
            self.distinct + other.distinct,
            self.samples + other.samples,
            self.sessions + other.sessions,
            self.followers + other.followers,
            self.repeated + other.repeated,
        )


NO_BATCH = BatchCounts(0, 0, 0)


def batch_counts(lists: Lists, distinct: int, sessions: NDArray[np.int64] | None) -> BatchCounts:
    """The counts of one batch, given its distinct ids; `sessions` [samples] names the session of each sample."""
    if sessions is None:
        return BatchCounts(1, len(lists.ids), distinct, lists.samples)
    _, session = np.unique(sessions, return_inverse=True)
    order = np.argsort(session, kind="stable")
    before = np.full(lists.samples, -1, np.int64)
    follows = session[order][1:] == session[order][:-1]
    before[order[1:][follows]] = order[:-1][follows]
    sample = np.repeat(np.arange(lists.samples), lists.lengths)
    values, codes = np.unique(lists.ids, return_inverse=True)
    keys = np.unique(sample * len(values) + codes)
    has_before = before[sample] >= 0
    wanted = before[sample][has_before] * len(values) + codes[has_before]
    at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    repeated = int((keys[at] == wanted).sum()) if len(keys) else 0
    count = int(session.max()) + 1 if len(session) else 0
    return BatchCounts(1, len(lists.ids), distinct, lists.samples, count, int(has_before.sum()), repeated)


@dataclass(frozen=True)
class TableStatistics:
    """All that the data says of a table."""

    lengths: Tally | None
    """How many samples have how many ids; None where only reads were counted."""
    rows: CountedRows
    least: int
    largest: int
    """The smallest and the largest id."""
    are_numbers: bool
    """Whether ids are numbers, not hashes of words or names in another tool's order."""
    batches: BatchCounts

    @classmethod
    def of(cls, counts: FeatureCounts, hot: HotIds, batches: BatchCounts) -> "TableStatistics":
        """Those of counts; hashes of words are beyond any number of rows."""
        rows = counted_rows(counts.reads, hot, counts.ids)
        return cls(counts.lengths, rows, counts.least, counts.largest, are_numbers=True, batches=batches)
