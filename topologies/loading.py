"""Topologies from files: by path or catalog name, built on one another, scaled and overridden."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from topologies.cluster import Topology, equal_domains
from topologies.derivation import base_name, base_path, faults_of, is_derived, with_changes, with_keys
from topologies.document_kinds import expect_kind
from topologies.documents import Document, Origin, assign_everywhere, override, validate
from topologies.errors import Fault, InputError
from topologies.instances import Instances
from topologies.shelf import Shelf

_log = logging.getLogger(__name__)
INSTANCES = Instances(Path(__file__).with_name("instances.yaml"))
"""The instances of clouds that are known by name."""
TOPOLOGIES = Shelf("topology", Path(__file__).parent / "catalog", INSTANCES)
"""The topologies that are shipped."""


def load_topology(
    source: str | Path,
    *,
    nodes: int | None = None,
    overrides: Sequence[str] = (),
    say: Callable[[str], None] = _log.warning,
) -> Topology:
    """The topology of a file or a catalog name.

    `nodes` is the number of nodes of a topology with one node group. Where they do not fill its scale-up domains, they
    are shared out equally among the fewest that hold them, if these have at least half of the nodes of a domain, and
    `say` is told so, which logs it. `overrides` are texts `path=value` (`nodes.0.count=16`), applied in order, after
    `nodes`, and change nothing else. Raises InputError with every fault of the file and of the overrides.
    """
    return validated(read_topology(source), nodes=nodes, overrides=overrides, say=say)


def changed_topology(source: str | Path, changes: Sequence[tuple[str, Any, Origin]]) -> Topology:
    """The topology of a file or a catalog name with the values of some paths replaced, in order.

    In a path, `*` stands for all elements of a list. Each change comes with where the user said so, for messages.
    Raises InputError.
    """
    document = read_topology(source)
    faults = [
        fault
        for path, value, origin in changes
        for fault in faults_of(partial(assign_everywhere, document, path, value, Topology, origin))
    ]
    if faults:
        raise InputError(faults)
    return validate(document, Topology)


def read_topology(source: str | Path) -> Document:
    """The document of a topology that is not yet checked, what it is based on merged in."""
    path = TOPOLOGIES.find(source)
    document = TOPOLOGIES.read(path)
    expect_kind(document, "topology")
    return _derived(document, (path.resolve(),))


def validated(
    document: Document,
    *,
    nodes: int | None = None,
    overrides: Sequence[str] = (),
    say: Callable[[str], None] = _log.warning,
) -> Topology:
    """`load_topology` for a document that was read; the document is changed accordingly."""
    faults: list[Fault] = []
    if nodes is not None:
        faults += faults_of(partial(_scale, document, nodes, say))
    for text in overrides:
        faults += faults_of(partial(_override, document, text))
    try:
        topology = validate(document, Topology)
    except InputError as error:
        raise InputError([*faults, *error.faults]) from None
    if faults:
        raise InputError(faults)
    return topology


def _scale(document: Document, nodes: int, say: Callable[[str], None]) -> None:
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
    if (shares := _equal_domains(groups[0], nodes)) is not None:
        domains, ranks = shares
        override(document, "nodes.0.links.scale_up.domain", str(ranks), Topology, words)
        say(f"{words}: {domains} scale-up domains of {ranks} ranks each, fewer than the topology's domains have")


def _equal_domains(group: Any, nodes: int) -> tuple[int, int] | None:
    """The fewest domains of equal size that nodes which do not fill the domains of a group make, and the ranks of each;
    None where they fill them, or cannot be shared out so."""
    try:
        accelerators, domain = group["accelerators"]["count"], group["links"]["scale_up"]["domain"]
    except (KeyError, TypeError):
        return None
    if not (isinstance(accelerators, int) and isinstance(domain, int)) or accelerators < 1 or domain % accelerators:
        return None
    most = domain // accelerators
    if nodes <= most or nodes % most == 0:
        return None
    size = equal_domains(nodes, most)
    return None if size is None else (nodes // size, size * accelerators)


def _override(document: Document, text: str) -> None:
    words = f"--set topology.{text}"
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise InputError.at(words, "is not path=value; write for example topology.nodes.0.count=4")
    if isinstance(document.data, dict):
        override(document, path.strip(), value, Topology, words)


def _derived(document: Document, chain: tuple[Path, ...]) -> Document:
    """The document with its base merged in; `chain` holds the files on the way here."""
    if not is_derived(document):
        return document
    name = base_name(document, "topology")
    path = base_path(document, name, TOPOLOGIES.find, chain)
    base = _derived(TOPOLOGIES.read(path), (*chain, path.resolve()))
    if not isinstance(base.data, dict):
        raise InputError([document.fault(("base",), f"{name!r} is not a topology: it holds no mapping of keys")])
    merged = with_keys(base, document)
    if faults := with_changes(merged, document, Topology):
        raise InputError(faults)
    return merged
