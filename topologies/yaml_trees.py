"""YAML text as plain data and the tree of its positions, with what is wrong as an InputError."""

from collections.abc import Iterator
from typing import Any

import yaml

from topologies.errors import InputError, shown

BREAKS = "\x85\u2028\u2029"
"""Ends of lines to YAML 1.1, which the library writes into quotes that do not keep them."""
MOST_ALIASED = 1_000_000
"""The most values that the aliases of one text may stand for: a text of a few lines can state 10⁹ of them."""
MALFORMED = (yaml.YAMLError, ValueError, LookupError, AttributeError, TypeError, RecursionError)
"""What the YAML library raises for texts that are wrong: by design, and where its constructors trust a tag."""
_REMEDIES = {
    "mapping values are not allowed": "put text that holds ': ' in quotes, and check the indentation",
    "cannot start any token": "indent with spaces, not tabs, put text that begins with @, ` or % in quotes",
    "invalid Unicode character escape code": "write the character itself (in Python: ensure_ascii=False)",
    "could not find expected ':'": "every key needs a colon and a space after it",
}
"""What to do about the commonest words of the YAML library."""


class _Dumper(yaml.SafeDumper):
    """The dumper, with texts that it would not keep in double quotes, where they are escaped."""


def _represent_text(dumper: _Dumper, text: str) -> yaml.Node:
    style = '"' if any(each in text for each in BREAKS) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _represent_text)


def written(data: Any, **layout: Any) -> str:
    """Data as YAML that reads back as they are, letters of every script as they stand, keys in their order."""
    return str(yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, **layout))


def on_one_line(value: Any) -> str:
    """A value without mappings as YAML on one line, text with ends of lines in double quotes."""
    style = '"' if isinstance(value, str) and not value.isprintable() else None
    return written(value, default_flow_style=True, default_style=style, width=float("inf")).partition("\n")[0]


class _Loader(yaml.CSafeLoader):
    """The C loader, which refuses a key that stands twice in one mapping."""


def _construct_mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    first: dict[str, yaml.Node] = {}
    for key, _ in node.value:
        _expect_plain(key)
        if key.tag == "tag:yaml.org,2002:merge":
            continue
        if key.value in first:
            line = first[key.value].start_mark.line + 1
            problem = f"the key {key.value!r} stands twice, first in line {line}; keep one"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
        first[key.value] = key
    loader.flatten_mapping(node)
    for key, _ in node.value:
        _expect_plain(key)  # one of a mapping that is merged in
    return {_key(loader, k): loader.construct_object(v, deep=True) for k, v in node.value}


def _expect_plain(key: yaml.Node) -> None:
    if not isinstance(key, yaml.ScalarNode):
        raise yaml.MarkedYAMLError(problem="a key must be a plain word", problem_mark=key.start_mark)


def _key(loader: _Loader, node: yaml.Node) -> Any:
    """A key's value; `on` and its like, which YAML 1.1 takes for true and false, are words here."""
    is_word = node.tag == "tag:yaml.org,2002:bool" and node.value.lower() in ("on", "off", "yes", "no")
    return node.value if is_word else loader.construct_object(node)


_Loader.add_constructor("tag:yaml.org,2002:map", _construct_mapping)


def compose(text: str, source: str) -> tuple[yaml.Node | None, Any]:
    """The tree of positions and the data of one YAML text; (None, None) for an empty one.

    Raises InputError for what is not YAML, and for aliases that stand for more than `MOST_ALIASED` values.
    """
    root: yaml.Node | None = None
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
            if root is not None and "*" in text:
                _expect_few_aliased(root, source)
            return root, None if root is None else loader.construct_document(root)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        problem = error.problem or "is not valid YAML"
        message = problem + next((f"; {remedy}" for words, remedy in _REMEDIES.items() if words in problem), "")
        raise InputError.at(source, message, line=line, column=column) from None
    except yaml.reader.ReaderError as error:
        control = yaml.reader.Reader.NON_PRINTABLE.search(text)
        before = text[: control.start()] if control else ""
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        message = f"is not valid YAML: {error.reason}; leave the character out, or write its escape in double quotes"
        raise InputError.at(source, message, line=line, column=column) from None
    except InputError:
        raise
    except RecursionError:
        raise InputError.at(source, "is nested too deeply") from None
    except MALFORMED as error:  # a date 2024-13-45, a number of 5,000 digits, !!bool word
        raise _malformed(root, source, error) from None


def _malformed(root: yaml.Node | None, source: str, error: Exception) -> InputError:
    """The fault of the first scalar whose value is none of its tag."""
    for node in _scalars(root):
        if node.tag == "tag:yaml.org,2002:merge":  # a key that is no value
            continue
        loader = _Loader("")
        try:
            loader.construct_object(node)
        except (ValueError, LookupError, AttributeError, TypeError) as reason:
            words = " ".join(str(reason).split()) if isinstance(reason, ValueError) else "its tag does not fit"
            message = f"is not valid YAML: {words}: {shown(node.value)}; put text in quotes, without a tag"
            mark = node.start_mark
            return InputError.at(source, message, line=mark.line + 1, column=mark.column + 1)
        finally:
            loader.dispose()
    return InputError.at(source, f"is not valid YAML: {' '.join(str(error).split())}")


def _scalars(root: yaml.Node | None) -> Iterator[yaml.ScalarNode]:
    """The scalars of a tree in their order, each node once."""
    seen: set[int] = set()
    left = [] if root is None else [root]
    while left:
        node = left.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            yield node
        left += reversed(_children(node))


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _expect_few_aliased(root: yaml.Node, source: str) -> None:
    """Raise InputError where aliases stand for too many values; a node that holds itself is the constructor's fault."""
    sizes: dict[int, int] = {}  # of finished nodes; 0 while what is inside is being counted
    left = [(root, False)]
    while left:
        node, is_counted = left.pop()
        if is_counted:
            sizes[id(node)] = 1 + sum(sizes[id(child)] for child in _children(node))
            if sizes[id(node)] > len(sizes) + MOST_ALIASED:
                line, column = node.start_mark.line + 1, node.start_mark.column + 1
                message = f"its aliases (*) stand for more than {MOST_ALIASED:,} values; write those that are needed"
                raise InputError.at(source, message, line=line, column=column)
        elif id(node) not in sizes:
            sizes[id(node)] = 0
            left.append((node, True))
            left += [(child, False) for child in _children(node)]
