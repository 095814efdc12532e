"""Slurm's topology: topology.conf (trees and blocks), what `scontrol show topology` prints, and topology.yaml."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from topologies.documents import Document, did_you_mean, parse_yaml
from topologies.errors import InputError
from topologies.importers import switch_trees
from topologies.importers.facts import Facts, HostGroup, Level, Text
from topologies.importers.hostlists import expand, fold
from topologies.importers.switch_trees import Switch, TreeError

KIND = "slurm"
YAML_KIND = "slurm-yaml"
_KEYS = {
    "switchname": ("switchname", "switches", "nodes", "linkspeed", "level"),
    "blockname": ("blockname", "nodes", "blockindex", "blocksize"),
    "aggregatedblock": ("aggregatedblock", "nodes", "blockindex", "blocksize"),
    "blocksizes": ("blocksizes",),
    "planningbasesize": ("planningbasesize",),
}


_PROMPT = re.compile(r"\s*(?:\S*@|[$%>]\s|\S*[$%>](?:\s|$))[^=]*$")
"""A shell's prompt, with the command behind it."""
_NOTHING = ("", "(null)")
"""How Slurm writes a list without hosts."""


@dataclass(frozen=True)
class Block:
    """Nodes that Slurm keeps together: those of one NVLink domain or of one leaf."""

    name: str
    hosts: tuple[str, ...]
    line: int


def recognises(text: str) -> bool:
    """Whether a text is a topology.conf or of `scontrol show topology`."""
    return re.search(r"(?im)^\s*(SwitchName|BlockName)\s*=", text) is not None


def recognises_yaml(data: Any) -> bool:
    """Whether YAML is a topology.yaml of Slurm."""
    return isinstance(data, list) and any(isinstance(item, dict) and "topology" in item for item in data)


def read(text: Text) -> Facts:
    """The nodes and levels of a topology.conf. Raises InputError with the line."""
    switches: dict[str, Switch] = {}
    blocks: dict[str, Block] = {}
    remarks: list[str] = []
    for number, line in _statements(text):
        words = _words(text, number, line)
        kind = next(iter(words))
        if kind == "switchname":
            _add_switch(text, number, words, switches)
        elif kind == "blockname":
            name = words["blockname"]
            if name in blocks:
                text.refuse(number, f"block {name!r} stands twice, first in line {blocks[name].line}; keep one")
            if "nodes" not in words:
                text.refuse(number, f"block {name!r} has no Nodes=")
            if words["nodes"] in _NOTHING:
                remarks.append(f"block {name} has no nodes, and is left out")
                continue
            blocks[name] = Block(name, tuple(_hosts(text, number, words["nodes"])), number)
    if switches and blocks:
        text.refuse(min(block.line for block in blocks.values()), "a block in a file of switches; keep one of the two")
    return facts_of(KIND, text, switches, list(blocks.values()), remarks)


def facts_of(
    kind: str, text: Text, switches: dict[str, Switch], blocks: Sequence[Block], remarks: Sequence[str]
) -> Facts:
    """The facts of a tree of switches or of blocks. Raises InputError."""
    if switches:
        try:
            tree = switch_trees.shape(switches)
        except TreeError as error:
            text.refuse(error.line, str(error))
        line = next(iter(switches.values())).line
        if not tree.hosts:
            text.refuse(line, "no switch has nodes below it; a leaf needs Nodes=")
        count = text.fact(len(tree.hosts), line, fold(tree.hosts))
        group = HostGroup(count, tree.hosts)
        levels = text.fact(tree.levels, line)
        return Facts(kind, text.source, {}, (group,), levels, remarks=(*remarks, *tree.remarks))
    if not blocks:
        text.refuse(1, "describes neither switches nor blocks; write SwitchName=leaf1 Nodes=node[01-16]")
    groups = []
    for size in dict.fromkeys(len(block.hosts) for block in blocks):
        same = [block for block in blocks if len(block.hosts) == size]
        hosts = tuple(host for block in same for host in block.hosts)
        words = "; ".join(f"{block.name}={fold(block.hosts)}" for block in same)
        count = text.fact(len(hosts), same[0].line, f"{len(same)} blocks of {size}: {words}")
        domain = text.fact(size, same[0].line, f"block of {size} nodes")
        groups.append(HostGroup(count, hosts, domain_nodes=domain))
    first: dict[str, Block] = {}
    for block in blocks:
        for host in block.hosts:
            if first.setdefault(host, block) is not block:
                text.refuse(block.line, f"node {host!r} is in block {first[host].name!r}, too; keep one")
    sizes = [len(block.hosts) for block in blocks]
    usual = max(dict.fromkeys(sizes), key=sizes.count)
    levels = text.fact((Level("block", usual, words=f"{len(blocks)} blocks"),), blocks[0].line)
    return Facts(kind, text.source, {}, tuple(groups), levels if len(blocks) > 1 else None, remarks=tuple(remarks))


def _statements(text: Text) -> list[tuple[int, str]]:
    """The lines without comments, those that end in a backslash joined with the next; each with its first number."""
    found: list[tuple[int, str]] = []
    joins = False
    for number, line in text.lines():
        if not joins and _PROMPT.match(line):
            continue
        bare = line.partition("#")[0].rstrip()
        continues = bare.endswith("\\")
        bare = bare.removesuffix("\\")
        if joins:
            found[-1] = (found[-1][0], f"{found[-1][1]} {bare}")
        elif bare.strip():
            found.append((number, bare))
        joins = continues and bool(bare.strip() or joins)
    return found


