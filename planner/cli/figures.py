"""The few numbers by which people know an input."""

from cost_models.workload.models import DTYPE_BYTES, Workload
from topologies.cluster import Topology


def weight_bytes(workload: Workload) -> int:
    """Size of all embeddings, without optimizer state."""
    return sum(table.rows * table.dim * DTYPE_BYTES[workload.dtype_of(table)] for table in workload.tables)


def hbm_bytes(topology: Topology) -> int:
    """HBM of all ranks."""
    return sum(group.count * group.accelerators.count * group.accelerators.hbm.capacity for group in topology.nodes)
