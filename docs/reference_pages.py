"""The reference that code states, as Markdown: commands, fields of files, coefficients, errors, the Python API."""

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import typer
import yaml
from pydantic import BaseModel

import planner
from cost_models import coefficients
from cost_models.coefficients import records
from planner.cli.app import app
from planner.cli.exits import ExitCode
from planner.cli.panels import PANEL_OF
from planner.cli.schema import SchemaKind, schema_document
from planner.errors import UnsoundPlanError
from topologies.errors import ConflictError, Fault, InputError, MissingPackageError

Schema = Mapping[str, Any]


def _table(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table; pipes and angle brackets in cells are text."""
    lines = [list(header), *rows]
    cells = [[" ".join(str(cell).replace("|", "\\|").split()) for cell in line] for line in lines]
    cells.insert(1, ["---"] * len(cells[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in cells) + "\n"


def _code(text: object) -> str:
    return f"`{text}`" if str(text) else ""


def _words(text: str) -> str:
    """A sentence of code or help in Markdown: nothing in it is markup but what stands in backticks."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(p if p.startswith("`") else re.sub(r"([\\*_<>\[\]$])", r"\\\1", p) for p in parts)


# commands


def commands() -> str:
    """Every command with its flags, from the tree that the terminal's help is made of."""
    return "\n".join(_command(typer.main.get_command(app), "planner", None))


def _command(command: Any, name: str, parent: Any) -> Iterator[str]:
    ctx = command.context_class(command, info_name=name, parent=parent)
    if parent is not None:
        yield f"## `{ctx.command_path}`\n"
    yield from _help_text(command.help or "")
    yield f"```text\n{ctx.command_path} {' '.join(command.collect_usage_pieces(ctx))}\n```\n"
    rows = []
    for parameter in command.get_params(ctx):
        if (record := parameter.get_help_record(ctx)) is not None:
            panel = next((PANEL_OF[option] for option in parameter.opts if option in PANEL_OF), "")
            rows.append((_code(record[0]), _words(record[1]), panel))
    yield _table(("flag or argument", "meaning", "what it is for"), rows)
    for word, child in getattr(command, "commands", {}).items():
        yield from _command(child, word, ctx)


def _help_text(text: str) -> Iterator[str]:
    """Paragraphs as they are; examples, which help keeps line by line, as code."""
    for paragraph in re.split(r"\n\n(?!\s)", text):
        if not paragraph.startswith("\b"):
            yield _words(paragraph) + "\n"
            continue
        words, *lines = paragraph.removeprefix("\b").strip("\n").split("\n")
        yield f"{_words(words)}\n\n```text\n{textwrap.dedent(chr(10).join(lines))}\n```\n"


# fields


def fields() -> str:
    """Every key of every kind of file, from the models that read them."""
    return "\n".join(part for kind in SchemaKind for part in _fields_of(kind))


def _fields_of(kind: SchemaKind) -> Iterator[str]:
    document = schema_document(kind)
    yield f"## {kind.value}\n\n{_words(document.get('description', ''))}\n"
    definitions: Schema = document.get("$defs", {})
    yield _field_table(kind, document, definitions)
    for name, model in definitions.items():
        if "properties" in model:
            yield f"({_anchor(kind, name)})=\n\n### {kind.value}: {name}\n\n{_words(model.get('description', ''))}\n"
            yield _field_table(kind, model, definitions)


def _anchor(kind: SchemaKind, name: str) -> str:
    return f"{kind.value}-{name}".lower()


def _field_table(kind: SchemaKind, model: Schema, definitions: Schema) -> str:
    required, alone = set(model.get("required", ())), set()
    if "anyOf" in model:  # a document may start from another one instead
        alone = set(model["anyOf"][0]["required"])
    rows = []
    for name, field in model["properties"].items():
        default = "required" if name in required else "required without `base`" if name in alone else _default(field)
        meaning = _words(field.get("description", ""))
        rows.append((_code(name), _type(kind, field, definitions), default, meaning))
    return _table(("key", "value", "default", "meaning"), rows)


def _default(field: Schema) -> str:
    value = field.get("default")
    return "unset" if value is None else _code(json.dumps(value, ensure_ascii=False))


def _type(kind: SchemaKind, field: Schema, definitions: Schema) -> str:
    """What a value may be, in words, with its unit, its range and an example."""
    if "$ref" in field:
        name = field["$ref"].rsplit("/", 1)[-1]
        target = definitions[name]
        return f"[{name}](#{_anchor(kind, name)})" if "properties" in target else _type(kind, target, definitions)
    for key in ("anyOf", "oneOf"):
        if key in field:
            ways = (_type(kind, each, definitions) for each in field[key] if each.get("type") != "null")
            return " or ".join(dict.fromkeys(ways))
    if "enum" in field or "const" in field:
        return ", ".join(_code(word) for word in field.get("enum", [field.get("const")]))
    if "prefixItems" in field:
        return "list of (" + ", ".join(_type(kind, each, definitions) for each in field["prefixItems"]) + ")"
    if field.get("type") == "array":
        return f"list of {_type(kind, field.get('items', {}), definitions)}"
    if field.get("type") == "object":
        return f"map to {_type(kind, values, definitions)}" if (values := _values(field)) else "map"
    return _scalar(field)


def _values(field: Schema) -> Schema | None:
    values = field.get("additionalProperties")
    return values if isinstance(values, Mapping) else None


def _scalar(field: Schema) -> str:
    words = field.get("description", "")
    kinds = field.get("format", field.get("type", "any value"))
    named = kinds if isinstance(kinds, str) else " or ".join(kinds)
    what = _words(words) if words.startswith("a quantity") else named
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    limits = [f"{sign} {field[key]:g}" for key, sign in signs.items() if key in field]
    examples = [f"as `{example}`" for example in field.get("examples", ()) if isinstance(example, str | int | float)]
    return ", ".join([what, *limits, *examples])


# coefficients

FOLDERS: dict[str, tuple[str, type[BaseModel]]] = {
    "devices": ("Accelerators", records.DeviceCoefficients),
    "links": ("Links", records.LinkCoefficients),
    "collectives": ("Collectives", records.CollectiveCoefficients),
    "software": ("Software", records.SoftwareCoefficients),
    "kernels": ("Kernels of pooled tables, by software and device", BaseModel),
    "host": ("Host", records.HostCoefficients),
    "optimizers": ("Optimizers of the dense part", records.OptimizerCoefficients),
    "planners": ("Ratings of other planners", BaseModel),
    "harnesses": ("Harnesses of published measurements", records.HarnessCoefficients),
}


def coefficient_tables() -> str:
    """Every coefficient that comes with the planner, with its unit, error and source."""
    root, parts = Path(coefficients.__file__).parent, []
    for folder, (title, model) in FOLDERS.items():
        parts.append(f"## {title}\n")
        meanings = _meanings(model)
        if meanings:
            parts.append(_table(("coefficient", "meaning"), [(_code(k), _words(v)) for k, v in meanings.items()]))
        for path in sorted((root / folder).glob("*.yaml")):
            parts.append(f"### {path.stem} ({title.lower()})\n")
            parts += _coefficient_file(yaml.safe_load(path.read_text(encoding="utf-8")))
    return "\n".join(parts)


def _meanings(model: type[BaseModel]) -> dict[str, str]:
    if model in (BaseModel, records.HarnessCoefficients):
        return {}
    properties = model.model_json_schema()["properties"]
    return {name: field["description"] for name, field in properties.items() if "description" in field}


def _coefficient_file(content: Schema) -> Iterator[str]:
    stated = {
        key: each for key, each in content.items() if isinstance(each, Mapping) and {"source", "unit"} <= each.keys()
    }
    rows = [
        (_code(key), _number(each), _words(each["unit"]), each["kind"], _percent(each), _words(each["source"]))
        for key, each in stated.items()
    ]
    if rows:
        yield _table(("coefficient", "value", "unit", "kind", "error, 90 %", "source"), rows)
    others = {key: each for key, each in content.items() if key not in stated and key not in ("name", "laws")}
    if others:
        yield _table(("key", "value"), [(_code(key), _words(_plain(each))) for key, each in others.items()])
    if "laws" in content:
        yield _table(("operation", "ranks", "latency in s and rate in bytes/s of each protocol", "error, 90 %"),
                     [(law["operation"], law["ranks"], _words(_plain(law["protocols"])), f"{law['band_90']:.1%}")
                      for law in content["laws"]])  # fmt: skip


def _number(each: Schema) -> str:
    for key in ("value", "by_optimizer", "by_dtype", "by_mode", "points"):
        if key in each:
            return _plain(each[key])
    return ""


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _percent(each: Schema) -> str:
    return f"{each['residual_90']:.0%}" if "residual_90" in each else "unknown"


# errors


def errors() -> str:
    """Exit codes and the errors that Python raises."""
    codes = [(_code(int(code)), _code(code.name), _words(words)) for code, words in exit_codes().items()]
    kinds = (InputError, UnsoundPlanError, MissingPackageError, ConflictError, Fault)
    raised = [(_code(f"{kind.__module__}.{kind.__name__}"), _words(inspect.getdoc(kind) or "")) for kind in kinds]
    return "\n".join(["## Exit codes\n", _table(("code", "name", "meaning"), codes), "## In Python\n",
                      _table(("class", "meaning"), raised)])  # fmt: skip


def exit_codes() -> dict[ExitCode, str]:
    """What the source says below each."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(ExitCode))).body
    assert isinstance(body, ast.ClassDef)
    words: dict[ExitCode, str] = {}
    for line, below in zip(body.body, [*body.body[1:], ast.Pass()], strict=True):
        if isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
            assert isinstance(below, ast.Expr), line.targets[0].id
            assert isinstance(below.value, ast.Constant)
            words[ExitCode[line.targets[0].id]] = str(below.value.value)
    return words


# Python


def python_api() -> str:
    """What `planner` exports, with signatures and docstrings."""
    return "\n".join(part for name in planner.__all__ if name != "__version__" for part in _member(name))


def _member(name: str) -> Iterator[str]:
    thing = getattr(planner, name)
    yield f"## `{name}`\n"
    if inspect.isclass(thing):
        yield f"```python\nclass planner.{name}\n```\n\n{_docstring(thing)}\n"
        shown = [(key, each) for key, each in vars(thing).items() if not key.startswith(("_", "model_"))]
        rows = [(_code(key), _words((inspect.getdoc(each) or "").split("\n\n")[0])) for key, each in shown
                if isinstance(each, property) or inspect.isfunction(each)]  # fmt: skip
        if rows:
            yield _table(("member", "meaning"), rows)
        return
    lines = [f"    {parameter}," for parameter in map(str, inspect.signature(thing).parameters.values())]
    yield "```python\n" + "\n".join([f"planner.{name}(", *lines, ")"]) + f"\n```\n\n{_docstring(thing)}\n"


def _docstring(thing: object) -> str:
    return "\n\n".join(_words(paragraph) for paragraph in (inspect.getdoc(thing) or "").split("\n\n"))


PAGES: dict[str, Callable[[], str]] = {
    "reference/commands": commands,
    "reference/fields": fields,
    "reference/coefficients": coefficient_tables,
    "reference/errors": errors,
    "reference/python": python_api,
}
"""What is appended to each of these pages."""
