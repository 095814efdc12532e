"""What pydantic found wrong, in plain English, with the remedy where one is known."""

import difflib
import re
import types
import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, WithJsonSchema
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from topologies.errors import shown

Key = str | int

_WANTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of usual size",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text (put it in quotes)",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping of keys",
    "date_type": "a date, as 2026-03-31",
    "date_parsing": "a date, as 2026-03-31",
    "date_from_datetime_parsing": "a date, as 2026-03-31",
}
_LIMITS = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "at most"),
}


@dataclass(frozen=True)
class MessageRemedy:
    """What to write where a required field is missing; put into the field's annotation."""

    text: str


def describe(item: ErrorDetails, model: type[BaseModel], path: Sequence[Key]) -> str:
    """What one error of pydantic's means for the field at `path` of a `model`."""
    kind, value, limits = item["type"], item["input"], item.get("ctx", {})
    if kind == "extra_forbidden":
        return unknown_key(str(path[-1]), field_names(model, path[:-1]))
    if kind == "missing":
        return f"is missing{_remedy(model, path)}"
    if kind in {"model_type", "model_attributes_type"}:
        keys = ", ".join(field_names(model, path))
        return f"must be a mapping of {keys}, not {_named(value)}{_remedy(model, path)}"
    if kind in _WANTED:
        return f"must be {_WANTED[kind]}, not {_named(value)}{written_out(value)}"
    if kind in _LIMITS:
        key, words = _LIMITS[kind]
        return f"must be {words} {str(limits[key]).removesuffix('.0')}, not {shown(value)}"
    if kind == "literal_error":
        return f"must be {limits['expected']}, not {shown(value)}{_nearest_of(value, limits['expected'])}"
    if kind in {"too_short", "string_too_short"} and limits.get("min_length") == 1:
        return "must not be empty"
    if kind == "string_too_long":
        return f"must have at most {limits['max_length']} characters, not {len(value)}"
    if kind == "invalid_key":
        return f"a key must be text; put {shown(value)} in quotes"
    message = item["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if kind in {"value_error", "assertion_error"}:
        return message
    return f"{message[0].lower()}{message[1:]} (got {shown(value)})"


def written_out(value: object) -> str:
    """What to write for a number with a letter for its thousands, which some count as 1,024, or with commas."""
    if not isinstance(value, str):
        return ""
    if match := re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kKMG])\s*", value):
        number, power = float(match[1]), "kMG".index(match[2].replace("K", "k")) + 1
        return f"; write {number * 1000**power:.0f}, or {number * 1024**power:.0f} for {match[2]}i"
    if re.fullmatch(r"\s*\d{1,3}(,\d{3})+\s*", value):
        return f"; write {value.strip().replace(',', '')}"
    return ""


def _nearest_of(value: object, expected: str) -> str:
    """The word of those in quotes that a misspelt one is meant to be; "" where none is near."""
    if not isinstance(value, str):
        return ""
    nearest = did_you_mean(value, re.findall(r"'([^']*)'", expected))
    return nearest if nearest.startswith("; did you mean") else ""


def _named(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return "nothing" if value is None else shown(value)


def unknown_key(key: str, known: Iterable[str]) -> str:
    """What to say about a key that does not exist."""
    return f"unknown key{did_you_mean(key, known)}"


_MOST_COMPARED = 200
"""Characters of a word that are compared with names that are known."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`"; did you mean 'x'?"`, or what there is to choose from. Of a long word only the start is compared."""
    names = sorted(known)
    spelled = {name.lower(): name for name in names}
    if close := difflib.get_close_matches(word[:_MOST_COMPARED].lower(), spelled, n=1, cutoff=0.6):
        return f"; did you mean {spelled[close[0]]!r}?"
    return f"; known here: {', '.join(names)}" if names else ""


def nearest_name(pattern: str, names: Sequence[str]) -> str:
    """The name nearest to a pattern's letters, as `did_you_mean` says it, or the first ones of many."""
    if close := did_you_mean(re.sub(r"[*?\[\]!]", "", pattern), names):
        return close if close.startswith("; did") or len(names) <= 8 else f"; the first are {', '.join(names[:4])}"
    return ""


def field_names(model: type[BaseModel], path: Sequence[Key]) -> list[str]:
    """The keys that a mapping at `path` inside a `model` may have."""
    return [name for kind in types_at(model, path) if is_model(kind) for name in kind.model_fields]


def is_model(kind: Any) -> bool:
    """Whether an annotation is a pydantic model, a mapping of known keys."""
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def types_at(kind: Any, path: Sequence[Key]) -> list[Any]:
    """Every type that the annotation `kind` allows at `path` (unions are followed on all sides)."""
    origin = typing.get_origin(kind)
    if origin is Annotated:
        return types_at(typing.get_args(kind)[0], path)
    if origin in (typing.Union, types.UnionType):
        return [type_ for side in typing.get_args(kind) for type_ in types_at(side, path)]
    if not path:
        return [kind]
    if origin in (list, tuple):
        return types_at(typing.get_args(kind)[0], path[1:]) if isinstance(path[0], int) else []
    if origin is dict:
        return types_at(typing.get_args(kind)[1], path[1:])
    if is_model(kind) and path[0] in kind.model_fields:
        return types_at(kind.model_fields[str(path[0])].annotation, path[1:])
    return []


def _remedy(model: type[BaseModel], path: Sequence[Key]) -> str:
    """What to write at `path`: the field's own remedy, or the example of its unit."""
    for kind in types_at(model, path[:-1]):
        field: FieldInfo | None = kind.model_fields.get(str(path[-1])) if is_model(kind) else None
        for extra in field.metadata if field else ():
            if isinstance(extra, MessageRemedy):
                return f"; {extra.text}"
            if isinstance(extra, WithJsonSchema) and extra.json_schema and "examples" in extra.json_schema:
                return f"; write for example {path[-1]}: {extra.json_schema['examples'][0]}"
    return ""
