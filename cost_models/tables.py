"""All tables of a workload as arrays, built once; the cost terms read nothing else of them."""

from dataclasses import dataclass

import numpy as np

from cost_models.access import AccessCurves
from cost_models.shards import Floats, Ints
from cost_models.workload.models import DTYPE_BYTES, Optimizer, Workload

ID_BYTES = 8
"""An id on the wire and in memory: int64."""
WEIGHT_BYTES = 4
"""The fp32 weight of an id in a weighted table."""
LENGTH_BYTES = 4
"""The number of ids of one feature of one sample: int32."""
NUMBER_BYTES = 4
"""One numerical feature, or the label: fp32."""
STATE_BYTES = 4
"""Optimizer state is kept in fp32 (FBGEMM, HugeCTR)."""
STATE_ARRAYS: dict[Optimizer, int] = {"sgd": 0, "rowwise_adagrad": 0, "adagrad": 1, "adam": 2, "lamb": 2}
"""Element-wise state arrays; row-wise Adagrad keeps one number per row instead."""


@dataclass(frozen=True)
class Tables:
    """Arrays over the T tables of a workload."""

    rows: Ints
    dim: Ints
    lookups_per_sample: Floats
    """Rows read per sample after deduplication."""
    ids_per_sample: Floats
    """Ids per sample before it."""
    id_bytes: Ints
    """Bytes of one id with its weight."""
    features: Floats
    """Inputs that share the table; each has its number of ids for each sample."""
    outputs_per_sample: Floats
    """Vectors per sample that leave the lookup: one per feature when pooled, else one per id."""
    pooled: Ints
    """1 for a bag, 0 for a sequence."""
    element_bytes: Ints
    state_arrays: Ints
    """Element-wise optimizer state arrays (fp32)."""
    state_bytes_per_row: Ints
    """Row-wise optimizer state."""
    optimizer: tuple[Optimizer, ...]
    access: AccessCurves
    forward_wire_bytes: int
    """Bytes of one element in the output distribution."""
    backward_wire_bytes: int
    training: bool

    @classmethod
    def of(cls, workload: Workload, world_size: int) -> "Tables":
        """The arrays of a workload whose batch is spread over `world_size` ranks."""
        tables = workload.tables
        optimizers = tuple(workload.optimizer_of(table) for table in tables)
        training = workload.mode == "training"
        pooled = np.array([table.pooled for table in tables], dtype=np.int64)
        lookups = np.array([table.pooling_factor / table.dedup_factor for table in tables])
        features = np.array([table.feature_count for table in tables], dtype=float)
        return cls(
            rows=np.array([table.rows for table in tables], dtype=np.int64),
            dim=np.array([table.dim for table in tables], dtype=np.int64),
            lookups_per_sample=lookups,
            ids_per_sample=np.array([table.pooling_factor for table in tables]),
            id_bytes=np.array([ID_BYTES + WEIGHT_BYTES * table.weighted for table in tables], dtype=np.int64),
            features=features,
            outputs_per_sample=np.where(pooled == 1, features, lookups),
            pooled=pooled,
            element_bytes=np.array([DTYPE_BYTES[workload.dtype_of(table)] for table in tables], dtype=np.int64),
            state_arrays=np.array([STATE_ARRAYS[name] if training else 0 for name in optimizers], dtype=np.int64),
            state_bytes_per_row=np.array(
                [STATE_BYTES if training and name == "rowwise_adagrad" else 0 for name in optimizers], dtype=np.int64
            ),
            optimizer=optimizers,
            access=AccessCurves.of(workload, world_size),
            forward_wire_bytes=DTYPE_BYTES[workload.communication.forward],
            backward_wire_bytes=DTYPE_BYTES[workload.communication.backward],
            training=training,
        )

    def row_bytes(self, table: Ints, columns: Ints) -> Ints:
        """Weights of `columns` columns of one row of each `table`; shape of the arguments."""
        return columns * self.element_bytes[table]

    def row_state_bytes(self, table: Ints, columns: Ints) -> Ints:
        """Optimizer state that goes with `columns` columns of one row."""
        return columns * STATE_BYTES * self.state_arrays[table] + self.state_bytes_per_row[table]
