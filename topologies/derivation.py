"""Documents that are built on one another: `base` names the one to start from, `set` changes single fields of it.

Other keys of a document replace those of its base. A fault is laid to the document that wrote the value.
"""

import copy
import difflib
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pydantic import BaseModel

from topologies.documents import Document, assign
from topologies.errors import Fault, InputError
from topologies.sources import is_file

KEYS = frozenset({"base", "set"})


def is_derived(document: Document) -> bool:
    """Whether a document asks for a base, or changes one."""
    return isinstance(document.data, dict) and bool(document.data.keys() & KEYS)


def base_name(document: Document, kind: str) -> str:
    """What a derived document of a `kind` (topology, workload) is based on. Raises InputError for a wrong use."""
    changes = document.data.get("set")
    if "base" not in document.data:
        raise InputError([document.fault(("set",), f"needs a base: the {kind} that it changes")])
    if changes is not None and not isinstance(changes, dict):
        raise InputError([document.fault(("set",), "must be a mapping of dotted paths to values")])
    name = document.data["base"]
    if not isinstance(name, str) or not name:
        raise InputError([document.fault(("base",), "must be a catalog name or the path of a file")])
    return name


def base_path(document: Document, name: str, find: Callable[[str], Path], chain: tuple[Path, ...]) -> Path:
    """The file of a base: one beside the document, else what `find` says.

    `chain` holds the files on the way here, to refuse a circle. Raises InputError, at the key `base`.
    """
    beside = (document.directory or Path()) / name
    try:
        path = beside if is_file(beside) else find(name)
    except InputError as error:
        raise InputError([document.fault(("base",), f"{name!r} {fault.message}") for fault in error.faults]) from None
    if path.resolve() in chain:
        raise InputError([document.fault(("base",), f"{name!r} is based on this file again; break the circle")])
    return path


def with_keys(base: Document, document: Document) -> Document:
    """The base with the keys of the document in place of its own."""
    merged = Document(
        copy.deepcopy(base.data), base.source, base.locate, dict(base.overridden), document.directory, base.included
    )
    for key in document.data.keys() - KEYS:
        merged.data[key] = document.data[key]
        merged.overridden = {path: origin for path, origin in merged.overridden.items() if path[0] != key}
        merged.included = frozenset(path for path in merged.included if path[0] != key)
        merged.overridden[(key,)] = (document, (key,))
    return merged


def with_changes(merged: Document, document: Document, model: type[BaseModel]) -> list[Fault]:
    """Apply what the document's `set` says to `merged`, in place; what is wrong with its paths, and keys that are
    misspelt ones of this module."""
    faults: list[Fault] = []
    for key in sorted(map(str, document.data.keys() - model.model_fields.keys() - KEYS)):
        if near := difflib.get_close_matches(key.lower(), KEYS, n=1):
            faults.append(document.fault((key,), f"unknown key; did you mean {near[0]!r}?"))
            merged.data.pop(key, None)
    for path, value in (document.data.get("set") or {}).items():
        origin = (document, ("set", path))
        faults += faults_of(partial(assign, merged, str(path), value, model, origin))
    return faults


def faults_of(step: Callable[[], object]) -> tuple[Fault, ...]:
    """What a step finds wrong."""
    try:
        step()
    except InputError as error:
        return error.faults
    return ()
