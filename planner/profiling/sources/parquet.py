"""Parquet files: each row group is a chunk, each column of lists a feature."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from planner.profiling.lists import Lists
from planner.profiling.sources.columns import is_id, is_list, is_whole, lists_of
from planner.profiling.sources.files import fingerprint_of
from planner.profiling.sources.source import Task
from topologies.documents import did_you_mean
from topologies.errors import Fault, InputError
from topologies.sentences import counted

PIECE = 1 << 14
"""Samples that are decoded together: little memory, used again and again, takes the system less time than much."""

SHOWN = 4
NO_IDS = "ids are whole numbers or words: cast it, flatten lists of lists, or leave it out"


@dataclass(frozen=True)
class RowGroup:
    """A chunk."""

    file: Path
    number: int
    samples: int


@dataclass(frozen=True)
class ParquetSource:
    """Samples of Parquet files, one after the other."""

    files: tuple[Path, ...]
    columns: tuple[str, ...] | None = None
    """The features. Unset: all columns of lists of ids."""

    batch = None

    @cached_property
    def _schema(self) -> Any:
        with _opened(self.files[0]) as file:
            return file.schema_arrow

    @cached_property
    def features(self) -> tuple[str, ...]:
        """The features, in the order of the data. Raises InputError."""
        schema = self._schema
        kinds = {name: schema.field(name).type for name in schema.names}
        source = str(self.files[0])
        if self.columns is None:
            found = _lists_of_ids(schema)
            if not found:
                single = ", ".join(n for n, kind in kinds.items() if is_id(kind))
                held = ", ".join(f"{name} {kind}" for name, kind in list(kinds.items())[:SHOWN])
                remedy = f"; name those with an id each with --columns: {single}" if single else f", but {held}"
                raise InputError.at(source, f"has no column of lists of whole numbers or words{remedy}")
            return found
        faults = []
        for name in self.columns:
            if name not in kinds:
                faults.append(Fault(source, 0, 0, name, f"there is no such column{did_you_mean(name, list(kinds))}"))
            elif not is_id(kinds[name].value_type if is_list(kinds[name]) else kinds[name]):
                faults.append(Fault(source, 0, 0, name, f"holds {kinds[name]}; {NO_IDS}"))
        if faults:
            raise InputError(faults)
        return self.columns

    def is_list(self, feature: str) -> bool:
        """Whether a feature is a column of lists."""
        return is_list(self._schema.field(feature).type)

    def is_whole(self, feature: str) -> bool:
        """Whether the ids of a feature are whole numbers."""
        return is_whole(_id_kind(self._schema.field(feature).type))

    @property
    def left_out(self) -> tuple[str, ...]:
        """Columns that are no features."""
        return tuple(name for name in self._schema.names if name not in self.features)

    @cached_property
    def fingerprint(self) -> str:
        """What tells whether the data is still the same."""
        return fingerprint_of(self.files, "parquet", self.features)

    @cached_property
    def _row_groups(self) -> list[RowGroup]:
        groups = []
        faults = []
        for path in self.files:
            with _opened(path) as file:
                missing = [name for name in self.features if name not in file.schema_arrow.names]
                if missing:
                    faults.append(Fault(str(path), 0, 0, missing[0], f"lacks {_columns(missing)} of {self.files[0]}"))
                    continue
                if self.columns is None and (more := sorted({*_lists_of_ids(file.schema_arrow)} - {*self.features})):
                    message = f"has {_columns(more)}, and {self.files[0]} has not: write them alike, or name --columns"
                    faults.append(Fault(str(path), 0, 0, more[0], message))
                    continue
                kinds = {name: _id_kind(file.schema_arrow.field(name).type) for name in self.features}
                if others := [name for name in self.features if is_whole(kinds[name]) != self.is_whole(name)]:
                    message = (
                        f"holds {kinds[others[0]]}, and {self.files[0]} holds another kind of ids: write them alike"
                    )
                    faults.append(Fault(str(path), 0, 0, others[0], message))
                    continue
                # Not what a column holds: of damaged files the library ends the process when it is asked for that.
                sizes = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
            groups += [RowGroup(path, number, samples) for number, samples in enumerate(sizes)]
        if faults:
            raise InputError(faults)
        return groups

    def tasks(self) -> Sequence[Task]:
        """Each column of each row group."""
        return [
            Task(chunk, (name,), float(group.samples))
            for chunk, group in enumerate(self._row_groups)
            for name in self.features
        ]

    def read(self, task: Task) -> Iterator[tuple[str, Lists]]:
        """The ids of a task in pieces. Raises InputError."""
        for name in task.features:
            for lists in self.scalars(name, task.chunk):
                yield name, lists

    def scalars(self, column: str, chunk: int) -> Iterator[Lists]:
        """A column in pieces. Raises InputError."""
        import pyarrow

        group = self._row_groups[chunk]
        try:
            with _opened(group.file) as file:
                if column not in file.schema_arrow.names:
                    message = f"there is no such column{did_you_mean(column, file.schema_arrow.names)}"
                    raise InputError.at(str(group.file), message, path=column)
                for piece in file.iter_batches(PIECE, row_groups=[group.number], columns=[column], use_threads=False):
                    yield lists_of(piece.column(0))
        except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:  # its own words may be no text
            cause = " ".join(str(error).split())
            message = f"cannot be read in its row group {group.number}: {cause}"
            raise InputError.at(str(group.file), message, path=column) from None


def _lists_of_ids(schema: Any) -> tuple[str, ...]:
    fields = ((name, schema.field(name).type) for name in schema.names)
    return tuple(name for name, kind in fields if is_list(kind) and is_id(kind.value_type))


def _id_kind(kind: Any) -> Any:
    return kind.value_type if is_list(kind) else kind


def _columns(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return f"the column {shown}" if len(names) == 1 else f"{counted(len(names), 'column')} ({shown}, …)"


def _opened(path: Path) -> Any:
    import pyarrow
    from pyarrow import parquet

    try:
        return parquet.ParquetFile(path, memory_map=True, pre_buffer=False)
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:  # its own words may be no text
        cause = " ".join(str(error).split())
        raise InputError.at(str(path), f"is not a whole Parquet file: {cause}") from None
