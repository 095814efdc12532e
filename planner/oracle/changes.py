"""Candidates from a CSV file: one a line, a column for each field that changes."""

from pathlib import Path

from cost_models.workload.profiles import DELIMITERS, csv_lines, csv_records, field_position, other_delimiter
from planner.oracle.candidates import NAME, Place
from topologies.errors import Fault, InputError
from topologies.sentences import counted


def read_changes(path: Path) -> tuple[dict[str, list[str | None]], Place]:
    """The columns of a file by their names, an empty cell as None, and where each cell stands.

    Raises InputError with every line that has other fields than the header, and for a file that is none.
    """
    source, delimiter = str(path), DELIMITERS.get(path.suffix.lower())
    if delimiter is None:
        raise InputError.at(source, f"is no file of candidates; these are {' and '.join(DELIMITERS)} files")
    lines = csv_lines(path)
    records = csv_records(lines, delimiter, source)
    if not records:
        raise InputError.at(source, "is empty; its first line names the columns, as in name,cat_0.rows,dense.top_mlp")
    (first, header), *rows = records
    if other := other_delimiter(header, delimiter):
        message = f"the fields are separated by {other!r}; separate them by {delimiter!r}"
        raise InputError.at(source, message, line=first, column=1)
    names = [name.strip() for name in header]
    starts = [first, *(line for line, _ in rows)]

    def place(number: int, column: str) -> tuple[int, int]:
        start = starts[number + 1]
        return field_position(lines, delimiter, start, names.index(column)) if column in names else (start, 1)

    faults = [Fault(source, *place(-1, name), name, _why(name)) for n, name in enumerate(names) if name in names[:n]]
    faults += [Fault(source, *place(-1, name), name, _why(name)) for name in names if not name]
    for line, row in rows:
        if len(row) != len(names):
            message = f"{counted(len(row), 'field')} where the header has {len(names)}"
            faults.append(Fault(source, line, 1, "", message))
    if not rows:
        faults.append(Fault(source, first, 1, "", "has no candidates below its header"))
    if faults:
        raise InputError(faults)
    cells = zip(*(row for _, row in rows), strict=True)
    return {name: [cell.strip() or None for cell in of] for name, of in zip(names, cells, strict=True)}, place


def _why(name: str) -> str:
    return "the column is given twice; keep one" if name else f"a column has no name; call it {NAME} or TABLE.rows"
