"""Accelerators and network cards by the names and numbers under which machines know them.

PCI numbers are those of the PCI ID Repository (pci-ids.ucw.cz); rates of NVLink those of NVIDIA's white papers.
"""

import re
from dataclasses import dataclass

NVLINK_RATES = {
    "nvlink1": (4, 20e9),
    "nvlink2": (6, 25e9),
    "nvlink3": (12, 25e9),
    "nvlink4": (18, 25e9),
    "nvlink5": (18, 50e9),
}
"""For each generation: links of an accelerator, bytes/s of one link in one direction."""


@dataclass(frozen=True)
class Device:
    """An accelerator. `name` is the key of topologies and coefficients."""

    name: str
    pci_ids: tuple[str, ...]
    words: str
    """Matches what `nvidia-smi` and NVML call it, without the maker."""
    nvlink: str | None = None
    link_bytes_per_s: float | None = None
    """Of one of its links, where its generation's is another."""
    links: int | None = None
    """How many it has, where its generation has others."""


_NVIDIA = "10de"
_AMD = "1002"
DEVICES = (
    Device("P100-SXM2-16GB", ("10de:15f9",), r"P100-SXM2-16GB", "nvlink1"),
    Device("V100-SXM2-16GB", ("10de:1db1",), r"V100-SXM2-16GB", "nvlink2"),
    Device("V100-SXM2-32GB", ("10de:1db5",), r"V100-SXM2-32GB.*", "nvlink2"),
    Device("V100-SXM3-32GB", ("10de:1db8",), r"V100-SXM3-32GB.*", "nvlink2"),
    Device("A100-SXM4-40GB", ("10de:20b0",), r"A100-SXM4?-40GB", "nvlink3"),
    Device("A100-SXM4-80GB", ("10de:20b2",), r"A100-SXM4?-80GB", "nvlink3"),
    Device("A100-PCIE-40GB", ("10de:20f1",), r"A100-PCIE-40GB", "nvlink3"),
    Device("A100-PCIE-80GB", ("10de:20b5",), r"A100 80GB PCIe", "nvlink3"),
    Device("A30", ("10de:20b7",), r"A30", "nvlink3"),
    Device("A40", ("10de:2235",), r"A40", "nvlink3", 14.0625e9),
    Device("A10", ("10de:2236",), r"A10"),
    Device("A10G", ("10de:2237",), r"A10G"),
    Device("T4", ("10de:1eb8",), r"T4"),
    Device("L4", ("10de:27b8",), r"L4"),
    Device("L40", ("10de:26b5",), r"L40"),
    Device("L40S", ("10de:26b9",), r"L40S"),
    Device("H100-SXM5-80GB", ("10de:2330",), r"H100 80GB HBM3|H100 SXM5.*|H100-SXM5?-80GB", "nvlink4"),
    Device("H100-PCIE-80GB", ("10de:2331",), r"H100 PCIe|H100-PCIE-80GB", "nvlink4"),
    Device("H100-NVL-94GB", ("10de:2321",), r"H100 NVL", "nvlink4"),
    Device("H20-SXM-96GB", ("10de:2329",), r"H20|H20-96GB", "nvlink4"),
    Device("H800-SXM5-80GB", ("10de:2324",), r"H800", "nvlink4", links=8),
    Device("H200-SXM-141GB", ("10de:2335",), r"H200|H200 SXM.*", "nvlink4"),
    Device("H200-NVL-141GB", ("10de:233b",), r"H200 NVL", "nvlink4"),
    Device("GH200", ("10de:2342",), r"GH200.*", "nvlink4"),
    Device("B200-SXM-180GB", ("10de:2901",), r"B200", "nvlink5"),
    Device("GB200", ("10de:2941",), r"GB200.*", "nvlink5"),
    Device("B300-SXM-288GB", ("10de:3182",), r"B300.*", "nvlink5"),
    Device("GB300", ("10de:31c2",), r"GB300.*", "nvlink5"),
    Device("MI250X-128GB", ("1002:7408",), r"MI250X.*"),
    Device("MI300X-192GB", ("1002:74a1",), r"MI300X.*"),
    Device("MI325X-256GB", ("1002:74a5",), r"MI325X.*"),
    Device("MI350X-288GB", ("1002:75a0",), r"MI350X.*"),
    Device("MI355X-288GB", ("1002:75a3",), r"MI355X.*"),
)
_BY_ID = {number: device for device in DEVICES for number in device.pci_ids}
_BY_NAME = {device.name: device for device in DEVICES}


def device_of_pci(vendor: str, device: str) -> str | None:
    """The accelerator of PCI numbers such as `0x10de`, `0x20b0`; None for one that is not known."""
    found = _BY_ID.get(f"{_hex(vendor)}:{_hex(device)}")
    return found.name if found else None


