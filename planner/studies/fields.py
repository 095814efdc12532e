"""What a study may change: fields of the cluster, the workload and the policy by dotted path, whole inputs, growth."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel

from cost_models.workload.models import Workload
from planner.formulation.policy import Policy
from topologies.cluster import Topology
from topologies.documents import EVERY, did_you_mean, field_names
from topologies.errors import shown
from topologies.messages import Key, is_model, types_at
from topologies.units import Unit

ROOTS: dict[str, type[BaseModel]] = {"topology": Topology, "workload": Workload, "policy": Policy}
"""Inputs whose fields can be changed; each may also be replaced as a whole."""
GROWTH = ("growth.rows", "growth.tables")
"""Factors on the rows of every table, and on the number of tables."""
WHOLE = (*ROOTS, "prices")
Cell = str | int | float | None


@dataclass(frozen=True)
class StudyField:
    """One field that a study changes."""

    path: str
    unit: Unit | None
    is_whole: bool
    """Whether only whole numbers will do."""

    @property
    def root(self) -> str:
        """The input that it belongs to."""
        return self.path.partition(".")[0]

    @property
    def inside(self) -> str:
        """The path within that input; empty for all of it."""
        return self.path.partition(".")[2]

    @property
    def column(self) -> str:
        """Its column in the table of results."""
        return self.path + (self.unit.column if self.unit else "")

    @property
    def label(self) -> str:
        """A few words for people."""
        words = [word for word in self.path.split(".") if word != EVERY and not word.isdecimal()]
        if len(words) > 1 and words[-1] == "count":
            words.pop()
        kept = words[1:] if len(words) > 1 and words[0] in ROOTS else words
        return " ".join(kept[-2:]).replace("_", " ")

    def cell(self, value: Any) -> Cell:
        """A value as the table of results holds it: numbers in the field's unit, anything else as text."""
        if value is None or isinstance(value, bool):
            return "none" if value is None else str(value).lower()
        if self.unit is not None:
            try:
                return self.unit.parse(value)
            except ValueError:
                return str(value)
        if isinstance(value, int | float | str):
            return value
        if isinstance(value, list | tuple) and all(isinstance(item, str | int | float) for item in value):
            return "+".join(map(str, value))
        return json.dumps(value, sort_keys=True)

    def identity(self, value: Any) -> str:
        """What values that mean the same have in common: `400Gb/s` and `50GB/s`, but neither `a+b` and `[a, b]`."""
        is_listed = isinstance(value, list | tuple | dict)
        return json.dumps(value if is_listed else self.cell(value), sort_keys=True, default=str)


def repeated(identities: Sequence[object]) -> Iterator[tuple[int, int]]:
    """The place of each value that stood before, and that where it stood first."""
    first: dict[object, int] = {}
    for number, identity in enumerate(identities):
        if (before := first.setdefault(identity, number)) != number:
            yield number, before


def repetition(before: int) -> str:
    """What is said of a value that stood at another place of its list before."""
    return f"is the same as value {before} (counted from 0), and would be computed again; give each value once"


def _remedy(root: str) -> str:
    if root == "stages":
        return "; stages are those of a training run, whose own file has axes, too: planner run"
    return did_you_mean(root, [*ROOTS, "growth", "prices"])


def field_at(path: str) -> StudyField:
    """The field that a path means. Raises LookupError, in words with a remedy, where there is none."""
    if path in GROWTH or path in WHOLE:
        return StudyField(path, None, False)
    root, dot, inside = path.partition(".")
    if root == "growth":
        raise LookupError(f"there is no {path!r}{did_you_mean(path, GROWTH)}")
    if root not in ROOTS or not dot:
        raise LookupError(
            f"{path!r} must begin with topology., workload., policy. or growth., or be one of"
            f" {', '.join(WHOLE)}{_remedy(root)}"
        )
    keys: list[Key] = []
    for word in inside.split("."):
        kinds = types_at(ROOTS[root], keys)
        known = field_names(ROOTS[root], keys)
        at = ".".join(map(str, (root, *keys)))
        if any(get_origin(kind) in (tuple, list) for kind in kinds):
            keys.append(0)
        elif known and word not in known:
            raise LookupError(f"there is no {word!r} at {at}{did_you_mean(word, known)}")
        elif not known and not any(get_origin(kind) is dict for kind in kinds):
            raise LookupError(f"{at} is a single value; nothing called {word!r} is inside it")
        else:
            keys.append(word)
    kinds = types_at(ROOTS[root], keys)
    return StudyField(path, _unit_at(ROOTS[root], keys), int in kinds and float not in kinds)


def _unit_at(model: type[BaseModel], keys: list[Key]) -> Unit | None:
    for kind in types_at(model, keys[:-1]):
        if is_model(kind) and keys[-1] in kind.model_fields:
            field = kind.model_fields[str(keys[-1])]
            for marker in (*field.metadata, *_extras(field.annotation)):
                if isinstance(marker, Unit):
                    return marker
    return None


def _extras(annotation: Any) -> Iterator[Any]:
    """Everything that an annotation, or a side of a union, was annotated with."""
    if get_origin(annotation) is Annotated:
        inner, *extras = get_args(annotation)
        yield from extras
        yield from _extras(inner)
    else:
        for side in get_args(annotation):
            yield from _extras(side)


def values_between(
    field: StudyField,
    first: Any,
    last: Any,
    *,
    step: Any,
    factor: float | None,
    points: int | None,
    log: bool,
    most: int,
) -> list[Any]:
    """The values of a range, as the field reads them; `most` at most. Raises ValueError for what is none."""
    low, high = _number(field, first), _number(field, last)
    if high < low:
        raise ValueError(f"last {shown(last)} is below first {shown(first)}")
    numbers: list[float] = []
    if points is not None:
        if log and low <= 0:
            raise ValueError("logarithmic spacing needs a first value above 0")
        for i in range(points):
            share = i / (points - 1)
            numbers.append(low * (high / low) ** share if log else low + (high - low) * share)
    else:
        by = None if step is None else _number(field, step)
        if by is not None and by <= 0:
            raise ValueError(f"step {shown(step)} must be above 0")
        if by is None and low <= 0:
            raise ValueError("a factor needs a first value above 0")
        while len(numbers) <= most:
            count = len(numbers)
            at = low + count * by if by is not None else low * (factor or 1.0) ** count
            if at > high * (1 + 1e-12):
                break
            numbers.append(at)
    ends_whole = field.unit is None and isinstance(first, int) and isinstance(last, int)
    if field.is_whole or (ends_whole and all(number == round(number) for number in numbers)):
        return list(dict.fromkeys(round(number) for number in numbers))
    kept = [float(f"{number:.12g}") for number in numbers]
    return [number if field.unit is None else field.unit.text(number) for number in kept]


def _number(field: StudyField, value: Any) -> float:
    if field.unit is not None:
        return field.unit.parse(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        if isinstance(value, str) and re.search(r"[A-Za-z%]", value):
            raise ValueError(f"{shown(value)}: {field.path} has no unit; write a plain number")
        raise ValueError(f"{shown(value)} is no number")
    return float(value)
