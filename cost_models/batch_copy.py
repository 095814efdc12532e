"""The copy of batches to the devices, and what rows from below HBM wait for it.

A batch is copied beside the steps before its own, from the beginning of each. While that lasts, it shares each PCIe
switch evenly with what the forward pass needs of host memory, cache misses and rows in place: a switch that n ranks
share then carries n copies beside these, so that rows that keep it busy for x seconds a rank take n x seconds longer.
They never wait longer than the copy has left when the host has launched the step. The wait is the less of the two:
concave, so that it is a law of two lines (docs/decisions/0021-lines-of-laws.md, 0054-copies-meet-rows.md).
"""

from dataclasses import dataclass

import numpy as np

from cost_models.coefficients import SoftwareCoefficients
from cost_models.dense_update import DenseUpdate
from cost_models.kinds import RankKind
from cost_models.memory import Batching
from cost_models.shards import Floats, MemoryTier
from cost_models.tables import NUMBER_BYTES
from cost_models.workload.models import Workload
from topologies.cluster import Topology

COPY_CONTENTION = "copy_contention"
"""The stage of what rows from below HBM wait for the copy of a batch."""
MEETS_COPIES: MemoryTier = "ddr"
"""The memory whose rows do: it is about as fast as all links to it. Others are slower, and leave copies room."""


@dataclass(frozen=True)
class CopyLine:
    """A line of what rows wait: `latency_s`, whatever they are; or, from none on, as long as they meet the copy."""

    latency_s: float
    rows_wait: bool


@dataclass(frozen=True)
class BatchCopy:
    """How long a batch takes to come to the devices; K kinds of rank."""

    kinds: tuple[RankKind, ...]
    per_switch: tuple[int, ...]
    """[K] ranks that share a PCIe switch, in the whole cluster."""
    samples_per_rank: float
    numbers: int
    """Numerical features and label of a sample."""
    launch_s: float
    """From the end of a step until the device has something to do."""
    is_beside: bool
    """Whether it goes on beside other steps."""

    @classmethod
    def of(
        cls,
        cluster: Topology,
        workload: Workload,
        kinds: tuple[RankKind, ...],
        batching: Batching,
        software: SoftwareCoefficients,
        update: DenseUpdate,
    ) -> "BatchCopy":
        """That of a workload on the ranks of a cluster, or on one of its groups."""
        waits = workload.mode == "training" and workload.pipeline == "none"
        return cls(
            kinds,
            tuple(group.links.pcie.accelerators_per_switch for group in cluster.nodes),
            batching.samples_per_rank,
            workload.dense.numerical_features + 1,
            launch_s(workload, software, update),
            is_beside=not (software.ids_arrive_sharded or waits),
        )

    def seconds(self, loaded_bytes: float | Floats) -> Floats:
        """[K, ...] over the switch of each rank, where the ids of a sample with their lengths have so many bytes."""
        moved = self.samples_per_rank * (loaded_bytes + NUMBER_BYTES * self.numbers)
        return np.array(
            [moved / kind.pcie_bytes_per_s * n for kind, n in zip(self.kinds, self.per_switch, strict=True)]
        )

    def left_s(self, loaded_bytes: float | Floats) -> Floats:
        """[...] what is left of the slowest copy when devices begin a step: no rows wait longer for it."""
        return np.asarray(np.maximum(self.seconds(loaded_bytes).max(axis=0) - self.launch_s, 0.0))

    def meets_rows(self, loaded_bytes: float) -> bool:
        """Whether rows from below HBM may wait for it, where the ids of a sample with their lengths have so many
        bytes."""
        has_memory = any(MEETS_COPIES in kind.memories for kind in self.kinds)
        return self.is_beside and has_memory and float(self.left_s(loaded_bytes)) > 0

    def lines(self, loaded_bytes: float) -> tuple[CopyLine, CopyLine]:
        """The law of the wait, where the ids of a sample with their lengths have so many bytes."""
        return CopyLine(0.0, rows_wait=True), CopyLine(float(self.left_s(loaded_bytes)), rows_wait=False)


def launch_s(workload: Workload, software: SoftwareCoefficients, update: DenseUpdate) -> float:
    """From the end of a step until the device has something to do: the host's work, in training less what the optimizer
    of the dense part, measured as a part of it, takes at the end. 0 where the host works beside the device."""
    optimizer_s = update.moved_s if workload.mode == "training" else 0.0
    return max(software.step_overhead_s.value - optimizer_s, 0.0)


def waited_s(switch_s: Floats, link_s: Floats, ranks: int) -> Floats:
    """[n] how much longer rows take while copies go on, that keep the switch of so many ranks busy for `switch_s` of
    each, and the rank's own link, which may be slower, for `link_s`.

    It falls with no rate, so that slower hardware never makes a step shorter.
    """
    alone = np.maximum(ranks * switch_s, link_s)
    return np.asarray(np.maximum(2 * ranks * switch_s, link_s + switch_s) - alone)
