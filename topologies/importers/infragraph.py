"""InfraGraph: devices as graphs of components, instances of them, and the links between these.

Both forms are read: edges with endpoints (`ep1: {component: xpu[0:2]}`) and the former dotted connections
(`xpu.0.pcie.nic.0`).
"""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from topologies.documents import Document, Key, parse_yaml
from topologies.errors import InputError
from topologies.importers.devices import NVLINK_RATES, known_device
from topologies.importers.facts import Fact, Facts, HostGroup, Text
from topologies.importers.neighbours import run_length
from topologies.importers.switch_graph import SwitchGraph, UnjoinedError, shape

KIND = "infragraph"
MOST_EDGES = 1 << 18
KINDS = {*NVLINK_RATES, "infinity-fabric", "infiniband", "roce", "ethernet", "efa"}
_ENDPOINT = re.compile(r"(?P<name>[^\[\]]+)(?:\[(?P<first>\d{0,6})(?P<colon>:)?(?P<end>\d{0,6})\])?")
Part = tuple[str, int]
"""A name and an index: a component of a device, or an instance of the infrastructure."""


@dataclass(frozen=True)
class _Component:
    name: str
    kind: str
    count: int
    description: str
    path: tuple[Key, ...]

    @property
    def is_accelerator(self) -> bool:
        return self.kind in ("xpu", "npu", "gpu")

    @property
    def is_pcie(self) -> bool:
        return "pci" in f"{self.name} {self.description}".lower()


@dataclass(frozen=True)
class _Device:
    name: str
    components: dict[str, _Component]
    edges: list[tuple[Part, Part, str]]
    rates: dict[str, float]
    path: tuple[Key, ...]

    @property
    def accelerators(self) -> _Component | None:
        return next((each for each in self.components.values() if each.is_accelerator), None)


@dataclass
class _Cable:
    """Between two parts of instances: ((instance, index), (component, index)) at both ends."""

    one: tuple[Part, Part]
    other: tuple[Part, Part]
    link: str


@dataclass
class _Infrastructure:
    devices: dict[str, _Device]
    instances: dict[str, tuple[str, int]]
    """Of which device, and how many."""
    cables: list[_Cable] = field(default_factory=list)
    rates: dict[str, float] = field(default_factory=dict)


def recognises_yaml(data: Any) -> bool:
    """Whether YAML is an InfraGraph."""
    inner = data.get("infrastructure", data) if isinstance(data, dict) else None
    return isinstance(inner, dict) and (
        isinstance(inner.get("devices"), list)
        or ("components" in inner and bool(inner.keys() & {"edges", "connections"}))
    )


def read(text: Text) -> Facts:
    """The servers, their insides and the network between them. Raises InputError with the line."""
    document = parse_yaml(text.text, text.source)
    root: tuple[Key, ...] = ()
    inner = document.data
    if isinstance(inner, dict) and isinstance(inner.get("infrastructure"), dict):
        root, inner = ("infrastructure",), inner["infrastructure"]
    if not isinstance(inner, dict):
        text.refuse(1, "must be a mapping with devices and instances")
    found = _infrastructure(document, root, inner)
    servers = {name: device for name, device in found.devices.items() if device.accelerators}
    if not servers:
        text.refuse(1, "no device has components of kind xpu, npu or gpu: nothing to plan for")
    return _facts(text, document, found, servers)


