"""What the memories of a node group give: rates below HBM, of the cards towards remote hosts, and usable bytes."""

import math
from dataclasses import dataclass

from cost_models.coefficients import DeviceCoefficients, link_coefficients
from cost_models.tiers import BELOW_HBM
from topologies.cluster import NodeGroup
from topologies.hardware import MEMORY_TIERS, DescribedMemory, Memory, MemoryTier, RemoteHosts, Storage, StorageClass

IN_FLIGHT_BYTES = 768 * 128
"""Reads over PCIe that an accelerator has under way at once: 10-bit tags (PCIe 4.0) leave 768, a kernel's are of 128
bytes (Min et al., EMOGI, VLDB 2020). By Little's law the latency of a memory limits the rate at which it is read."""


@dataclass(frozen=True)
class MemoryRates:
    """What a memory below HBM gives to all ranks that share it; bytes/s."""

    read_bytes_per_s: float
    write_bytes_per_s: float
    link_bytes_per_s: float
    """What a rank's own link gives while its kernels wait for rows that are read in place."""
    access_bytes: int = 1
    """The smallest piece that is read or written."""
    accesses_per_s: float = math.inf
    cards_bytes_per_s: float = math.inf
    """Rate of the network cards before it, in one direction."""
    latency_s: float = 0.0
    """From a request for missed rows until the first one is there, where that is not negligible."""

    @property
    def is_remote(self) -> bool:
        """Whether rows come over the network."""
        return math.isfinite(self.cards_bytes_per_s)


def memories_below_hbm(group: NodeGroup, device: DeviceCoefficients, host_rate: float) -> dict[MemoryTier, MemoryRates]:
    """The memories below HBM."""
    described = {tier: memory for tier in BELOW_HBM if (memory := group.memory(tier)) is not None}
    return {tier: _memory_rates(memory, group, device, host_rate) for tier, memory in described.items()}


def _memory_rates(
    memory: DescribedMemory, group: NodeGroup, device: DeviceCoefficients, host_rate: float
) -> MemoryRates:
    """What a memory below HBM gives, by how the topology describes it."""
    match memory:
        case Storage():
            rates = memory.read_bandwidth, memory.write_bandwidth
            return MemoryRates(*rates, host_rate, memory.block_size, memory.iops)
        case StorageClass():
            waits_s = group.links.pcie.latency + memory.latency
            in_flight = IN_FLIGHT_BYTES / waits_s if waits_s else math.inf
            rates = memory.read_bandwidth, memory.write_bandwidth
            return MemoryRates(*rates, min(host_rate, in_flight), memory.access_size)
        case RemoteHosts():
            rate = memory.count * memory.bandwidth * device.ddr_efficiency.value
            cards = memory.count * _card_rate(memory.kind, memory.network_bandwidth)
            return MemoryRates(rate, rate, host_rate, cards_bytes_per_s=cards, latency_s=memory.latency)
        case Memory():
            rate = memory.bandwidth * device.ddr_efficiency.value
            return MemoryRates(rate, rate, host_rate)


def _card_rate(kind: str, bandwidth: float) -> float:
    """What traffic with many others achieves of a card."""
    return bandwidth * link_coefficients(kind, "default-scale-out").all_to_all_efficiency.value


def front_end_rate(group: NodeGroup) -> float:
    """Rate of the cards of a node for training data and remote hosts; 0 without any."""
    cards = group.links.front_end
    return cards.count * _card_rate(cards.kind, cards.bandwidth) if cards else 0.0


def usable_bytes(group: NodeGroup) -> tuple[int, ...]:
    """Capacity less reserve of one pool of each memory (see `SHARED_BY`); 0 for those that the group lacks."""
    return tuple(int(group.memory_bytes(tier) * (1 - getattr(group.reserve, tier))) for tier in MEMORY_TIERS)
