"""hwloc's XML (`lstopo node.xml`): host memory by NUMA node, accelerators and network cards."""

import re
from dataclasses import dataclass

from topologies.importers.cards import Card, scale_out
from topologies.importers.devices import (
    card_kind,
    card_of_pci,
    device_of_name,
    device_of_pci,
    is_accelerator,
    is_card,
)
from topologies.importers.facts import Fact, Facts, Text
from topologies.importers.neighbours import run_length
from topologies.importers.xml_elements import Element, parse

KIND = "hwloc"
_PCI = re.compile(r"(?P<kind>[0-9a-f]{4}) \[(?P<vendor>[0-9a-f]{4}):(?P<device>[0-9a-f]{4})\]", re.IGNORECASE)
_VERBS = re.compile(r"mlx\d|roceP?p?\d|ibP?p?\d+[ps]|rdmap|efa|bnxt_re|irdma|hfi")
"""How devices for RDMA are called."""
_ASLEEP = 8.0
"""GB/s: up to sixteen lanes of PCIe 2.0, whose rates are whole quarters: links of devices asleep."""


def recognises(text: str) -> bool:
    """Whether a text is hwloc's XML."""
    return "<topology" in text and "<object" in text


@dataclass(frozen=True)
class _Device:
    """A PCI device and the host bridge's port that it hangs on."""

    element: Element
    root: int
    kind: str
    vendor: str
    number: str

    def ports(self) -> list[Element]:
        """What the operating system calls it: `nvml0`, `mlx5_0`, `ib0`."""
        return [child for child in self.element.children if child.attributes.get("type") == "OSDev"]

    def info(self, name: str) -> str | None:
        """An info of the device, or of what the operating system calls it."""
        for element in (self.element, *self.ports()):
            for info in element.of("info"):
                if info.attributes.get("name") == name:
                    return info.attributes.get("value")
        return None


def read(text: Text) -> Facts:
    """The facts of one node. Raises InputError with the line."""
    root = parse(text)
    if root.name != "topology":
        text.refuse(root.line, f"<{root.name}> is no hwloc topology, which begins with <topology>")
    objects = [element for element in root.walk() if element.name == "object"]
    machine = next((each for each in objects if each.attributes.get("type") in ("Machine", "System")), None)
    if machine is None:
        text.refuse(root.line, "<topology> holds no object of type Machine: the file is cut off or of another kind")
    facts: dict[str, Fact] = {}
    remarks = _add_memory(text, objects, facts)
    devices = _devices(machine, None)
    gpus = [device for device in devices if is_accelerator(device.kind, device.vendor)]
    if compute := [gpu for gpu in gpus if gpu.kind[:4] in ("0302", "1200")]:
        remarks += [
            f"{gpu.vendor}:{gpu.number} is a graphics card, and is left out" for gpu in gpus if gpu not in compute
        ]
        gpus = compute
    if gpus:
        remarks += _add_accelerators(text, gpus, facts)
    cards = [card for device in devices if is_card(device.kind) for card in _ports(device, {gpu.root for gpu in gpus})]
    found, said = scale_out(cards, len(gpus), text) if gpus else ({}, [])
    drives = sum("nvme" in each.attributes.get("name", "") for each in objects)
    if drives:
        remarks.append(f"{drives} NVMe drives are seen, whose speed it does not say: state host.ssd to use them")
    return Facts(KIND, text.source, facts | found, remarks=(*remarks, *said))


def _add_memory(text: Text, objects: list[Element], facts: dict[str, Fact]) -> list[str]:
    """The memory of all NUMA nodes that are DRAM."""
    total, line, nodes, others = 0, 0, 0, 0
    for element in objects:
        if element.attributes.get("type") != "NUMANode":
            continue
        size = element.attributes.get("local_memory", "0")
        if not size.isdecimal() or len(size) > 18:
            text.refuse(element.line, f"local_memory={size!r} must be a number of bytes")
        if element.attributes.get("subtype", "DRAM") != "DRAM":
            others += 1
        elif int(size):
            total, line, nodes = total + int(size), line or element.line, nodes + 1
    if total:
        facts["host.ddr.capacity"] = text.fact(total, line, f"local_memory of {nodes} NUMA nodes")
    return [f"{others} NUMA nodes are no DRAM, and are left out of host memory"] if others else []


