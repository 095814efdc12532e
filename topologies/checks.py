"""Plausibility: numbers that parse but that no known device has, with the slip that is likely behind them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from topologies.cluster import NodeGroup, Topology
from topologies.documents import Document, Key
from topologies.errors import Fault
from topologies.hardware import Memory, Storage, StorageClass

_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


@dataclass(frozen=True)
class PlausibleRange:
    """What known devices have, in a base unit; `low` and `high` are themselves known."""

    low: float
    high: float
    unit: str


# From the slowest to the fastest device that one may meet, with room for the next generation.
_HBM_CAPACITY = PlausibleRange(8e9, 1.1e12, "B")  # P4 … Rubin Ultra
_HBM_BANDWIDTH = PlausibleRange(250e9, 25e12, "B/s")  # L4 … Rubin
_CPU_BANDWIDTH = PlausibleRange(5e9, 2e12, "B/s")  # a process's share of DDR4 … a socket with HBM
_L2 = PlausibleRange(1e6, 1e9, "B")
_FLOPS = PlausibleRange(0.5e12, 20e15, "FLOP/s")
_DDR_CAPACITY = PlausibleRange(16e9, 32e12, "B")
_DDR_BANDWIDTH = PlausibleRange(15e9, 3e12, "B/s")  # one channel of DDR3 … two sockets of MRDIMM
_SSD_CAPACITY = PlausibleRange(100e9, 5e15, "B")
_SSD_BANDWIDTH = PlausibleRange(100e6, 500e9, "B/s")
_SCM_CAPACITY = PlausibleRange(16e9, 64e12, "B")
_SCM_BANDWIDTH = PlausibleRange(1e9, 2e12, "B/s")  # writes of one Optane module … CXL 3 links of a node
_ACCESS = PlausibleRange(32, 4096, "B")
_HOST_CARDS = PlausibleRange(0.125e9, 400e9, "b/s")  # 1 Gb/s … four cards of 800 Gb/s
_IOPS = PlausibleRange(10e3, 200e6, "IOPS")
_BLOCK = PlausibleRange(512, 1 << 20, "B")
_SCALE_UP = PlausibleRange(16e9, 2e12, "B/s")  # one NVLink 1 … NVLink 6
_PCIE = PlausibleRange(3.9e9, 460e9, "B/s")  # PCIe 3.0 x4 … NVLink-C2C
_CARD = PlausibleRange(1.25e9, 100e9, "b/s")  # 10 Gb/s … 800 Gb/s
_FRONT_END = PlausibleRange(0.125e9, 100e9, "b/s")  # 1 Gb/s … 800 Gb/s
_POWER = PlausibleRange(50, 200e3, "W")
_PRICE = PlausibleRange(0.01, 10e3, "USD/h")
_HOST_MEMORIES: dict[type, dict[str, PlausibleRange]] = {
    Memory: {"capacity": _DDR_CAPACITY, "bandwidth": _DDR_BANDWIDTH},
    Storage: {
        "capacity": _SSD_CAPACITY,
        "read_bandwidth": _SSD_BANDWIDTH,
        "write_bandwidth": _SSD_BANDWIDTH,
        "iops": _IOPS,
        "block_size": _BLOCK,
    },
    StorageClass: {
        "capacity": _SCM_CAPACITY,
        "read_bandwidth": _SCM_BANDWIDTH,
        "write_bandwidth": _SCM_BANDWIDTH,
        "access_size": _ACCESS,
    },
}
"""Plausible ranges of the fields of a host's memory, by what it is."""
_MOST_LATENCY_S = 1e-3
_MOST_SCM_LATENCY_S = 1e-5
_MOST_RESERVE = 0.5


def warnings(topology: Topology, document: Document | None = None) -> list[Fault]:
    """What looks wrong in a valid topology; by line and column where the `document` it came from is given."""
    place = document or Document(None, topology.name)
    doubts: dict[tuple[Key, ...], str] = {}  # the first word on a field is enough
    for index, group in enumerate(topology.nodes):
        for path, text in (*_out_of_range(group), *_odd(group)):
            doubts.setdefault(("nodes", index, *path), text)
    for index, level in enumerate(topology.network.levels):
        if level.latency > _MOST_LATENCY_S:
            doubts["network", "levels", index, "latency"] = _slow(level.latency)
    return sorted(place.fault(path, text) for path, text in doubts.items())


