"""What goes where: data (table, JSON or CSV) to stdout, talk to stderr; colour and bars only on terminals."""

import io
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from planner.cli import activity
from topologies.errors import printable
from topologies.sentences import counted

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

Cell = str | int | float | None
Record = Mapping[str, Cell]

LINE_EVERY_S = 5.0
PIPE_WIDTH = 80
"""Columns of text that is not printed on a terminal."""
MARKDOWN_WIDTH = 10_000
"""Columns of Markdown, which is folded where it is shown."""
MOST_DIGITS = 9
"""Of a terminal's columns or lines."""


def ready() -> None:
    """Make both streams safe to write to, whatever the shell did with them.

    What goes to a stream that is closed (`>&-`) is dropped, and a character that the encoding of stdout lacks is
    written as its escape, as on stderr. COLUMNS and LINES of more than nine digits, which rich does not take, count as
    not set.
    """
    for name in ("COLUMNS", "LINES"):
        if len(os.environ.get(name, "")) > MOST_DIGITS:
            del os.environ[name]
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
    MARKDOWN = "markdown"

    @property
    def is_text(self) -> bool:
        """Whether people read it: tables with words beside them."""
        return self in (Format.TABLE, Format.MARKDOWN)


def is_lively(stream: TextIO) -> bool:
    """Whether colour and bars are wanted: on a terminal, unless NO_COLOR is set."""
    return stream.isatty() and not os.environ.get("NO_COLOR")


