"""YAML (and tables) with positions: read, override, validate; every fault reported with its line and column."""

import difflib
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from topologies.errors import Fault, InputError

Key = str | int
Position = tuple[int, int]


class Record(BaseModel):
    """The base of every model that is read from a file: frozen, no unknown keys, no NaN; doc strings are the schema."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True, protected_namespaces=()
    )


Model = TypeVar("Model", bound=BaseModel)


@dataclass
class Document:
    """Plain data (dicts, lists, scalars) and the way back to where each value stood.

    `locate` maps a path of keys to (line, column), both from 1, or None when the source has no positions.
    `overridden` remembers which paths were replaced from outside, and by what words.
    """

    data: Any
    source: str
    locate: Callable[[Sequence[Key]], Position | None] = lambda _path: None
    overridden: dict[tuple[Key, ...], str] = field(default_factory=dict)
    directory: Path | None = None
    """Where relative paths inside the document start."""

    def fault(self, path: Sequence[Key], message: str) -> Fault:
        """A fault at `path`, at the position of the nearest key that exists."""
        dotted = ".".join(map(str, path))
        for length in range(len(path), 0, -1):
            if (words := self.overridden.get(tuple(path[:length]))) is not None:
                return Fault(words, 0, 0, dotted, message)
        line, column = self.locate(path) or (0, 0)
        return Fault(self.source, line, column, dotted, message)


class _Loader(yaml.CSafeLoader):
    """The C loader, which refuses a key that stands twice in one mapping."""


def _construct_mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    first: dict[str, yaml.Node] = {}
    for key, _ in node.value:
        if key.tag == "tag:yaml.org,2002:merge":
            continue
        if key.value in first:
            line = first[key.value].start_mark.line + 1
            problem = f"the key {key.value!r} stands twice, first in line {line}; keep one"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
        first[key.value] = key
    loader.flatten_mapping(node)
    return {loader.construct_object(k): loader.construct_object(v, deep=True) for k, v in node.value}


_Loader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)


def read_yaml(path: Path, name: str | None = None) -> Document:
    """Read one YAML file.

    Raises InputError if it cannot be read, is not YAML, has a key twice or is empty.
    """
    source = name or str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError.at(source, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError.at(source, "is not UTF-8 text") from None
    document = parse_yaml(text, source)
    document.directory = path.parent
    return document


def parse_yaml(text: str, source: str) -> Document:
    """`read_yaml` for text that is already in memory."""
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        data = None if root is None else loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        message = error.problem or "is not valid YAML"
        raise InputError.at(source, message, line=line, column=column) from None
    except yaml.YAMLError as error:
        raise InputError.at(source, f"is not valid YAML: {error}") from None
    finally:
        loader.dispose()
    if data is None:
        raise InputError.at(source, "is empty")
    return Document(data, source, lambda path: _position(root, path))


def _position(node: yaml.Node, path: Sequence[Key]) -> Position:
    """Line and column of the deepest node on `path`; of the key where the last step is a mapping's."""
    mark = node.start_mark
    for key in path:
        if isinstance(node, yaml.MappingNode):
            found = next(((k, v) for k, v in node.value if k.value == str(key)), None)
            if found is None:
                break
            mark, node = found[0].start_mark, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            node = node.value[key]
            mark = node.start_mark
        else:
            break
    return mark.line + 1, mark.column + 1


def validate(document: Document, model: type[Model]) -> Model:
    """The document as a `model`. Raises InputError with all its faults."""
    if not isinstance(document.data, dict):
        raise InputError.at(document.source, f"must be a mapping of keys, not a {type(document.data).__name__}")
    try:
        return model.model_validate(document.data)
    except ValidationError as error:
        raise InputError(_faults(document, model, error)) from None


def _faults(document: Document, model: type[BaseModel], error: ValidationError) -> Iterable[Fault]:
    for item in error.errors(include_url=False):
        path = [key for key in item["loc"] if isinstance(key, int) or not _is_union_tag(key)]
        yield document.fault(path, _message(dict(item), model, path))


