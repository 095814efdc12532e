"""InfraGraph: the insides of servers, how many there are, and the network between them."""

import re
from collections import defaultdict
from typing import Any

from topologies.documents import Document, Key, parse_yaml
from topologies.importers.devices import NVLINK_RATES, known_device
from topologies.importers.facts import Fact, Facts, HostGroup, Text
from topologies.importers.infragraph_document import Component, Device, Infrastructure, Part, infrastructure
from topologies.importers.neighbours import run_length
from topologies.importers.switch_graph import SwitchGraph, UnjoinedError, shape

KIND = "infragraph"
KINDS = {*NVLINK_RATES, "infinity-fabric", "infiniband", "roce", "ethernet"}


def recognises_yaml(data: Any) -> bool:
    """Whether YAML is an InfraGraph."""
    inner = data.get("infrastructure", data) if isinstance(data, dict) else None
    return isinstance(inner, dict) and (
        isinstance(inner.get("devices"), list)
        or isinstance(data.get("infrastructure"), dict)
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
    found = infrastructure(document, root, inner)
    servers = {name: device for name, device in found.devices.items() if device.accelerators}
    if not servers:
        text.refuse(1, "no device has components of kind xpu, npu or gpu: nothing to plan for")
    return _facts(text, document, found, servers)


def _facts(text: Text, document: Document, found: Infrastructure, servers: dict[str, Device]) -> Facts:
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
    text: Text, document: Document, found: Infrastructure, name: str, device: Device, graph: SwitchGraph
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
    text: Text, found: Infrastructure, name: str, device: Device, xpu: Component, line: int
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


def _is_fabric(device: Device, name: str, xpu: Component) -> bool:
    component = device.components.get(name)
    if component is None:
        return False
    return component is xpu or (component.kind in ("switch", "custom") and not component.is_pcie)


def _cards(
    text: Text, found: Infrastructure, name: str, device: Device, graph: SwitchGraph, line: int
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


def _graph(found: Infrastructure, servers: dict[str, int]) -> SwitchGraph:
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
