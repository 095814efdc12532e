"""Tables keep their numbers whole on consoles of any width."""

import io

import pytest
from rich.console import Console

from planner.reports.tables import TextGrid


def shown(table: TextGrid, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(table, crop=False)
    return console.file.getvalue().splitlines()


def stages() -> TextGrid:
    table = TextGrid(("stage", "left"), ("time", "right"), ("share", "right"), ("bound by", "left"))
    table.add_row("lookup_forward", "55.841 us", "2.7%", "accelerator (HBM, kernels)")
    table.add_row("dense", "338.104 us", "16.1%", "scale-out card, receiving, with the next ids")
    return table


@pytest.mark.parametrize("width", range(5, 100))
def test_numbers_are_whole_and_in_their_row(width):
    """Each number is on a line on which its row begins; the lines fit where that can be."""
    lines = shown(stages(), width)
    first = [line for line in lines if line.startswith("lookup_"[: max(3, min(8, width))])]
    assert sum("55.841 us" in line for line in first) == 1
    assert sum("2.7%" in line for line in first) == 1
    assert sum("338.104 us" in line for line in lines if line.startswith("dense")) == 1
    assert any("338.104 us  16.1%" in line for line in lines) or width < 8 + 10 + 5 + 8 + 6
    assert max(map(len, lines)) <= max(width, 14 + 11 + 2)


def test_columns_that_have_no_room_stand_in_parts_with_the_first():
    """As many as fit in each; a table without a head, or of two columns, is as wide as it is."""
    table = TextGrid(("layer", "left"), *((head, "right") for head in ("output", "parameters", "forward")))
    table.add_row("top_mlp.0", "1,024", "3,539,968", "140.680 us")
    table.add_row("top_mlp", "1", "257", "1.809 us")
    assert shown(table, 31) == [
        "layer      output  parameters",
        "top_mlp.0   1,024   3,539,968",
        "top_mlp         1         257",
        "",
        "layer         forward",
        "top_mlp.0  140.680 us",
        "top_mlp      1.809 us",
    ]
    bare = TextGrid(("", "left"), ("", "right"), ("", "right"), show_header=False)
    bare.add_row("bytes", "1,000,000,000", "2,000,000,000")
    assert shown(bare, 20) == ["bytes  1,000,000,000  2,000,000,000"]


@pytest.mark.parametrize("width", range(5, 100))
def test_no_word_is_lost(width):
    """What takes more lines is all there."""
    table = TextGrid(("", "left"))
    table.add_row("one two three-and-more")
    assert "".join("".join(shown(table, width)).split()) == "onetwothree-and-more"


@pytest.mark.parametrize("width", range(1, 40))
def test_numbers_among_words_are_whole(width):
    """Also in a column of words."""
    table = TextGrid(("value", "left"), ("what", "left"))
    table.add_row("1,234,567,890.5", "something that is long")
    assert "1,234,567,890.5" in " ".join(shown(table, width)).split()


def test_wide_characters_keep_columns_straight():
    """A character that takes two columns counts as two."""
    table = TextGrid(("名", "left"), ("n", "right"))
    table.add_row("中文", "1")
    table.add_row("ab", "22")
    assert shown(table, 80) == ["名     n", "中文   1", "ab    22"]


def test_names_steer_no_terminal():
    """A name's escape sequences are printed as text."""
    table = TextGrid(("name", "left"))
    table.add_row("\x1b[31mred\nx")
    assert shown(table, 80) == ["name", "\\x1b[31mred\\nx"]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("cache_stage_bytes_per_s", ["cache_stage_", "bytes_per_s"]),
        ("nodes.0.tiers.ddr", ["nodes.0.", "tiers.ddr"]),
        ("H100-SXM5-80GB", ["H100-SXM5-", "80GB"]),
        ("embeddings", ["embeddings"]),
        ("all_reduce_bandwidthofgroups", ["all_reduce_", "bandwidthofg", "roups"]),
        ("the device_coefficients file", ["the", "device_", "coefficients", "file"]),
    ],
)
def test_long_names_are_broken_between_their_parts(name, lines):
    """Of a column that has no room for the name: after a sign that joins parts, within a part only where it must."""
    grid = TextGrid(("name", "left"))
    grid.add_row(name)
    _, (found,) = grid.lines(12)
    assert found == lines