def _is_union_tag(key: str) -> bool:
    """Pydantic puts the name of the tried type of a union into the path; such names hold a bracket or a capital."""
    return "[" in key or key[:1].isupper() or key in {"int", "str", "float", "bool"}


def _message(item: dict[str, Any], model: type[BaseModel], path: Sequence[Key]) -> str:
    if item["type"] == "extra_forbidden":
        return unknown_key(str(path[-1]), field_names(model, path[:-1]))
    if item["type"] == "missing":
        return "is missing"
    message = str(item["msg"]).removeprefix("Value error, ")
    if item["type"] in {"value_error", "assertion_error"}:
        return message
    return f"{message[0].lower()}{message[1:]} (got {item['input']!r})"


def unknown_key(key: str, known: Iterable[str]) -> str:
    """What to say about a key that does not exist."""
    return f"unknown key{did_you_mean(key, known)}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`"; did you mean 'x'?"`, or what there is to choose from."""
    names = sorted(known)
    if close := difflib.get_close_matches(word, names, n=1, cutoff=0.6):
        return f"; did you mean {close[0]!r}?"
    return f"; known here: {', '.join(names)}" if names else ""


def field_names(model: type[BaseModel], path: Sequence[Key]) -> list[str]:
    """The keys that a mapping at `path` inside a `model` may have."""
    found = _types_at(model, path)
    return [name for kind in found for name in _model_fields(kind)]


def _model_fields(kind: Any) -> list[str]:
    return list(kind.model_fields) if isinstance(kind, type) and issubclass(kind, BaseModel) else []


def _types_at(kind: Any, path: Sequence[Key]) -> list[Any]:
    """Every type that the annotation `kind` allows at `path` (unions are followed on all sides)."""
    origin = typing.get_origin(kind)
    if origin is Annotated:
        return _types_at(typing.get_args(kind)[0], path)
    if origin in (typing.Union, types.UnionType):
        return [found for side in typing.get_args(kind) for found in _types_at(side, path)]
    if not path:
        return [kind]
    if origin in (list, tuple):
        return _types_at(typing.get_args(kind)[0], path[1:]) if isinstance(path[0], int) else []
    if origin is dict:
        return _types_at(typing.get_args(kind)[1], path[1:])
    if isinstance(kind, type) and issubclass(kind, BaseModel) and path[0] in kind.model_fields:
        return _types_at(kind.model_fields[str(path[0])].annotation, path[1:])
    return []


def override(document: Document, path: str, value: str, model: type[BaseModel], words: str) -> None:
    """Replace the field at the dotted `path` (`nodes.0.count`) by `value`, YAML text.

    A list is entered by index or by the `name` of its element. `words` is how the user said it (`--set …`), for
    messages. Raises InputError for a path that the `model` does not have.
    """
    keys = path.split(".")
    data = document.data
    taken: list[Key] = []
    for depth, key in enumerate(keys):
        step = _step(data, key, model, taken, words)
        taken.append(step)
        if depth == len(keys) - 1:
            break
        if isinstance(data, dict):
            data = data.setdefault(step, {})
        else:
            data = data[int(step)]
    try:
        data[taken[-1]] = yaml.safe_load(value)
    except yaml.YAMLError:
        raise InputError.at(words, f"{value!r} is not a YAML value") from None
    document.overridden[tuple(taken)] = words


def _step(data: Any, key: str, model: type[BaseModel], taken: list[Key], words: str) -> Key:
    at = ".".join(map(str, taken)) or "the top"
    if isinstance(data, list):
        names = [str(item.get("name")) for item in data if isinstance(item, dict)]
        if key in names:
            return names.index(key)
        if key.isdigit() and int(key) < len(data):
            return int(key)
        raise InputError.at(words, f"{at} has {len(data)} elements and none is {key!r}{did_you_mean(key, names)}")
    if not isinstance(data, dict):
        raise InputError.at(words, f"{at} is a single value; nothing called {key!r} is inside it")
    known = field_names(model, taken)
    if key not in known and key not in data:
        raise InputError.at(words, f"there is no {key!r} at {at}{did_you_mean(key, known)}")
    return key