def _words(text: Text, number: int, line: str) -> dict[str, str]:
    """The keys, in small letters, and values of a line."""
    words: dict[str, str] = {}
    for word in line.split():
        key, equals, value = word.partition("=")
        if not equals or not (value or key.lower() == "nodes"):
            text.refuse(number, f"{word[:40]!r} is not Key=value")
        if key.lower() in words:
            text.refuse(number, f"{key} stands twice in this line; keep one")
        words[key.lower()] = value
    kind = next(iter(words))
    if kind not in _KEYS:
        names = ("SwitchName", "BlockName", "BlockSizes")
        text.refuse(number, f"a line begins with SwitchName= or BlockName=, not {kind!r}{did_you_mean(kind, names)}")
    if unknown := [key for key in words if key not in _KEYS[kind]]:
        text.refuse(number, f"unknown key {unknown[0]!r}{did_you_mean(unknown[0], _KEYS[kind])}")
    return words


def _add_switch(text: Text, number: int, words: dict[str, str], switches: dict[str, Switch]) -> None:
    name = words["switchname"]
    if name in switches:
        text.refuse(number, f"switch {name!r} stands twice, first in line {switches[name].line}; keep one")
    if "switches" not in words and words.get("nodes", "") in _NOTHING:
        text.refuse(number, f"switch {name!r} has neither Switches= nor Nodes=")
    below = tuple(_hosts(text, number, words["switches"])) if "switches" in words else ()
    # scontrol lists below a switch all nodes that it reaches; those of the switches below it are theirs
    hosts = () if below else tuple(_hosts(text, number, words["nodes"]))
    switches[name] = Switch(number, below, hosts)


def _hosts(text: Text, number: int, listed: str) -> list[str]:
    if listed.upper() == "ALL":
        text.refuse(number, "ALL are the nodes of slurm.conf; the output of scontrol show topology names them")
    try:
        return expand(listed)
    except ValueError as error:
        text.refuse(number, f"{listed[:60]!r}: {error}")


def read_yaml(text: Text) -> Facts:
    """The nodes and levels of a topology.yaml. Raises InputError with the line."""
    document = parse_yaml(text.text, text.source)
    if not isinstance(document.data, list):
        text.refuse(1, "must be a list of topologies: - topology: NAME")
    chosen = _chosen(document)
    item = document.data[chosen]
    remarks = []
    if len(document.data) > 1:
        remarks.append(
            f"holds {len(document.data)} topologies; {item.get('topology')!r} is taken, its default or first"
        )
    if "tree" in item:
        switches = {
            name: Switch(line, tuple(below), tuple(hosts))
            for name, line, below, hosts in _entries(document, (chosen, "tree", "switches"), "switch", "children")
        }
        return facts_of(YAML_KIND, text, switches, (), remarks)
    blocks = [
        Block(name, tuple(hosts), line)
        for name, line, _, hosts in _entries(document, (chosen, "block", "blocks"), "block", None)
    ]
    return facts_of(YAML_KIND, text, {}, blocks, remarks)


def _chosen(document: Document) -> int:
    """Which topology of the file is the cluster's."""
    usable = [
        index for index, item in enumerate(document.data) if isinstance(item, dict) and item.keys() & {"tree", "block"}
    ]
    if not usable:
        raise InputError(
            [document.fault((0,), "no topology of the file has a tree or block; nothing says the network")]
        )
    return next((index for index in usable if document.data[index].get("cluster_default") is True), usable[0])


def _entries(
    document: Document, path: tuple[str | int, ...], key: str, below: str | None
) -> list[tuple[str, int, list[str], list[str]]]:
    """Name, line, the switches below and the hosts of every entry of a list."""
    items: Any = document.data
    for step in path:
        items = items[step] if isinstance(step, int) else items.get(step) if isinstance(items, dict) else None
    if not isinstance(items, list) or not items:
        raise InputError([document.fault(path, f"must be a list of entries with {key} and nodes")])
    found: dict[str, tuple[str, int, list[str], list[str]]] = {}
    for index, item in enumerate(items):
        here = (*path, index)
        name = item.get(key) if isinstance(item, dict) else None
        if not isinstance(name, str | int) or isinstance(name, bool):
            raise InputError([document.fault(here, f"needs {key}: a name")])
        if str(name) in found:
            raise InputError([document.fault(here, f"{key} {name!r} stands twice; keep one")])
        children = listed(document, (*here, below), item.get(below)) if below and below in item else []
        hosts = listed(document, (*here, "nodes"), item.get("nodes")) if "nodes" in item else []
        if not children and not hosts:
            raise InputError([document.fault(here, f"{key} {name!r} has nothing below it; write nodes: node[01-16]")])
        line = (document.locate(here) or (1, 1))[0]
        found[str(name)] = (str(name), line, children, hosts)
    return list(found.values())


def listed(document: Document, path: tuple[str | int, ...], value: Any) -> list[str]:
    """The names of a host list, or of a list of them. Raises InputError."""
    items = value if isinstance(value, list) else [value]
    names: list[str] = []
    for item in items:
        if not isinstance(item, str | int) or isinstance(item, bool):
            raise InputError([document.fault(path, "must be names as node[01-16]")])
        try:
            names += expand(str(item))
        except ValueError as error:
            raise InputError([document.fault(path, f"{str(item)[:60]!r}: {error}")]) from None
    return names