def _facts(text: Text, document: Document, found: _Infrastructure, servers: dict[str, _Device]) -> Facts:
    instances = {name: count for name, (device, count) in found.instances.items() if device in servers}
    if not instances:
        known = {cable.one[0][0] for cable in found.cables} - found.instances.keys()
        name = next(iter(sorted(known)), next(iter(servers)))
        indices = [cable.one[0][1] for cable in found.cables if cable.one[0][0] == name]
        found.instances[name] = (next(iter(servers)), max(indices, default=0) + 1)
        instances = {name: found.instances[name][1]}
    graph = _graph(found, instances)
    remarks: list[str] = []
    levels = rails = None
    if graph.hosts:
        line = 1
        try:
            seen = shape(graph)
        except UnjoinedError as error:
            text.refuse(line, str(error))
        remarks += seen.remarks
        levels = text.fact(seen.levels, line, "edges between instances")
        rails = text.fact(True, line, "each card of a node hangs on another leaf") if seen.rails else None
    groups = []
    for name, count in instances.items():
        device = servers[found.instances[name][0]]
        line = (document.locate(device.path) or (1, 1))[0]
        fields, said = _of_device(text, document, found, name, device, graph)
        remarks += said
        groups.append(
            HostGroup(text.fact(count, line, f"instances {name!r} of {device.name!r}"), (), fields, name=name)
        )
    return Facts(KIND, text.source, {}, tuple(groups), levels, rails, tuple(dict.fromkeys(remarks)))


def _of_device(
    text: Text, document: Document, found: _Infrastructure, name: str, device: _Device, graph: SwitchGraph
) -> tuple[dict[str, Fact], list[str]]:
    xpu = device.accelerators
    assert xpu is not None
    line = (document.locate(xpu.path) or (1, 1))[0]
    facts = {"accelerators.count": text.fact(xpu.count, line, f"components {xpu.name!r}")}
    remarks = []
    if known := known_device(xpu.description) or known_device(xpu.name):
        facts["accelerators.device"] = text.fact(known, line, xpu.description or xpu.name)
    elif xpu.description:
        remarks.append(f"{xpu.description!r} is no single device")
    facts |= _scale_up(text, found, name, device, xpu, line)
    owners: list[Part | None] = [None] * xpu.count
    rates = []
    for one, other, link in device.edges:
        for near, far in ((one, other), (other, one)):
            component = device.components.get(far[0])
            if (
                near[0] == xpu.name
                and near[1] < xpu.count
                and component
                and component.is_pcie
                and not component.is_accelerator
            ):
                owners[near[1]] = owners[near[1]] or far
                rates.append(device.rates.get(link))
    if None not in owners and (per_switch := run_length(owners)):
        facts["links.pcie.accelerators_per_switch"] = text.fact(per_switch, line, "edges to PCIe switches")
    if rate := min((rate for rate in rates if rate), default=None):
        facts["links.pcie.bandwidth"] = text.fact(rate, line, "link to the PCIe switch")
    return facts | _cards(text, found, name, device, graph, line), remarks


def _scale_up(
    text: Text, found: _Infrastructure, name: str, device: _Device, xpu: _Component, line: int
) -> dict[str, Fact]:
    """The fabric between accelerators: inside a device, or over switches that several instances share."""
    inside = [
        device.rates.get(link)
        for one, other, link in device.edges
        for near, far in ((one, other), (other, one))
        if near == (xpu.name, 0) and _is_fabric(device, far[0], xpu)
    ]
    if inside:
        facts = {"links.scale_up.is_there": text.fact(True, line, "edges between accelerators")}
        facts |= _kind(text, "links.scale_up.kind", [link for one, _, link in device.edges if one[0] == xpu.name], line)
        switches: list[frozenset[Part]] = [
            frozenset(
                far
                for one, other, _ in device.edges
                for near, far in ((one, other), (other, one))
                if near == (xpu.name, rank) and far[0] != xpu.name and _is_fabric(device, far[0], xpu)
            )
            for rank in range(xpu.count)
        ]
        domain = run_length(switches) if all(switches) else None
        if domain and 1 < domain < xpu.count:
            facts["links.scale_up.domain"] = text.fact(domain, line, "accelerators on one scale-up switch")
        known = [rate for rate in inside if rate]
        if len(known) == len(inside):
            facts["links.scale_up.bandwidth"] = text.fact(sum(known), line, f"{len(inside)} links")
        return facts
    shared: defaultdict[Part, set[tuple[Part, Part]]] = defaultdict(set)
    rates, kinds = [], []
    for cable in found.cables:
        for near, far in ((cable.one, cable.other), (cable.other, cable.one)):
            if near[0][0] == name and near[1][0] == xpu.name:
                shared[far[0]].add(near)
                kinds.append(cable.link)
                if near == ((name, 0), (xpu.name, 0)):
                    rates.append(found.rates.get(cable.link))
    if not shared:
        return {}
    domain = max(map(len, shared.values()))
    facts = {"links.scale_up.domain": text.fact(domain, line, "accelerators on one scale-up switch")}
    facts |= _kind(text, "links.scale_up.kind", kinds, line)
    told = [rate for rate in rates if rate]
    if told and len(told) == len(rates):
        facts["links.scale_up.bandwidth"] = text.fact(sum(told), line, f"{len(rates)} links")
    return facts


