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


def test_no_line_of_a_pipe_ends_in_blanks(monkeypatch):
    """Neither where words are folded nor where they are set in; names keep theirs inside a line."""
    from rich.padding import Padding

    monkeypatch.setenv("COLUMNS", "20")
    file = io.StringIO()
    console = streams.console(file)
    console.print("one two three four five six seven")
    console.print(Padding("a line\nset in", (0, 0, 0, 2)))
    assert file.getvalue() == "one two three four\nfive six seven\n  a line\n  set in\n"


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


@pytest.mark.parametrize(("columns", "wide"), [("30", 30), ("200", 200), ("", 80), ("0", 80), ("many", 80)])
def test_text_is_as_wide_as_columns_says(monkeypatch, columns, wide):
    """COLUMNS is kept on a terminal and in a pipe; where it says nothing, a pipe has 80."""
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr("sys.stdout", Terminal() if columns.isdecimal() and int(columns) else io.StringIO())
    assert streams.console().width == wide


@pytest.mark.parametrize("columns", ["20", "40", "60", "79"])
def test_a_narrow_console_breaks_words_and_no_numbers(monkeypatch, capsys, columns):
    """Every digit is in one piece, and no line is longer than it must be for that."""
    monkeypatch.setenv("COLUMNS", columns)
    records = [{"name": f"a name of words number {n}", "count": 123456789 * n, "share": n / 8} for n in (1, 9)]
    streams.write_records(records, Format.TABLE)
    shown = capsys.readouterr().out
    assert all(word in shown.split() for word in ("123,456,789", "1,111,111,101", "0.125", "1.125"))
    assert max(map(len, shown.splitlines())) <= max(int(columns), 8 + 2 + 13 + 2 + 5)


def test_hidden_characters_are_shown_as_escapes(capsys):
    """Colours, cursor moves, bells, turned text and line ends in a name steer no terminal, in whatever format."""
    name = "\x1b[31mred\x07\x9b1m\u202eab\u2028\r\n"
    for output in Format:
        streams.write_records([{"name": name}], output)
    streams.console().print(f"of {name}", style="bold")
    streams.write_text(name.rstrip())
    streams.say(name)
    shown = capsys.readouterr()
    assert not {"\x1b", "\x07", "\x9b", "\u202e", "\u2028", "\r"} & set(shown.out + shown.err)
    assert "\\x1b[31mred" in shown.err


def test_json_with_hidden_characters_is_the_same_data(capsys):
    """Escapes in JSON are JSON's own, whatever the plane of the character."""
    data = {"name": "caf\u00e9 \x7f \u202e \U000e0041 \n \x1b", "plain": "\u4e2d"}
    streams.write_json(data)
    shown = capsys.readouterr().out
    assert json.loads(shown) == data
    assert "caf\u00e9" in shown
    assert "\u202e" not in shown


def test_progress_is_talk(capsys):
    """Off a terminal every step is a line on stderr; when quiet there is nothing to call."""
    with streams.progress() as report:
        report("bound")
    with streams.progress(quiet=True) as report:
        assert report is None
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "bound\n")


@pytest.mark.parametrize("name", ["COLUMNS", "LINES"])
def test_a_size_of_thousands_of_digits_is_none(name, monkeypatch, capsys):
    """rich would end with a traceback."""
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv(name, "9" * 5000)
    streams.ready()
    streams.write_records(RECORDS, Format.TABLE)
    assert "a, b" in capsys.readouterr().out
    assert streams.width(io.StringIO()) == streams.PIPE_WIDTH