def device_of_name(name: str) -> str:
    """Our name of an accelerator that a tool calls `NVIDIA A100-SXM4-80GB`; its own, without the maker, if unknown."""
    bare = re.sub(r"^(?:(?:NVIDIA|Tesla|AMD|Instinct)\s+)+", "", name.strip(), flags=re.IGNORECASE)
    if bare in _BY_NAME:
        return bare
    for device in DEVICES:
        if re.fullmatch(device.words, bare, re.IGNORECASE):
            return device.name
    return bare or name


def known_device(text: str) -> str | None:
    """The device that free text names, if it names one of those that are known and nothing else."""
    name = device_of_name(text)
    return name if name in _BY_NAME else None


def nvlink_of(device: str | None) -> tuple[str, int, float] | None:
    """The generation of a device's links, how many it has, and bytes/s of one in one direction; None: not known."""
    known = _BY_NAME.get(device or "")
    if known is None or known.nvlink is None:
        return None
    most, rate = NVLINK_RATES[known.nvlink]
    return known.nvlink, known.links or most, known.link_bytes_per_s or rate


def is_accelerator(pci_class: str, vendor: str = "") -> bool:
    """Whether a PCI class (`0x030200`, `0302`) is that of an accelerator; display controllers count by their maker.

    A display controller of AMD with VGA (0300) is a graphics card, or the one on a server's board.
    """
    start = _hex(pci_class)[:4]
    maker = _hex(vendor)
    return start in ("0302", "1200") or (start, maker) in (("0300", _NVIDIA), ("0380", _NVIDIA), ("0380", _AMD))


def is_card(pci_class: str) -> bool:
    """Whether a PCI class is that of a network card."""
    return _hex(pci_class)[:2] == "02"


_CARDS = {
    "15b3:1013": ("ConnectX-4", 100e9),
    "15b3:1015": ("ConnectX-4 Lx", 25e9),
    "15b3:1017": ("ConnectX-5", 100e9),
    "15b3:1019": ("ConnectX-5 Ex", 100e9),
    "15b3:101b": ("ConnectX-6", 200e9),
    "15b3:101d": ("ConnectX-6 Dx", 100e9),
    "15b3:1021": ("ConnectX-7", 400e9),
    "15b3:1023": ("ConnectX-8", 800e9),
    "15b3:a2d6": ("BlueField-2", 200e9),
    "15b3:a2dc": ("BlueField-3", 400e9),
    "1d0f:efa0": ("EFA", 100e9),
    "1d0f:efa1": ("EFA", 100e9),
    "1d0f:efa2": ("EFA", 200e9),
}
"""What it is, and bit/s of its fastest port."""


def card_of_pci(vendor: str, device: str) -> tuple[str, float] | None:
    """The name of a network card and bytes/s of its fastest port; None for one that is not known."""
    found = _CARDS.get(f"{_hex(vendor)}:{_hex(device)}")
    return (found[0], found[1] / 8) if found else None


def card_kind(name: str = "", pci_class: str = "", vendor: str = "") -> str | None:
    """The kind of a network card by its interface's name, else by its PCI class and maker; None: it may be any."""
    for pattern, kind in (
        (r"(rdmap|efa)", "ethernet"),  # EFA: a transport of its own over Ethernet, of which nothing was measured
        (r"(rocep|bnxt_re|irdma|roce)", "roce"),
        (r"ib(p|s|\d)", "infiniband"),
        (r"(eth|ens|enp|eno|bond)", "ethernet"),
    ):
        if re.match(pattern, name, re.IGNORECASE):  # roceP2p1s0: of another PCI domain
            return kind
    if _hex(vendor) == "1d0f":
        return "ethernet"
    if _hex(pci_class).startswith("0207"):
        return "infiniband"
    if _hex(pci_class).startswith("0200"):
        return "roce" if _hex(vendor) == "15b3" else "ethernet"
    return None


_PCIE = {2.5: 0.8, 5.0: 0.8, 8.0: 128 / 130, 16.0: 128 / 130, 32.0: 128 / 130, 64.0: 242 / 256}
"""GT/s of a lane: the share that carries data (8b/10b, 128b/130b, flits)."""


def pcie_bytes_per_s(speed: str, width: str) -> float | None:
    """One direction of a link of `16 GT/s` and `16` lanes; None where the text is empty or says something else."""
    found = re.match(r"\s*(\d{1,3}(?:\.\d)?)\s*GT/s", speed)
    lanes = re.fullmatch(r"\s*x?(\d{1,2})\s*", width)
    if found is None or lanes is None or float(found[1]) not in _PCIE or not int(lanes[1]):
        return None
    rate = float(found[1])
    return rate * 1e9 * _PCIE[rate] * int(lanes[1]) / 8


def _hex(number: str) -> str:
    return number.strip().lower().removeprefix("0x")