def _kind(text: Text, path: str, links: list[str], line: int) -> dict[str, Fact]:
    """The kind of a link that is called by it, perhaps with a number (`nvlink4`, `infiniband-2`)."""
    kinds = {
        match[1] for link in links if (match := re.fullmatch(r"(nvlink\d|[a-z]+(?:-[a-z]+)*)(?:-\d+)?", link))
    } & KINDS
    return {path: text.fact(kinds.pop(), line, "name of the link")} if len(kinds) == 1 else {}


def _is_fabric(device: _Device, name: str, xpu: _Component) -> bool:
    component = device.components.get(name)
    if component is None:
        return False
    return component is xpu or (component.kind in ("switch", "custom") and not component.is_pcie)


def _cards(
    text: Text, found: _Infrastructure, name: str, device: _Device, graph: SwitchGraph, line: int
) -> dict[str, Fact]:
    ports = graph.hosts.get(f"{name}[0]", [])
    count = len(ports)
    if not count:
        count = sum(
            each.count
            for each in device.components.values()
            if each.kind == "nic" or (each.kind == "device" and each.name in found.devices)
        )
    if not count:  # the former form: instances of a device that the file does not describe, on the insides of a server
        outer = {n for n, (kind, _) in found.instances.items() if kind not in found.devices}
        ends = {cable.other[0] for cable in found.cables if cable.one[0] == (name, 0) and cable.other[0][0] in outer}
        count = len(ends)
    if not count:
        return {}
    facts = {"links.scale_out.count": text.fact(count, line, "network cards of a server")}
    used = [
        c.link for c in found.cables if (name, 0) in (c.one[0], c.other[0]) and "nic" in (c.one[1][0], c.other[1][0])
    ]
    facts |= _kind(text, "links.scale_out.kind", used, line)
    if ports and (rate := min(rate for _, rate in ports)):
        facts["links.scale_out.bandwidth"] = text.fact(rate, line, "link of a card")
    return facts


def _graph(found: _Infrastructure, servers: dict[str, int]) -> SwitchGraph:
    """The cables between instances: cards on switches, and switches on switches. Those of accelerators are scale-up."""
    hosts: dict[str, list[tuple[str, float]]] = {}
    graph = SwitchGraph(hosts, [])
    switches = {name for name, (device, _) in found.instances.items() if device in found.devices} - servers.keys()
    for cable in found.cables:
        (one, inside), (other, inside_other) = cable.one, cable.other
        rate = found.rates.get(cable.link, 0.0)
        if one[0] in switches and other[0] in switches:
            graph.links.append((_name(one), _name(other), rate))
            continue
        for near, part, far in ((one, inside, other), (other, inside_other, one)):
            if near[0] in servers and far[0] in switches:
                component = found.devices[found.instances[near[0]][0]].components.get(part[0])
                if component is None or not component.is_accelerator:
                    hosts.setdefault(_name(near), []).append((_name(far), rate))
    return graph


def _name(part: Part) -> str:
    return f"{part[0]}[{part[1]}]"


