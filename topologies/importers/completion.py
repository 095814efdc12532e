"""What files do not say, from a topology that is like theirs: the catalog's of the same device, or the one named."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from topologies.cluster import Network
from topologies.documents import Document
from topologies.errors import Fault, InputError
from topologies.importers.cards import shares
from topologies.importers.catalog_topologies import catalog_topology
from topologies.importers.devices import nvlink_of
from topologies.importers.doubts import doubts
from topologies.importers.facts import Fact, HostGroup, Level
from topologies.importers.merging import Merged
from topologies.importers.quantities import quantity
from topologies.loading import TOPOLOGIES, load_topology, read_topology

ONLY_NAMED = ("host.ssd.", "host.scm.", "remote.", "links.front_end.", "price", "power", "reserve.")
"""What an accelerator's name says nothing of: taken only from a topology that --like names."""

_DERIVED = (".pair_links", ".mesh_links", ".is_there", ".rank_bandwidth")
"""Ends of paths that no topology has: what bandwidths and kinds follow from."""


@dataclass(frozen=True)
class Cell:
    """A value as YAML has it, where it comes from, and the fact behind it."""

    value: Any
    comment: str
    fact: Fact | None = None

    @property
    def is_assumed(self) -> bool:
        """Whether no file says it."""
        return self.comment.startswith("assumed")


@dataclass
class Group:
    """A node group on its way into the file."""

    name: str
    hosts: tuple[str, ...]
    cells: dict[str, Cell] = field(default_factory=dict)
    """By dotted path, in the order of the file."""


@dataclass(frozen=True)
class Completed:
    """All node groups and the network, every value with its source."""

    groups: list[Group]
    levels: tuple[tuple[Level, Cell], ...]
    """From the leaves up; the cells are the nodes below a switch."""
    rails: Cell | None
    in_network_reduction: Cell | None
    remarks: list[str]


@dataclass(frozen=True)
class Like:
    """The topology that supplies what is missing. `cells`: dotted paths below its first node group."""

    words: str
    name: str
    cells: Mapping[str, Any]
    network: Network | None
    """Of a topology that --like names."""
    is_named: bool


def complete(merged: Merged, like: str | None, nodes: int | None) -> Completed:
    """Every field of the topology. Raises InputError, by name and with the remedy, for what nothing says."""
    remarks: list[str] = []
    base = _like(merged, like)
    groups = list(merged.groups) or [HostGroup(Fact(1, "", 0))]
    per_node = [_per_node(merged, group, base) for group in groups]
    spans = _spans(groups, per_node, base)
    if not spans and any(group.domain_nodes for group in groups):
        groups, per_node = _joined(groups, per_node)
        remarks.append(
            f"blocks and domains of the files are no scale-up domains: that of {base.name} does not span them"
        )
    world = merged.node.get("world")
    if nodes is not None and len(groups) > 1:
        names = ", ".join(str(group.count.value) for group in groups)
        raise InputError.at(
            f"--nodes {nodes}", f"the files list {len(groups)} node groups ({names} nodes); edit their counts"
        )
    done = []
    for number, (group, count) in enumerate(zip(groups, per_node, strict=True)):
        name = group.name or base.name
        alone = len(groups) == 1 or group.name is not None
        made = Group(name if alone else f"{name}-{number + 1}", group.hosts[:nodes])
        listed = group.count.value if merged.groups else nodes
        if nodes is not None and listed != nodes:
            remarks.append(f"--nodes {nodes} counts; {group.count.place} lists {listed} nodes")
        made.cells["count"] = _count_cell(merged, group, nodes, world, count)
        facts = {**merged.node, **group.fields}
        remarks += doubts(facts, base.cells, base.name)
        is_many = len(groups) > 1 or made.cells["count"].value > 1
        made.cells |= _cells(facts, group if spans else None, base, count, is_many=is_many, remarks=remarks)
        _expect_cards(made, group, len(groups), base)
        done.append(made)
    if not merged.groups and world is None and base.network is not None and done[0].cells["count"].value > 1:
        return Completed(done, *_assumed_network(base.network, base.words), remarks)
    rails = Cell(True, str(merged.rails), merged.rails) if merged.rails else None
    return Completed(done, _levels(merged, per_node[0], spans=spans), rails, None, remarks)


