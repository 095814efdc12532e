"""What a node is made of: memories, accelerators, host and links.

Every bandwidth is for one direction. All models are frozen and valid from birth.
"""

from typing import Annotated, Literal, get_args

from pydantic import Field

from topologies.documents import Record
from topologies.flops import LATER, Flops
from topologies.messages import MessageRemedy
from topologies.units import (
    AccessesPerSecond,
    ByteCount,
    BytesPerSecond,
    Seconds,
    Share,
)

Name = Annotated[str, Field(min_length=1, max_length=120)]
Count = Annotated[int, Field(ge=1, strict=True)]
MemoryTier = Literal["hbm", "ddr", "ssd", "scm", "remote"]
MEMORY_TIERS: tuple[MemoryTier, ...] = get_args(MemoryTier)
"""The memories that hold tables: HBM of an accelerator; DDR, drives and storage-class memory of a node; the memory of
hosts over the network."""


class Memory(Record):
    """A memory: how much it holds and how fast it is read."""

    capacity: ByteCount
    bandwidth: BytesPerSecond


class Storage(Record):
    """The solid-state storage of one node, all its drives together."""

    capacity: ByteCount
    read_bandwidth: BytesPerSecond
    write_bandwidth: BytesPerSecond
    iops: AccessesPerSecond
    """Random reads of one block per second."""
    block_size: ByteCount = 4096
    """The smallest piece that is read or written."""


class StorageClass(Record):
    """The byte-addressable storage-class memory of one node (CXL, Optane), all its modules together."""

    capacity: ByteCount
    read_bandwidth: BytesPerSecond
    write_bandwidth: BytesPerSecond
    latency: Seconds
    """The latency of a read that no cache serves."""
    access_size: ByteCount = 64
    """The smallest piece that is read or written: a line of CXL memory; 256B in Optane modules."""


class RemoteHosts(Record):
    """Parameter hosts: machines without accelerators whose memory the nodes of a group share over the network."""

    count: Count
    """Hosts that the group shares."""
    capacity: ByteCount
    """The memory of one host, for tables."""
    bandwidth: BytesPerSecond
    """The bandwidth of one host's memory."""
    kind: Name
    """The kind of its network cards."""
    network_bandwidth: BytesPerSecond
    """The bandwidth of one host's cards together, one direction."""
    latency: Seconds = 2e-5
    """From a request until the first row is there, with the cards of both ends."""


DescribedMemory = Memory | Storage | StorageClass | RemoteHosts
"""Everything that may hold tables."""


class Accelerators(Record):
    """The accelerators of one node; all alike."""

    count: Count
    """Of one node."""
    device: Name
    """The key under which the coefficients of this device are found; any text for an unknown one."""
    hbm: Annotated[
        Memory,
        MessageRemedy("a topology without HBM cannot be planned for: write hbm: {capacity: 80GB, bandwidth: 3.35TB/s}"),
    ]
    """The device's own memory, of whatever kind (GDDR counts too); of one accelerator."""
    l2: ByteCount | None = None
    """Size of the last-level cache on the device."""
    flops: Flops
    """Peak rates by data type, of one accelerator."""


class Host(Record):
    """The host memory and storage of one node, shared by its accelerators."""

    ddr: Memory | None = None
    """The main memory; unset: none to use."""
    ssd: Storage | None = None
    """The drives; unset: none to use."""
    scm: Annotated[StorageClass | None, LATER] = None
    """Byte-addressable memory beside the main one (CXL, Optane); unset: none."""


class ScaleUp(Record):
    """The fast fabric inside a domain of accelerators (NVLink, NVSwitch, xGMI)."""

    kind: Name
    """The key of the link's coefficients, as nvlink4; any text for an unknown one."""
    bandwidth: BytesPerSecond
    """Per accelerator, one direction."""
    domain: Count | None = None
    """How many consecutive accelerators it joins; unset: those of one node. It may span nodes (NVL72)."""
    latency: Seconds = 1e-6
    """Of an exchange in a domain. Where latencies were measured over its kind they take its place, and plans say so."""


class Pcie(Record):
    """The PCIe tree between the accelerators and their host."""

    bandwidth: BytesPerSecond
    """The bandwidth of one accelerator's own link, one direction."""
    accelerators_per_switch: Count = 1
    """How many accelerators share one uplink of the same bandwidth to the host."""
    latency: Seconds = 1e-6
    """Of an exchange between accelerators without scale-up fabric, and of reads of storage-class memory."""
    carries_scale_out: Annotated[bool, Field(strict=True, exclude_if=lambda carries: carries)] = True
    """Whether traffic with a scale-out card crosses the accelerator's own link, as where both hang on one switch; false
    where the accelerator reaches its card by lanes of their own."""


class Nics(Record):
    """Network cards of one node. Scale-out cards serve accelerators in equal consecutive shares."""

    kind: Name
    """The key of the network's coefficients, as roce or infiniband; any text for an unknown one."""
    count: Count
    """Cards of one node."""
    bandwidth: BytesPerSecond
    """The bandwidth of one card, one direction."""
    latency: Seconds = 2e-6
    """Of an exchange between domains. That of front-end cards is not used: see the latency of remote hosts."""


class Links(Record):
    """Everything that connects the accelerators of a node with each other, the host and the other nodes."""

    pcie: Pcie
    """Between accelerators and host."""
    scale_up: ScaleUp | None = None
    """Unset: accelerators of a node reach each other over PCIe."""
    scale_out: Nics | None = None
    """Cards for traffic between accelerators; needed by a cluster of more than one node."""
    front_end: Nics | None = None
    """Cards for the training data and for remote hosts. Training data does not enter the step: it is taken to arrive in
    time."""


class Reserve(Record):
    """The share of each tier that a plan must leave free (contexts, communication buffers, the system)."""

    hbm: Share = 0.05
    """Of each accelerator's HBM."""
    ddr: Share = 0.10
    """Of each node's main memory."""
    ssd: Share = 0.05
    """Of each node's drives."""
    scm: Annotated[Share, Field(exclude_if=lambda share: share == 0.05)] = 0.05
    """Of each node's storage-class memory."""
    remote: Annotated[Share, Field(exclude_if=lambda share: share == 0.10)] = 0.10
    """Of the memory of remote hosts."""
