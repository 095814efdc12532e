"""NCCL's topology as XML: what `NCCL_TOPO_DUMP_FILE` writes, or what a cloud provider ships as `NCCL_TOPO_FILE`."""

from dataclasses import dataclass

from topologies.importers.cards import Card, scale_out
from topologies.importers.devices import (
    card_kind,
    card_of_pci,
    device_of_pci,
    is_accelerator,
    is_card,
    pcie_bytes_per_s,
)
from topologies.importers.facts import Fact, Facts, Text
from topologies.importers.neighbours import run_length, scale_up_links
from topologies.importers.xml_elements import Element, parse

KIND = "nccl"


def recognises(text: str) -> bool:
    """Whether a text is NCCL's topology: XML whose elements are systems of CPUs and PCI devices."""
    return "<system" in text and "<cpu" in text


@dataclass
class _Place:
    """A PCI device: its element, and what it hangs on."""

    element: Element
    root: int
    """The line of the device directly below the CPU on the way to it: its switch, or itself."""

    def get(self, name: str) -> str:
        return self.element.attributes.get(name, "")

    @property
    def gpu(self) -> Element | None:
        return next(iter(self.element.of("gpu")), None)

    @property
    def is_accelerator(self) -> bool:
        return self.gpu is not None or is_accelerator(self.get("class"), self.get("vendor"))


def read(text: Text) -> Facts:
    """The facts of one node. Raises InputError with the line."""
    system = parse(text)
    if system.name != "system":
        text.refuse(system.line, f"<{system.name}> is no NCCL topology, which begins with <system>")
    cpus = system.of("cpu")
    if not cpus:
        text.refuse(system.line, "<system> holds no <cpu>: the file is cut off or of another kind")
    remarks = []
    hosts = {cpu.attributes.get("host_hash", "") for cpu in cpus}
    if len(hosts) > 1:
        first = cpus[0].attributes.get("host_hash", "")
        cpus = [cpu for cpu in cpus if cpu.attributes.get("host_hash", "") == first]
        remarks.append(f"holds {len(hosts)} hosts; the first is taken as all of them")
    places = [_Place(inner, pci.line) for cpu in cpus for pci in cpu.of("pci") for inner in pci.walk()]
    places = [place for place in places if place.element.name == "pci"]
    gpus = [place for place in places if place.is_accelerator]
    numbered = [(_number(text, place.gpu, "dev"), place) for place in gpus if place.gpu is not None]
    if len(numbered) == len(gpus):
        gpus = [place for _, place in sorted(numbered, key=lambda pair: pair[0])]
    if not gpus:
        remarks.append("its PCI devices have no class, so that it says nothing of accelerators and cards")
        return Facts(KIND, text.source, remarks=tuple(remarks))
    facts = {"accelerators.count": text.fact(len(gpus), gpus[0].element.line, "GPUs among the PCI devices")}
    remarks += _add_device(text, gpus, facts)
    remarks += _add_links(text, gpus, facts)
    per_switch = run_length([place.root for place in gpus])
    if per_switch is None:
        remarks.append("accelerators are spread unevenly over PCIe switches")
    else:
        words = "GPUs below one device of a CPU"
        facts["links.pcie.accelerators_per_switch"] = text.fact(per_switch, gpus[0].element.line, words)
    found, said = scale_out(_cards(text, cpus, places, {place.root for place in gpus}), len(gpus), text)
    return Facts(KIND, text.source, facts | found, remarks=(*remarks, *said))


def _number(text: Text, element: Element, name: str) -> int:
    value = element.attributes.get(name, "0")
    if not value.isdecimal() or len(value) > 9:
        text.refuse(element.line, f"{name}={value!r} of <{element.name}> must be a whole number")
    return int(value)