def _levels(merged: Merged, per_node: int, *, spans: bool) -> tuple[tuple[Level, Cell], ...]:
    """The levels of the files; ASTRA-sim's count accelerators, and blocks are none where they are scale-up domains."""
    fact, world = merged.levels, merged.node.get("world")
    if fact is None:
        return ()
    levels = [level for level in fact.value if not (spans and level.name == "block")]
    if world is not None and fact.source == world.source:
        levels = [replace(level, nodes=level.nodes // per_node) for level in levels]
    return tuple((level, Cell(level.nodes, fact.place, fact)) for level in levels)


def _assumed_network(network: Network, words: str) -> tuple[tuple[tuple[Level, Cell], ...], Cell | None, Cell | None]:
    """Levels, rails and sums in switches of the topology that is like the files'."""
    levels = tuple(
        (Level(each.name, each.nodes, each.oversubscription, each.latency), Cell(each.nodes, words))
        for each in network.levels
    )
    rails = Cell(True, words) if network.rails else None
    return levels, rails, Cell(network.in_network_reduction, words) if network.reduces else None


def _expect_cards(made: Group, group: HostGroup, groups: int, base: Like) -> None:
    """Refuse several nodes without cards between them, unless one scale-up domain joins them all."""
    cells = made.cells
    domain = cells.get("links.scale_up.domain")
    ranks = cells["count"].value * cells["accelerators.count"].value
    is_joined = groups == 1 and domain is not None and domain.value >= ranks
    if "links.scale_out.count" in cells or is_joined or (groups == 1 and cells["count"].value == 1):
        return
    message = (
        f"no file says how the nodes are joined, and {base.name} has no scale-out cards; add a dump of NCCL or"
        " ibnetdiscover, or name a topology that has some: --like"
    )
    source = group.count.source or f"--nodes {cells['count'].value}"
    raise InputError([Fault(source, group.count.line, min(1, group.count.line), "links.scale_out", message)])


def _like(merged: Merged, name: str | None) -> Like:
    """The topology to take the rest from. Raises InputError where the files name no device that the catalog has."""
    device = merged.node.get("accelerators.device") or next(
        (group.fields["accelerators.device"] for group in merged.groups if "accelerators.device" in group.fields), None
    )
    if name is None:
        name = catalog_topology(merged, device)
        words, network = f"assumed: from catalog {name}", None
    else:
        network = load_topology(name).network
        is_shipped = name in TOPOLOGIES.names()
        words = f"assumed: from {'catalog ' if is_shipped else ''}{name.rpartition('/')[2]} (--like)"
    document: Document = read_topology(name)
    first = document.data["nodes"][0]
    cells = dict(_flat(first))
    return Like(words, str(first["name"]), cells, network, network is not None)


def _flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        elif value is not None and f"{prefix}{key}" not in ("name", "count"):
            yield f"{prefix}{key}", value


def _per_node(merged: Merged, group: HostGroup, base: Like) -> int:
    """Accelerators of a node: as files say; else the like one's, if that divides the first dimension of ASTRA-sim."""
    said = group.fields.get("accelerators.count") or merged.node.get("accelerators.count")
    if said:
        return int(said.value)
    own = int(base.cells["accelerators.count"])
    together = merged.node.get("scale_up_ranks")
    if together is None:
        return own
    if base.is_named and (together.value % own == 0 or together.value == base.cells.get("links.scale_up.domain")):
        return own
    return int(together.value)


def _spans(groups: list[HostGroup], per_node: list[int], base: Like) -> bool:
    """Whether domains of nodes that files list are scale-up domains: the accelerators' fabric spans nodes."""
    domain = base.cells.get("links.scale_up.domain", 0)
    return all(
        group.domain_nodes is not None and domain > count and group.domain_nodes.value * count <= domain
        for group, count in zip(groups, per_node, strict=True)
    )


def _joined(groups: list[HostGroup], per_node: list[int]) -> tuple[list[HostGroup], list[int]]:
    """Groups that differ only in domains that do not count, as one."""
    if len({tuple((path, fact.value) for path, fact in group.fields.items()) for group in groups}) > 1:
        return groups, per_node
    first = groups[0]
    total = sum(group.count.value for group in groups)
    count = Fact(total, first.count.source, first.count.line, "; ".join(group.count.words for group in groups))
    hosts = tuple(host for group in groups for host in group.hosts)
    return [HostGroup(count, hosts, first.fields, name=first.name)], per_node[:1]


def _count_cell(merged: Merged, group: HostGroup, nodes: int | None, world: Fact | None, per_node: int) -> Cell:
    if nodes is not None:
        return Cell(nodes, "--nodes")
    if merged.groups:
        words = group.count.words if len(group.count.words) <= 60 else ""
        return Cell(group.count.value, f"{group.count.place}{': ' if words else ''}{words}", group.count)
    if world is not None:
        return Cell(world.value // per_node, str(world), world)
    return Cell(1, "assumed: no file lists the nodes; --nodes N says how many")


def _cells(
    facts: Mapping[str, Fact], group: HostGroup | None, base: Like, count: int, *, is_many: bool, remarks: list[str]
) -> dict[str, Cell]:
    """The values of a node group: those of the files over those of the topology that is like it."""
    cells = {
        path: Cell(value, base.words)
        for path, value in base.cells.items()
        if base.is_named or not path.startswith(ONLY_NAMED)
    }
    _resize(cells, int(base.cells["accelerators.count"]), count)
    for path, fact in facts.items():
        if "." in path and path != "links.scale_up" and not path.endswith(_DERIVED):
            words = fact.words if fact.words.startswith("assumed") else ""
            comment = f"{words} ({fact.place})" if words else str(fact)
            cells[path] = Cell(quantity(path, fact.value), comment, fact)
    _scale_up(cells, facts, group, count)
    if base.is_named and "links.scale_up.bandwidth" not in base.cells and "scale_up_ranks" in facts:
        _over_pcie(cells, remarks)
    _scale_out(cells, facts, count, is_many=is_many, remarks=remarks)
    ddr = cells.get("host.ddr.capacity")
    if ddr is not None and "host.ddr.bandwidth" not in cells:
        remarks.append("host memory is left out: its bandwidth is not known; name a topology with host.ddr: --like")
        del cells["host.ddr.capacity"]
    per_switch = cells.get("links.pcie.accelerators_per_switch")
    if per_switch and count % per_switch.value:
        if per_switch.fact:
            remarks.append(f"{per_switch.value} accelerators a PCIe switch do not divide {count}; each counts as alone")
        cells["links.pcie.accelerators_per_switch"] = Cell(1, "assumed: a switch for each")
    order = [*base.cells, *cells]
    return dict(sorted(cells.items(), key=lambda item: _place(item[0], order)))


def _place(path: str, order: list[str]) -> tuple[int, int]:
    """The order of the file: sections as in the schema, keys as in the catalog."""
    sections = ("accelerators", "host", "remote", "links.pcie", "links.scale_up", "links.scale_out", "links.front_end")
    section = next((n for n, name in enumerate(sections) if path.startswith(f"{name}.")), len(sections))
    first = ("kind", "count", "device")
    key = path.rpartition(".")[2]
    return section, first.index(key) if key in first else len(first) + order.index(path)


def _resize(cells: dict[str, Cell], theirs: int, ours: int) -> None:
    """Bring what a node of `theirs` accelerators has to one of `ours`."""
    cells["accelerators.count"] = Cell(ours, cells["accelerators.count"].comment)
    if theirs == ours:
        return
    for path in ("price", "power"):
        cells.pop(path, None)
    for path in ("host.ddr.capacity", "host.ddr.bandwidth"):
        if path in cells:
            cell = cells[path]
            number = _number(path, cell.value) * ours / theirs
            value = quantity(path, round(number) if path.endswith("capacity") else number)
            cells[path] = Cell(value, f"{cell.comment}, for {ours} accelerators of {theirs}")
    path = "links.scale_out.count"
    if path in cells:
        cards, _ = shares(max(1, int(cells[path].value) * ours // theirs), ours, None)
        cells[path] = Cell(cards, f"{cells[path].comment}, for {ours} accelerators of {theirs}")
    domain = cells.get("links.scale_up.domain")
    if domain is not None and domain.value <= theirs and ours % domain.value:
        del cells["links.scale_up.domain"]


def _number(path: str, text: str) -> float:
    from topologies.units import parse_quantity

    return parse_quantity(text, "byte" if path.endswith("capacity") else "byte / second", "")


def _scale_up(cells: dict[str, Cell], facts: Mapping[str, Fact], group: HostGroup | None, count: int) -> None:
    """The scale-up fabric: none, its links counted, or as it stands. Raises InputError where its rate is not known."""
    path = "links.scale_up"
    if path in facts:
        for each in [each for each in cells if each.startswith(f"{path}.")]:
            del cells[each]
        return
    links, there = facts.get(f"{path}.pair_links"), facts.get(f"{path}.is_there")
    mesh = facts.get(f"{path}.mesh_links", links)
    known = nvlink_of(str(cells["accelerators.device"].value))
    if links is not None and mesh is not None and known is not None:
        kind, most, rate = known
        count_of_links = mesh.value if mesh.value <= most else links.value
        cells[f"{path}.kind"] = Cell(kind, f"{links.place}: generation of the device", links)
        words = f"{links}: {count_of_links} links of {rate / 1e9:g} GB/s"
        cells[f"{path}.bandwidth"] = Cell(quantity(f"{path}.bandwidth", count_of_links * rate), words, links)
    said = links or there or facts.get(f"{path}.domain") or facts.get(f"{path}.kind")
    if said is not None and f"{path}.bandwidth" not in cells:
        message = "the accelerators are linked, and nothing says how fast; name a topology with links.scale_up: --like"
        raise InputError([Fault(said.source, max(said.line, 1), 1, f"{path}.bandwidth", message)])
    if f"{path}.bandwidth" in cells and f"{path}.kind" not in cells:
        cells[f"{path}.kind"] = Cell(known[0] if known else "default", "assumed: no file says the kind")
    together = facts.get("scale_up_ranks")
    if group is not None and group.domain_nodes is not None:
        value = group.domain_nodes.value * count
        cells[f"{path}.domain"] = Cell(value, f"{group.domain_nodes}", group.domain_nodes)
    elif together is not None and together.value != count:
        cells[f"{path}.domain"] = Cell(together.value, str(together), together)
    elif together is not None or (links is not None and f"{path}.domain" not in facts):
        domain = cells.get(f"{path}.domain")
        if domain is not None and domain.value <= count:
            del cells[f"{path}.domain"]


def _over_pcie(cells: dict[str, Cell], remarks: list[str]) -> None:
    """Take dimension 1 of ASTRA-sim as PCIe, as accelerators like these have no other fabric."""
    for key in ("bandwidth", "latency"):
        if f"links.scale_up.{key}" in cells:
            cells[f"links.pcie.{key}"] = cells[f"links.scale_up.{key}"]
    for path in [path for path in cells if path.startswith("links.scale_up.")]:
        del cells[path]
    remarks.append("dimension 1 is taken as PCIe: accelerators like these have no scale-up fabric")


def _scale_out(
    cells: dict[str, Cell], facts: Mapping[str, Fact], count: int, *, is_many: bool, remarks: list[str]
) -> None:
    """The scale-out cards. Raises InputError where several nodes have cards of unknown speed, or none."""
    path = "links.scale_out"
    each = facts.get(f"{path}.rank_bandwidth")
    if each is not None and f"{path}.bandwidth" not in facts:
        cells.setdefault(f"{path}.count", Cell(count, f"{each.place}: one for each accelerator", each))
        rate = each.value * count / int(cells[f"{path}.count"].value)
        cells[f"{path}.bandwidth"] = Cell(quantity(f"{path}.bandwidth", rate), str(each), each)
    cards = cells.get(f"{path}.count")
    if cards is None and f"{path}.bandwidth" not in cells:
        return
    if cards is None or f"{path}.bandwidth" not in cells:
        place = next(fact for name, fact in facts.items() if name.startswith(path))
        missing = f"{path}.bandwidth" if cards else f"{path}.count"
        if is_many:
            message = (
                "no file says it; add a dump of NCCL or ibnetdiscover, or name a topology with scale-out cards: --like"
            )
            raise InputError([Fault(place.source, max(place.line, 1), 1, missing, message)])
        remarks.append(f"scale-out cards are left out: {missing} is not known, and one node needs none")
        for name in [name for name in cells if name.startswith(f"{path}.")]:
            del cells[name]
        return
    if f"{path}.kind" not in cells:
        cells[f"{path}.kind"] = Cell("default", "assumed: no file says the kind")
    rate = cells[f"{path}.bandwidth"]
    fitting, total = shares(int(cards.value), count, _number("bandwidth", rate.value))
    if fitting != cards.value:
        remarks.append(
            f"{cards.value} cards do not serve {count} accelerators in equal shares; taken as {fitting}, as fast"
        )
        cells[f"{path}.count"] = Cell(fitting, f"{cards.comment}; {cards.value} cards as {fitting}", cards.fact)
        words = f"{rate.comment}; {cards.value} cards as {fitting}"
        cells[f"{path}.bandwidth"] = Cell(quantity(f"{path}.bandwidth", total), words, rate.fact)
