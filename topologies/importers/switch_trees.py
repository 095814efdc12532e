"""Trees of named switches with hosts below them, as Slurm and Topograph describe networks, as levels."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from topologies.importers.facts import Level


@dataclass(frozen=True)
class Switch:
    """A switch, what hangs on it, and the line that says so."""

    line: int
    switches: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True)
class TreeShape:
    """A tree as a topology says it: hosts in the order of its leaves, levels from the leaves up."""

    hosts: tuple[str, ...]
    levels: tuple[Level, ...]
    remarks: tuple[str, ...]


class TreeError(ValueError):
    """What is no tree, with the line that shows it."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def shape(switches: Mapping[str, Switch]) -> TreeShape:
    """The levels of a tree. Raises TreeError for a circle, a switch that is not described and one below two others."""
    roots = _roots(switches)
    heights: dict[str, int] = {}
    order = [name for root in roots for name in _below(switches, root)]
    for name in reversed(order):
        children = switches[name].switches
        heights[name] = 1 + max(heights[child] for child in children) if children else 0
    if len(order) < len(switches):
        name = next(name for name in switches if name not in heights)
        raise TreeError(switches[name].line, f"switch {name!r} is below itself; break the circle")
    hosts, remarks = _hosts(switches, order)
    sizes = {name: len(switches[name].hosts) for name in order}
    for name in reversed(order):
        sizes[name] += sum(sizes[child] for child in switches[name].switches)
    if len(roots) > 1:
        remarks.append(f"{len(roots)} switches have none above them; taken as joined at full speed")
    levels: list[Level] = []
    for height in range(max(heights.values(), default=-1) + 1):
        there = [sizes[name] for name in order if heights[name] == height and sizes[name]]
        if there and not (len(there) == 1 and there[0] == len(hosts)):
            _add_level(height, there, levels, remarks)
    return TreeShape(tuple(hosts), tuple(levels), tuple(remarks))


def _roots(switches: Mapping[str, Switch]) -> list[str]:
    """The switches below no other."""
    above: dict[str, str] = {}
    for name, switch in switches.items():
        for child in switch.switches:
            if child not in switches:
                raise TreeError(switch.line, f"switch {name!r} joins {child!r}, which no line describes")
            if child in above:
                raise TreeError(switch.line, f"switch {child!r} is below {above[child]!r} and {name!r}; name it in one")
            above[child] = name
    return [name for name in switches if name not in above]


def _add_level(height: int, sizes: Sequence[int], levels: list[Level], remarks: list[str]) -> None:
    """Add the level whose switches have so many nodes each, unless they are those of the level below."""
    nodes = Counter(sizes).most_common(1)[0][0]
    if len(set(sizes)) > 1:
        remarks.append(f"switches of {min(sizes)} to {max(sizes)} nodes; taken as {nodes}, the most frequent")
    if levels:
        factor = round(nodes / levels[-1].nodes)
        if factor < 2:
            return
        nodes = levels[-1].nodes * factor
    name = "leaf" if height == 0 else "spine" if height == 1 else f"level-{height}"
    levels.append(Level(name, nodes, words=f"{len(sizes)} switches"))


def _below(switches: Mapping[str, Switch], root: str) -> Sequence[str]:
    """A switch and all below it, each before its children, in the order of the lines."""
    found, stack = [], [root]
    while stack:
        name = stack.pop()
        found.append(name)
        stack += reversed(switches[name].switches)
    return found


def _hosts(switches: Mapping[str, Switch], order: Sequence[str]) -> tuple[list[str], list[str]]:
    hosts: dict[str, str] = {}
    twice = 0
    for name in order:
        for host in switches[name].hosts:
            twice += hosts.setdefault(host, name) != name
    return list(hosts), [f"{twice} nodes are below several switches; the first counts"] if twice else []
