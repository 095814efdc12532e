"""The few numbers by which people know an input."""

from cost_models.workload.formats import row_bytes
from cost_models.workload.models import Workload
from topologies.cluster import Topology


def weight_bytes(workload: Workload) -> int:
    """Size of all embeddings, without optimizer state."""
    row_sizes = [int(row_bytes(workload.dtype_of(table), table.dim)) for table in workload.tables]
    return sum(workload.stored_rows(table) * size for table, size in zip(workload.tables, row_sizes, strict=True))


def hbm_bytes(topology: Topology) -> int:
    """HBM of all ranks."""
    return sum(group.count * group.accelerators.count * group.accelerators.hbm.capacity for group in topology.nodes)
