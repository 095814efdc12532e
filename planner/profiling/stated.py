"""What the user says of the tables that are measured: widths, rows, formats, which features share one."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cost_models.workload.models import TableProfile
from cost_models.workload.profiles import collect_profiles
from topologies.documents import did_you_mean
from topologies.errors import Fault, InputError

REQUIRED = ("name", "dim")
MEASURED = (
    "pooling_factor",
    "pooling_std",
    "access_cdf",
    "zipf_alpha",
    "unique_fraction",
    "samples_per_session",
    "duplicate_share",
)


class StatedTables:
    """The tables of a file, with the columns of the data that feed them."""

    def __init__(self, path: Path) -> None:
        """Raises InputError for a file that is no list of tables, or that states what is measured."""
        self.document, faults = collect_profiles(path, REQUIRED)
        for index, table in enumerate(self.document.data):
            faults += [
                self.document.fault((index, key), "is measured here; leave it out") for key in MEASURED if key in table
            ]
        if faults:
            raise InputError(faults)
        self.of: dict[str, Mapping[str, Any]] = {str(table["name"]): table for table in self.document.data}

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
    from pydantic import ValidationError

    profiles, faults = [], []
    for row in rows:
        try:
            profiles.append(TableProfile.model_validate(row))
        except ValidationError as error:
            for item in error.errors(include_url=False):
                key = ".".join(map(str, item["loc"]))
                faults.append(Fault(source, 0, 0, f"{row['name']}.{key}", _words(key, item["type"], item["msg"])))
    if faults:
        raise InputError(faults)
    return profiles


def _words(key: str, kind: str, message: str) -> str:
    if kind == "missing":
        flag = " (or --dim for all tables)" if key == "dim" else ""
        return f"is not in the data; state it in a file of --tables{flag}"
    return message
