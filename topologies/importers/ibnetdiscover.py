"""`ibnetdiscover`: the switches and host ports of an InfiniBand fabric."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from topologies.importers.facts import Facts, HostGroup, Text
from topologies.importers.hostlists import fold
from topologies.importers.switch_graph import SwitchGraph, UnjoinedError, shape

KIND = "ibnetdiscover"
LANE_BITS_PER_S = {
    "SDR": 2e9,
    "DDR": 4e9,
    "QDR": 8e9,
    "FDR10": 10e9,
    "FDR": 13.64e9,
    "EDR": 25e9,
    "HDR": 50e9,
    "NDR": 100e9,
    "XDR": 200e9,
}
"""Data rate of a lane (InfiniBand Trade Association, roadmap): 4xNDR is 400 Gb/s."""

_HEAD = re.compile(r'(?P<what>Switch|Ca|Rt)\s+\d+\s+"(?P<guid>[^"]+)"\s*#\s*"(?P<name>[^"]*)"')
_PORT = re.compile(r'\[(?P<port>\d+)\](?:\([0-9a-fA-Fx]+\))?\s+"(?P<peer>[^"]+)"\[(?P<far>\d+)\]')
_SPEED = re.compile(rf"\b(?P<lanes>1|2|4|8|12)x(?P<rate>{'|'.join(sorted(LANE_BITS_PER_S, key=len, reverse=True))})\b")
_HOST = re.compile(r"(?P<host>\S.*?)[\s_]+(?:HCA-\d+|mlx\d+_\S+|ibp?\d*s?\S*|hfi\d+_\d+|qib\d+|rdma\S*)")


def recognises(text: str) -> bool:
    """Whether a text is what ibnetdiscover prints."""
    return any(_HEAD.match(line) for line in text.splitlines())


@dataclass(frozen=True)
class _Cable:
    """A cable: two ends (identifier, port), and bytes/s."""

    ends: tuple[tuple[str, int], tuple[str, int]]
    bytes_per_s: float
    line: int


def read(text: Text) -> Facts:
    """Hosts, levels and rails. Raises InputError with the line."""
    names: dict[str, str] = {}
    cables = {cable.ends: cable for cable in _cables(text, names)}
    first = next((number for number, line in text.lines() if _HEAD.match(line)), 1)
    graph, remarks = _graph(list(cables.values()), names)
    described = {head["guid"] for _, line in text.lines() if (head := _HEAD.match(line))}
    if lost := {end for cable in cables.values() for end, _ in cable.ends if end.startswith("S-")} - described:
        remarks.append(f"{len(lost)} switches are at the end of cables and are not described: is the output cut off?")
    try:
        found = shape(graph)
    except UnjoinedError as error:
        text.refuse(first, str(error))
    groups = []
    for number, pod in enumerate(found.pods):
        alike = (pod.cards, pod.bytes_per_s)
        if number and alike == (found.pods[number - 1].cards, found.pods[number - 1].bytes_per_s):
            continue
        same = [each for each in found.pods if (each.cards, each.bytes_per_s) == alike]
        line = min(cable.line for cable in cables.values() if {end for end, _ in cable.ends} & pod.leaves)
        fields = {
            "links.scale_out.kind": text.fact("infiniband", line),
            "links.scale_out.count": text.fact(pod.cards, line, "cards of a node on the switches"),
        }
        if pod.bytes_per_s:
            words = f"{pod.bytes_per_s * 8e-9:g} Gb/s"
            fields["links.scale_out.bandwidth"] = text.fact(pod.bytes_per_s, line, words)
        hosts = tuple(host for each in same for host in each.hosts)
        nodes = sum(each.nodes for each in same)
        words = f"nodes with {pod.cards} cards: {fold(hosts)}"
        groups.append(HostGroup(text.fact(nodes, line, words), hosts, fields))
    levels = text.fact(found.levels, first)
    rails = text.fact(found.rails, first, "each card of a node hangs on another leaf") if found.rails else None
    return Facts(KIND, text.source, {}, tuple(groups), levels, rails, (*remarks, *found.remarks))


def _cables(text: Text, names: dict[str, str]) -> Iterator[_Cable]:
    """Every cable of the output, from either end; `names` takes what each device is called."""
    here = None
    for number, line in text.lines():
        if head := _HEAD.match(line):
            here = head["guid"]
            names[here] = head["name"]
            continue
        if not line.startswith("["):
            continue
        port = _PORT.match(line)
        if port is None or here is None:
            text.refuse(
                number, f"is no port of a {'device' if port is None else 'Switch or Ca above it'}: {line[:40]!r}"
            )
        if max(len(port["port"]), len(port["far"])) > 5:
            text.refuse(number, "the number of a port is too long")
        quoted = re.search(r'#\s*"([^"]*)"', line)
        if quoted:
            names.setdefault(port["peer"], quoted[1])
        speed = _SPEED.search(line[port.end() :])
        rate = int(speed["lanes"]) * LANE_BITS_PER_S[speed["rate"]] / 8 if speed else 0.0
        ends = sorted([(here, int(port["port"])), (port["peer"], int(port["far"]))])
        yield _Cable((ends[0], ends[1]), rate, number)


def _graph(cables: list[_Cable], names: dict[str, str]) -> tuple[SwitchGraph, list[str]]:
    hosts: dict[str, list[tuple[str, float]]] = {}
    graph = SwitchGraph(hosts, [])
    aggregations = 0
    shared = _shared_names(names)
    for cable in cables:
        (one, _), (other, _) = cable.ends
        switches = [end for end in (one, other) if end.startswith("S-")]
        if len(switches) == 2 and one != other:
            graph.links.append((one, other, cable.bytes_per_s))
        if len(switches) != 1:
            continue
        card = other if switches[0] == one else one
        name = names.get(card, "")
        if "Aggregation Node" in name:
            aggregations += 1
        elif name not in shared and (match := _HOST.fullmatch(name.strip())):
            hosts.setdefault(match["host"].strip("'"), []).append((switches[0], cable.bytes_per_s))
        else:
            graph.nameless.append((switches[0], cable.bytes_per_s))
    remarks = []
    if aggregations:
        words = "SHARP can sum in them: state network.in_network_reduction: sharp if it is in use"
        remarks.append(f"{aggregations} switches have aggregation nodes; {words}")
    if shared:
        remarks.append(f"{', '.join(sorted(shared)[:4])}: the name of several cards, and of no one host")
    return graph, remarks


def _shared_names(names: dict[str, str]) -> set[str]:
    """The names of hosts' cards that several cards have, as `localhost mlx5_0` of nodes that were never told theirs.

    All names of such a host are in it.
    """
    cards = Counter(name for card, name in names.items() if not card.startswith("S-"))
    found = {name: match["host"] for name in cards if (match := _HOST.fullmatch(name.strip()))}
    hosts = {host for name, host in found.items() if cards[name] > 1}
    return {name for name, host in found.items() if host in hosts}
