"""Files that are written whole or not at all, and files of JSON that are read with a clear error."""

import json
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from topologies.documents import TABULAR
from topologies.errors import Fault, InputError
from topologies.sources import behind_links, note

MOST_SHARED = 32
"""Characters that a temporary file's name shares with its own: with all of them it may be too long a name."""


def write_file(path: str | Path, content: bytes) -> None:
    """Write a file whole or not at all. Raises InputError if the place cannot be written."""
    with replacing(path) as file:
        file.write(content)


def make_folder(path: str | Path) -> None:
    """Make a folder, and those above it, where there is none. Raises InputError where it cannot be made."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError.at(str(path), f"cannot be made: {error.strerror}") from None


@contextmanager
def replacing(path: str | Path) -> Iterator[BinaryIO]:
    """A temporary file beside `path` to write to, which takes its name at the end: no half file is ever there.

    Raises InputError if the place cannot be written.
    """
    path = behind_links(path)
    try:
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise InputError.at(str(path), "is not a regular file")
        prefix = f".{path.name[:MOST_SHARED]}."
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=prefix, suffix=".tmp")
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
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise _TwiceError
    return mapping


def read_json(path: str | Path, otherwise: str = "must be a mapping of keys") -> dict[str, Any]:
    """The mapping that a file holds. Raises InputError for anything else, in the words of `otherwise`, and for a key
    that stands twice in one mapping: readers do not agree which of the two counts."""
    source, text = str(path), ""
    if Path(path).suffix.lower() in TABULAR:
        raise InputError.at(source, "is a file of tables; a JSON document is needed here")
    try:
        text = note(Path(path)).read_text(encoding="utf-8-sig")
        data = json.loads(text, object_pairs_hook=_mapping)
    except OSError as error:
        raise InputError.at(source, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError.at(source, "is not UTF-8 text; save it as UTF-8") from None
    except RecursionError:
        raise InputError.at(source, "is nested too deep") from None
    except _TwiceError:
        raise _repeated(source, text) from None
    except json.JSONDecodeError as error:
        if not text.strip():
            raise InputError.at(source, "is empty") from None
        raise InputError.at(source, f"is not JSON: {error.msg}", line=error.lineno, column=error.colno) from None
    except ValueError:
        raise InputError.at(source, "holds a whole number of thousands of digits, which is no quantity") from None
    if not isinstance(data, dict):
        raise InputError.at(source, otherwise)
    return data


@contextmanager
def faults_located(path: str | Path) -> Iterator[None]:
    """Give the faults of a JSON file that are found meanwhile the line and column of what their paths name, or of the
    nearest mapping or list around it. The file is looked at again for that, so that a sound one costs nothing."""
    try:
        yield
    except InputError as error:
        if not any(_is_unlocated(fault, path) for fault in error.faults):
            raise
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError):
            raise error from None
        offsets: dict[str, int] = {}
        for keys, offset in _entries(text):
            offsets.setdefault(".".join(map(str, keys)), offset)
        raise InputError(
            _located(fault, text, offsets) if _is_unlocated(fault, path) else fault for fault in error.faults
        ) from None


def _is_unlocated(fault: Fault, path: str | Path) -> bool:
    return fault.source == str(path) and not fault.line and bool(fault.path)


def _located(fault: Fault, text: str, offsets: dict[str, int]) -> Fault:
    keys = fault.path
    while keys and keys not in offsets:
        keys = keys.rpartition(".")[0]
    line, column = _position(text, offsets[keys]) if keys else (0, 0)
    return replace(fault, line=line, column=column)


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def _entries(text: str) -> Iterator[tuple[tuple[str | int, ...], int]]:
    """The path of every key and every element of a list in a JSON text, and the offset at which it begins."""
    path: list[str | int] = []
    word, is_next = "", False
    at = 0
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if is_next and mark != "]":
            yield tuple(path), token.start()
        is_next = False
        if mark in "{[":
            path.append("" if mark == "{" else 0)
            is_next = mark == "["
        elif mark in "}]":
            path.pop()
        elif mark == "," and isinstance(index := path[-1], int):
            path[-1], is_next = index + 1, True
        elif mark == ":":
            path[-1] = str(json.loads(word))
            yield tuple(path), at
        elif mark[0] == '"':
            word, at = mark, token.start()


def _repeated(source: str, text: str) -> InputError:
    """Which key of a JSON text stands twice, and where: its path, and the line and column of the second one."""
    first: dict[tuple[str | int, ...], int] = {}
    for path, offset in _entries(text):
        if path in first:
            message = f"the key {path[-1]!r} stands twice, first in line {_position(text, first[path])[0]}; keep one"
            line, column = _position(text, offset)
            return InputError.at(source, message, line=line, column=column, path=".".join(map(str, path)))
        first[path] = offset
    return InputError.at(source, "a key stands twice in one mapping; keep one")


def _position(text: str, offset: int) -> tuple[int, int]:
    """Line and column, both from 1."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
