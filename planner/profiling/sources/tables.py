"""A source whose features are tables: columns that share a table are read as one."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.profiling.lists import Lists
from planner.profiling.sources.source import Source, Task


@dataclass(frozen=True)
class TableSource:
    """The tables of a model, each fed by one or more features of another source."""

    source: Source
    columns: Mapping[str, tuple[str, ...]]
    """The features of each table."""

    @property
    def features(self) -> tuple[str, ...]:
        """The tables."""
        return tuple(self.columns)

    @property
    def left_out(self) -> tuple[str, ...]:
        """Columns and features that are of no table."""
        used = {name for names in self.columns.values() for name in names}
        return (*(name for name in self.source.features if name not in used), *self.source.left_out)

    @property
    def batch(self) -> int | None:
        """Samples of a batch, where the files are batches."""
        return self.source.batch

    @property
    def fingerprint(self) -> str:
        """What tells whether the data is still the same."""
        return f"{self.source.fingerprint} {sorted(self.columns.items())}"

    @cached_property
    def _tasks(self) -> dict[int, dict[str, Task]]:
        """For each chunk the task of the other source that reads a feature."""
        tasks: dict[int, dict[str, Task]] = {}
        for task in self.source.tasks():
            tasks.setdefault(task.chunk, {}).update(dict.fromkeys(task.features, task))
        return tasks

    def tasks(self) -> Sequence[Task]:
        """Tables whose features are read together."""
        found: list[Task] = []
        for chunk, of in self._tasks.items():
            left = dict(self.columns)
            while left:
                name, columns = next(iter(left.items()))
                parts = {id(of[column]): of[column] for column in columns}
                read = {column for part in parts.values() for column in part.features}
                together = tuple(table for table, its in left.items() if table == name or read.issuperset(its))
                found.append(Task(chunk, together, sum(part.weight for part in parts.values())))
                left = {table: its for table, its in left.items() if table not in together}
        return found

    def read(self, task: Task) -> Iterator[tuple[str, Lists]]:
        """The ids of a task in pieces. Raises InputError."""
        of = self._tasks[task.chunk]
        columns = [column for table in task.features for column in self.columns[table]]
        pieces = {column: deque[Lists]() for column in columns}
        running = [self.source.read(part) for part in {id(of[column]): of[column] for column in columns}.values()]
        while running:
            for each in list(running):
                name, lists = next(each, ("", None))
                if lists is None:
                    running.remove(each)
                elif name in pieces:
                    pieces[name].append(lists)
            for table in task.features:
                ready = [pieces[column] for column in self.columns[table]]
                while all(ready):
                    yield table, _beside([queue.popleft() for queue in ready], ready)

    def scalars(self, column: str, chunk: int) -> Iterator[Lists]:
        """A column with one value for each sample, such as its session, in pieces. Raises InputError."""
        return self.source.scalars(column, chunk)


def _beside(parts: list[Lists], queues: list[deque[Lists]]) -> Lists:
    """The ids of the same samples of several features; what one has more than the others goes back to its queue."""
    if len(parts) == 1:
        return parts[0]
    samples = min(part.samples for part in parts)
    heads = [part.head(samples) for part in parts]
    for part, head, queue in zip(parts, heads, queues, strict=True):
        if part.samples > samples:
            queue.appendleft(Lists(part.ids[len(head.ids) :], part.lengths[samples:]))
    sample = np.concatenate([np.repeat(np.arange(samples), head.lengths) for head in heads])
    order = np.argsort(sample, kind="stable")
    lengths = np.sum([head.lengths for head in heads], axis=0)
    return Lists(np.concatenate([head.ids for head in heads])[order], lengths)
