"""Text files of samples: CSV with a header, and Criteo's logs. Each file, or part of a large one, is a chunk."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from planner.profiling.lists import Lists
from planner.profiling.sources.cells import lists_in, refuse_what_is_no_id
from planner.profiling.sources.columns import lists_of
from planner.profiling.sources.files import BUFFER_BYTES, COMPRESSED, UNREADABLE, fingerprint_of, opened
from planner.profiling.sources.source import Task
from topologies.documents import did_you_mean
from topologies.errors import Fault, InputError

PART_BYTES = 64 << 20
PIECE_BYTES = BUFFER_BYTES
LONGEST_LINE = 1 << 20
CRITEO = ("label", *(f"I{k}" for k in range(1, 14)), *(f"C{k}" for k in range(1, 27)))
"""Columns of Criteo's logs (Kaggle display advertising challenge, Terabyte click logs), which have no header."""


@dataclass(frozen=True)
class Part:
    """A chunk: the lines that begin in a range of bytes."""

    file: Path
    start: int
    end: int


@dataclass(frozen=True)
class TextSource:
    """Samples of text files, a line each."""

    files: tuple[Path, ...]
    columns: tuple[str, ...]
    """The features."""
    header: tuple[str, ...] | None
    """The columns of files without a header line. Unset: every file begins with one."""
    delimiter: str
    list_delimiter: str | None
    """What separates the ids of a list. Unset: a cell is one id."""
    words: tuple[str, ...] = ()
    """Features whose ids are words even where all of them look like numbers."""

    batch = None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns of the files. Raises InputError where their headers differ."""
        if self.header is not None:
            return self.header
        headers = {file: self._header_of(file) for file in self.files}
        first = headers[self.files[0]]
        for file, header in headers.items():
            if header != first:
                message = f"has other columns than {self.files[0]}; profile them apart"
                raise InputError.at(str(file), message, line=1, column=1)
        return first

    def _header_of(self, file: Path) -> tuple[str, ...]:
        return tuple(name.strip().strip('"') for name in first_line(file).split(self.delimiter))

    @cached_property
    def features(self) -> tuple[str, ...]:
        """The features. Raises InputError for columns that are not there."""
        faults = [
            Fault(str(self.files[0]), 1, 1, name, f"there is no such column{did_you_mean(name, list(self.names))}")
            for name in self.columns
            if name not in self.names
        ]
        if faults:
            raise InputError(faults)
        return self.columns

    @property
    def left_out(self) -> tuple[str, ...]:
        """Columns that are no features."""
        return tuple(name for name in self.names if name not in self.features)

    @cached_property
    def fingerprint(self) -> str:
        """What tells whether the data is still the same."""
        return fingerprint_of(self.files, self.features, self.header, self.delimiter, self.list_delimiter)

    @cached_property
    def _parts(self) -> list[Part]:
        parts = []
        for file in self.files:
            size = file.stat().st_size
            step = size if file.suffix in COMPRESSED else PART_BYTES
            parts += [Part(file, start, min(start + step, size)) for start in range(0, size, max(step, 1))]
        return parts

    def tasks(self) -> Sequence[Task]:
        """Each part of each file, with all of its features."""
        return [Task(chunk, self.features, float(part.end - part.start)) for chunk, part in enumerate(self._parts)]

    def read(self, task: Task) -> Iterator[tuple[str, Lists]]:
        """The ids of a task in pieces. Raises InputError."""
        import pyarrow as pa

        for piece in self._pieces(self._parts[task.chunk], task.features):
            for name in task.features:
                try:
                    yield name, lists_of(self._cells(piece.column(name), as_words=name in self._of_words))
                except pa.ArrowInvalid as error:
                    message = f"{error}, and it begins with whole numbers; name it with --words"
                    raise InputError.at(str(self._parts[task.chunk].file), message, path=name) from None

    def scalars(self, column: str, chunk: int) -> Iterator[Lists]:
        """A column in pieces. Raises InputError."""
        if column not in self.names:
            message = f"there is no such column{did_you_mean(column, list(self.names))}"
            raise InputError.at(str(self.files[0]), message, path=column)
        for piece in self._pieces(self._parts[chunk], (column,)):
            yield lists_of(piece.column(column))

    @cached_property
    def _of_words(self) -> frozenset[str]:
        """Features whose ids are words, as the first lines show; those of Criteo's logs are. Raises InputError."""
        import pyarrow as pa

        if self.header is CRITEO or not self._parts:
            return frozenset(self.features)
        found = set(self.words)
        for piece in self._pieces(self._parts[0], self.features):
            for name in self.features:
                try:
                    self._cells(piece.column(name), as_words=False)
                except pa.ArrowInvalid:
                    if name not in self.words:
                        cells = self._cells(piece.column(name), as_words=True)
                        refuse_what_is_no_id(cells, name, str(self._parts[0].file))
                    found.add(name)
            break
        return frozenset(found)

    def _cells(self, column: Any, *, as_words: bool) -> Any:
        """Cells as lists or single ids. Raises ArrowInvalid for words that are no whole numbers."""
        import pyarrow as pa
        import pyarrow.compute as pc

        cells = column.combine_chunks()
        if self.list_delimiter is None:
            return cells if as_words else pc.cast(cells, pa.int64())
        lists = lists_in(cells, self.list_delimiter)
        return lists if as_words else pc.cast(lists, pa.list_(pa.int64()))

    def _pieces(self, part: Part, columns: tuple[str, ...]) -> Iterator[Any]:
        import pyarrow as pa
        from pyarrow import csv

        read = csv.ReadOptions(column_names=list(self.names), block_size=PIECE_BYTES, use_threads=False)
        parse = csv.ParseOptions(
            delimiter=self.delimiter,
            quote_char=False if self.header else '"',
            ignore_empty_lines=len(self.names) > 1,  # of one column they are samples without ids
        )
        convert = csv.ConvertOptions(
            include_columns=list(dict.fromkeys(columns)),
            column_types={name: pa.string() for name in columns},
            strings_can_be_null=True,
            null_values=[""],
        )
        for lines in self._blocks(part):
            try:
                yield csv.read_csv(
                    pa.BufferReader(lines), read_options=read, parse_options=parse, convert_options=convert
                )
            except pa.ArrowException as error:
                cause = " ".join(str(error).split())
                message = f"cannot be read between its bytes {part.start:,} and {part.end:,}: {cause}"
                raise InputError.at(str(part.file), message) from None

    def _blocks(self, part: Part) -> Iterator[bytes]:
        """Whole lines of a part, without the header; a line belongs to the part in which it begins."""
        try:
            with opened(part.file) as stream:
                if part.file.suffix not in COMPRESSED:
                    if part.start:
                        stream.seek(part.start - 1)
                        stream.readline()
                    left = part.end - stream.tell()
                else:
                    left = None
                if part.start == 0 and self.header is None:
                    left = None if left is None else left - len(stream.readline())
                    if part.file.suffix in COMPRESSED:
                        stream.readline()
                while left is None or left > 0:
                    block = stream.read(PIECE_BYTES if left is None else min(PIECE_BYTES, left))
                    if not block:
                        return
                    block += stream.readline() if not block.endswith(b"\n") else b""
                    left = None if left is None else left - len(block)
                    yield block
        except UNREADABLE as error:
            raise InputError.at(str(part.file), f"cannot be read: {error}") from None


def first_line(file: Path) -> str:
    """The first line of a text file, compressed or not. Raises InputError."""
    try:
        with opened(file) as stream:
            return stream.readline(LONGEST_LINE).decode("utf-8-sig", "replace").strip("\r\n")
    except UNREADABLE as error:
        raise InputError.at(str(file), f"cannot be read: {error}") from None
