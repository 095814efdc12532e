"""What is wrong with an input: every fault of a file at once, each with its place and its remedy."""

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode's categories of characters that steer a terminal, turn the direction of text, or cannot be seen."""


MOST_CHARACTERS = 4_000
"""The most characters of a message, or of the path of a field: names and values come from files of others."""


@dataclass(frozen=True, order=True)
class Fault:
    """One thing that is wrong in an input.

    `line` and `column` count from 1; 0 means that the source has no such position (a Parquet file, `--set`).
    `path` names the field (`nodes.0.count`); it may be empty when the fault is the whole file.
    """

    source: str
    line: int
    column: int
    path: str
    message: str

    def __post_init__(self) -> None:
        for name in ("path", "message"):
            text = getattr(self, name)
            if len(text) > MOST_CHARACTERS:  # the end stays, too: that is where the remedy stands
                object.__setattr__(self, name, f"{text[: MOST_CHARACTERS - 1000]} … {text[-900:]}")

    def __str__(self) -> str:
        position = f":{self.line}:{self.column}" if self.line else ""
        field = f" {self.path}:" if self.path else ""
        return printable(f"{self.source}{position}:{field} {self.message}")


class MissingPackageError(RuntimeError):
    """A package that only an extra installs is not there."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what}: pip install 'shardplan[{extra}]'")


class ConflictError(ValueError):
    """Fields of one mapping that do not go together, for validators: the `fields` as paths in it, the culprit first."""

    def __init__(self, message: str, *fields: str) -> None:
        keys = (name.split(".") for name in fields)
        self.fields = tuple(tuple(int(key) if key.isdecimal() else key for key in path) for path in keys)
        super().__init__(message)


class InputError(ValueError):
    """An input that cannot be used. `faults` holds everything that is wrong with it, in order of position."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(sorted(faults))
        super().__init__("\n".join(map(str, self.faults)))

    def __reduce__(self) -> tuple[type["InputError"], tuple[tuple[Fault, ...]]]:
        """For pickles, as between processes."""
        return type(self), (self.faults,)

    @classmethod
    def at(cls, source: str, message: str, *, path: str = "", line: int = 0, column: int = 0) -> "InputError":
        """One fault as an error."""
        return cls([Fault(source, line, column, path, message)])


def shown(value: object, limit: int = 60) -> str:
    """A value as a message shows it: its repr, cut to `limit` characters."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def printable(text: str, keep: str = "") -> str:
    """A text with every hidden character, but for those to `keep`, as its escape (`\\x1b`, `\\u202e`).

    Names come from files of others: what is printed on a terminal passes here.
    """
    if text.isascii() and text.isprintable():
        return text
    for each in set(text):
        if each not in keep and unicodedata.category(each) in HIDDEN:
            text = text.replace(each, each.encode("unicode_escape").decode())
    return text
