"""The files of a data set: those that are named, those in folders and those that a pattern matches."""

import bz2
import gzip
import hashlib
import io
import zlib
from collections.abc import Iterable, Sequence
from glob import has_magic, iglob
from pathlib import Path
from typing import IO, Any, cast

from topologies.errors import Fault, InputError

HIDDEN = (".", "_")
"""How files begin that Spark and others leave beside the data."""

COMPRESSED = (".gz", ".bz2", ".zst")
"""How compressed text files end; each is read as a whole."""
BUFFER_BYTES = 8 << 20
UNREADABLE = (OSError, EOFError, zlib.error)
"""What reading raises for files that are not there, cut off or damaged."""


def data_files(given: Sequence[str]) -> list[Path]:
    """The files, sorted inside each folder and pattern. Raises InputError for places that hold none."""
    faults: list[Fault] = []
    files: list[Path] = []
    for each in given:
        path = Path(each)
        if path.is_dir():
            found = sorted(file for file in path.rglob("*") if file.is_file() and not _is_hidden(file, path))
        elif path.exists() or not has_magic(each):
            found = [path] if path.is_file() else []
        else:
            found = sorted(file for file in map(Path, iglob(each, recursive=True)) if file.is_file())  # noqa: PTH207 - of any root
        if not found:
            faults.append(Fault(each, 0, 0, "", "holds no file" if path.is_dir() else "there is no such file"))
        files += found
    if faults:
        raise InputError(faults)
    return list(dict.fromkeys(files))


def _is_hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(HIDDEN) for part in file.relative_to(folder).parts)


def fingerprint_of(files: Iterable[Path], *rest: object) -> str:
    """A hash of the names, sizes and times of files, and of what else decides how they are read."""
    words = [f"{file.resolve()} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files]
    return hashlib.sha256("\n".join([*words, *map(repr, rest)]).encode()).hexdigest()


def plain_name(file: Path) -> str:
    """The name of a file as it would be without compression."""
    return file.stem if file.suffix in COMPRESSED else file.name


def opened(file: Path) -> IO[bytes]:
    """The bytes of a text file, compressed or not. Raises one of `UNREADABLE`."""
    if file.suffix == ".gz":
        return cast("IO[bytes]", gzip.open(file))
    if file.suffix == ".bz2":
        return cast("IO[bytes]", bz2.open(file))
    if file.suffix == ".zst":
        import pyarrow as pa

        return io.BufferedReader(cast("Any", pa.input_stream(str(file), compression="zstd")), BUFFER_BYTES)
    return file.open("rb", buffering=BUFFER_BYTES)
