"""Which files inputs are read from, for whoever must not write over them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

_read: ContextVar[list[Path] | None] = ContextVar("files that were read", default=None)


@contextmanager
def recorded() -> Iterator[list[Path]]:
    """The files that are read as inputs meanwhile: also those that an input names (`base`, `tables`)."""
    files: list[Path] = []
    before = _read.set(files)
    try:
        yield files
    finally:
        _read.reset(before)


def is_file(path: str | Path) -> bool:
    """Whether there is a file to read; of a name that cannot be one (too long, a NUL in it), no."""
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False


def is_pipe(path: str | Path) -> bool:
    """Whether there is a pipe to read, as a shell makes for `<(…)`."""
    try:
        return Path(path).is_fifo()
    except (OSError, ValueError):
        return False


def behind_links(path: str | Path) -> Path:
    """The absolute path without links; a link that leads to itself stays one, for which `Path.resolve` has no error
    that it promises."""
    return Path(os.path.realpath(path))


def note(path: Path) -> Path:
    """Say that a file is read as an input; the file."""
    files = _read.get()
    if files is not None:
        files.append(path)
    return path
