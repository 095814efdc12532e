"""Table profiles from a CSV, Parquet, YAML or JSON file, under our column names and with positions."""

import csv
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cost_models.workload.dialects import TABLE_SET_NOTES, is_table_set, other_names, translate
from cost_models.workload.table_profile import TableProfile
from topologies.documents import Document, Key, Position, did_you_mean, read_yaml
from topologies.errors import Fault, InputError
from topologies.sentences import counted
from topologies.sources import note

DELIMITERS = {".csv": ",", ".tsv": "\t"}
PARQUET = frozenset({".parquet", ".pq"})
YAML = frozenset({".yaml", ".yml", ".json"})
PROFILE_COLUMNS = {own: tuple(other_names(own)) for own in TableProfile.model_fields}
"""The columns of table profiles, each with its other names."""
SUFFIXES = (*DELIMITERS, *sorted(PARQUET), *sorted(YAML))


def read_profiles(path: str | Path) -> Document:
    """The tables of a file as a list of mappings under our column names, with their positions.

    A CSV file has a header; an empty cell is unset; `features` holds a count or names joined by `|`;
    `access_cdf` is written `0.01:0.5|0.1:0.9|1:1`. A YAML or JSON file holds a list of mappings, or a
    mapping with the key `tables` (published table sets carry more keys, which say nothing about the
    tables). Values are checked later, by the models.

    Raises InputError with everything that is wrong with the form of the file.
    """
    document, faults = collect_profiles(Path(path))
    if faults:
        raise InputError(faults)
    return document


def collect_profiles(path: Path, required: Sequence[str] | None = None) -> tuple[Document, list[Fault]]:
    """`read_profiles`, but faults after which the rest of the file can still be checked are given back.

    `required` are the columns that must be there; unset: those without which a profile says nothing.
    """
    suffix = path.suffix.lower()
    needed = _required() if required is None else required
    if suffix in DELIMITERS:
        return _read_csv(path, DELIMITERS[suffix], needed, PROFILE_COLUMNS)
    if suffix in PARQUET:
        return _read_parquet(path, needed), []
    if suffix in YAML:
        return profiles_of(read_yaml(path))
    raise InputError.at(str(path), f"is no kind of file that is known here; known are {', '.join(SUFFIXES)}")


def profiles_of(document: Document) -> tuple[Document, list[Fault]]:
    """The profiles of a YAML document that is a list of tables, or a mapping that holds one."""
    ignored = TABLE_SET_NOTES if is_table_set(document.data) else frozenset[str]()
    faults: list[Fault] = []
    if isinstance(document.data, dict):
        if "tables" not in document.data:
            raise InputError.at(document.source, "holds neither a list of tables nor the key 'tables'")
        if not is_table_set(document.data):
            message = "has no place in a file of table profiles, which holds only tables"
            faults = [document.fault((key,), message) for key in document.data if key != "tables"]
        _enter_tables(document)
    if not isinstance(document.data, list):
        raise InputError.at(document.source, "must hold a list of tables")
    return document, faults + translate(document, (), ignored)


def _enter_tables(document: Document) -> None:
    located = document.locate
    document.locate = lambda path: located(("tables", *path))
    document.data = document.data["tables"]


def read_csv(path: Path, columns: Sequence[str]) -> tuple[Document, list[Fault]]:
    """The rows of a CSV file with exactly these columns, as `collect_profiles` gives those of table profiles."""
    return _read_csv(path, DELIMITERS.get(path.suffix.lower(), ","), columns, dict.fromkeys(columns, ()))


def _read_csv(
    path: Path, delimiter: str, required: Sequence[str], known: Mapping[str, Sequence[str]]
) -> tuple[Document, list[Fault]]:
    source = str(path)
    lines = csv_lines(path)
    cells = csv_records(lines, delimiter, source)
    if not cells:
        raise InputError.at(source, f"is empty; its first line names the columns {', '.join(required)}, …")
    (header_line, header), *rows = cells
    if other := other_delimiter(header, delimiter):
        message = f"the fields are separated by {other!r}; separate them by {delimiter!r}"
        raise InputError.at(source, message, line=header_line, column=1)
    positions = field_positions(lines, delimiter, header_line, len(header))
    columns = _columns(header, source, positions, required, known)
    if not rows:
        raise InputError.at(source, "has no rows below its header", line=header_line, column=1)
    faults, records, starts = [], [], []
    for line, row in rows:
        if len(row) != len(columns):
            message = f"{counted(len(row), 'field')} where the header has {len(columns)}"
            message += f"; put text that holds {delimiter!r} in quotes" if len(row) > len(columns) else ""
            faults.append(Fault(source, line, 1, "", message))
            continue
        filled = zip(columns, map(str.strip, row), strict=True)
        records.append({column: value for column, value in filled if value})
        starts.append(line)

    def locate(where: Sequence[Key]) -> Position | None:
        if not where or not isinstance(where[0], int):
            return None
        start = starts[where[0]]
        known = len(where) > 1 and where[1] in columns
        return field_position(lines, delimiter, start, columns.index(str(where[1]))) if known else (start, 1)

    return Document(records, source, locate), faults


