"""Affinities of tables in a CSV file beside the workload that names it."""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from topologies.documents import Document, Key, Position
from topologies.errors import Fault
from topologies.sources import is_file, note

COLUMNS = ["table", "other", "affinity"]


def enter_affinities(document: Document) -> list[Fault]:
    """Put the pairs of the file that a workload's `towers.affinity` names, if it does, in the place of its name; or say
    what is wrong with it."""
    towers: Any = document.data.get("towers") if isinstance(document.data, dict) else None
    name = towers.get("affinity") if isinstance(towers, dict) else None
    if not isinstance(name, str):
        return []
    path = (document.directory or Path()) / name
    if not is_file(path):
        missing = f"there is no file {path}; write a list of [table, other, affinity] or the name of a CSV file"
        return [document.fault(("towers", "affinity"), missing)]
    try:
        text = note(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        return [Fault(str(path), 0, 0, "", f"cannot be read: {error}")]
    rows = csv.reader(io.StringIO(text, newline=""))
    header = [cell.strip() for cell in next(rows, [])]
    if header != COLUMNS:
        return [Fault(str(path), 1, 1, "", f"the header must be {','.join(COLUMNS)}, not {','.join(header)}")]
    faults: list[Fault] = []
    pairs: list[list[object]] = []
    lines: list[int] = []
    for row in rows:
        cells: list[object] = [cell.strip() for cell in row]
        if not cells:
            continue
        if len(cells) != len(COLUMNS):
            faults.append(Fault(str(path), rows.line_num, 1, "", f"has {len(cells)} cells, the header {len(COLUMNS)}"))
        elif not _is_number(row[2]):
            faults.append(Fault(str(path), rows.line_num, 1, "affinity", f"{cells[2]!r} is not a number"))
        else:
            pairs.append([*cells[:2], float(row[2])])
            lines.append(rows.line_num)

    def locate(where: Sequence[Key]) -> Position | None:
        return (lines[where[0]], 1) if where and isinstance(where[0], int) else None

    towers["affinity"] = pairs
    document.include(("towers", "affinity"), Document(pairs, str(path), locate))
    return faults


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