def _add_device(text: Text, gpus: list[_Place], facts: dict[str, Fact]) -> list[str]:
    """Which device it is, by PCI number, and its own link."""
    first = gpus[0]
    devices = {(place.get("vendor"), place.get("device")) for place in gpus}
    if len(devices) > 1:
        names = [f"{place.get('vendor')}:{place.get('device')}" for place in gpus]
        other, differs = next(pair for pair in zip(gpus, names, strict=True) if pair[1] != names[0])
        message = f"device {differs} beside {names[0]}: a node's accelerators must be alike"
        text.refuse(other.element.line, message)
    remarks = []
    vendor, number = next(iter(devices))
    if name := device_of_pci(vendor, number):
        facts["accelerators.device"] = text.fact(name, first.element.line, f"PCI {vendor}:{number}")
    elif number:
        remarks.append(f"PCI device {vendor}:{number} is not known; nvidia-smi says its name")
    rates = [pcie_bytes_per_s(place.get("link_speed"), place.get("link_width")) for place in gpus]
    if rate := min((rate for rate in rates if rate), default=None):
        words = f"{first.get('link_speed')} x {first.get('link_width')} lanes"
        facts["links.pcie.bandwidth"] = text.fact(rate, first.element.line, words)
    return remarks


def _add_links(text: Text, gpus: list[_Place], facts: dict[str, Fact]) -> list[str]:
    """NVLinks or xGMI links between accelerators, or to their switches. A file without <gpu> says nothing of them."""
    if any(place.gpu is None for place in gpus):
        return []
    index = {place.get("busid").lower(): number for number, place in enumerate(gpus)}
    counts = [[0] * len(gpus) for _ in gpus]
    to_switch = [0] * len(gpus)
    loops, line = 0, gpus[0].element.line
    for number, place in enumerate(gpus):
        assert place.gpu is not None
        for link in [*place.gpu.of("nvlink"), *place.gpu.of("xgmi")]:
            count, target = _number(text, link, "count"), index.get(link.attributes.get("target", "").lower())
            line = link.line
            if link.attributes.get("tclass", "").startswith("0x0680"):
                to_switch[number] += count
            elif target == number:
                loops += 1
            elif target is not None:
                counts[number][target] += count
    remarks = [f"{loops} links lead from an accelerator to itself, and are left out"] if loops else []
    if any(to_switch):
        if not all(to_switch):
            text.refuse(line, "some accelerators have links to a switch and others none: the file is cut off")
        facts["links.scale_up.pair_links"] = text.fact(min(to_switch), line, "nvlink to switches")
        return remarks
    joined = scale_up_links(counts)
    remarks += [joined.remark] if joined.remark else []
    if joined.domain == 1:
        facts["links.scale_up"] = text.fact(None, line, "no links between accelerators")
        return remarks
    facts["links.scale_up.pair_links"] = text.fact(joined.of_pair, line, "nvlink")
    facts["links.scale_up.mesh_links"] = text.fact(joined.of_all, line, "nvlink")
    if joined.domain < len(gpus):
        facts["links.scale_up.domain"] = text.fact(joined.domain, line, "accelerators joined by links")
    return remarks


def _cards(text: Text, cpus: list[Element], places: list[_Place], near: set[int]) -> list[Card]:
    """The ports that NCCL uses (<net>); without these the network cards among the PCI devices."""
    nets: dict[str, Card] = {}
    above = {id(inner): place for place in places for inner in place.element.children if inner.name == "nic"}
    for cpu in cpus:
        for nic in (element for element in cpu.walk() if element.name == "nic"):
            place = above.get(id(nic))
            for net in nic.of("net"):
                name = net.attributes.get("name", "")
                speed = _number(text, net, "speed")
                nets[name or str(net.line)] = Card(
                    name or "net",
                    is_near=place is not None and place.root in near,
                    line=net.line,
                    kind=card_kind(name, place.get("class") if place else "", place.get("vendor") if place else ""),
                    bytes_per_s=speed * 1e6 / 8 or None,
                    words=f"speed {speed} Mb/s",
                )
    if nets:
        return list(nets.values())
    cards = []
    for place in places:
        if is_card(place.get("class")):
            known = card_of_pci(place.get("vendor"), place.get("device"))
            kind = card_kind("", place.get("class"), place.get("vendor"))
            words = f"assumed: the fastest port of {known[0]}" if known else ""
            rate = known[1] if known else None
            cards.append(Card(place.get("busid"), place.root in near, place.element.line, kind, rate, words))
    return cards
