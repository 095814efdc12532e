"""A cluster as an InfraGraph: a device for each node group, and switches with the links between them.

The format cannot say memories, FLOP/s and latencies; uplinks of a leaf are one link with their bandwidth together.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from topologies.cluster import NodeGroup, Topology
from topologies.yaml_trees import written


@dataclass
class _Graph:
    """The document on its way."""

    devices: list[dict[str, Any]] = field(default_factory=list)
    instances: list[dict[str, Any]] = field(default_factory=list)
    links: list[dict[str, Any]] = field(default_factory=list)
    edges: list[dict[str, Any]] = field(default_factory=list)

    def link(self, name: str, bytes_per_s: float) -> str:
        """The name of a link of this rate: a number is added where the name has another."""
        link = _link(name, bytes_per_s)
        number = 1
        while any(each["name"] == link["name"] and each != link for each in self.links):
            number += 1
            link = _link(f"{name}-{number}", bytes_per_s)
        if link not in self.links:
            self.links.append(link)
        return str(link["name"])

    def edge(self, one: tuple[str, str], other: tuple[str, str], link: str) -> None:
        """Join components of two instances, each with each."""
        ends = [{"instance": instance, "component": component} for instance, component in (one, other)]
        self.edges.append({"ep1": ends[0], "ep2": ends[1], "scheme": "many2many", "link": link})

    def add_switches(self, name: str, count: int) -> str:
        """Instances of a switch without more inside than its ports; their name, which no other instances have."""
        while any(each["name"] == name for each in self.instances):
            name += "_"
        self.devices.append({"name": f"{name}-device", "components": [{"name": "port", "choice": "port", "count": 1}]})
        self.instances.append({"name": name, "device": f"{name}-device", "count": count})
        return name


def infragraph_yaml(topology: Topology) -> str:
    """The graph as YAML."""
    graph = _Graph()
    names = [_name(group.name) for group in topology.nodes]
    names = [name if names.count(name) == 1 else f"{name}-{number}" for number, name in enumerate(names)]
    for group, name in zip(topology.nodes, names, strict=True):
        graph.devices.append(_server(group, name))
        graph.instances.append({"name": name, "device": f"{name}-device", "count": group.count})
    for group, name in zip(topology.nodes, names, strict=True):
        _add_scale_up(graph, group, name)
    _add_network(graph, topology, names)
    document = {
        "name": _name(topology.name),
        "description": "Memories, FLOP/s and latencies are not said.",
        "devices": graph.devices,
        "instances": graph.instances,
        "links": graph.links,
        "edges": graph.edges,
    }
    return written(document)


def _name(text: str) -> str:
    return re.sub(r"[^\w-]", "_", text)


def _link(name: str, bytes_per_s: float) -> dict[str, Any]:
    bandwidth = {"choice": "gigabytes_per_second", "gigabytes_per_second": bytes_per_s / 1e9}
    return {"name": name, "physical": {"bandwidth": bandwidth}}


def _server(group: NodeGroup, name: str) -> dict[str, Any]:
    """The insides of a node: accelerators, their PCIe and scale-up switches, cards."""
    count, links = group.accelerators.count, group.links
    per_switch = links.pcie.accelerators_per_switch
    components = [
        {"name": "cpu", "choice": "cpu", "count": 1},
        {"name": "xpu", "choice": "xpu", "count": count, "description": group.accelerators.device},
        {"name": "pciesw", "choice": "switch", "count": count // per_switch, "description": "PCIe switch"},
    ]
    edges = [_inside("cpu", "pciesw", "pcie")]
    edges += [
        _inside(f"pciesw[{number}]", f"xpu[{number * per_switch}:{(number + 1) * per_switch}]", "pcie")
        for number in range(count // per_switch)
    ]
    own = [_link("pcie", links.pcie.bandwidth)]
    up, domain = links.scale_up, group.domain_ranks
    if up is not None and domain <= count:
        components.append({"name": "scaleup", "choice": "switch", "count": count // domain})
        own.append(_link(up.kind, up.bandwidth))
        edges += [
            _inside(f"xpu[{number * domain}:{(number + 1) * domain}]", f"scaleup[{number}]", up.kind)
            for number in range(count // domain)
        ]
    if links.scale_out is not None:
        cards = links.scale_out.count
        components.append({"name": "nic", "choice": "nic", "count": cards, "description": links.scale_out.kind})
        switches = count // per_switch
        edges += [_inside(f"pciesw[{card * switches // cards}]", f"nic[{card}]", "pcie") for card in range(cards)]
    return {"name": f"{name}-device", "components": components, "links": own, "edges": edges}


def _inside(one: str, other: str, link: str) -> dict[str, Any]:
    return {"ep1": {"component": one}, "ep2": {"component": other}, "scheme": "many2many", "link": link}


def _add_scale_up(graph: _Graph, group: NodeGroup, name: str) -> None:
    """Switches between nodes, where a domain spans them."""
    up, domain, count = group.links.scale_up, group.domain_ranks, group.accelerators.count
    if up is None or domain <= count:
        return
    nodes = domain // count
    switch = graph.add_switches(f"{name}-scaleup", group.count // nodes)
    link = graph.link(up.kind, up.bandwidth)
    for number in range(group.count // nodes):
        hosts = f"{name}[{number * nodes}:{(number + 1) * nodes}]"
        graph.edge((hosts, "xpu"), (f"{switch}[{number}]", "port"), link)


def _add_network(graph: _Graph, topology: Topology, names: list[str]) -> None:
    """The cards of all nodes on their leaves, and levels of switches up to one that joins all."""
    groups = [(group, name) for group, name in zip(topology.nodes, names, strict=True) if group.links.scale_out]
    if topology.node_count == 1 or not groups:
        return
    levels = topology.network.levels
    first_nics = groups[0][0].links.scale_out
    assert first_nics is not None
    rails = min(first_nics.count, groups[0][0].accelerators.count) if topology.network.rails and levels else 1
    node = 0
    below = levels[0].nodes if levels else topology.node_count
    planes = -(-topology.node_count // below)
    leaf = graph.add_switches("leaf", planes * rails)
    for group, name in groups:
        nics = group.links.scale_out
        assert nics is not None
        link = graph.link(nics.kind, nics.bandwidth)
        for index in range(group.count):
            for rail in range(rails):
                cards = f"nic[{rail * nics.count // rails}:{(rail + 1) * nics.count // rails}]"
                graph.edge((f"{name}[{index}]", cards), (f"{leaf}[{node // below * rails + rail}]", "port"), link)
            node += 1
    rate = first_nics.bandwidth * first_nics.count / rails * below
    switch, count = leaf, planes * rails
    for number, level in enumerate(levels):
        last = number + 1 == len(levels)
        rate /= level.oversubscription
        above = "core" if last else _name(f"{levels[number + 1].name}-{number + 1}")
        wide = topology.node_count if last else levels[number + 1].nodes
        higher = -(-topology.node_count // wide)
        above = graph.add_switches(above, higher)
        link = graph.link(f"{_name(level.name)}-up", rate)
        each = wide // level.nodes * (rails if number == 0 else 1)
        for index in range(count):
            graph.edge((f"{switch}[{index}]", "port"), (f"{above}[{0 if last else index // each}]", "port"), link)
        rate *= each
        switch, count = above, higher
