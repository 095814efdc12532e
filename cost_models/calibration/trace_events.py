"""The events of a Kineto trace one by one: memory is that of the largest event, however much a file unpacks to."""

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from topologies.errors import InputError

PIECE = 1 << 20
"""Characters that are read at a time."""
MOST_CHARACTERS = 1 << 26
"""The most characters of one event; no profiler writes longer ones."""
Event = dict[str, Any]


def read_events(path: Path) -> Iterator[Event]:
    """The events of a trace, plain or gzipped, in their order. Raises InputError for anything else."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            for event in _Values(file).of_list("traceEvents"):
                if isinstance(event, dict):
                    yield event if isinstance(event.get("args", {}), dict) else {**event, "args": {}}
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise InputError.at(str(path), f"is not a Kineto trace: {reason}; export one with torch.profiler") from error


class _Values:
    """The values of a JSON text, of which only a piece is in memory."""

    def __init__(self, file: TextIO) -> None:
        self._file, self._text, self._at = file, "", 0
        self._decoder = json.JSONDecoder()

    def of_list(self, key: str) -> Iterator[Any]:
        """The elements of the list under a key of the outermost mapping. Raises ValueError where there is none."""
        self._take("{")
        while True:
            name = self._value()
            self._take(":")
            if name == key:
                break
            self._value()
            if self._take(",}") == "}":
                raise ValueError(f"it has no {key!r}")
        self._take("[")
        if self._next() == "]":
            return
        while True:
            yield self._value()
            if self._take(",]") == "]":
                return

    def _more(self) -> bool:
        """Whether there was more to read; what was used is dropped."""
        self._text, self._at = self._text[self._at :], 0
        piece = self._file.read(max(PIECE, len(self._text)))
        self._text += piece
        return bool(piece)

    def _next(self) -> str:
        """The next sign that is no blank; nothing at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in " \t\r\n":
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _take(self, signs: str) -> str:
        """The next sign, which must be one of `signs`."""
        sign = self._next()
        if not sign or sign not in signs:
            raise ValueError(f"{sign!r} stands where {' or '.join(signs)} is needed" if sign else "it ends early")
        self._at += 1
        return sign

    def _value(self) -> Any:
        """The next value, whole."""
        self._next()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if len(self._text) - self._at > MOST_CHARACTERS:
                    raise ValueError(f"one of its values has more than {MOST_CHARACTERS:,} characters") from None
                if not self._more():
                    raise ValueError(error.msg) from None
                continue
            if end < len(self._text) or not self._more():  # a number may go on in the next piece
                self._at = end
                return value
