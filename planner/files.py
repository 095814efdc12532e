"""Files that are written whole or not at all, and files of JSON that are read with a clear error."""

import json
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from topologies.errors import InputError


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


def read_json(path: str | Path, otherwise: str = "must be a mapping of keys") -> dict[str, Any]:
    """The mapping that a file holds. Raises InputError for anything else, in the words of `otherwise`."""
    source = str(path)
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError.at(source, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError.at(source, "is not UTF-8 text") from None
    except RecursionError:
        raise InputError.at(source, "is nested too deep") from None
    except json.JSONDecodeError as error:
        raise InputError.at(source, f"is not JSON: {error.msg}", line=error.lineno, column=error.colno) from None
    if not isinstance(data, dict):
        raise InputError.at(source, otherwise)
    return data