def csv_lines(path: Path) -> list[str]:
    """The lines of a CSV file, each with its end. Raises InputError for a file that cannot be read, or is no text."""
    try:
        text = note(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError.at(str(path), f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError.at(str(path), "is not UTF-8 text; save it as UTF-8") from None
    return list(io.StringIO(text if text.endswith("\n") else f"{text}\n", newline=""))


def other_delimiter(header: Sequence[str], delimiter: str) -> str | None:
    """What separates the fields of a header that was read as one field; None where that is not the matter."""
    if len(header) != 1:
        return None
    return next((sign for sign in ";\t|," if sign != delimiter and sign in header[0]), None)


def csv_records(lines: list[str], delimiter: str, source: str) -> list[tuple[int, list[str]]]:
    """The line in which each record starts, and its fields; blank lines are left out."""
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    records = []
    start = 1
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                records.append((start, row))
            start = reader.line_num + 1
    except csv.Error as error:
        raise InputError.at(source, f"is not valid CSV: {error}", line=start, column=1) from None
    return records


def field_position(lines: list[str], delimiter: str, start: int, ordinal: int) -> Position:
    """Where the field `ordinal` (from 0) begins of the record that starts in line `start` (from 1)."""
    return field_positions(lines, delimiter, start, ordinal + 1)[ordinal]


def field_positions(lines: list[str], delimiter: str, start: int, count: int) -> list[Position]:
    """Where the first `count` fields begin of the record that starts in line `start` (from 1).

    The start of the record stands for those that are not found, as where a quote is no field's first character.
    """
    found = list(itertools.islice(_field_starts(lines, delimiter, start), count))
    return found + [(start, 1)] * (count - len(found))


def _field_starts(lines: list[str], delimiter: str, start: int) -> Iterator[Position]:
    yield start, 1
    marks, quoted = re.compile(f'["{re.escape(delimiter)}]'), False
    for number in range(start, len(lines) + 1):
        for mark in marks.finditer(lines[number - 1]):
            if mark[0] == '"':
                quoted = not quoted
            elif not quoted:
                yield number, mark.end() + 1


def _read_parquet(path: Path, required: Sequence[str]) -> Document:
    import pyarrow
    from pyarrow import parquet

    source = str(path)
    try:
        table = parquet.ParquetFile(note(path)).read()
        table.validate(full=True)  # text that is no UTF-8
    except OSError as error:
        cause = error.strerror or " ".join(str(error).split())
        raise InputError.at(source, f"cannot be read: {cause}") from None
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:  # its own words may be no text
        cause = " ".join(str(error).split())
        raise InputError.at(source, f"is not a whole Parquet file: {cause}") from None
    table = table.drop_columns([name for name in table.column_names if name.startswith("__index_level_")])
    columns = _columns(table.column_names, source, [(0, 0)] * table.num_columns, required, PROFILE_COLUMNS)
    if not table.num_rows:
        raise InputError.at(source, "holds no tables")
    rows = table.rename_columns(columns).to_pylist()
    records = [{key: value for key, value in row.items() if value is not None} for row in rows]
    return Document(records, source)


def _columns(
    header: Sequence[str],
    source: str,
    positions: Sequence[Position],
    required: Sequence[str],
    known: Mapping[str, Sequence[str]],
) -> list[str]:
    """Our names of the columns, of those that are `known` with other names of theirs.

    Raises InputError with every column that is unknown, given twice or missing.
    """
    faults: list[Fault] = []
    columns: list[str] = []
    own_names = {other: own for own, others in known.items() for other in (own, *others)}
    missing = {own for own in required if own not in {own_names.get(word.strip()) for word in header}}
    for (line, column), spelled in zip(positions, map(str.strip, header), strict=True):
        own = own_names.get(spelled, spelled)
        if not spelled:
            faults.append(Fault(source, line, column, "", "a column has no name (an index?); leave it out"))
        elif own not in known:
            hint = did_you_mean(spelled, missing)
            hint = hint if hint.startswith("; did") else did_you_mean(spelled, list(own_names))
            faults.append(Fault(source, line, column, spelled, f"unknown column{hint}"))
        elif own in columns:
            faults.append(Fault(source, line, column, spelled, f"{own} is given twice; keep one column"))
        columns.append(own)
    line, column = positions[0] if positions else (0, 0)
    faults += [
        Fault(source, line, column, own, f"the column is missing{_also_read(known[own])}")
        for own in required
        if own not in columns
    ]
    if faults:
        raise InputError(faults)
    return columns


def _also_read(names: Sequence[str]) -> str:
    return f" (also read: {', '.join(names)})" if names else ""


def _required() -> list[str]:
    return [name for name, kind in TableProfile.model_fields.items() if kind.is_required()]


def duplicate_names(document: Document, at: tuple[Key, ...], tables: Iterable[Any]) -> list[Fault]:
    """A fault for each table, in the list at the path `at`, whose name an earlier one has."""
    first: dict[str, int] = {}
    faults = []
    for index, table in enumerate(tables):
        name = table.get("name") if isinstance(table, dict) else None
        if not isinstance(name, str):
            continue
        if name in first:
            message = f"the name {name!r} stands twice, first at table {first[name]}; names must differ"
            faults.append(document.fault((*at, index, "name"), message))
        first.setdefault(name, index)
    return faults
