"""What goes where: data (table, JSON or CSV) to stdout, talk to stderr; colour and bars only on terminals."""

import csv
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

Cell = str | int | float | None
Record = Mapping[str, Cell]

PIPE_WIDTH = 80
"""Columns of a table that is not printed on a terminal."""


def ready() -> None:
    """Make both streams safe to write to, whatever the shell did with them.

    What goes to a stream that is closed (`>&-`) is dropped, and a character that the encoding of stdout lacks is
    written as its escape, as on stderr.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - for good
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


class Format(StrEnum):
    """How stdout is written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def is_lively(stream: TextIO) -> bool:
    """Whether colour and bars are wanted: on a terminal, unless NO_COLOR is set."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def console(stream: TextIO | None = None) -> "Console":
    """A rich console on `stream` (stdout), plain and 80 columns wide where it is not a terminal.

    A terminal narrower than that wraps lines itself: numbers are never cut.
    """
    from rich.console import Console

    class Unhurt(Console):
        """A console that leaves a reader who has gone (`head`) to the boundary of the command."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    file = stream or sys.stdout
    lively = is_lively(file)
    printer = Unhurt(
        file=file,
        width=None if file.isatty() else PIPE_WIDTH,
        color_system="auto" if lively else None,
        force_terminal=lively,
        highlight=False,
        markup=False,
        emoji=False,
    )
    if stream is None:
        printer.width = max(printer.width, PIPE_WIDTH)
    return printer


def say(message: str) -> None:
    """Tell the user something: one line on stderr. Nobody needs to listen: the work goes on where stderr is closed."""
    with suppress(OSError):
        print(message, file=sys.stderr)


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[Callable[[str], None] | None]:
    """What a long computation calls with the name of each step that it begins.

    A spinner on a terminal, a line per step on any other stderr, None when `quiet`.
    """
    if quiet:
        yield None
    elif is_lively(sys.stderr):
        with console(sys.stderr).status("starting") as status:
            yield status.update
    else:
        yield say


def write_json(data: object) -> None:
    """Print a JSON document."""
    print(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))


def write_csv(records: Sequence[Record]) -> None:
    """Print records as CSV with a header line; None is an empty field."""
    if records:
        writer = csv.DictWriter(sys.stdout, fieldnames=list(records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)


def write_frame(frame: "pd.DataFrame") -> None:
    """Print a data frame as CSV with a header line; what is missing is an empty field."""
    frame.to_csv(sys.stdout, index=False, lineterminator="\n")


def write_records(
    records: Sequence[Record], output: Format, *, formats: Mapping[str, Callable[[float], str]] | None = None
) -> None:
    """Print records of one shape as `output` says.

    A table shows numbers through `formats` (by field name), and None as "unknown".
    """
    if output is Format.JSON:
        write_json([dict(record) for record in records])
    elif output is Format.CSV:
        write_csv(records)
    elif records:
        _write_table(records, formats or {})


def _write_table(records: Sequence[Record], formats: Mapping[str, Callable[[float], str]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in records[0]:
        is_text = any(isinstance(record[name], str) for record in records)
        table.add_column(
            name.removesuffix("_bytes").replace("_", " "),
            justify="left" if is_text else "right",
            overflow="fold",
        )
    for record in records:
        table.add_row(*(_shown(value, formats.get(name)) for name, value in record.items()))
    printer = console()
    with printer.capture() as captured:
        printer.print(table)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def _shown(value: Cell, formatted: Callable[[float], str] | None) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, str):
        return value
    return formatted(value) if formatted else f"{value:,}"
