"""Facts of several files as one description: each value from the file that knows it best, contradictions said."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from topologies.errors import Fault, InputError
from topologies.importers.facts import Fact, Facts, HostGroup
from topologies.importers.quantities import quantity

NODE_ORDER = (
    "nvidia-smi",
    "rocm-smi",
    "nccl",
    "hwloc",
    "ibnetdiscover",
    "infragraph",
    "topograph",
    "slurm",
    "slurm-yaml",
    "astra-sim",
)
"""Who is believed of the insides of a node, the best first; within one format the file named first."""
CARD_ORDER = ("ibnetdiscover", "nccl", *NODE_ORDER)
"""The same of scale-out cards: those that are plugged in, then those that NCCL uses."""
HOST_ORDER = ("slurm", "slurm-yaml", "topograph", "ibnetdiscover", "infragraph", "astra-sim")
"""The same of which nodes there are: those that a scheduler gives out come before all that have a cable."""
NETWORK_ORDER = ("ibnetdiscover", "infragraph", "slurm", "slurm-yaml", "topograph", "astra-sim")
"""The same of levels and rails: cables come before what an administrator wrote."""
EXACT = ("accelerators.count", "accelerators.device")
"""Files that differ in these do not speak of one kind of node."""
_SCALE_UP = "links.scale_up"


@dataclass(frozen=True)
class Merged:
    """What all files together say."""

    node: Mapping[str, Fact]
    """Of every node."""
    groups: tuple[HostGroup, ...]
    """Empty where no file lists nodes."""
    levels: Fact | None
    rails: Fact | None
    contradictions: tuple[str, ...]
    remarks: tuple[str, ...]
    sources: tuple[str, ...]


def merge(files: Sequence[Facts]) -> Merged:
    """One description. Raises InputError where two files cannot be of one kind of node."""
    silent = [each for each in files if not (each.node or each.groups)]
    if len(silent) == len(files):
        said = "; ".join(silent[0].remarks) or "says nothing of nodes, accelerators or networks"
        message = f"{said}: add the output of nvidia-smi topo -m, or leave the file out"
        raise InputError([Fault(silent[0].source, 1, 1, "", message)])
    contradictions: list[str] = []
    remarks = [f"{_name(each)}: {text}" for each in files for text in each.remarks]
    hosts = _first([each for each in files if each.groups], HOST_ORDER)
    chosen = hosts.groups if hosts else ()
    for each in files:
        if each.groups and each is not hosts:
            _compare_hosts(hosts, each, contradictions)
            if len(each.groups) > 1 and any(group.fields for group in each.groups):
                remarks.append(f"{_name(each)}: nodes of the largest of its {len(each.groups)} groups stand for all")
    facts: dict[str, list[tuple[str, Fact]]] = {}
    for each in files:
        of_groups = _largest(each).fields if each.groups and each is not hosts else {}
        for path, fact in {**of_groups, **each.node}.items():
            facts.setdefault(path, []).append((each.kind, fact))
    node = _pick_all(facts, contradictions)
    groups = []
    for group in chosen:
        own = {path: [(hosts.kind if hosts else "", fact), *facts.get(path, [])] for path, fact in group.fields.items()}
        groups.append(replace(group, fields=_pick_all(_with_section(own, facts), contradictions)))
    levels = _first([each for each in files if each.levels and each.levels.value], NETWORK_ORDER)
    contradictions += [
        f"levels of switches: {_name(levels)} counts, not {_name(each)}"
        for each in files
        if levels and each.levels and each.levels.value and each is not levels
    ]
    rails = next((each.rails for each in files if each.rails), None)
    told = tuple(dict.fromkeys(contradictions))
    sources = tuple(dict.fromkeys(_name(each) for each in files))
    return Merged(node, tuple(groups), levels.levels if levels else None, rails, told, tuple(remarks), sources)


def _with_section(
    own: dict[str, list[tuple[str, Fact]]], facts: Mapping[str, list[tuple[str, Fact]]]
) -> dict[str, list[tuple[str, Fact]]]:
    """A group's candidates: where it has something of the scale-up fabric, also all that others say of it."""
    if any(path.startswith(_SCALE_UP) for path in own):
        return {**{path: found for path, found in facts.items() if path.startswith(_SCALE_UP)}, **own}
    return own


def _name(facts: Facts) -> str:
    return facts.source.replace("\\", "/").rpartition("/")[2]


def _first(files: Iterable[Facts], order: Sequence[str]) -> Facts | None:
    return min(files, key=lambda each: order.index(each.kind) if each.kind in order else len(order), default=None)


def _largest(facts: Facts) -> HostGroup:
    return max(facts.groups, key=lambda group: group.count.value)


def _compare_hosts(hosts: Facts | None, other: Facts, contradictions: list[str]) -> None:
    assert hosts is not None
    ours, theirs = (sum(group.count.value for group in each.groups) for each in (hosts, other))
    if ours != theirs:
        contradictions.append(f"count: {_name(hosts)} lists {ours} nodes and counts; {_name(other)} has {theirs}")


def _pick_all(facts: Mapping[str, Sequence[tuple[str, Fact]]], contradictions: list[str]) -> dict[str, Fact]:
    """For each path the best fact; either no scale-up fabric, or what is said of one."""
    picked = {path: _pick(path, list(found), contradictions) for path, found in facts.items()}
    if _SCALE_UP not in picked:
        return picked
    absent = picked.pop(_SCALE_UP)
    of_fabric = [path for path in picked if path.startswith(f"{_SCALE_UP}.")]
    if not of_fabric:
        return {**picked, _SCALE_UP: absent}
    best = min(_rank(kind, fact, NODE_ORDER) for path in of_fabric for kind, fact in facts[path])
    ours = min(_rank(kind, fact, NODE_ORDER) for kind, fact in facts[_SCALE_UP])
    other = picked[of_fabric[0]]
    if ours < best:
        contradictions.append(f"{_SCALE_UP}: {absent.place} finds none and counts; {other.place} has one")
        return {path: fact for path, fact in picked.items() if path not in of_fabric} | {_SCALE_UP: absent}
    contradictions.append(f"{_SCALE_UP}: {other.place} has one and counts; {absent.place} finds none")
    return picked


def _rank(kind: str, fact: Fact, order: Sequence[str]) -> tuple[bool, int]:
    return fact.words.startswith("assumed"), order.index(kind) if kind in order else len(order)


def _pick(path: str, found: list[tuple[str, Fact]], contradictions: list[str]) -> Fact:
    """The fact of the file that knows best. Raises InputError where there is no best."""
    order = CARD_ORDER if path.startswith("links.scale_out") else NODE_ORDER
    found.sort(key=lambda pair: _rank(pair[0], pair[1], order))
    best = found[0][1]
    for _, other in found[1:]:
        if _is_same(best.value, other.value) or other.words.startswith("assumed"):
            continue
        if path in EXACT:
            message = (
                f"is {other.value} here and {best.value} in {best.place}: these are not one kind of node; leave one out"
            )
            raise InputError([Fault(other.source, max(other.line, 1), 1, path, message)])
        contradictions.append(f"{path}: {_said(path, best)} and counts; {_said(path, other)}")
    return best


def _said(path: str, fact: Fact) -> str:
    return f"{fact.place} says {quantity(path, fact.value)}"


def _is_same(one: object, other: object) -> bool:
    """Whether two values are equal, numbers within the rounding of what tools print."""
    if isinstance(one, float | int) and isinstance(other, float | int):
        return math.isclose(one, other, rel_tol=0.02)
    return one == other
