"""How often each of some whole numbers occurs, as two arrays; the union of two tallies is a sum."""

from dataclasses import dataclass

import numpy as np

from planner.profiling.lists import Counts, Ids

DENSE = 1 << 16
"""Numbers below this are counted in place, without a sort."""


@dataclass(frozen=True)
class Tally:
    """`values`, rising, and how often each occurs."""

    values: Ids
    counts: Counts

    def __len__(self) -> int:
        return len(self.values)

    def __add__(self, other: "Tally") -> "Tally":
        if not len(other):
            return self
        if not len(self):
            return other
        values = np.concatenate((self.values, other.values))
        order = np.argsort(values, kind="stable")
        values, counts = values[order], np.concatenate((self.counts, other.counts))[order]
        starts = _starts(values)
        return Tally(values[starts], np.add.reduceat(counts, starts))

    @property
    def total(self) -> int:
        """Occurrences of all values."""
        return int(self.counts.sum())


EMPTY = Tally(np.zeros(0, np.int64), np.zeros(0, np.int64))


def tally(values: Ids) -> Tally:
    """The tally of an array in any order."""
    if not len(values):
        return EMPTY
    if len(values) > DENSE // 8 and int(values.min()) >= 0 and int(values.max()) < DENSE:
        counts = np.bincount(values)
        present = np.flatnonzero(counts)
        return Tally(present, counts[present])
    ordered = np.sort(values)
    starts = _starts(ordered)
    return Tally(ordered[starts], np.diff(starts, append=len(ordered)))


def _starts(ordered: Ids) -> Ids:
    """Where a new value begins."""
    return np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
