"""Versions of the plan document, and how an older one becomes the present one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from planner.document.shards import REPLICAS
from topologies.errors import InputError

SCHEMA_VERSION: Literal[3] = 3
"""The one that this planner writes."""

Upgrade = Callable[[dict[str, Any], str], dict[str, Any]]
"""From a document of one version, and its source for messages, to the same of the next; it leaves `schema_version`."""


@dataclass(frozen=True)
class Renamed:
    """A field that has another name since a version."""

    where: str
    """Path of the mappings that have it; `*` for every element of a list."""
    old: str
    new: str


RENAMED_IN_2 = (
    Renamed("proof", "byte_prices", "memory_multipliers"),
    Renamed("proof", "tried_s", "exhaustive_search_s"),
    Renamed("proof.packing", "byte_prices", "memory_multipliers"),
    Renamed("proof.branching", "cases", "nodes"),
    Renamed("proof.branching.nodes.*", "decides", "decision"),
    Renamed("proof.branching.nodes.*", "divided_by", "branches_on"),
    Renamed("proof.branching.nodes.*", "byte_prices", "memory_multipliers"),
    Renamed("infeasibility", "byte_prices", "memory_multipliers"),
    Renamed("infeasibility", "tried", "exhaustive_search"),
)
"""In this order: a path has the names that the fields before it have given."""


@dataclass(frozen=True)
class Reworded:
    """The first words of a text, which are others since a version."""

    where: str
    old: str
    new: str


REWORDED_IN_2 = tuple(
    Reworded(f"{bar}.spec_only.*", old, new)
    for bar in ("objective.error_bar", "stages.*.error_bar")
    for old, new in (("storage of ", "SSD of "), ("hosts of ", "remote hosts of "))
)

NEW_IN_3 = f"tables.*.shards.*.{REPLICAS}"
"""What ranks hold alike is one shard since then; before, each of them has its own."""


def in_present_version(data: dict[str, Any], source: str) -> dict[str, Any]:
    """The mapping of a plan document in the present version, by way of all those between.

    Raises InputError for a version that this planner does not read, and for an old document with fields of a newer one.
    """
    return upgraded(data, UPGRADES, source)


def upgraded(data: dict[str, Any], upgrades: Sequence[Upgrade], source: str) -> dict[str, Any]:
    """A document after each upgrade since its own version: the first of them leads from version 1 to 2, and so on.

    Raises InputError for a version that no upgrade starts from and that is not the last.
    """
    version, newest, present = data.get("schema_version"), len(upgrades) + 1, data
    if type(version) is not int or version not in range(1, newest + 1):
        message = f"has version {version!r}; this planner reads {f'1 to {newest}' if newest > 1 else newest}"
        newer = type(version) is int and version > newest
        message += "; a newer one wrote it: update this one" if newer else ""
        raise InputError.at(source, message, path="schema_version")
    for upgrade in upgrades[version - 1 :]:
        present = upgrade(present, source)
    return {**present, "schema_version": newest}


def _to_2(data: dict[str, Any], source: str) -> dict[str, Any]:
    """Fields of proofs have the names of the literature."""
    for field in RENAMED_IN_2:
        data = _changed(data, field.where.split("."), partial(_renamed, field=field, source=source))
    for text in REWORDED_IN_2:
        data = _changed(data, text.where.split("."), partial(_reworded, text=text))
    return data


def _to_3(data: dict[str, Any], source: str) -> dict[str, Any]:
    """What ranks hold alike may be one shard: documents of before have nothing to change, and no such shard."""
    version = data["schema_version"]
    _changed(data, NEW_IN_3.split(".")[:-1], partial(_without_replicas, source=source, version=version))
    return data


def _without_replicas(shard: Any, source: str, version: int) -> Any:
    """A shard of a version that writes each one by itself."""
    field = NEW_IN_3.split(".")[-1]
    if isinstance(shard, dict) and field in shard:
        message = f"{field!r} is a field of version 3, and the document has version {version}"
        raise InputError.at(source, message, path=NEW_IN_3)
    return shard


def _changed(value: Any, path: list[str], change: Callable[[Any], Any]) -> Any:
    """A copy of a document's value with a change to all that lies at the path; what is not there stays as it is."""
    if not path:
        return change(value)
    if path[0] == "*" and isinstance(value, list):
        return [_changed(each, path[1:], change) for each in value]
    if isinstance(value, dict) and path[0] in value:
        return {**value, path[0]: _changed(value[path[0]], path[1:], change)}
    return value


def _renamed(value: Any, field: Renamed, source: str) -> Any:
    """A mapping with a field under its new name."""
    if not isinstance(value, dict):
        return value
    if field.new in value:
        message = f"{field.new!r} is a field of version 2, and the document has version 1"
        raise InputError.at(source, message, path=field.where)
    return {field.new if key == field.old else key: each for key, each in value.items()}


def _reworded(value: Any, text: Reworded) -> Any:
    """A text with its first words as they are now."""
    if isinstance(value, str) and value.startswith(text.old):
        return text.new + value.removeprefix(text.old)
    return value


UPGRADES: tuple[Upgrade, ...] = (_to_2, _to_3)
"""A new version is a function here, SCHEMA_VERSION one more, and a section of docs/reference/plan-versions.md."""
