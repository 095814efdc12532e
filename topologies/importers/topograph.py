"""Topograph's models: switches that hold switches, and blocks of nodes below them with their NVLink domains."""

from typing import Any

from topologies.documents import Document, Key, parse_yaml
from topologies.errors import InputError
from topologies.importers import switch_trees
from topologies.importers.facts import Fact, Facts, HostGroup, Text
from topologies.importers.hostlists import fold
from topologies.importers.slurm import listed
from topologies.importers.switch_trees import Switch, TreeError

KIND = "topograph"


def recognises_yaml(data: Any) -> bool:
    """Whether YAML is a model of Topograph."""
    return isinstance(data, dict) and bool(data.keys() & {"blocks", "capacity_blocks"}) and "switches" in data


def read(text: Text) -> Facts:
    """The nodes, domains and levels of a model. Raises InputError with the line."""
    document = parse_yaml(text.text, text.source)
    if not isinstance(document.data, dict):
        text.refuse(1, "must be a mapping with switches and blocks")
    domains: dict[str, str] = {}
    switches = _switches(document)
    remarks = _add_blocks(document, switches, domains)
    try:
        tree = switch_trees.shape(switches)
    except TreeError as error:
        text.refuse(error.line, str(error))
    if not tree.hosts:
        text.refuse(1, "no block has nodes; write nodes: [node[01-16]]", "blocks")
    members: dict[str, list[str]] = {}
    for host in tree.hosts:
        members.setdefault(domains.get(host, f"\0{host}"), []).append(host)
    line = (document.locate(("blocks",)) or (1, 1))[0]
    groups = [
        HostGroup(
            text.fact(len(hosts), line, fold(hosts)),
            tuple(hosts),
            domain_nodes=text.fact(size, line, f"{size} nodes of one accelerator domain") if domains else None,
        )
        for size in dict.fromkeys(len(hosts) for hosts in members.values())
        if (hosts := [host for each in members.values() if len(each) == size for host in each])
    ]
    return Facts(
        KIND, text.source, _device(document, text), tuple(groups), text.fact(tree.levels, line),
        remarks=(*remarks, *tree.remarks),
    )  # fmt: skip


def _switches(document: Document) -> dict[str, Switch]:
    """The switches, a mapping by name or (formerly) a list."""
    data = document.data.get("switches") or {}
    entries: list[tuple[str, tuple[Key, ...], Any]]
    if isinstance(data, dict):
        entries = [(str(name), ("switches", str(name)), item or {}) for name, item in data.items()]
    elif isinstance(data, list):
        entries = [
            (str(item.get("name")) if isinstance(item, dict) else "", ("switches", index), item)
            for index, item in enumerate(data)
        ]
    else:
        raise InputError([document.fault(("switches",), "must be a mapping of switches by name")])
    found: dict[str, Switch] = {}
    for name, path, item in entries:
        if not isinstance(item, dict) or not name:
            raise InputError([document.fault(path, "must be a switch: a mapping with switches")])
        below = listed(document, (*path, "switches"), item["switches"]) if item.get("switches") else []
        hosts = listed(document, (*path, "nodes"), item["nodes"]) if item.get("nodes") else []
        found[name] = Switch((document.locate(path) or (1, 1))[0], tuple(below), tuple(hosts))
    for switch in list(found.values()):
        for child in switch.switches:
            found.setdefault(child, Switch(switch.line))
    return found


def _add_blocks(document: Document, switches: dict[str, Switch], domains: dict[str, str]) -> list[str]:
    """Hang the nodes of every block on its switch; `domains` takes the accelerator domain of each node."""
    key = "blocks" if "blocks" in document.data else "capacity_blocks"
    blocks = document.data.get(key) or []
    if not isinstance(blocks, list):
        raise InputError([document.fault((key,), "must be a list of blocks with switch and nodes")])
    holders = _holders(document)
    loose = inner = 0
    for index, block in enumerate(blocks):
        if not isinstance(block, dict) or not block.get("nodes"):
            raise InputError([document.fault((key, index), "must be a block with nodes: [node[01-16]]")])
        hosts = listed(document, (key, index, "nodes"), block["nodes"])
        name = str(block.get("switch") or holders.get(str(block.get("name"))) or f"block {index + 1}")
        loose += not block.get("switch") and str(block.get("name")) not in holders
        line = (document.locate((key, index)) or (1, 1))[0]
        before = switches.get(name, Switch(line))
        switches[name] = Switch(before.line, before.switches, (*before.hosts, *hosts))
        domain, is_inner = _domain(block)
        inner += is_inner
        if domain:
            domains |= dict.fromkeys(hosts, domain)
    remarks = [f"{loose} blocks hang on no switch; each is taken as a switch of its own"] if loose else []
    if inner:
        remarks.append("domains that hold sub-domains are left out: a topology has one scale-up fabric, the inner one")
    return remarks


def _holders(document: Document) -> dict[str, str]:
    """For each capacity block the switch that lists it (the former form of a model)."""
    switches = document.data.get("switches")
    found: dict[str, str] = {}
    for item in switches if isinstance(switches, list) else []:
        names = item.get("capacity_blocks") if isinstance(item, dict) else None
        for name in names if isinstance(names, list) else []:
            found[str(name)] = str(item.get("name"))
    return found


def _domain(block: dict[str, Any]) -> tuple[str | None, bool]:
    """The innermost accelerator domain of a block, and whether it lies in another.

    It is an annotation, a label, or (formerly) `nvlink`.
    """
    words: dict[str, str] = {}
    for key in ("annotations", "labels"):
        given = block.get(key)
        words |= {str(name): str(value) for name, value in given.items()} if isinstance(given, dict) else {}
    inner = next((value for name, value in words.items() if name.endswith("/sub-domain")), None)
    ends = ("/domain", "/level-0", "gpu.clique")
    outer = next((value for name, value in words.items() if name.endswith(ends)), None)
    if inner is not None:
        return f"{outer}/{inner}", True
    return outer or (str(block["nvlink"]) if block.get("nvlink") else None), False


def _device(document: Document, text: Text) -> dict[str, Fact]:
    """The accelerator, where all blocks (in the former form) name one that has a single variant."""
    blocks = document.data.get("capacity_blocks")
    listed_blocks = blocks if isinstance(blocks, list) else []
    kinds = {str(each["type"]) for each in listed_blocks if isinstance(each, dict) and each.get("type")}
    if len(kinds) != 1 or not kinds <= {"GB200", "GB300"}:
        return {}
    line = (document.locate(("capacity_blocks",)) or (1, 1))[0]
    return {"accelerators.device": text.fact(next(iter(kinds)), line, "type of the blocks")}
