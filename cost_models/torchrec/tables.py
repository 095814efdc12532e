"""What TorchRec's planner knows of the tables, as arrays."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cost_models.access import AccessCurves
from cost_models.shards import Floats, Ints
from cost_models.workload.formats import row_bytes, wire_bytes
from cost_models.workload.models import Pipeline, Workload
from cost_models.workload.optimizers import Optimizer
from cost_models.workload.table_profile import TableProfile

STATE_PER_WEIGHT: dict[Optimizer, float] = {"sgd": 0, "adam": 2}
"""Bytes of optimizer state per byte of weights (shard_estimators.py: _get_optimizer_multipler); row-wise Adagrad
is 1 / dim, and every optimizer that TorchRec has no line for is 1."""


class CacheStatistics(Protocol):
    """What a row cache misses (`torchrec.distributed.types.CacheStatistics`)."""

    def expected_misses(self, table: Ints, cache_fraction: Floats) -> Floats:
        """[n] rows that a global batch misses: miss rate x expected unique lookups."""


@dataclass(frozen=True)
class ProfiledCache:
    """Cache statistics from access curves: the hottest rows are cached, each distinct row is looked up once."""

    access: AccessCurves
    lookups: Floats
    """[T] ids of a global batch."""

    def expected_misses(self, table: Ints, cache_fraction: Floats) -> Floats:
        """[n] miss rate x distinct rows of a global batch."""
        return (1 - self.access.hit_rate(table, cache_fraction)) * self.access.unique_rows(table, self.lookups[table])


@dataclass(frozen=True)
class TorchRecTables:
    """Arrays over T tables."""

    rows: Ints
    dim: Ints
    element_bytes: Floats
    """Bytes per number of the stored weights; with scales and padding, a mean over the row."""
    batch_inputs: Floats
    """Ids of one rank's batch: the sum over features of pooling factor x poolings x batch."""
    batch_outputs: Floats
    """Vectors of one rank's batch: the same with min(1, pooling factor); unpooled: `batch_inputs`."""
    pooled: NDArray[np.bool_]
    weighted: NDArray[np.bool_]
    all_to_all_bytes: Floats
    """[T, 2] bytes of an element in an all-to-all: forward, backward."""
    reduce_scatter_bytes: Floats
    """[T, 2] bytes of an element in a reduce-scatter (forward) and an all-gather (backward)."""
    state_per_weight: Floats
    """Bytes of optimizer state per byte of weights."""
    pipeline: Pipeline = "none"
    training: bool = True
    cache: CacheStatistics | None = None
    """Unset: no prefetch is charged."""
    stated_output_bytes: Floats | None = None
    """[T] bytes of an element that lookups write, counted as memory alone; NaN: as the weights are stored."""

    @property
    def output_bytes(self) -> Floats:
        """[T] bytes of an element that lookups write."""
        own, stated = self.element_bytes.astype(float), self.stated_output_bytes
        return own if stated is None else np.where(np.isnan(stated), own, stated)

    @classmethod
    def of(cls, workload: Workload, world_size: int) -> "TorchRecTables":
        """What a user of TorchRec would tell it of this workload.

        Features that share a table have equal parts of its pooling factor. A communication type other than fp32
        stands for quantized collectives, which TorchRec has for pooled outputs and for the all-to-all of sequences;
        with fp32 in both directions there are none, and it estimates the weights' own type. Cache statistics are
        given under the prefetch pipeline only.
        """
        tables = workload.tables
        batch = workload.batch(world_size)
        sums = np.array([_batch_sums(table, batch / world_size) for table in tables], dtype=float)
        element = np.array([row_bytes(workload.dtype_of(table), table.dim) / table.dim for table in tables])
        pooled = np.array([table.pooled for table in tables])
        codecs = np.array([wire_bytes(workload.communication.forward), wire_bytes(workload.communication.backward)])
        quantized = bool((codecs != wire_bytes("fp32")).any())
        own = np.stack([element, element], axis=1).astype(float)
        cache = None
        if workload.pipeline == "prefetch":
            lookups = np.array([table.pooling_factor for table in tables]) * batch
            cache = ProfiledCache(AccessCurves.of(workload, world_size), lookups)
        return cls(
            rows=np.array([workload.stored_rows(table) for table in tables], dtype=np.int64),
            dim=np.array([table.dim for table in tables], dtype=np.int64),
            element_bytes=element,
            batch_inputs=sums[:, 0],
            batch_outputs=np.where(pooled, sums[:, 1], sums[:, 0]),
            pooled=pooled,
            weighted=np.array([table.weighted for table in tables]),
            all_to_all_bytes=np.broadcast_to(codecs, own.shape).astype(float) if quantized else own,
            reduce_scatter_bytes=np.where(pooled[:, None], codecs, own) if quantized else own,
            state_per_weight=np.array([_state_per_weight(workload.optimizer_of(table), table.dim) for table in tables]),
            pipeline=workload.pipeline,
            training=workload.mode == "training",
            cache=cache,
            stated_output_bytes=np.array([table.kernel.output_bytes for table in tables], dtype=float),
        )


def _batch_sums(table: TableProfile, batch: float) -> tuple[float, float]:
    """Ids and pooled vectors of one rank's batch, added up feature by feature as TorchRec does."""
    features = max(table.feature_count, 1)
    pooling = table.pooling_factor / features
    ids = pooling / table.poolings  # of one pooling, as TorchRec's pooling factor is
    return sum([pooling * batch] * features), sum([min(1.0, ids) * table.poolings * batch] * features)


def _state_per_weight(optimizer: Optimizer, dim: int) -> float:
    return 1 / dim if optimizer == "rowwise_adagrad" else STATE_PER_WEIGHT.get(optimizer, 1)
