"""stdout is data: the same records as a table, as JSON and as CSV; plain wherever it is no terminal."""

import csv
import io
import json

import pytest

from planner.cli import streams
from planner.cli.streams import Format

RECORDS = [
    {"name": "a, b", "bytes": 2048, "price": None},
    {"name": "a much longer name " * 6, "bytes": 1, "price": 1.5},
]


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_json_and_csv_hold_every_value(capsys):
    """Machine formats carry raw numbers, and nothing for what is unknown."""
    streams.write_records(RECORDS, Format.JSON)
    assert json.loads(capsys.readouterr().out) == RECORDS
    streams.write_records(RECORDS, Format.CSV)
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert rows[0] == {"name": "a, b", "bytes": "2048", "price": ""}


def test_a_piped_table_is_plain_and_80_columns_wide(capsys):
    """No colour, no line beyond 80 columns, "unknown" for what is unknown, numbers as people read them."""
    streams.write_records(RECORDS, Format.TABLE, formats={"bytes": lambda count: f"{count / 1024:.1f} KiB"})
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert "2.0 KiB" in shown
    assert "unknown" in shown


@pytest.mark.parametrize("output", list(Format))
def test_no_records_print_no_table(capsys, output):
    """An empty list is empty output, or an empty JSON list."""
    streams.write_records([], output)
    assert capsys.readouterr().out.strip() == ("[]" if output is Format.JSON else "")


def test_colour_only_on_a_terminal_without_no_color(monkeypatch):
    """NO_COLOR turns a terminal plain; a file is plain always."""
    monkeypatch.setenv("TERM", "xterm-256color")
    colourful = Terminal()
    streams.console(colourful).print("x", style="red")
    assert "\x1b[31m" in colourful.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    plain, file = Terminal(), io.StringIO()
    streams.console(plain).print("x", style="bold red")
    streams.console(file).print("x", style="bold red")
    assert plain.getvalue() == file.getvalue() == "x\n"


def test_a_narrow_terminal_does_not_cut_numbers(monkeypatch):
    """It wraps the lines itself."""
    monkeypatch.setenv("COLUMNS", "30")
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    assert streams.console().width == streams.PIPE_WIDTH


def test_progress_is_talk(capsys):
    """Off a terminal every step is a line on stderr; when quiet there is nothing to call."""
    with streams.progress() as report:
        report("bound")
    with streams.progress(quiet=True) as report:
        assert report is None
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "bound\n")
