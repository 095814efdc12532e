"""An InfraGraph document as devices with their components, instances of them, and the cables between these.

Both forms are read: edges with endpoints (`ep1: {component: xpu[0:2]}`) and the former dotted connections
(`xpu.0.pcie.nic.0`).
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from topologies.documents import Document, Key
from topologies.errors import InputError

MOST_EDGES = 1 << 18
_ENDPOINT = re.compile(r"(?P<name>[^\[\]]+)(?:\[(?P<first>\d{0,6})(?P<colon>:)?(?P<end>\d{0,6})\])?")
Part = tuple[str, int]
"""A name and an index: a component of a device, or an instance of the infrastructure."""


@dataclass(frozen=True)
class Component:
    """A kind of part of a device, and how many it has."""

    name: str
    kind: str
    count: int
    description: str
    path: tuple[Key, ...]

    @property
    def is_accelerator(self) -> bool:
        """Whether it computes."""
        return self.kind in ("xpu", "npu", "gpu")

    @property
    def is_pcie(self) -> bool:
        """Whether it belongs to the PCIe tree."""
        return "pci" in f"{self.name} {self.description}".lower()


@dataclass(frozen=True)
class Device:
    """A device: its components, the links between them, and their rates in bytes/s."""

    name: str
    components: dict[str, Component]
    edges: list[tuple[Part, Part, str]]
    rates: dict[str, float]
    path: tuple[Key, ...]

    @property
    def accelerators(self) -> Component | None:
        """Its accelerators; None for a switch, a card and the like."""
        return next((each for each in self.components.values() if each.is_accelerator), None)


@dataclass
class Cable:
    """Between two parts of instances: ((instance, index), (component, index)) at both ends."""

    one: tuple[Part, Part]
    other: tuple[Part, Part]
    link: str


@dataclass
class Infrastructure:
    """Devices, instances of them, and the cables between these with the rates of links in bytes/s."""

    devices: dict[str, Device]
    instances: dict[str, tuple[str, int]]
    """Of which device, and how many."""
    cables: list[Cable] = field(default_factory=list)
    rates: dict[str, float] = field(default_factory=dict)


def infrastructure(document: Document, root: tuple[Key, ...], inner: dict[str, Any]) -> Infrastructure:
    """What a document describes; `inner` stands at `root` in it. Raises InputError with the place."""
    devices: dict[str, Device] = {}
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
    found = Infrastructure(devices, instances, rates=_rates(document, root, inner))
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


def _device(document: Document, path: tuple[Key, ...], item: dict[str, Any]) -> Device:
    connections = list(_connections(document, (*path, "connections"), item.get("connections"), 5))
    most: Counter[str] = Counter()
    for words in connections:
        for part, place in ((words[0], words[1]), (words[3], words[4])):
            most[part] = max(most[part], int(place) + 1)
    components: dict[str, Component] = {}
    here: tuple[Key, ...]
    for index, each in enumerate(_mappings(document, (*path, "components"), item.get("components"))):
        here = (*path, "components", index)
        name = str(each.get("name", ""))
        kind = str(each.get("choice") or each.get("type") or "custom").lower()
        if kind == "custom" and name.lower() in ("xpu", "npu", "gpu", "nic"):
            kind = name.lower()
        count = _count(document, here, each.get("count", most[name] or 1))
        components[name] = Component(name, kind, count, str(each.get("description", "")), here)
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
    return Device(
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


def _cables(document: Document, root: tuple[Key, ...], inner: dict[str, Any], found: Infrastructure) -> Iterator[Cable]:
    for words in _connections(document, (*root, "connections"), inner.get("connections"), 9):
        one = ((words[0], int(words[1])), (words[2], int(words[3])))
        yield Cable(one, ((words[5], int(words[6])), (words[7], int(words[8]))), words[4])
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
            yield Cable(one, other, str(edge.get("link", "")))


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