def _devices(element: Element, root: int | None) -> list[_Device]:
    """All PCI devices below an object; `root` is the line of the port below the host bridge."""
    found: list[_Device] = []
    for child in element.of("object"):
        kind = child.attributes.get("type", "")
        port = child.attributes.get("bridge_type", "")
        below = root
        if kind in ("Bridge", "PCIDev") and not port.startswith("0-") and root is None:
            below = child.line
        if kind == "PCIDev" and (match := _PCI.match(child.attributes.get("pci_type", ""))):
            found.append(_Device(child, below or child.line, match["kind"], match["vendor"], match["device"]))
        found += _devices(child, below)
    return found


def _add_accelerators(text: Text, gpus: list[_Device], facts: dict[str, Fact]) -> list[str]:
    line = gpus[0].element.line
    facts["accelerators.count"] = text.fact(len(gpus), line, "GPUs among the PCI devices")
    for gpu in gpus:
        if (gpu.vendor, gpu.number) != (gpus[0].vendor, gpus[0].number):
            message = f"PCI device {gpu.number} beside {gpus[0].number}: the accelerators of a node must be alike"
            text.refuse(gpu.element.line, message)
    name, known = gpus[0].info("GPUModel"), device_of_pci(gpus[0].vendor, gpus[0].number)
    remarks = []
    if known or name:
        words = name or f"PCI {gpus[0].vendor}:{gpus[0].number}"
        facts["accelerators.device"] = text.fact(known or device_of_name(name or ""), line, words)
    else:
        remarks.append(f"PCI device {gpus[0].vendor}:{gpus[0].number} is not known; nvidia-smi says its name")
    speed = gpus[0].element.attributes.get("pci_link_speed", "")
    rate = float(speed) if re.fullmatch(r"\d{1,4}\.\d{1,12}", speed) else 0.0
    if rate > _ASLEEP or rate % 0.25:
        facts["links.pcie.bandwidth"] = text.fact(rate * 1e9, line, "pci_link_speed, as it was when hwloc looked")
    elif rate:
        remarks.append(f"pci_link_speed {speed} GB/s is that of an accelerator asleep, and is left out")
    per_switch = run_length([gpu.root for gpu in gpus])
    if per_switch is None:
        remarks.append("accelerators are spread unevenly over PCIe ports")
    else:
        facts["links.pcie.accelerators_per_switch"] = text.fact(
            per_switch, line, "GPUs below one port of a host bridge"
        )
    return remarks


def _ports(device: _Device, near: set[int]) -> list[Card]:
    """A card, once for each port that RDMA may use; one that has none is no scale-out card."""
    fitting = [port for port in device.ports() if _VERBS.match(port.attributes.get("name", ""))]
    # the network interface of a card may have a name of that form, too
    verbs = [port for port in fitting if _is_openfabrics(port.attributes.get("osdev_type", ""))] or fitting
    names = list(dict.fromkeys(port.attributes["name"] for port in verbs))
    known = card_of_pci(device.vendor, device.number)
    kind = next((found for name in names if (found := card_kind(name))), card_kind("", device.kind, device.vendor))
    words = f"assumed: the fastest port of {known[0]}" if known else ""
    rate = known[1] if known else None
    return [Card(name, device.root in near, device.element.line, kind, rate, words) for name in names]


def _is_openfabrics(kind: str) -> bool:
    """Whether an osdev_type is that of a device for RDMA: 3 in hwloc 2, the bit of 32 in hwloc 3."""
    return kind == "3" or (kind.isdecimal() and len(kind) < 10 and bool(int(kind) & 32))
