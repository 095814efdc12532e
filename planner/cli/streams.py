"""What goes where: data (table, JSON or CSV) to stdout, talk to stderr; colour and bars only on terminals."""

import csv
import io
import json
import os
import sys
import time
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

LINE_EVERY_S = 5.0
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


@contextmanager
def bar(total: int, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """What a long run calls with how many parts are done, and how many of them failed.

    A bar with the time left on a terminal; a line now and then on any other stderr; nothing when `quiet`.
    """
    if quiet:
        yield lambda _done, _failed: None
    elif is_lively(sys.stderr):
        from rich import progress as rich

        columns = (rich.BarColumn(), rich.MofNCompleteColumn(), rich.TextColumn("{task.fields[failed]}"))
        with rich.Progress(*columns, rich.TimeRemainingColumn(), console=console(sys.stderr), transient=True) as shown:
            task = shown.add_task("", total=total, failed="")
            yield lambda done, failed: shown.update(task, completed=done, failed=_failures(failed))
    else:
        yield _Lines(total)


def _failures(count: int) -> str:
    return f"{count:,} failed" if count else ""


class _Lines:
    """Says how far a run is: a line every few seconds."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._began = self._said = time.monotonic()

    def __call__(self, done: int, failed: int) -> None:
        now = time.monotonic()
        if now - self._said < LINE_EVERY_S:
            return
        self._said = now
        left_s = (now - self._began) / done * (self._total - done)
        more = f", {_failures(failed)}" if failed else ""
        say(f"{done:,} of {self._total:,} points{more}, about {left_s:,.0f} s left")


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
