"""CSV that is safe to open in a spreadsheet or on a terminal, whatever the tables of others are called."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from topologies.errors import printable

if TYPE_CHECKING:
    import pandas as pd

FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""What a cell begins with that spreadsheets compute instead of show."""


def cell(value: object) -> object:
    """A value as its cell; text that would be a formula gets an apostrophe, which spreadsheets take for text.

    Hidden characters are written as their escapes. Numbers stay as they are.
    """
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if value.startswith(FORMULAS) else text


def of_records(records: Sequence[Mapping[str, object]], columns: Sequence[str] = ()) -> str:
    """Records of one shape with a header line; None is an empty cell. No records are the header `columns` alone, or no
    line at all."""
    if not records and not columns:
        return ""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([cell(name) for name in (records[0] if records else columns)])
    writer.writerows([cell(value) for value in record.values()] for record in records)
    return text.getvalue()


def of_frame(frame: "pd.DataFrame") -> str:
    """A data frame with a header line, without its index; what is missing is an empty cell."""
    texts = frame.select_dtypes(exclude=["number", "bool"]).columns
    safe = frame.assign(**{name: frame[name].map(cell) for name in texts}).rename(columns=cell)
    return str(safe.to_csv(index=False, lineterminator="\n"))
