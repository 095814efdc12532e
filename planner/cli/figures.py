"""The few numbers by which people know an input."""

from cost_models.workload.formats import row_bytes
from cost_models.workload.models import Workload
from topologies.cluster import Topology


def weight_bytes(workload: Workload) -> int:
    """Size of all embeddings, without optimizer state."""
    return sum(
        (rows + compressor.number * compressor.has_two_parts) * int(row_bytes(workload.dtype_of(table), columns))
        for table, compressor in zip(workload.tables, workload.compressors, strict=True)
        for rows, columns in (workload.stored_shape(table),)
    )


def hbm_bytes(topology: Topology) -> int:
    """HBM of all ranks."""
    return sum(group.count * group.accelerators.count * group.accelerators.hbm.capacity for group in topology.nodes)
