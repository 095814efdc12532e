"""What a trainer's file says of a workload, with where it says so, and what it leaves open."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from topologies.documents import Document, Key, Position

SHOWN = 5
"""Names in a warning."""


@dataclass(frozen=True)
class StatedTable:
    """A table profile and where the file states it."""

    profile: Mapping[str, Any]
    """As in a workload file."""
    source: str
    position: Position | None = None
    """Line and column, from 1."""


@dataclass(frozen=True)
class StatedWorkload:
    """The plain data of a workload, and what its reader has to say about it."""

    tables: Sequence[StatedTable]
    batch: Mapping[str, int]
    """`global_batch` or `batch_per_rank`; empty where the file has none."""
    rest: Mapping[str, Any] = field(default_factory=dict)
    """Other keys of a workload file."""
    unsaid: Sequence[str] = ()
    """What the file does not say, or says otherwise than we need it: a line each."""
    warnings: Sequence[str] = ()

    def document(self, name: str, source: str) -> Document:
        """The workload file, whose faults are located where the trainer's file states the table."""
        data = {"name": name, **self.batch, **self.rest, "tables": [dict(table.profile) for table in self.tables]}
        document = Document(data, source)
        for index, table in enumerate(self.tables):
            document.include(("tables", index), Document(None, table.source, _at(table.position)))
        return document


def _at(position: Position | None) -> Any:
    def locate(_path: Sequence[Key]) -> Position | None:
        return position

    return locate


def listed(names: Sequence[str]) -> str:
    """Names as a warning shows them: the first few, and how many more there are."""
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def unique_name(name: str, taken: set[str]) -> str:
    """The name, numbered where it is taken; entered into `taken`."""
    own, number = name, 2
    while own in taken:
        own, number = f"{name}_{number}", number + 1
    taken.add(own)
    return own