def _quantities(group: NodeGroup) -> Iterator[tuple[tuple[Key, ...], float | None, PlausibleRange]]:
    """Every field that has a known range: its path within the group, its value, the range."""
    accelerators, host, links = group.accelerators, group.host, group.links
    hbm = _CPU_BANDWIDTH if accelerators.device.upper().startswith("CPU") else _HBM_BANDWIDTH
    yield ("accelerators", "hbm", "capacity"), accelerators.hbm.capacity, _HBM_CAPACITY
    yield ("accelerators", "hbm", "bandwidth"), accelerators.hbm.bandwidth, hbm
    yield ("accelerators", "l2"), accelerators.l2, _L2
    for dtype in type(accelerators.flops).model_fields:
        yield ("accelerators", "flops", dtype), getattr(accelerators.flops, dtype), _FLOPS
    for name, memory in host:
        for field, known in _HOST_MEMORIES.get(type(memory), {}).items():
            yield ("host", name, field), getattr(memory, field), known
    if group.remote:
        yield ("remote", "capacity"), group.remote.capacity, _DDR_CAPACITY
        yield ("remote", "bandwidth"), group.remote.bandwidth, _DDR_BANDWIDTH
        yield ("remote", "network_bandwidth"), group.remote.network_bandwidth, _HOST_CARDS
    yield ("links", "pcie", "bandwidth"), links.pcie.bandwidth, _PCIE
    if links.scale_up:
        yield ("links", "scale_up", "bandwidth"), links.scale_up.bandwidth, _SCALE_UP
    if links.scale_out:
        yield ("links", "scale_out", "bandwidth"), links.scale_out.bandwidth, _CARD
    if links.front_end:
        yield ("links", "front_end", "bandwidth"), links.front_end.bandwidth, _FRONT_END
    yield ("power",), group.power, _POWER
    yield ("price",), group.price, _PRICE


def _out_of_range(group: NodeGroup) -> Iterator[tuple[tuple[Key, ...], str]]:
    for path, value, known in _quantities(group):
        if value is None or known.low <= value <= known.high:
            continue
        bits = 8 if known.unit == "b/s" else 1
        limits = f"{_text(known.low * bits, known.unit)} to {_text(known.high * bits, known.unit)}"
        own = _text(value, known.unit.replace("b", "B"))
        yield path, f"{own} is outside of what known devices have, {limits}{_slip(value, known)}"


def _slip(value: float, known: PlausibleRange) -> str:
    """The likeliest slip that puts a plausible number out of range: bits for bytes, or a prefix."""
    own = known.unit.replace("b", "B")
    if own.startswith("B"):
        if known.low <= value / 8 <= known.high:
            return f"; did you mean {_text(value, own.replace('B', 'b'))} = {_text(value / 8, own)}?"
        if known.low <= value * 8 <= known.high:
            return f"; did you mean {_text(value * 8, own)}, bytes and not bits?"
    for factor in (1e-3, 1e3, 1e-6, 1e6):
        if known.low <= value * factor <= known.high:
            return f"; did you mean {_text(value * factor, own)}?"
    return ""


def _text(value: float, unit: str) -> str:
    size, prefix = next(((size, prefix) for size, prefix in _PREFIXES if value >= size), _PREFIXES[-1])
    return f"{value / size:.4g}{prefix}{unit}"


def _odd(group: NodeGroup) -> Iterator[tuple[tuple[Key, ...], str]]:
    """Numbers that are each possible but do not fit one another."""
    accelerators, host, links = group.accelerators, group.host, group.links
    if named := re.search(r"(\d+)GB\b", accelerators.device):
        share = accelerators.hbm.capacity / (int(named[1]) * 1e9)
        if not 0.9 <= share <= 1.1:  # 1.07: the same number of GiB
            text = f"{_text(accelerators.hbm.capacity, 'B')} does not fit the device {accelerators.device!r}"
            slip = f"; did you mean {named[1]}GB, bytes and not bits?" if 0.11 < share < 0.14 else ""
            yield ("accelerators", "hbm", "capacity"), text + slip
    if host.ssd and host.ssd.capacity % (1 << 30) == 0 and host.ssd.capacity % 10**9:
        gib = host.ssd.capacity >> 30
        size = f"{gib >> 10}TB" if gib % 1024 == 0 else f"{gib}GB"
        yield (
            ("host", "ssd", "capacity"),
            f"is a binary size; drives are sold in decimal ones: did you mean {size}?",
        )
    if links.scale_out and links.scale_out.bandwidth > 2 * links.pcie.bandwidth:
        card, pcie = _text(links.scale_out.bandwidth, "B/s"), _text(links.pcie.bandwidth, "B/s")
        meant = _text(links.scale_out.bandwidth, "b/s")
        text = f"a card of {card} behind PCIe links of {pcie} cannot be used; did you mean {meant}?"
        yield ("links", "scale_out", "bandwidth"), text
    for name, link in (("pcie", links.pcie), ("scale_up", links.scale_up), ("scale_out", links.scale_out)):
        if link and link.latency > _MOST_LATENCY_S:
            yield ("links", name, "latency"), _slow(link.latency)
    if host.scm and host.scm.latency > _MOST_SCM_LATENCY_S:
        text = f"{host.scm.latency:g}s is slower than any byte-addressable memory; drives belong into host.ssd"
        yield ("host", "scm", "latency"), text
    for tier in type(group.reserve).model_fields:
        if (share := getattr(group.reserve, tier)) > _MOST_RESERVE:
            yield ("reserve", tier), f"reserves {share:.0%}, more than half of the tier"


def _slow(latency_s: float) -> str:
    return f"{latency_s:g}s is slower than any known link, which take microseconds; write for example 2us"
