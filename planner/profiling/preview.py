"""A look at whole batches from all over the data: their distinct ids, and which ids are hot."""

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.profiling.lists import Lists, first, joined
from planner.profiling.reads import HotIds
from planner.profiling.sources.source import Source, Task
from planner.profiling.statistics import NO_BATCH, BatchCounts, batch_counts
from planner.profiling.tallies import EMPTY, tally

MOST_BATCHES = 16
MOST_IDS = 1 << 22
"""Ids of a feature after which no further batch is read, if there are two."""
LEAST_BATCHES = 2


@dataclass(frozen=True)
class Preview:
    """What the preview of a feature found."""

    hot: HotIds
    batches: BatchCounts
    """Of whole batches; none where the data is shorter than one."""


def preview(
    source: Source, chunks: Sequence[int], batch: int, session: str | None, capacity: int, workers: Executor
) -> dict[str, Preview]:
    """Each feature's batches and hot ids; `chunks` are those that are read later. Raises InputError.

    A batch is `batch` consecutive samples from the start of a chunk on; the starts are spread over the data.
    """
    tasks = {(name, task.chunk): task for task in source.tasks() for name in task.features}
    together = {task.features for task in tasks.values()}
    starts = _spread(chunks, MOST_BATCHES)

    def look(features: tuple[str, ...]) -> dict[str, Preview]:
        looks = {name: _Look(capacity) for name in features}
        for start in starts:
            if all(look.is_enough for look in looks.values()):
                break
            sessions = _sessions(source, session, chunks, start, batch)
            for name, lists in _batch(source, features, tasks, chunks, start, batch).items():
                looks[name].add(lists, batch, sessions)
        return {name: look.result() for name, look in looks.items()}

    return {name: found for part in workers.map(look, sorted(together)) for name, found in part.items()}


class _Look:
    """The batches of one feature."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._ids = EMPTY
        self._batches = NO_BATCH

    @property
    def is_enough(self) -> bool:
        return self._ids.total >= MOST_IDS and self._batches.batches >= LEAST_BATCHES

    def add(self, lists: Lists, batch: int, sessions: NDArray[np.int64] | None) -> None:
        if self.is_enough:
            return
        ids = tally(lists.ids)
        self._ids += ids
        if lists.samples == batch:
            self._batches += batch_counts(lists, len(ids), sessions)

    def result(self) -> Preview:
        return Preview(HotIds.of(self._ids, self._capacity), self._batches)


def _batch(
    source: Source,
    features: tuple[str, ...],
    tasks: dict[tuple[str, int], Task],
    chunks: Sequence[int],
    start: int,
    batch: int,
) -> dict[str, Lists]:
    """The first samples from a chunk on, of features that are read together."""
    parts: dict[str, list[Lists]] = {name: [] for name in features}
    have = dict.fromkeys(features, 0)
    for chunk in chunks[start:]:
        if min(have.values()) >= batch:
            break
        for name, lists in source.read(tasks[features[0], chunk]):
            parts[name].append(lists)
            have[name] += lists.samples
            if min(have.values()) >= batch:
                break
    return {name: joined(first(of_name, batch)) for name, of_name in parts.items()}


def _sessions(
    source: Source, session: str | None, chunks: Sequence[int], start: int, batch: int
) -> NDArray[np.int64] | None:
    if session is None:
        return None
    pieces = (lists for chunk in chunks[start:] for lists in source.scalars(session, chunk))
    return joined(first(pieces, batch)).ids


def _spread(chunks: Sequence[int], most: int) -> list[int]:
    """Positions of `chunks` evenly spread, in the order in which they fill the gaps."""
    even = np.unique(np.linspace(0, len(chunks) - 1, min(most, len(chunks))).round().astype(int)).tolist()
    order = [even[0], even[-1]]
    while len(order) < len(even):
        order.append(max((k for k in even if k not in order), key=lambda k: (min(abs(k - o) for o in order), -k)))
    return list(dict.fromkeys(order))
