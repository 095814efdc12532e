"""What a step takes on a cluster of any size: no number of nodes reaches a target below it."""

from dataclasses import dataclass

from cost_models.coefficients import SoftwareCoefficients
from cost_models.dense import dense_seconds
from cost_models.host_beside import works_beside
from cost_models.kinds import RankKind, rank_kinds
from cost_models.software import software_of
from cost_models.workload.models import Workload
from topologies.cluster import Topology
from topologies.units import format_seconds

SHOWN = 0.001
"""Share of the whole below which a part is not worth a word."""


@dataclass(frozen=True)
class SizeFloor:
    """The parts of a step that a cluster of any size has, in words, with their seconds."""

    parts: tuple[tuple[str, float], ...]

    @property
    def seconds(self) -> float:
        """No step is shorter."""
        return sum(seconds for _, seconds in self.parts)

    def refutes(self, target_s: float) -> str:
        """Why no size does, with the number and what makes it up."""
        parts = [f"{format_seconds(part)} {name}" for name, part in self.parts if part > SHOWN * self.seconds]
        return (
            f"no size does: no step is shorter than {format_seconds(self.seconds)} on any number of nodes"
            f" ({', '.join(parts)}), the target's is {format_seconds(target_s)}"
        )


def size_floor(topology: Topology, workload: Workload) -> SizeFloor:
    """The floor made of the fixed overhead, the launches of kernels and, where each rank has a batch of its own, the
    dense part: all in stages of their own. `topology` has the groups of nodes, whatever their numbers; where that may
    be one rank, whose host works beside its device, the floor is the longer of both."""
    kinds, software = rank_kinds(topology, workload), software_of(workload)
    launches_s = max(kind.lookup_launch_s for kind in kinds)
    if workload.mode == "training":
        launches_s += max(kind.update_launch_s for kind in kinds)
    dense_s = max(_dense_seconds(kind, workload, software) for kind in kinds)
    host = ((f"step_overhead_s of {software.name}", software.step_overhead_s.value),)
    device = (("launches of kernels", launches_s), ("dense part of a rank's batch", dense_s))
    fewest = tuple(group.model_copy(update={"count": 1}) for group in topology.nodes)
    if works_beside(topology.model_copy(update={"nodes": fewest}), workload):
        return max(SizeFloor(host), SizeFloor(device), key=lambda floor: floor.seconds)
    return SizeFloor((*host, *device))


def _dense_seconds(kind: RankKind, workload: Workload, software: SoftwareCoefficients) -> float:
    """Without the bottom MLP, which exchanges may hide; 0 where more ranks have fewer samples each."""
    if workload.batch_per_rank is None:
        return 0.0
    return dense_seconds(workload, workload.batch_per_rank, kind, software.activation_passes.value).rest_s
