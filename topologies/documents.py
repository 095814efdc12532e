"""YAML with positions: read, override, validate; every fault is reported with its line and column."""

import ast
import copy
import inspect
import itertools
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationError, create_model
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails

from topologies.errors import ConflictError, Fault, InputError
from topologies.messages import Key as Key
from topologies.messages import describe, is_model, types_at
from topologies.messages import did_you_mean as did_you_mean
from topologies.messages import field_names as field_names
from topologies.messages import unknown_key as unknown_key
from topologies.sources import note
from topologies.yaml_trees import compose

Position = tuple[int, int]
EVERY = "*"
"""In a path, stands for all elements of a list."""


class Record(BaseModel):
    """The base of every model that is read from a file: frozen, no unknown keys, no NaN."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        protected_namespaces=(),
    )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The schema, with what the code says below each field.

        pydantic's `use_attribute_docstrings` reads the source of every model at every start, which takes 0.1 s.
        """
        described = handler(schema)
        properties = handler.resolve_ref_schema(described)["properties"]
        words: dict[str, str | None] = {}
        for model in reversed(cls.__mro__):
            if issubclass(model, Record):
                words |= _words_of_fields(model)
        for name, info in cls.model_fields.items():
            if info.description is None and (text := words.get(name)) is not None:
                properties[name]["description"] = text
        return described


