"""Topologies from files: by path or catalog name, built on one another, scaled and overridden."""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from topologies.cluster import Topology
from topologies.documents import Document, assign, override, read_yaml, validate
from topologies.errors import Fault, InputError
from topologies.shelf import Shelf

TOPOLOGIES = Shelf("topology", Path(__file__).parent / "catalog")
"""The topologies that are shipped."""


def load_topology(source: str | Path, *, nodes: int | None = None, overrides: Sequence[str] = ()) -> Topology:
    """The topology of a file or a catalog name.

    `nodes` is the number of nodes of a topology with one node group. `overrides` are texts `path=value`
    (`nodes.0.count=16`), applied in order, after `nodes`. Raises InputError with every fault of the file and
    of the overrides.
    """
    return validated(read_topology(source), nodes=nodes, overrides=overrides)


def read_topology(source: str | Path) -> Document:
    """The document of a topology that is not yet checked, what it is based on merged in."""
    path = TOPOLOGIES.find(source)
    return _derived(read_yaml(path), (path.resolve(),))


def validated(document: Document, *, nodes: int | None = None, overrides: Sequence[str] = ()) -> Topology:
    """`load_topology` for a document that was read; the document is changed accordingly."""
    faults: list[Fault] = []
    if nodes is not None:
        faults += _faults_of(partial(_scale, document, nodes))
    for text in overrides:
        faults += _faults_of(partial(_override, document, text))
    try:
        topology = validate(document, Topology)
    except InputError as error:
        raise InputError([*faults, *error.faults]) from None
    if faults:
        raise InputError(faults)
    return topology


def _faults_of(step: Callable[[], None]) -> tuple[Fault, ...]:
    try:
        step()
    except InputError as error:
        return error.faults
    return ()


def _scale(document: Document, nodes: int) -> None:
    words = f"--nodes {nodes}"
    if nodes < 1:
        raise InputError.at(words, "must be at least 1")
    groups = document.data.get("nodes") if isinstance(document.data, dict) else None
    if not isinstance(groups, list) or not groups:
        return  # the file is at fault, and says so when it is checked
    if len(groups) > 1:
        names = ", ".join(str(group.get("name")) if isinstance(group, dict) else "?" for group in groups)
        remedy = f"set the count of each, for example --set topology.nodes.0.count={nodes}"
        raise InputError.at(words, f"there are {len(groups)} node groups ({names}); {remedy}")
    override(document, "nodes.0.count", str(nodes), Topology, words)


def _override(document: Document, text: str) -> None:
    words = f"--set topology.{text}"
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise InputError.at(words, "is not path=value; write for example topology.nodes.0.count=4")
    if isinstance(document.data, dict):
        override(document, path.strip(), value, Topology, words)


def _derived(document: Document, chain: tuple[Path, ...]) -> Document:
    """The document with its `base` merged in.

    Other keys of the document replace those of the base; `set` replaces single fields by their dotted path.
    A fault is laid to the document that wrote the value. `chain` holds the files on the way here, to refuse a
    circle.
    """
    data = document.data
    if not isinstance(data, dict) or not data.keys() & {"base", "set"}:
        return document
    changes = data.get("set")
    if "base" not in data:
        raise InputError([document.fault(("set",), "needs a base: the topology that it changes")])
    if changes is not None and not isinstance(changes, dict):
        raise InputError([document.fault(("set",), "must be a mapping of dotted paths to values")])
    base = _base(document, chain)
    merged = Document(copy.deepcopy(base.data), base.source, base.locate, dict(base.overridden), document.directory)
    for key in data.keys() - {"base", "set"}:
        merged.data[key] = data[key]
        merged.overridden = {path: origin for path, origin in merged.overridden.items() if path[0] != key}
        merged.overridden[(key,)] = (document, (key,))
    faults: list[Fault] = []
    for path, value in (changes or {}).items():
        origin = (document, ("set", path))
        faults += _faults_of(partial(assign, merged, str(path), value, Topology, origin))
    if faults:
        raise InputError(faults)
    return merged


def _base(document: Document, chain: tuple[Path, ...]) -> Document:
    name = document.data["base"]
    if not isinstance(name, str) or not name:
        raise InputError([document.fault(("base",), "must be a catalog name or the path of a file")])
    beside = (document.directory or Path()) / name
    try:
        path = beside if beside.is_file() else TOPOLOGIES.find(name)
    except InputError as error:
        raise InputError([document.fault(("base",), f"{name!r} {fault.message}") for fault in error.faults]) from None
    if path.resolve() in chain:
        raise InputError([document.fault(("base",), f"{name!r} is based on this file again; break the circle")])
    base = _derived(read_yaml(path), (*chain, path.resolve()))
    if not isinstance(base.data, dict):
        raise InputError([document.fault(("base",), f"{name!r} is not a topology: it holds no mapping of keys")])
    return base
