"""Files that are written whole or not at all."""

import os
import stat
import tempfile
from pathlib import Path

from topologies.errors import InputError


def write_file(path: str | Path, content: bytes) -> None:
    """Write to a temporary file beside `path`, then rename it, so that no half file is ever there.

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
            file.write(content)
        temporary.chmod(mode)
        temporary.replace(path)
    except OSError as error:
        raise InputError.at(str(path), f"cannot be written: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)
