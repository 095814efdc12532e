"""Instances of clouds by the names that they are rented under: entries of the catalog with changes, all in one file.

A block of that file, from its name on, is a topology file of its own: the name in its first line, `base` and `set`.
"""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from topologies.errors import Fault, InputError

if TYPE_CHECKING:
    from topologies.documents import Document, Key, Position

NAME = re.compile(r"(?P<name>[^\s#:]+):\s*$")
INDENT = 2
"""Columns by which a block stands further right in the file than on its own."""


@dataclass(frozen=True)
class Instances:
    """The instances of one file."""

    path: Path

    @cached_property
    def _lines(self) -> list[str]:
        return self.path.read_text(encoding="utf-8").splitlines()

    @cached_property
    def _first_line(self) -> dict[str, int]:
        """Where each block begins. Raises InputError for a name that is there twice."""
        first: dict[str, int] = {}
        for number, line in enumerate(self._lines):
            if match := NAME.match(line):
                name = match["name"]
                if name in first:
                    message = f"is there twice; the other is in line {first[name] + 1}"
                    raise InputError([Fault(str(self.path), number + 1, 1, name, message)])
                first[name] = number
        return first

    def names(self) -> list[str]:
        """In alphabetical order."""
        return sorted(self._first_line)

    def expect_apart(self, others: Sequence[str]) -> None:
        """Raise InputError for names that are `others`, too: one of both could not be reached."""
        both = sorted(set(others) & self._first_line.keys())
        message = "is also an entry of the catalog; choose another name"
        if both:
            raise InputError([Fault(str(self.path), self._first_line[name] + 1, 1, name, message) for name in both])

    def text(self, name: str) -> str:
        """A topology file that says what the instance is."""
        start = self._first_line[name]
        following = [first for first in self._first_line.values() if first > start]
        block = self._lines[start + 1 : min(following, default=len(self._lines))]
        return f"name: {name}\n" + textwrap.dedent("\n".join(block)).rstrip() + "\n"

    def document(self, name: str) -> "Document":
        """That file, read; its positions are those in the file of all instances."""
        from topologies.documents import parse_yaml
        from topologies.sources import note

        document = parse_yaml(self.text(name), str(note(self.path)))
        locate, above = document.locate, self._first_line[name]

        def in_whole_file(path: "Sequence[Key]") -> "Position | None":
            found = locate(path)
            return found and (found[0] + above, found[1] + (INDENT if found[0] > 1 else 0))

        document.locate = in_whole_file
        return document