def _infrastructure(document: Document, root: tuple[Key, ...], inner: dict[str, Any]) -> _Infrastructure:
    devices: dict[str, _Device] = {}
    items = [(root, inner)] if "components" in inner else []
    listed = inner.get("devices") or []
    if not isinstance(listed, list):
        raise InputError([document.fault((*root, "devices"), "must be a list of devices")])
    items += [((*root, "devices", index), item) for index, item in enumerate(listed)]
    instances: dict[str, tuple[str, int]] = {}
    for path, item in items:
        if not isinstance(item, dict):
            raise InputError([document.fault(path, "must be a device: a mapping with name and components")])
        device = _device(document, path, item)
        devices[device.name] = device
        if path != root:
            _add_instances(document, path, item, instances, device.name)
    if "components" not in inner:
        _add_instances(document, root, inner, instances, None)
    found = _Infrastructure(devices, instances, rates=_rates(document, root, inner))
    if "components" not in inner:
        found.cables = list(itertools.islice(_cables(document, root, inner, found), MOST_EDGES + 1))
        if len(found.cables) > MOST_EDGES:
            raise InputError([document.fault((*root, "edges"), f"make more than {MOST_EDGES:,} links")])
    return found


def _add_instances(
    document: Document,
    path: tuple[Key, ...],
    item: dict[str, Any],
    instances: dict[str, tuple[str, int]],
    of: str | None,
) -> None:
    for index, each in enumerate(_mappings(document, (*path, "instances"), item.get("instances"))):
        device = str(each.get("device", of or ""))
        instances[str(each.get("name"))] = (device, _count(document, (*path, "instances", index), each.get("count", 1)))


def _device(document: Document, path: tuple[Key, ...], item: dict[str, Any]) -> _Device:
    connections = list(_connections(document, (*path, "connections"), item.get("connections"), 5))
    most: Counter[str] = Counter()
    for words in connections:
        for part, place in ((words[0], words[1]), (words[3], words[4])):
            most[part] = max(most[part], int(place) + 1)
    components: dict[str, _Component] = {}
    here: tuple[Key, ...]
    for index, each in enumerate(_mappings(document, (*path, "components"), item.get("components"))):
        here = (*path, "components", index)
        name = str(each.get("name", ""))
        kind = str(each.get("choice") or each.get("type") or "custom").lower()
        if kind == "custom" and name.lower() in ("xpu", "npu", "gpu", "nic"):
            kind = name.lower()
        count = _count(document, here, each.get("count", most[name] or 1))
        components[name] = _Component(name, kind, count, str(each.get("description", "")), here)
    edges = [((w[0], int(w[1])), (w[3], int(w[4])), w[2]) for w in connections]
    for index, edge in enumerate(_mappings(document, (*path, "edges"), item.get("edges"))):
        here = (*path, "edges", index)
        ends = []
        for key in ("ep1", "ep2"):
            end = edge.get(key)
            component = end.get("component") if isinstance(end, dict) else None
            sizes = {each.name: each.count for each in components.values()}
            outer = isinstance(end, dict) and end.get("device")
            ends.append([] if outer else _parts(document, (*here, key), component, sizes))
        edges += [(one, other, str(edge.get("link", ""))) for one, other in _paired(document, here, edge, *ends)]
        if len(edges) > MOST_EDGES:
            raise InputError([document.fault(here, f"make more than {MOST_EDGES:,} links")])
    return _Device(
        str(item.get("name") or item.get("description") or "device"),
        components,
        edges,
        _rates(document, path, item),
        path,
    )


def _parts(document: Document, path: tuple[Key, ...], value: Any, sizes: dict[str, int]) -> list[Part]:
    """What `xpu[0:2]` stands for; without an index, all of that name."""
    match = _ENDPOINT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise InputError([document.fault(path, f"{str(value)[:40]!r} is no name with indices, as xpu[0:2]")])
    count = sizes.get(match["name"], 1)
    first, end = match["first"] or "", match["end"] or ""
    if match["colon"]:
        chosen = range(int(first or 0), min(int(end or count), count))
    elif first + end:
        chosen = range(int(first + end), int(first + end) + 1)
    else:
        chosen = range(count)
    return [(match["name"], index) for index in chosen]


