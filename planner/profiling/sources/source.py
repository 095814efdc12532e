"""What every source of ids offers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from planner.profiling.lists import Lists


@dataclass(frozen=True)
class Task:
    """Features of a chunk that are read together."""

    chunk: int
    features: tuple[str, ...]
    weight: float
    """Work, in any unit that is the same for all tasks of a source."""


class Source(Protocol):
    """Files of samples. It can be pickled: other processes read it, too."""

    @property
    def features(self) -> tuple[str, ...]:
        """The features that are profiled, in the order of the data."""

    @property
    def left_out(self) -> tuple[str, ...]:
        """Columns that are no features, as the user is told."""

    @property
    def batch(self) -> int | None:
        """Samples of a batch, where the files are batches."""

    @property
    def fingerprint(self) -> str:
        """What tells whether the data is still the same."""

    def tasks(self) -> Sequence[Task]:
        """All that there is to read. Chunks are numbered from 0 in the order of the samples."""

    def read(self, task: Task) -> Iterator[tuple[str, Lists]]:
        """The ids of a task in pieces; those of one feature in the order of the samples. Raises InputError."""

    def scalars(self, column: str, chunk: int) -> Iterator[Lists]:
        """A column with one value for each sample, such as its session, in pieces. Raises InputError."""
