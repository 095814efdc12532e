"""The ids of consecutive samples of one feature."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Lists:
    """The ids of consecutive samples: `ids` one after the other, `lengths` [samples] how many each sample has."""

    ids: Ids
    lengths: Counts

    @property
    def samples(self) -> int:
        """How many samples there are, those without an id included."""
        return len(self.lengths)

    def head(self, samples: int) -> "Lists":
        """The first samples."""
        lengths = self.lengths[:samples]
        return Lists(self.ids[: int(lengths.sum())], lengths)


def joined(parts: Iterable[Lists]) -> Lists:
    """Parts, one after the other."""
    every = list(parts)
    if not every:
        return Lists(np.zeros(0, np.int64), np.zeros(0, np.int64))
    return Lists(np.concatenate([part.ids for part in every]), np.concatenate([part.lengths for part in every]))


def first(parts: Iterable[Lists], samples: int) -> Iterator[Lists]:
    """Parts up to a number of samples; no more of them are read than that takes."""
    left = samples
    for part in parts:
        yield part.head(left)
        left -= part.samples
        if left <= 0:
            return
