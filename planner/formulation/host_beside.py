"""The host of one rank, which works beside its device, where the estimate adds both up."""

from collections.abc import Iterator

from cost_models.software import software_of
from cost_models.workload.models import Workload
from topologies.cluster import Topology
from topologies.units import format_seconds

PROCESSOR = "CPU"
"""The device of the catalog's cluster without accelerators, on which host and device are one."""


def host_beside(workload: Workload, stepped_on: Topology | None) -> Iterator[str]:
    """What a reader must know of TorchRec's steps on one rank. `stepped_on` is the cluster whose steps are timed; None
    of a rating, which has no host. Many ranks wait for sizes of each other, where none of this was measured (decision
    117)."""
    if workload.software != "torchrec" or workload.mode != "training":
        return
    if stepped_on is None or stepped_on.world_size > 1:
        return
    host_s = software_of(workload).step_overhead_s.value
    if host_s > 0 and stepped_on.nodes[0].accelerators.device != PROCESSOR:
        yield (
            f"the step is the host's {format_seconds(host_s)} and what the device takes, one after the other; on one"
            " rank they work at the same time, and a measured step takes about as long as the longer of both: give"
            " overhead: 0us for the device's part alone"
        )
