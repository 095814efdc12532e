"""What the files that a user names hold."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from planner.profiling import elsewhere, stated
from planner.profiling.sources.files import plain_name
from planner.profiling.sources.parquet import ParquetSource
from planner.profiling.sources.source import Source
from planner.profiling.sources.text import CRITEO, TextSource, first_line
from planner.profiling.sources.torch_files import TorchSource
from planner.profiling.statistics import TableStatistics
from topologies.errors import InputError

PARQUET, CSV, CRITEO_LOG, TORCH = SAMPLES = ("parquet", "csv", "criteo", "torch")
QUERY, CATEGORIES, SKETCHES = COUNTED = ("query", "nvtabular", "datasketches")
KINDS: Final = (*SAMPLES, *COUNTED)
SUFFIXES: Mapping[str, str] = {
    ".parquet": PARQUET,
    ".pq": PARQUET,
    ".csv": CSV,
    ".tsv": CSV,
    ".txt": CSV,
    ".pt": TORCH,
    ".pth": TORCH,
    elsewhere.FREQUENT: SKETCHES,
    elsewhere.DISTINCT: SKETCHES,
}
_COUNTED: Mapping[str, Callable[[Sequence[Path]], dict[str, TableStatistics]]] = {
    QUERY: elsewhere.of_query_result,
    CATEGORIES: elsewhere.of_categories,
    SKETCHES: elsewhere.of_sketches,
}


def kind_of(files: Sequence[Path]) -> str:
    """What files hold, by names and first lines. Raises InputError where they differ or tell nothing."""
    kinds: dict[str, Path] = {}
    for file in files:
        kinds.setdefault(_kind(file), file)
    if len(kinds) > 1:
        (one, a), (other, b), *_ = kinds.items()
        raise InputError.at(str(b), f"holds {other}, and {a} holds {one}; profile them apart")
    return next(iter(kinds))


def _kind(file: Path) -> str:
    name = plain_name(file)
    suffix = Path(name).suffix.lower()
    if suffix not in SUFFIXES and not name.startswith("day_"):
        known = ", ".join(SUFFIXES)
        raise InputError.at(
            str(file), f"does not tell by its name what it holds; known are {known}; name one with --kind"
        )
    kind: str = SUFFIXES.get(suffix, CSV)
    if kind == PARQUET and file.name.startswith(elsewhere.CATEGORIES):
        return CATEGORIES
    if kind in (PARQUET, CSV) and elsewhere.is_query_result(file):
        return QUERY
    if kind == CSV:
        fields = first_line(file).split("\t")
        return CRITEO_LOG if len(fields) == len(CRITEO) and fields[0] in ("0", "1") else CSV
    return kind


def measured_by(kind: str) -> tuple[str, ...]:
    """The fields of a profile that data of a kind gives."""
    if kind in SAMPLES:
        return stated.BY_SAMPLES
    return stated.BY_LENGTHS if kind == QUERY else stated.BY_READS


def opened(
    files: Sequence[Path], kind: str, columns: tuple[str, ...] | None, words: tuple[str, ...], separator: str | None
) -> Source:
    """The samples of files of a kind of `SAMPLES`. Raises InputError for columns that are not there."""
    if kind == PARQUET:
        return ParquetSource(tuple(files), columns)
    if kind == TORCH:
        return TorchSource(tuple(files), columns)
    if kind == CRITEO_LOG:
        return TextSource(tuple(files), columns or CRITEO[14:], CRITEO, "\t", None)
    head = _header(files[0])
    delimiter = "\t" if "\t" in head else ","
    source = TextSource(tuple(files), columns or (), None, delimiter, separator, words)
    if columns is None:
        message = f"does not say which of its columns hold ids; name them with --columns: {', '.join(source.names)}"
        raise InputError.at(str(files[0]), message, line=1, column=1)
    return source


def _header(file: Path) -> str:
    """The line with the names of a file's columns. Raises InputError where there is none that could be."""
    head = first_line(file)
    if not head and not file.stat().st_size:
        raise InputError.at(str(file), "is empty; its first line has the names of columns")
    if not head:
        raise InputError.at(str(file), "begins with an empty line, where the names of columns are", line=1, column=1)
    if "\0" in head or "\N{REPLACEMENT CHARACTER}" in head:
        raise InputError.at(str(file), "is not UTF-8 text; save it as UTF-8", line=1, column=1)
    return head


def counted(files: Sequence[Path], kind: str) -> dict[str, TableStatistics]:
    """The statistics in files of a kind of `COUNTED`. Raises InputError."""
    return _COUNTED[kind](files)
