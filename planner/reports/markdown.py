"""Tables and text as GitHub's Markdown, in which no name is markup (https://github.github.com/gfm/)."""

import re
from collections.abc import Iterable

from planner.reports.tables import TextGrid
from topologies.errors import printable

INLINE = re.compile(r"[\\`*\[\]<>|&~$]|(?<![^\W_])_|_(?![^\W_])")
"""What could begin markup in a line; an underscore within a word does not."""
BLOCK = re.compile(r"^([-+#=]|\d+[.)](?=\s|$))", re.MULTILINE)
"""What could make a line a heading, a list or a rule."""


def text(words: str) -> str:
    """Lines that are shown as they are, but for their indentation."""
    lines = (line.strip() for line in inline(words).split("\n"))
    return BLOCK.sub(lambda match: f"{match[0][:-1]}\\{match[0][-1]}", "\n".join(lines))


def inline(words: str) -> str:
    """Words within a line that are shown as they are."""
    return INLINE.sub(r"\\\g<0>", printable(words, keep="\n"))


def table(grid: TextGrid) -> str:
    """A table between empty lines; all have a line of heads in Markdown."""
    heads = [column.head if grid.show_header else "" for column in grid.columns]
    rule = ["--:" if column.is_number else ":--" for column in grid.columns]
    rows = zip(*(column.cells for column in grid.columns), strict=True)
    return "\n".join(["", _line(map(_cell, heads)), _line(rule), *(_line(map(_cell, row)) for row in rows), ""])


def _cell(words: str) -> str:
    return " ".join(inline(words).split())


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
