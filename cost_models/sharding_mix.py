"""What a step takes longer where several kinds of sharding are in use."""

from collections.abc import Sequence, Set

from cost_models.kinds import RankKind
from cost_models.memory import Batching
from cost_models.shards import DATA_PARALLEL
from cost_models.tables import NUMBER_BYTES
from cost_models.workload.models import Workload


def mixing_seconds(
    kinds: Sequence[RankKind], workload: Workload, batching: Batching, latencies_s: float, shardings: Set[int]
) -> float:
    """Kernels and exchanges, with these latencies together, of every kind of sharding beyond the first one, and their
    vectors joined. 0 for devices on which the latter was not measured."""
    per_byte = max(kind.regroup_s for kind in kinds)
    if not per_byte or len(shardings) < 2:
        return 0.0
    vectors = sum(table.vectors_per_sample * table.dim for table in workload.tables)
    launches_s = max(kind.lookup_launch_s + kind.update_launch_s for kind in kinds) * (len(shardings) - 1)
    exchanges_s = latencies_s * max(len(shardings - {DATA_PARALLEL}) - 1, 0)
    if DATA_PARALLEL in shardings:  # replicas are reduced apart from the dense part
        exchanges_s += max(kind.reduction_protocols[-1].latency_s or 0.0 for kind in kinds)
    joined_s = per_byte * NUMBER_BYTES * vectors + max(kind.regroup_piece_s for kind in kinds) * len(shardings)
    joined_s *= batching.samples_per_rank
    return float(launches_s + exchanges_s + joined_s)
