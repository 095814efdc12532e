"""How often each row of a table was read, from a folder of files or from one Parquet file."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from cost_models.shards import Ints
from planner.document.remaps import Counts
from topologies.errors import InputError

TABLE, ID, ACCESSES = "table", "id", "accesses"
"""Columns of a Parquet file; `table` in one for all tables."""
SUFFIXES = (".npy", ".parquet")
LARGEST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class CountSource:
    """Counts of tables: a folder with a file for each, or a Parquet file with the columns table, id and accesses.

    In a folder, `<table>.npy` holds an integer for each id; `<table>.parquet` the columns id and accesses, or accesses
    alone in the order of the ids. Ids that are missing were not read, those that stand twice are summed. Characters of
    a name that a file may not have are written as in URLs (%2F).
    """

    path: Path

    @cached_property
    def names(self) -> list[str]:
        """The tables that there are counts of. Raises InputError for a place that is neither a folder nor Parquet."""
        if self.path.is_dir():
            return sorted(self._files)
        if self.path.suffix != ".parquet":
            message = "is neither a folder with a .npy or .parquet file for each table nor one .parquet file for all"
            raise InputError.at(str(self.path), message)
        listed: set[str] = set()
        with _reading(self.path) as file:
            try:
                _expect_columns(file.schema_arrow.names, (TABLE, ID, ACCESSES))
            except ValueError as error:
                raise InputError.at(str(self.path), str(error)) from None
            for batch in file.iter_batches(columns=[TABLE]):
                listed.update(map(str, batch.column(0).unique().to_pylist()))
        return sorted(listed)

    def of(self, name: str, rows: int) -> Counts:
        """[rows] how often each id of a table was read. Raises InputError for counts that it cannot have."""
        source = self._files.get(name, (self.path,)) if self.path.is_dir() else (self.path,)
        try:
            if len(source) > 1:
                raise ValueError(f"has counts in {' and '.join(file.name for file in source)}; keep one of them")
            if name not in self.names:
                raise ValueError("has no counts here; count its ids too, or plan with other tiers for it")
            file = source[0]
            counts = _array(file, rows) if file.suffix == ".npy" else self._columns(file, name, rows)
            return _expect_possible(counts, rows)
        except InputError:
            raise
        except ValueError as error:
            raise InputError.at(str(source[0]), str(error), path=name) from None

    @cached_property
    def _files(self) -> Mapping[str, tuple[Path, ...]]:
        """The files of each table of a folder."""
        files: dict[str, tuple[Path, ...]] = {}
        for file in sorted(self.path.iterdir()):
            if file.suffix in SUFFIXES:
                name = unquote(file.stem)
                files[name] = (*files.get(name, ()), file)
        return files

    def _columns(self, file: Path, name: str, rows: int) -> Ints:
        """The counts of a table out of a Parquet file."""
        from pyarrow import parquet

        of_table = None if self.path.is_dir() else [(TABLE, "==", name)]
        with _reading(file) as opened:
            columns = [column for column in (ID, ACCESSES) if column in opened.schema_arrow.names]
            _expect_columns(columns, (ACCESSES,) if of_table is None else (ID, ACCESSES))
            read = parquet.read_table(file, columns=columns, filters=of_table)
        column_of: dict[str, Ints] = {}
        for column in columns:
            column_of[column] = _integers(read.column(column).to_numpy(), column).astype(np.int64, copy=False)
        if ID not in column_of:
            return column_of[ACCESSES]
        outside = (column_of[ID] < 0) | (column_of[ID] >= rows)
        if outside.any():
            wrong = column_of[ID][outside][0]
            raise ValueError(f"counts the id {wrong}, and the table's ids are 0 to {rows - 1}; map ids to these first")
        counts = np.zeros(rows, dtype=np.int64)
        np.add.at(counts, column_of[ID], column_of[ACCESSES])
        return counts


@contextmanager
def _reading(file: Path) -> Iterator[Any]:
    """An open Parquet file. Raises InputError where it cannot be read."""
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(file) as opened:
            yield opened
    except OSError as error:
        raise InputError.at(str(file), f"cannot be read: {error.strerror or error}") from None
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:  # its own words may be no text
        raise InputError.at(str(file), f"is not a whole Parquet file: {' '.join(str(error).split())}") from None


def _expect_columns(columns: list[str], needed: tuple[str, ...]) -> None:
    missing = [name for name in needed if name not in columns]
    if missing:
        raise ValueError(f"lacks the column {' and '.join(missing)}; columns are {', '.join(needed)}")


def _array(file: Path, rows: int) -> Counts:
    """The counts of a .npy file; mapped into memory, not read."""
    try:
        array = np.load(file, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise InputError.at(str(file), f"cannot be read: {error.strerror}") from None
    except (ValueError, EOFError):
        raise ValueError("is not an array of numbers in a .npy file; write it with numpy.save") from None
    if array.ndim != 1:
        raise ValueError(f"holds an array of shape {array.shape}; it must be one count for each of {rows} ids")
    return _integers(array, "array")


def _integers(array: NDArray[Any], what: str) -> NDArray[Any]:
    if array.dtype.kind not in "iu":
        raise ValueError(f"holds {array.dtype} in its {what}; counts and ids are whole numbers, as int64, none missing")
    return array


def _expect_possible(counts: Counts, rows: int) -> Counts:
    if len(counts) != rows:
        raise ValueError(f"holds {len(counts)} counts and the table has {rows} rows; count the ids 0 to {rows - 1}")
    if (least := int(counts.min())) < 0:
        raise ValueError(f"holds the count {least}, of the id {int(counts.argmin())}; counts are 0 or more")
    if int(counts.max()) > LARGEST:
        raise ValueError(f"holds the count {int(counts.max())}; counts are at most {LARGEST}")
    if not counts.any():
        raise ValueError("says that no row was ever read; count the ids of more batches")
    return counts