def _words_of_fields(model: type[BaseModel]) -> dict[str, str | None]:
    """The string below each annotated name in the source of a model; None where there is none.

    A model that `with_fields` made has no source of its own: what it adds says in its `Field` what it is.
    """
    try:
        source = inspect.getsource(model)
    except OSError:  # Python 3.13; those before find the class that it was made from
        return {}
    (body,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(body, ast.ClassDef)
    words = {}
    for line, below in itertools.pairwise([*body.body, ast.Pass()]):
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            text = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else None
            words[line.target.id] = inspect.cleandoc(text) if isinstance(text, str) else None
    return words


Model = TypeVar("Model", bound=BaseModel)


def with_fields(types: Mapping[str, Any]) -> Callable[[type[Model]], type[Model]]:
    """A class decorator: the model with one more field for each name, of the type that stands with it.

    It is for models whose fields follow from a table of the domain, such as one field for each memory. A default stands
    in the `Field` of an annotated type, as of any other field.
    """

    def extended(model: type[Model]) -> type[Model]:
        return create_model(model.__name__, __base__=model, __doc__=model.__doc__, __module__=model.__module__, **types)

    return extended


@dataclass
class Document:
    """Plain data (dicts, lists, scalars) and the way back to where each value stood.

    `locate` maps a path of keys to (line, column), both from 1, or None when the source has no positions.
    `overridden` remembers which paths were replaced from outside: by which document, and where in it.
    """

    data: Any
    source: str
    locate: Callable[[Sequence[Key]], Position | None] = lambda _path: None
    overridden: dict[tuple[Key, ...], "Origin"] = field(default_factory=dict)
    directory: Path | None = None
    """Where relative paths inside the document start."""
    included: frozenset[tuple[Key, ...]] = frozenset()
    """Those of `overridden` that the document itself leaves to another file."""

    def fault(self, path: Sequence[Key], message: str) -> Fault:
        """A fault at `path`, at the position of the nearest key that exists, in the document that set it."""
        for length in range(len(path), 0, -1):
            if origin := self.overridden.get(tuple(path[:length])):
                return self._fault_there(origin, path[length:], path, message)
        line, column = self.locate(path) or (0, 0)
        return Fault(self.source, line, column, ".".join(map(str, path)), message)

    def include(self, path: tuple[Key, ...], other: "Document") -> None:
        """Take what another document says as the value at `path`, which the document left to it."""
        self.overridden[path] = (other, ())
        self.included |= {path}

    def fault_within(self, path: Sequence[Key], message: str, fields: Sequence[Sequence[Key]] = ((),)) -> Fault:
        """A fault of `fields` inside `path` against each other: laid to the one overridden last, else to the first."""
        parts = [(*path, *part) for part in fields]
        inside = [
            key
            for key in self.overridden
            if key not in self.included
            and len(key) > len(path)
            and any(key[: len(part)] == part or part[: len(key)] == key for part in parts)
        ]
        if not inside:
            return self.fault(parts[0], message)
        return self._fault_there(self.overridden[inside[-1]], (), path, message)

    @staticmethod
    def _fault_there(origin: "Origin", rest: Sequence[Key], path: Sequence[Key], message: str) -> Fault:
        document, at = origin
        line, column = document.locate((*at, *rest)) or (0, 0)
        return Fault(document.source, line, column, ".".join(map(str, path)), message)


Origin = tuple[Document, tuple[Key, ...]]
"""A document that said a value, and where in it."""


STDIN = Path("-")
"""The path that stands for standard input."""
TABULAR = frozenset({".csv", ".tsv", ".parquet", ".pq"})
"""What files end in that hold rows and columns."""


def read_yaml(path: Path) -> Document:
    """Read one YAML file, or standard input.

    Raises InputError if it cannot be read, is not YAML, has a key twice or is empty.
    """
    source = "standard input" if path == STDIN else str(path)
    if path.suffix.lower() in TABULAR:
        raise InputError.at(source, "is a file of tables, which a workload may be (-w); a YAML document is needed here")
    try:
        content = sys.stdin.buffer.read() if path == STDIN else note(path).read_bytes()
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise InputError.at(source, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError.at(source, "is not UTF-8 text; save it as UTF-8") from None
    document = parse_yaml(text, source)
    document.directory = path.parent
    return document


def parse_yaml(text: str, source: str) -> Document:
    """`read_yaml` for text that is already in memory."""
    root, data = compose(text, source)
    if root is None or data is None:
        raise InputError.at(source, "is empty")
    tree = root
    return Document(data, source, lambda path: _position(tree, path))


def _position(node: yaml.Node, path: Sequence[Key]) -> Position:
    """Line and column of the deepest node on `path`; of the key where the last step is a mapping's."""
    mark = node.start_mark
    for key in path:
        if isinstance(node, yaml.MappingNode):
            # From the end: what a merge (<<) brought in stands first, and the mapping's own keys win.
            entry = next(((k, v) for k, v in reversed(node.value) if k.value == str(key)), None)
            if entry is None:
                break
            mark, node = entry[0].start_mark, entry[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            node = node.value[key]
            mark = node.start_mark
        else:
            break
    return mark.line + 1, mark.column + 1


def validate(document: Document, model: type[Model]) -> Model:
    """The document as a `model`. Raises InputError with all its faults."""
    if not isinstance(document.data, dict):
        kind = "list" if isinstance(document.data, list) else "single value"
        raise InputError.at(document.source, f"must be a mapping of keys, not a {kind}", line=1, column=1)
    try:
        return model.model_validate(document.data)
    except ValidationError as error:
        raise InputError(_faults(document, model, error)) from None


def _faults(document: Document, model: type[BaseModel], error: ValidationError) -> Iterable[Fault]:
    """One fault for each path; what the sides of a union say about one value is joined."""
    messages: dict[tuple[Key, ...], list[str]] = {}
    within: dict[tuple[Key, ...], Sequence[Sequence[Key]]] = {}
    for item in error.errors(include_url=False):
        path = _data_path(document.data, item)
        messages.setdefault(path, []).append(describe(item, model, path))
        if item["type"] == "value_error":
            conflict = item["ctx"]["error"]
            within[path] = conflict.fields if isinstance(conflict, ConflictError) and conflict.fields else ((),)
    for path, found in messages.items():
        message = "; or ".join(dict.fromkeys(found))
        yield document.fault_within(path, message, within[path]) if path in within else document.fault(path, message)


def _data_path(data: Any, item: ErrorDetails) -> tuple[Key, ...]:
    """The keys of the document on the way to an error, without the sides of unions that pydantic adds."""
    path: list[Key] = []
    for depth, key in enumerate(item["loc"]):
        inside = key in data if isinstance(data, dict) else isinstance(data, list) and key in range(len(data))
        if inside:
            data = data[key]
            path.append(key)
        elif item["type"] == "missing" and depth == len(item["loc"]) - 1:
            path.append(key)
    return tuple(path)


def override(document: Document, path: str, value: str, model: type[BaseModel], words: str) -> None:
    """Replace the field at the dotted `path` (`nodes.0.count`) by `value`, YAML text.

    A list is entered by index or by the `name` of its element. `words` is how the user said it (`--set …`),
    for messages. Raises InputError for a path that the `model` does not have, or a value that is not YAML.
    """
    assign(document, path, read_value(value, words), model, (Document(None, words), ()))


def read_value(value: str, words: str) -> Any:
    """The plain data of a value that a user gave as YAML text with `words`. Raises InputError."""
    try:
        return compose(value, words)[1]
    except InputError as error:
        raise InputError.at(words, f"the value is not YAML: {error.faults[0].message}") from None


def assign(document: Document, path: str, value: Any, model: type[BaseModel], origin: Origin) -> None:
    """`override` with a value of plain data; `origin` is the document that says so, and where in it.

    Mappings that are missing on the way are created; nothing changes when an error is raised.
    """
    source, at = origin
    taken: list[Any] = []  # str for a mapping, int for a list
    here = document.data
    for name in path.split("."):
        try:
            key: Any = _step(here, name, model, taken)
        except LookupError as error:
            raise InputError([source.fault(at, str(error.args[0]))]) from None
        taken.append(key)
        here = here[key] if isinstance(here, list) else (here or {}).get(key)
    inner = document.data
    for depth, key in enumerate(taken[:-1], start=1):
        if inner[key] is None if isinstance(inner, list) else inner.get(key) is None:
            inner[key] = {}
            document.overridden[tuple(taken[:depth])] = origin
        inner = inner[key]
    inner[taken[-1]] = value
    document.overridden.pop(tuple(taken), None)  # so that the last word also stands last
    document.overridden[tuple(taken)] = origin


def assign_everywhere(document: Document, path: str, value: Any, model: type[BaseModel], origin: Origin) -> None:
    """`assign` at every path that one with `*` stands for: all elements of a list."""
    try:
        paths = _expanded(document.data, path.split("."))
    except LookupError as error:
        raise InputError([origin[0].fault(origin[1], str(error.args[0]))]) from None
    for words in paths:
        assign(document, ".".join(words), copy.deepcopy(value), model, origin)


def _expanded(data: Any, words: list[str]) -> list[list[str]]:
    """The paths that words with `*` stand for in some data. Raises LookupError where there is no list."""
    if EVERY not in words:
        return [words]
    depth = words.index(EVERY)
    here = data
    for word in words[:depth]:
        here = _inside(here, word)
    if not isinstance(here, list) or not here:
        raise LookupError(f"{'.'.join(words[:depth])} is no list; * stands for the elements of one")
    one_each = ([*words[:depth], str(index), *words[depth + 1 :]] for index in range(len(here)))
    return [expanded for each in one_each for expanded in _expanded(data, each)]


def _inside(data: Any, word: str) -> Any:
    """What stands in a mapping at a key, or in a list at an index or under a name; None where nothing does."""
    if isinstance(data, dict):
        return data.get(word)
    if not isinstance(data, list):
        return None
    if word.isdecimal():
        return None if (at := _index(word, len(data))) is None else data[at]
    return next((item for item in data if isinstance(item, dict) and item.get("name") == word), None)


def _index(word: str, count: int) -> int | None:
    """The one of `count` elements that a word numbers, from 0; None where it numbers none, in however many digits."""
    digits = word.lstrip("0") or "0"
    is_short = word.isdecimal() and len(digits) <= len(str(count))
    return int(digits) if is_short and int(digits) < count else None


def _step(data: Any, key: str, model: type[BaseModel], taken: Sequence[Key]) -> Key:
    """The key or index that `key` means inside `data`, which stands at `taken`. Raises LookupError."""
    at = ".".join(map(str, taken)) or "the top"
    allowed = types_at(model, taken)
    wants_list = any(get_origin(kind) in (tuple, list) for kind in allowed)
    if isinstance(data, list) or (data is None and wants_list):
        elements = data or []
        names = [str(item.get("name")) for item in elements if isinstance(item, dict)]
        if key in names:
            return names.index(key)
        if (index := _index(key, len(elements))) is not None:
            return index
        known = names or [str(index) for index in range(min(len(elements), 8))]
        count = f"{len(elements)} element{'' if len(elements) == 1 else 's'}"
        raise LookupError(f"{at} has {count} and none is {key!r}{did_you_mean(key, known)}")
    wants_mapping = any(is_model(kind) or get_origin(kind) is dict for kind in allowed)
    if not (isinstance(data, dict) or (data is None and taken)) or not wants_mapping:
        raise LookupError(f"{at} is a single value; nothing called {key!r} is inside it")
    known = field_names(model, taken)
    if known and key not in known:
        raise LookupError(f"there is no {key!r} at {at}{did_you_mean(key, known)}")
    return key