def width(stream: TextIO) -> int:
    """Columns of text on `stream`: those that COLUMNS says, or that a terminal has; 80 of anything else."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and len(columns) <= MOST_DIGITS and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or PIPE_WIDTH
    except (OSError, ValueError):
        return PIPE_WIDTH


class _Trimmed:
    """A stream on which no line ends in blanks: where rich folds a text, or sets it in, it fills the line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(re.sub(r" +(?=\n)", "", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def console(stream: TextIO | None = None, output: Format = Format.TABLE) -> "Console":
    """A rich console on `stream` (stdout), plain where it is not a terminal.

    Text is folded to its `width`; a line that is longer all the same is never cut. Of names that are printed, hidden
    characters are shown as escapes. As Markdown, tables are those of GitHub, and text has no other markup.
    """
    from rich.console import Console
    from rich.text import Text

    from planner.reports import markdown
    from planner.reports.tables import TextGrid

    class Careful(Console):
        """A console that cuts nothing, is steered by no name, and leaves a broken pipe to the boundary of a command."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

        def print(self, *objects: object, **how: Any) -> None:
            if output is Format.MARKDOWN:
                objects = tuple(_grid(each) if isinstance(each, TextGrid) else each for each in objects)
            super().print(*objects, **{"crop": False, **how})

        def render_str(self, text: str, **how: Any) -> Text:
            shown = markdown.text(text) if output is Format.MARKDOWN else printable(text, keep="\n")
            return super().render_str(shown, **how)

    def _grid(grid: TextGrid) -> Text:
        return Text(markdown.table(grid), no_wrap=True, overflow="ignore")

    if stream is None:
        activity.hide()
    file = stream or sys.stdout
    lively = is_lively(file)
    return Careful(
        file=file if lively else cast("TextIO", _Trimmed(file)),
        width=MARKDOWN_WIDTH if output is Format.MARKDOWN else width(file),
        color_system="auto" if lively else None,
        force_terminal=lively,
        highlight=False,
        markup=False,
        emoji=False,
    )


def say(message: str) -> None:
    """Tell the user something: one line on stderr. Nobody needs to listen: the work goes on where stderr is closed."""
    with suppress(OSError):
        print(printable(message, keep="\n"), file=sys.stderr)


def activity_console(*, quiet: bool) -> "Console | None":
    """Where the line is shown that says what a command does: a terminal, unless `quiet`."""
    return None if quiet or not is_lively(sys.stderr) else console(sys.stderr)


def is_watched() -> bool:
    """Whether a line on a terminal says what the command does."""
    return activity.is_shown()


def doing(words: str, limit: str | None = None) -> None:
    """Say on a terminal what begins, and until when at most; elsewhere nothing."""
    activity.now(printable(words), limit)


@contextmanager
def progress(*, quiet: bool = False, limit: str = "") -> Iterator[Callable[[str], None] | None]:
    """What a long computation calls with the name of each step that it begins.

    Shown with the time on a terminal, a line per step on any other stderr, None when `quiet`.
    """
    doing("starting", limit)
    if quiet:
        yield None
    else:
        yield lambda words: None if activity.now(printable(words)) else say(words)


@contextmanager
def bar(total: int, *, quiet: bool = False) -> Iterator[Callable[[int, int], None]]:
    """What a long run calls with how many parts are done, and how many of them failed.

    A bar with the time so far and that left on a terminal; a line now and then on any other stderr; nothing when
    `quiet`.
    """
    if quiet:
        yield lambda _done, _failed: None
    elif is_lively(sys.stderr):
        from rich import progress as rich

        activity.hide()
        columns = (rich.BarColumn(), rich.MofNCompleteColumn(), rich.TextColumn("{task.fields[failed]}"))
        times = (rich.TimeElapsedColumn(), rich.TimeRemainingColumn())
        screen = console(sys.stderr)
        with rich.Progress(*columns, *times, console=screen, transient=True, redirect_stdout=False) as shown:
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
        say(f"{done:,} of {counted(self._total, 'point')}{more}, about {left_s:,.0f} s left")


def write_text(text: str) -> None:
    """Print text, hidden characters as their escapes."""
    activity.hide()
    print(printable(text, keep="\n"))


def write_json(data: object) -> None:
    """Print a JSON document."""
    print_json(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))


def print_json(text: str) -> None:
    """Print the text of a JSON document, its hidden characters as JSON's own escapes: the same data."""
    activity.hide()
    print(re.sub(r"[^ -~\n]", _json_escape, text.rstrip("\n")))


def _json_escape(match: re.Match[str]) -> str:
    character = match[0]
    return character if printable(character) == character else json.dumps(character)[1:-1]


def write_csv(records: Sequence[Record], columns: Sequence[str] = ()) -> None:
    """Print records as CSV with a header line, of no records with that of `columns`; None is an empty field."""
    from planner.document import spreadsheets

    activity.hide()
    print(spreadsheets.of_records(records, columns), end="")


def write_frame(frame: "pd.DataFrame") -> None:
    """Print a data frame as CSV with a header line; what is missing is an empty field."""
    from planner.document import spreadsheets

    activity.hide()
    print(spreadsheets.of_frame(frame), end="")


def write_records(
    records: Sequence[Record],
    output: Format,
    *,
    formats: Mapping[str, Callable[[float], str]] | None = None,
    columns: Sequence[str] = (),
) -> None:
    """Print records of one shape as `output` says.

    A table shows numbers through `formats` (by field name), and None as "unknown". `columns` are the header of CSV
    where there are no records, so that every reader can open it.
    """
    if output is Format.JSON:
        write_json([dict(record) for record in records])
    elif output is Format.CSV:
        write_csv(records, columns)
    elif records:
        _write_table(records, formats or {}, output)


def _write_table(records: Sequence[Record], formats: Mapping[str, Callable[[float], str]], output: Format) -> None:
    from planner.reports.tables import TextGrid

    sides = {
        name: "left" if any(isinstance(record[name], str) for record in records) else "right" for name in records[0]
    }
    table = TextGrid(*((name.removesuffix("_bytes").replace("_", " "), side) for name, side in sides.items()))
    for record in records:
        table.add_row(*(_shown(value, formats.get(name)) for name, value in record.items()))
    console(output=output).print(table)


def _shown(value: Cell, formatted: Callable[[float], str] | None) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, str):
        return value
    return formatted(value) if formatted else f"{value:,}"
