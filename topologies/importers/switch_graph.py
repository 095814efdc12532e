"""A network of switches and the ports of hosts on them as levels, rails and groups of equal nodes."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from topologies.importers.facts import Level

Ports = list[tuple[str, float]]
"""The switch of each port of a host, and bytes/s in one direction."""


@dataclass(frozen=True)
class SwitchGraph:
    """What is plugged into what. Rates in bytes/s, one direction, 0 where unknown."""

    hosts: dict[str, Ports]
    links: list[tuple[str, str, float]]
    """Between switches, each once."""
    nameless: Ports = field(default_factory=list)
    """Ports of hosts whose name is not known."""


@dataclass(frozen=True)
class Pod:
    """Hosts that share leaves."""

    leaves: frozenset[str]
    hosts: tuple[str, ...]
    nodes: int
    """Named and nameless."""
    cards: int
    """Of a node."""
    bytes_per_s: float
    """Of a card; 0 where unknown."""


@dataclass(frozen=True)
class NetworkShape:
    """The graph as a topology says it."""

    pods: tuple[Pod, ...]
    """Those that are alike one after the other, the most nodes first."""
    levels: tuple[Level, ...]
    rails: bool
    remarks: tuple[str, ...]


class UnjoinedError(ValueError):
    """A graph that is no single network, or has no hosts."""


def shape(graph: SwitchGraph) -> NetworkShape:
    """The levels, rails and pods of a graph. Raises UnjoinedError."""
    if not graph.hosts:
        raise UnjoinedError("holds no named host on a switch: the output is cut off, or names need a --node-name-map")
    remarks: list[str] = []
    usual = _usual(len(ports) for ports in graph.hosts.values())
    hosts = {name: ports for name, ports in graph.hosts.items() if 2 * len(ports) > usual}
    if strays := sorted(graph.hosts.keys() - hosts.keys(), key=natural):
        listed = f"{', '.join(strays[:6])}{' …' if len(strays) > 6 else ''}"
        remarks.append(f"{listed}: half the {usual} cards of the others or fewer; no compute nodes, left out")
    pods = _pods(hosts, graph.nameless, remarks)
    heights = _heights(graph, {leaf for pod in pods for leaf in pod.leaves})
    levels, order = _levels(graph, pods, heights, remarks)
    alike = Counter[tuple[int, float]]()
    for pod in pods:
        alike[pod.cards, pod.bytes_per_s] += pod.nodes
    pods.sort(key=lambda pod: (-alike[pod.cards, pod.bytes_per_s], pod.cards, order[min(pod.leaves)]))
    nodes = Counter[int]()
    for pod in pods:
        nodes[pod.cards] += pod.nodes
    if len(nodes) > 1:
        listed = ", ".join(f"{count} nodes with {cards} cards" for cards, count in sorted(nodes.items()))
        remarks.append(f"{listed}: a leaf that the output lacks takes a card from each of its nodes")
    spread = [pod for pod in pods if len(pod.leaves) > 1 and pod.cards > 1]
    rails = sum(pod.nodes for pod in spread) * 2 > sum(pod.nodes for pod in pods)
    if rails and any(len(pod.leaves) != pod.cards for pod in pods):
        remarks.append("not every card of a node has a leaf of its own; taken as rails, which join fewer cards")
    if len(pods) == 1 and not rails:
        levels = ()
    return NetworkShape(tuple(pods), levels, rails, tuple(remarks))


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts `node9` before `node10`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,18})", name)]


def _usual(counts: Iterable[int]) -> int:
    """The most frequent count; of several the smallest."""
    found = Counter(counts)
    return min(found, key=lambda count: (-found[count], count))


def _pods(hosts: dict[str, Ports], nameless: Ports, remarks: list[str]) -> list[Pod]:
    joined = _components([[switch for switch, _ in ports] for ports in hosts.values()])
    named: defaultdict[frozenset[str], list[str]] = defaultdict(list)
    for name, ports in hosts.items():
        named[joined[ports[0][0]]].append(name)
    extra = Counter(joined[switch] for switch, _ in nameless if switch in joined)
    if lost := sum(switch not in joined for switch, _ in nameless):
        remarks.append(f"{lost} cards without a host's name hang on switches of their own, and are left out")
    if counted := sum(extra.values()):
        remarks.append(f"{counted} cards without a host's name are counted by the leaves that they hang on")
    pods = []
    for leaves, names in named.items():
        cards = _usual(len(hosts[name]) for name in names)
        total = sum(len(hosts[name]) for name in names) + extra[leaves]
        rates = [rate for name in names for _, rate in hosts[name]]
        nodes = max(len(names), -(-total // cards))
        pods.append(Pod(leaves, tuple(sorted(names, key=natural)), nodes, cards, min(rates)))
    return pods


def _components(sets: Iterable[Sequence[str]]) -> dict[str, frozenset[str]]:
    """For every member the union of all sets that are joined to its own by common members."""
    owner: dict[str, int] = {}
    members: dict[int, set[str]] = {}
    for number, together in enumerate(sets):
        mine = set(together)
        for old in {owner[each] for each in together if each in owner}:
            mine |= members.pop(old)
        members[number] = mine
        for each in mine:
            owner[each] = number
    frozen = {number: frozenset(mine) for number, mine in members.items()}
    return {each: frozen[number] for each, number in owner.items()}


def _heights(graph: SwitchGraph, leaves: set[str]) -> dict[str, int]:
    """Steps from each switch to the nearest leaf."""
    near: defaultdict[str, set[str]] = defaultdict(set)
    for one, other, _ in graph.links:
        near[one].add(other)
        near[other].add(one)
    heights = dict.fromkeys(leaves, 0)
    front = sorted(leaves)
    while front:
        above = sorted({other for switch in front for other in near[switch]} - heights.keys())
        heights |= dict.fromkeys(above, heights[front[0]] + 1)
        front = above
    return heights


def _levels(
    graph: SwitchGraph, pods: list[Pod], heights: dict[str, int], remarks: list[str]
) -> tuple[tuple[Level, ...], dict[str, tuple[str, ...]]]:
    """The levels below the switches that join everything, and a key for the order of leaves."""
    leaves = {leaf: pod for pod in pods for leaf in pod.leaves}
    order: dict[str, tuple[str, ...]] = {leaf: (pod.hosts[0],) for leaf, pod in leaves.items()}
    down: defaultdict[str, float] = defaultdict(float)
    for ports in [*graph.hosts.values(), graph.nameless]:
        for switch, rate in ports:
            down[switch] += rate
    parts = [(pod.leaves, pod.nodes) for pod in pods]
    levels: list[Level] = []
    height = 0
    while len(parts) > 1 or (not levels and len(pods[0].leaves) > 1):
        if height > max(heights.values()):
            message = f"{min(parts[0][0])!r} and {min(parts[1][0])!r} are joined by no switch: the output is cut off"
            raise UnjoinedError(f"leaves {message}, or of several networks: give the output of one")
        up: defaultdict[str, float] = defaultdict(float)
        for one, other, rate in graph.links:
            for low, high in ((one, other), (other, one)):
                if heights.get(low) == height and heights.get(high) == height + 1:
                    up[low] += rate
                    down[high] += rate
        levels.append(_level(height, parts, up, down, remarks))
        height += 1
        reach = _components(
            [
                [one, other]
                for one, other, _ in graph.links
                if max(heights.get(one, 99), heights.get(other, 99)) <= height
            ]
            + [sorted(pod.leaves) for pod in pods]
        )
        sums: Counter[frozenset[str]] = Counter()
        for pod in pods:
            sums[reach[min(pod.leaves)]] += pod.nodes
        parts = list(sums.items())
        order = {leaf: (min(reach[leaf]), *key) for leaf, key in order.items()}
    return _widening(levels), order


def _level(
    height: int,
    parts: Sequence[tuple[frozenset[str], int]],
    up: dict[str, float],
    down: dict[str, float],
    remarks: list[str],
) -> Level:
    nodes = _usual(count for _, count in parts)
    name = "leaf" if height == 0 else "spine" if height == 1 else f"level-{height}"
    sizes = sorted({count for _, count in parts})
    if len(sizes) > 1:
        remarks.append(f"{name}: {sizes[0]} to {sizes[-1]} nodes together; taken as {nodes}, the most frequent")
    ratios = {switch: down[switch] / rate for switch, rate in up.items() if rate}
    if not ratios:
        remarks.append(f"{name}: no cables of known speed to switches above it; taken as joined at full speed")
        return Level(name, nodes)
    worst = max(sorted(ratios), key=lambda switch: ratios[switch])
    value = max(1.0, round(ratios[worst], 4))
    words = f"of the fullest: {down[worst] * 8e-9:,.0f} Gb/s down, {up[worst] * 8e-9:,.0f} Gb/s up"
    return Level(name, nodes, value, words=words)


def _widening(levels: Sequence[Level]) -> tuple[Level, ...]:
    """The levels with nodes rounded so that each holds whole ones of the level below.

    Two that hold the same nodes are one, through which as much passes as through both.
    """
    kept: list[Level] = []
    for level in levels:
        below = kept[-1] if kept else None
        factor = round(level.nodes / below.nodes) if below else 1
        if below is None:
            kept.append(level)
        elif factor > 1:
            kept.append(replace(level, nodes=below.nodes * factor))
        else:
            together = (below.oversubscription or 1.0) * (level.oversubscription or 1.0)
            words = f"{below.name}: {below.words}; {level.name}: {level.words}"
            kept[-1] = replace(below, oversubscription=round(together, 4), words=words)
    return tuple(kept)
