"""What the user says of the tables that are measured: widths, rows, formats, which features share one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cost_models.workload.profiles import collect_profiles
from cost_models.workload.table_profile import TableProfile
from topologies.documents import Document, did_you_mean, validate
from topologies.errors import Fault, InputError

REQUIRED = ("name", "dim")
BY_READS = ("access_cdf", "zipf_alpha")
BY_LENGTHS = (*BY_READS, "pooling_factor", "pooling_std")
BY_SAMPLES = (*BY_LENGTHS, "unique_fraction", "unique_fraction_batch", "samples_per_session", "duplicate_share")
"""What counts of reads, of reads and lengths of lists, and samples themselves tell."""
STANDS_FOR = {"rows": 1, "pooling_factor": 1.0}
"""Stands for what the data will say, while the rest is checked."""


class StatedTables:
    """The tables of a file, with the columns of the data that feed them."""

    def __init__(self, path: Path, measured: Sequence[str]) -> None:
        """`measured` are the columns that the data gives. Raises InputError for files that state them or are wrong."""
        self.document, faults = collect_profiles(path, REQUIRED)
        names: list[object] = []
        for index, table in enumerate(self.document.data):
            found = [
                self.document.fault((index, key), "is measured here; leave it out") for key in measured if key in table
            ]
            faults += found or self._faults(index, measured)
            if (name := table.get("name")) in names:
                faults.append(self.document.fault((index, "name"), f"{name!r} stands twice; keep one"))
            names.append(name)
        if faults:
            raise InputError(faults)
        self.of: dict[str, Mapping[str, Any]] = {str(table["name"]): table for table in self.document.data}

    def _faults(self, index: int, measured: Sequence[str]) -> list[Fault]:
        """What is wrong with one table, where it stands."""
        row = {**{key: value for key, value in STANDS_FOR.items() if key in measured or key == "rows"}}
        row |= self.document.data[index]
        try:
            validate(
                Document(row, self.document.source, lambda path: self.document.locate((index, *path))), TableProfile
            )
        except InputError as error:
            return [replace(fault, path=f"{index}.{fault.path}") for fault in error.faults]
        return []

    def columns(self, features: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """The features of each table. Raises InputError for tables without data."""
        found, faults = {}, []
        for index, (name, table) in enumerate(self.of.items()):
            its = _features(name, table.get("features"))
            if missing := [each for each in its if each not in features]:
                hint = did_you_mean(missing[0], list(features))
                message = (
                    f"the data has no feature {missing[0]!r}{hint}; name a table's features in its column features"
                )
                faults.append(self.document.fault((index, "name"), message))
            found[name] = its
        if faults:
            raise InputError(faults)
        return found


def _features(name: str, stated: object) -> tuple[str, ...]:
    if isinstance(stated, str) and not stated.strip().isdecimal():
        return tuple(each.strip() for each in stated.split("|"))
    return tuple(map(str, stated)) if isinstance(stated, list | tuple) else (name,)


def validated(rows: Sequence[Mapping[str, Any]], source: str) -> list[TableProfile]:
    """Measured tables as profiles. Raises InputError for what is missing or cannot be."""
    profiles: list[TableProfile] = []
    faults: list[Fault] = []
    for row in rows:
        try:
            profiles.append(validate(Document(dict(row), source), TableProfile))
        except InputError as error:
            faults += [replace(fault, path=f"{row['name']}.{fault.path}") for fault in error.faults]
    if faults:
        raise InputError(faults)
    return profiles
