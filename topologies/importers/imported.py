"""Files of other tools as one topology: read, merged, completed, written with the source of every value."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topologies.cluster import Topology
from topologies.documents import Document, Origin, validate
from topologies.errors import Fault, InputError, printable
from topologies.importers import kinds
from topologies.importers.completion import Cell, Completed, Group, complete
from topologies.importers.facts import Fact, Facts
from topologies.importers.hostlists import fold
from topologies.importers.merging import Merged, merge
from topologies.yaml_trees import on_one_line

MOST_LINES = 64
"""Lines of host names in a file; more are written as one."""


@dataclass(frozen=True)
class Imported:
    """A topology, the YAML that describes it, and what a user must know of it."""

    topology: Topology
    text: str
    contradictions: tuple[str, ...]
    remarks: tuple[str, ...]
    assumed: tuple[str, ...]
    """Paths of the values that no file says."""


def imported(
    files: Sequence[Path],
    name: str,
    *,
    like: str | None = None,
    nodes: int | None = None,
    forced: dict[Path, str] | None = None,
) -> Imported:
    """The topology that files describe together. `forced`: formats of files that are not to be recognised.

    Raises InputError, with file, line and remedy, for what cannot be read, what contradicts itself and what is missing.
    """
    faults: list[Fault] = []
    found: list[Facts] = []
    for path in files:
        try:
            found.append(kinds.read(path, (forced or {}).get(path)))
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(faults)
    merged = merge(found)
    done = complete(merged, like, nodes)
    document = _document(done, name, merged, found[0].source)
    topology = validate(document, Topology)
    text = _text(document, done, merged, name)
    remarks = tuple(dict.fromkeys([*merged.remarks, *done.remarks]))
    return Imported(topology, text, merged.contradictions, remarks, tuple(_assumed(done)))


def _assumed(done: Completed) -> Iterator[str]:
    """The paths of values that no file says."""
    for number, group in enumerate(done.groups):
        yield from (f"nodes.{number}.{path}" for path, cell in group.cells.items() if cell.is_assumed)
    for key, cell in (("rails", done.rails), ("in_network_reduction", done.in_network_reduction)):
        if cell is not None and cell.is_assumed:
            yield f"network.{key}"
    for number, (level, cell) in enumerate(done.levels):
        if cell.is_assumed or level.oversubscription is None:
            yield f"network.levels.{number}{'' if cell.is_assumed else '.oversubscription'}"


def _document(done: Completed, name: str, merged: Merged, source: str) -> Document:
    """The topology as plain data; a fault is laid to the file and line of the value, or to the first file, `source`."""
    data: dict[str, Any] = {"name": name, "description": f"Imported from {', '.join(merged.sources)}", "nodes": []}
    overridden: dict[tuple[str | int, ...], Origin] = {}
    for number, group in enumerate(done.groups):
        node: dict[str, Any] = {"name": group.name}
        for path, cell in group.cells.items():
            inner = node
            *outer, last = path.split(".")
            for key in outer:
                inner = inner.setdefault(key, {})
            inner[last] = cell.value
            if cell.fact is not None and cell.fact.source:
                overridden["nodes", number, *path.split(".")] = _origin(cell.fact)
        data["nodes"].append(node)
    network = _network(done)
    if network:
        data["network"] = network
    for index, (_, cell) in enumerate(done.levels):
        if cell.fact is not None:
            overridden["network", "levels", index] = _origin(cell.fact)
    return Document(data, source, lambda _path: (1, 1), overridden)


def _origin(fact: Fact) -> Origin:
    line = max(fact.line, 1)
    return Document(None, fact.source, lambda _path: (line, 1)), ()


def _network(done: Completed) -> dict[str, Any]:
    levels = []
    for level, _ in done.levels:
        entry: dict[str, Any] = {"name": level.name, "nodes": level.nodes}
        if level.oversubscription is not None:
            entry["oversubscription"] = float(level.oversubscription)
        if level.latency is not None:
            entry["latency"] = f"{level.latency * 1e6:.12g}us"
        levels.append(entry)
    network: dict[str, Any] = {}
    if done.rails is not None:
        network["rails"] = done.rails.value
    if done.in_network_reduction is not None:
        network["in_network_reduction"] = done.in_network_reduction.value
    if levels:
        network["levels"] = levels
    return network


def _text(document: Document, done: Completed, merged: Merged, name: str) -> str:
    lines = [f"# Imported from {', '.join(merged.sources)}; each value with its source."]
    lines += [f"# Contradiction: {text}" for text in merged.contradictions]
    lines += [f"name: {on_one_line(name)}", f"description: {on_one_line(document.data['description'])}", "nodes:"]
    first = 0
    for group in done.groups:
        lines += _group(group, done, first)
        first += int(group.cells["count"].value)
    lines += _network_lines(done)
    return "\n".join(printable(line) for line in lines) + "\n"


def _group(group: Group, done: Completed, first: int) -> list[str]:
    lines = [f"  # {text}" for text in _hosts(group, done, first)]
    lines.append(f"  - name: {on_one_line(group.name)}")
    open_keys: list[str] = []
    for path, cell in group.cells.items():
        *outer, last = path.split(".")
        shared = next((n for n, key in enumerate(outer) if open_keys[n : n + 1] != [key]), len(outer))
        lines += [f"{'  ' * (depth + 2)}{outer[depth]}:" for depth in range(shared, len(outer))]
        open_keys = outer
        lines.append(f"{'  ' * (len(outer) + 2)}{last}: {on_one_line(cell.value)}{_comment(cell)}")
    return lines


def _comment(cell: Cell) -> str:
    return f"  # {cell.comment}" if cell.comment else ""


def _hosts(group: Group, done: Completed, first: int) -> list[str]:
    """Which host is which node: a line for each switch of the lowest level, or one for all."""
    count = int(group.cells["count"].value)
    if not group.hosts:
        return []
    if len(group.hosts) != count:
        return [f"{len(group.hosts)} of these {count} nodes have names: {fold(group.hosts)}"]
    domain = group.cells.get("links.scale_up.domain")
    size = done.levels[0][0].nodes if done.levels else count
    if domain is not None and domain.fact is not None:
        size = max(1, int(domain.value) // int(group.cells["accelerators.count"].value))
    if count > MOST_LINES * size:
        size = count
    parts = [(first + start, group.hosts[start : start + size]) for start in range(0, count, size)]
    return [
        f"node {start}: {part[0]}" if len(part) == 1 else f"nodes {start}-{start + len(part) - 1}: {fold(part)}"
        for start, part in parts
    ]


def _network_lines(done: Completed) -> list[str]:
    lines = [
        f"  {key}: {on_one_line(cell.value)}{_comment(cell)}"
        for key, cell in (("rails", done.rails), ("in_network_reduction", done.in_network_reduction))
        if cell is not None
    ]
    if not done.levels and not lines:
        return []
    lines.insert(0, "network:")
    if done.levels:
        lines.append("  levels:")
    for level, cell in done.levels:
        place = _comment(cell)
        lines += [f"    - name: {on_one_line(level.name)}", f"      nodes: {level.nodes}{place}"]
        if level.oversubscription is not None:
            words = f": {level.words}" if level.words else ""
            lines.append(f"      oversubscription: {float(level.oversubscription)!r}{place}{words}")
        else:
            lines.append("      oversubscription: 1.0  # assumed: the file does not say")
        if level.latency is not None:
            lines.append(f"      latency: {level.latency * 1e6:.12g}us{place}")
    return lines
