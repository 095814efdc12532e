"""What a file of another tool says of a cluster: facts with their places, as every reader returns them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from topologies.errors import InputError
from topologies.sources import note

MOST_LISTED = 1 << 18
"""A slip in a range of hosts must not take all memory."""


@dataclass(frozen=True)
class Fact:
    """A value, the file and line that say so, and how it follows from them.

    Bytes, bytes/s and seconds are plain numbers; text and counts are themselves.
    """

    value: Any
    source: str
    line: int
    words: str = ""

    @property
    def place(self) -> str:
        """The file's name and the line, as a comment gives them."""
        return f"{Path(self.source).name}:{self.line}"

    def __str__(self) -> str:
        return f"{self.place}: {self.words}" if self.words else self.place


@dataclass(frozen=True)
class Level:
    """One level of switches above the nodes; None: the file does not say."""

    name: str
    nodes: int
    oversubscription: float | None = None
    latency: float | None = None
    words: str = ""


@dataclass(frozen=True)
class HostGroup:
    """Equal nodes that a file lists, in the order in which they stand below the switches."""

    count: Fact
    hosts: tuple[str, ...] = ()
    """Their names; empty where the file has none."""
    fields: Mapping[str, Fact] = field(default_factory=dict)
    """Paths below a node group (`links.scale_out.count`)."""
    domain_nodes: Fact | None = None
    """Nodes that share one scale-up fabric, if the accelerators have one that spans nodes."""
    name: str | None = None


@dataclass(frozen=True)
class Facts:
    """All that one file says. `source` is its path as given, `kind` the format."""

    kind: str
    source: str
    node: Mapping[str, Fact] = field(default_factory=dict)
    """Of every node: paths below a node group. `links.scale_up` with the value None: there is none."""
    groups: tuple[HostGroup, ...] = ()
    """The nodes, where the file lists them."""
    levels: Fact | None = None
    """A tuple of `Level`, from the leaves up."""
    rails: Fact | None = None
    remarks: tuple[str, ...] = ()
    """What the file says and a topology cannot, or what was taken otherwise."""


@dataclass(frozen=True)
class Text:
    """The text of a file, and its name for messages."""

    source: str
    text: str

    def lines(self) -> list[tuple[int, str]]:
        """Every line with its number, from 1."""
        return list(enumerate(self.text.splitlines(), start=1))

    def fact(self, value: Any, line: int, words: str = "") -> Fact:
        """A fact of this file."""
        return Fact(value, self.source, line, words)

    def refuse(self, line: int, message: str, path: str = "") -> NoReturn:
        """Raise the fault of a line as an InputError."""
        raise InputError.at(self.source, message, line=max(line, 1), column=1, path=path)


def read_text(path: Path) -> Text:
    """The text of a file. Raises InputError if it cannot be read, is not UTF-8 or holds nothing.

    PowerShell writes what a command prints as UTF-16, with a mark.
    """
    try:
        content = note(path).read_bytes()
        text = content.decode("utf-16" if content.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig")
    except OSError as error:
        raise InputError.at(str(path), f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InputError.at(str(path), "is not UTF-8 text", line=line, column=1) from None
    if not text.strip():
        raise InputError.at(str(path), "is empty; paste the whole output", line=1, column=1)
    return Text(str(path), text)