def _paired(
    document: Document, path: tuple[Key, ...], edge: dict[str, Any], one: list[Any], other: list[Any]
) -> Iterator[tuple[Any, Any]]:
    """Every pair of two endpoints: each with each, or in order."""
    scheme = edge.get("scheme", "many2many" if edge.get("many2many") else "one2one")
    if scheme not in ("one2one", "many2many"):
        raise InputError([document.fault((*path, "scheme"), f"must be one2one or many2many, not {str(scheme)[:40]!r}")])
    if len(one) * len(other) > MOST_EDGES:
        raise InputError([document.fault(path, f"make more than {MOST_EDGES:,} links")])
    if scheme == "many2many":
        return ((each, far) for each in one for far in other if each != far)
    return zip(one, other, strict=False)


def _cables(
    document: Document, root: tuple[Key, ...], inner: dict[str, Any], found: _Infrastructure
) -> Iterator[_Cable]:
    for words in _connections(document, (*root, "connections"), inner.get("connections"), 9):
        one = ((words[0], int(words[1])), (words[2], int(words[3])))
        yield _Cable(one, ((words[5], int(words[6])), (words[7], int(words[8]))), words[4])
    counts = {name: count for name, (_, count) in found.instances.items()}
    for index, edge in enumerate(_mappings(document, (*root, "edges"), inner.get("edges"))):
        here = (*root, "edges", index)
        ends = []
        for key in ("ep1", "ep2"):
            end = edge.get(key)
            if not isinstance(end, dict):
                raise InputError([document.fault((*here, key), "must be an endpoint with instance and component")])
            owners = _parts(document, (*here, key), end.get("instance"), counts)
            device = found.devices.get(found.instances.get(owners[0][0], ("", 0))[0]) if owners else None
            sizes = {each.name: each.count for each in device.components.values()} if device else {}
            parts = _parts(document, (*here, key), end.get("component"), sizes)
            ends.append([(owner, part) for owner in owners for part in parts])
        for one, other in _paired(document, here, edge, *ends):
            yield _Cable(one, other, str(edge.get("link", "")))


def _connections(document: Document, path: tuple[Key, ...], value: Any, length: int) -> Iterator[list[str]]:
    """The words of dotted connections; every second or so is an index."""
    for index, line in enumerate(value if isinstance(value, list) else []):
        words = line.split(".") if isinstance(line, str) else []
        numbers = (1, 4) if length == 5 else (1, 3, 6, 8)
        if len(words) != length or not all(words[n].isdecimal() and len(words[n]) < 7 for n in numbers):
            example = "xpu.0.pcie.nic.0" if length == 5 else "host.0.nic.0.eth.leaf.0.port.0"
            raise InputError([document.fault((*path, index), f"{str(line)[:60]!r} is no connection as {example}")])
        yield words


_UNITS = {"bits": 1e9 / 8, "bytes": 1e9}


def _rates(document: Document, path: tuple[Key, ...], item: dict[str, Any]) -> dict[str, float]:
    """bytes/s of every link that has a bandwidth."""
    rates = {}
    for index, link in enumerate(_mappings(document, (*path, "links"), item.get("links"))):
        physical = link.get("physical")
        bandwidth = link.get("bandwidth") or (physical.get("bandwidth") if isinstance(physical, dict) else None)
        if not isinstance(bandwidth, dict):
            continue
        for key, value in bandwidth.items():
            match = re.fullmatch(r"(?:g|giga)_?(bits|bytes)_per_second", str(key))
            if not match or value is None:
                continue
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e9:
                raise InputError(
                    [
                        document.fault(
                            (*path, "links", index), f"{key} must be a number above 0, not {str(value)[:40]!r}"
                        )
                    ]
                )
            rates[str(link.get("name"))] = value * _UNITS[match[1]]
    return rates


def _mappings(document: Document, path: tuple[Key, ...], value: Any) -> list[dict[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise InputError([document.fault(path, "must be a list")])
    for index, item in enumerate(value):
        if not isinstance(item, dict):
            raise InputError([document.fault((*path, index), "must be a mapping of keys")])
    return value


def _count(document: Document, path: tuple[Key, ...], value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 1 << 18:
        raise InputError(
            [document.fault((*path, "count"), f"must be a whole number of at least 1, not {str(value)[:40]!r}")]
        )
    return value
