"""Tables of text: what does not fit is words on more lines, never a number cut short."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING

from topologies.errors import printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.segment import Segment

NUMBER = re.compile(r"[±+-]?\d[\d.,e+-]*%?")
_PART_OF_A_NAME = re.compile(r"[^_./:=-]*[_./:=-]+|[^_./:=-]+")
"""A name is broken after these signs where a line cannot hold it."""
LEAST_WORDS = 8
"""Characters that a column of words keeps on the narrowest terminal."""


@dataclass
class TableColumn:
    """Cells below a head; those of numbers stand to the right and are never broken."""

    head: str
    is_number: bool
    cells: list[str] = field(default_factory=list)

    def natural(self) -> int:
        """Characters with every cell on one line."""
        return max(_width(text) for text in (self.head, *self.cells))

    def whole(self) -> int:
        """Characters with no word broken."""
        unbroken = [word for word in self.head.split() if word]
        unbroken += self.cells if self.is_number else [word for cell in self.cells for word in cell.split()]
        return max(map(_width, unbroken), default=0)

    def least(self) -> int:
        """Characters of the narrowest column; a number among words is not broken either."""
        if self.is_number:
            return self.whole()
        numbers = [_width(word) for cell in self.cells for word in cell.split() if NUMBER.fullmatch(word)]
        return min(self.whole(), max(LEAST_WORDS, *numbers, 0))


class TextGrid:
    """A table without lines: columns (head, "left" for words or "right" for numbers) that fit the console.

    Where there is no room, heads and words take more lines, and long words are broken where that helps. Numbers never
    are: a table with a head that is still too wide is printed in parts, each with the first column, and a part of two
    columns as wide as it is.
    """

    def __init__(self, *columns: tuple[str, str], show_header: bool = True, gutter: int = 2) -> None:
        self.columns = [TableColumn(head, side == "right") for head, side in columns]
        self.show_header = show_header
        self.gutter = gutter

    def add_row(self, *cells: str) -> None:
        """Add a row; cells that are not given are empty."""
        for column, cell in zip_longest(self.columns, cells, fillvalue=""):
            assert isinstance(column, TableColumn)
            column.cells.append(printable(cell))

    def width(self, words: int) -> int:
        """Characters of a line where a column of words has no more than `words`, unless one word is longer."""
        widths = [max(column.whole(), min(column.natural(), words)) for column in self.columns]
        return sum(widths) + self.gutter * (len(self.columns) - 1)

    def lines(self, width: int) -> tuple[list[str], list[list[str]]]:
        """The lines of the head, and those of each row, of at most `width` characters where that can be."""
        widths = self._widths(width - self.gutter * (len(self.columns) - 1))
        head = self._row([column.head for column in self.columns], widths)
        return head, [
            self._row(cells, widths) for cells in zip(*(column.cells for column in self.columns), strict=True)
        ]

    def parts(self, width: int) -> "list[TextGrid]":
        """The table, or, where lines of `width` characters cannot hold it, the first column beside others in turn."""
        first, *others = self.columns
        least = sum(column.least() for column in self.columns) + self.gutter * len(others)
        if least <= width or len(others) < 2 or not self.show_header:
            return [self]
        chosen: list[list[TableColumn]] = []
        room = 0
        for column in others:
            room -= self.gutter + column.whole()
            if room < 0:
                chosen.append([first])
                room = width - first.whole() - self.gutter - column.whole()
            chosen[-1].append(column)
        return [self._of(columns) for columns in chosen]

    def _of(self, columns: list[TableColumn]) -> "TextGrid":
        """The table with these columns alone."""
        part = TextGrid(gutter=self.gutter)
        part.columns = columns
        return part

    def _widths(self, room: int) -> list[int]:
        """Characters of each column: the widest gives way first; words are broken only where the table then fits."""
        widths = [column.natural() for column in self.columns]
        least = [column.whole() for column in self.columns]
        if sum(least) > room >= sum(column.least() for column in self.columns):
            least = [column.least() for column in self.columns]
        while sum(widths) > room and widths != least:
            spare = [number for number, width in enumerate(widths) if width > least[number]]
            widths[max(spare, key=widths.__getitem__)] -= 1
        return widths

    def _row(self, cells: Sequence[str], widths: Sequence[int]) -> list[str]:
        folded = [list(_folded(cell, width)) for cell, width in zip(cells, widths, strict=True)]
        lines = []
        for parts in zip_longest(*folded, fillvalue=""):
            placed = [
                " " * (width - _width(part)) + part if column.is_number else part + " " * (width - _width(part))
                for part, width, column in zip(parts, widths, self.columns, strict=True)
            ]
            lines.append((" " * self.gutter).join(placed).rstrip())
        return lines

    def __rich_console__(self, console: "Console", options: "ConsoleOptions") -> "Iterator[Segment]":
        """The lines, the head in bold, an empty line between parts."""
        from rich.segment import Segment
        from rich.style import Style

        for number, part in enumerate(self.parts(options.max_width)):
            head, rows = part.lines(options.max_width)
            if number:
                yield Segment.line()
            for line in head if self.show_header else ():
                yield Segment(line, Style(bold=True))
                yield Segment.line()
            for line in (line for row in rows for line in row):
                yield Segment(line)
                yield Segment.line()


def _width(text: str) -> int:
    """Columns of a terminal that the widest line of a text takes."""
    if text.isascii() and text.isprintable():
        return len(text)
    from rich.cells import cell_len

    return max(map(cell_len, text.split("\n")))


def _chopped(word: str, width: int) -> Iterator[str]:
    """Lines of a word that is longer than one: broken between the parts of a name, and within those that are longer."""
    from rich.cells import chop_cells

    current = ""
    for part in _PART_OF_A_NAME.findall(word):
        if _width(current + part) <= width:
            current += part
            continue
        if current:
            yield current
        *full, current = chop_cells(part, width) if _width(part) > width else [part]
        yield from full
    yield current


def _folded(text: str, width: int) -> Iterator[str]:
    """The lines of a text, broken between words, and within those that are longer than a line."""
    for line in text.split("\n"):
        if _width(line) <= width:
            yield line
            continue
        current = line[: len(line) - len(line.lstrip())]
        is_empty = True
        for word in line.split():
            longer = current + word if is_empty else f"{current} {word}"
            if _width(longer) > width and not is_empty:
                yield current
                longer = word
            *full, current = _chopped(longer, width) if _width(longer) > width else [longer]
            yield from full
            is_empty = False
        yield current
