"""Files that are written whole or not at all, and files of JSON that are read with a clear error."""

import json
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from topologies.errors import InputError
from topologies.sources import note


def write_file(path: str | Path, content: bytes) -> None:
    """Write a file whole or not at all. Raises InputError if the place cannot be written."""
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """A temporary file beside `path` to write to, which takes its name at the end: no half file is ever there.

    Raises InputError if the place cannot be written.
    """
    path = Path(path).resolve()
    try:
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644
        if path.exists() and not path.is_file():
            raise InputError.at(str(path), "is not a regular file")
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    except OSError as error:
        raise InputError.at(str(path), f"cannot be written: {error.strerror}") from None
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        temporary.chmod(mode)
        temporary.replace(path)
    except OSError as error:
        raise InputError.at(str(path), f"cannot be written: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)


class _TwiceError(Exception):
    """A mapping has a key twice."""


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _TwiceError
    return found


def read_json(path: str | Path, otherwise: str = "must be a mapping of keys") -> dict[str, Any]:
    """The mapping that a file holds. Raises InputError for anything else, in the words of `otherwise`, and for a key
    that stands twice in one mapping: readers do not agree which of the two counts."""
    source, text = str(path), ""
    try:
        text = note(Path(path)).read_text(encoding="utf-8-sig")
        data = json.loads(text, object_pairs_hook=_mapping)
    except OSError as error:
        raise InputError.at(source, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError.at(source, "is not UTF-8 text") from None
    except RecursionError:
        raise InputError.at(source, "is nested too deep") from None
    except _TwiceError:
        raise _repeated(source, text) from None
    except json.JSONDecodeError as error:
        raise InputError.at(source, f"is not JSON: {error.msg}", line=error.lineno, column=error.colno) from None
    if not isinstance(data, dict):
        raise InputError.at(source, otherwise)
    return data


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]')


def _repeated(source: str, text: str) -> InputError:
    """Which key of a JSON text stands twice, and where: its path, and the line and column of the second one."""
    places: list[tuple[dict[str, int], list[str | int]]] = []
    word: re.Match[str] | None = None
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark in "{[":
            places.append(({}, ["" if mark == "{" else 0]))
        elif mark in "}]":
            places.pop()
        elif mark == "," and isinstance(here := places[-1][1][0], int):
            places[-1][1][0] = here + 1
        elif mark == ":":
            assert word is not None
            (first, at), key = places[-1], str(json.loads(word[0]))
            at[0] = key
            if key in first:
                found = ".".join(str(each[0]) for _, each in places)
                message = f"the key {key!r} stands twice, first in line {_line(text, first[key])}; keep one"
                column = word.start() - text.rfind("\n", 0, word.start())
                return InputError.at(source, message, line=_line(text, word.start()), column=column, path=found)
            first[key] = word.start()
        elif mark[0] == '"':
            word = token
    return InputError.at(source, "a key stands twice in one mapping; keep one")


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1
