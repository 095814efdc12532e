"""The host of one rank, which works beside its device: the step is about the longer of both.

So it was measured of TorchRec, in a pipeline and without (docs/decisions/0119-the-host-beside-one-rank.md). Many ranks
wait for sizes of each other, where nothing of this is known: host and device are added up there.
"""

from cost_models.coefficients import Coefficient, SoftwareCoefficients
from cost_models.software import software_of
from cost_models.workload.models import Workload
from topologies.cluster import Topology

PROCESSOR = "CPU"
"""The device of the catalog's cluster without accelerators, on which host and device are one."""


def works_beside(cluster: Topology, workload: Workload) -> bool:
    """Whether host and device of a step on the whole of a cluster work at the same time."""
    return cluster.world_size == 1 and _is_like_measured(cluster, workload)


def may_work_beside(cluster: Topology, workload: Workload) -> bool:
    """Whether they may, on the few ranks of one node: there they are added up, as few published steps say."""
    return cluster.world_size > 1 and cluster.node_count == 1 and _is_like_measured(cluster, workload)


def _is_like_measured(cluster: Topology, workload: Workload) -> bool:
    """Whether it is a step as the measured ones of one rank were: training with TorchRec, on a device with a host."""
    if workload.software != "torchrec" or workload.mode != "training":
        return False
    return cluster.nodes[0].accelerators.device != PROCESSOR


def software_on(cluster: Topology, workload: Workload) -> tuple[SoftwareCoefficients, Coefficient | None]:
    """The software profile of a workload on the whole of a cluster, and what its host does where that is no part of
    the device's step: the profile's own fixed overhead is then 0."""
    software = software_of(workload)
    if not works_beside(cluster, workload):
        return software, None
    host = software.step_overhead_s
    return software.model_copy(update={"step_overhead_s": host.model_copy(update={"value": 0.0})}), host
