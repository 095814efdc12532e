"""All tables of a workload as arrays, built once; the cost terms read nothing else of them."""

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from cost_models.access import AccessCurves
from cost_models.shards import HBM, IS_CACHED, IS_MIXED, TABLE_WISE, Blocks, Floats, Ints
from cost_models.workload.formats import (
    DTYPES,
    FORMATS,
    codec_bytes,
    reduction_codec_bytes,
    sum_bytes,
    wire_bytes,
    written_bytes,
)
from cost_models.workload.models import Workload
from cost_models.workload.optimizers import STATE, Optimizer
from cost_models.workload.table_profile import TableProfile
from cost_models.workload.words import Dtype

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


def _expanded(table: TableProfile) -> float:
    """Vectors per sample that are copied out of deduplicated ones."""
    is_expanded = table.pooled and table.dedup_group is not None and table.deduplication > 1
    return table.feature_count * table.poolings if is_expanded else 0.0


def _bag_spread(table: TableProfile) -> float:
    """Standard deviation of the rows of a bag, of which a sample has several that add up."""
    return table.pooling_std / math.sqrt(table.feature_count * table.poolings) if table.pooled else 0.0


@dataclass(frozen=True)
class Tables:
    """Arrays over the T tables of a workload."""

    rows: Ints
    dim: Ints
    lookups_per_sample: Floats
    """Rows read per sample after deduplication."""
    ids_per_sample: Floats
    """Ids per sample as they come to the rank: before it, unless the readers did it."""
    id_bytes: Ints
    """Bytes of one id with its weight."""
    features: Floats
    """Inputs that share the table; each has its number of ids for each sample."""
    outputs_per_sample: Floats
    """Vectors per sample that leave the lookup: one per feature when pooled, else one per id."""
    bag_spread: Floats
    """Standard deviation of the rows read for one vector of a pooled table, features and poolings taken as
    independent."""
    expanded_per_sample: Floats
    """Vectors per sample that are copied out of deduplicated ones where the samples are; 0 where none are."""
    pooled: Ints
    """1 for a bag, 0 for a sequence."""
    dtype: tuple[Dtype, ...]
    """The format of the stored rows."""
    precision_cache: Floats
    """Share of the rows that are also held in fp32; 0 where there is no such cache."""
    cache_dtype: tuple[Dtype | None, ...]
    """The format of rows in a cache; None where it is that of the stored rows."""
    state_arrays: Ints
    """Element-wise optimizer state arrays (fp32)."""
    state_bytes_per_row: Ints
    """Row-wise optimizer state."""
    optimizer: tuple[Optimizer, ...]
    access: AccessCurves
    forward_wire_bytes: float
    """Bytes of one element in the output distribution."""
    backward_wire_bytes: float
    forward_sum_bytes: float
    """The same where the network sums rows or gathers their gradients."""
    backward_sum_bytes: float
    written_bytes: float
    """Bytes of one element that the lookup writes."""
    codec_bytes: tuple[float, float]
    """Bytes of device memory that encoding or decoding one element on the wire moves: forward, backward."""
    gradient_wire_bytes: float
    """Bytes of one element of a replicated table's gradient in a reduction; it is the dense part's format."""
    gradient_held_bytes: float
    """The same where an optimizer reads it."""
    gradient_codec_bytes: float
    """Bytes of device memory that one element moves where gradients are encoded to be reduced."""
    training: bool

    @classmethod
    @lru_cache(maxsize=8)
    def of(cls, workload: Workload, world_size: int) -> "Tables":
        """The arrays of a workload whose batch is spread over `world_size` ranks; of the last few, made once."""
        tables = workload.tables
        forward, backward = workload.communication.forward, workload.communication.backward
        optimizers = tuple(workload.optimizer_of(table) for table in tables)
        training = workload.mode == "training"
        pooled = np.array([table.pooled for table in tables], dtype=np.int64)
        lookups = np.array([table.pooling_factor / table.deduplication for table in tables])
        return cls(
            rows=np.array([workload.stored_rows(table) for table in tables], dtype=np.int64),
            dim=np.array([workload.stored_dim(table) for table in tables], dtype=np.int64),
            lookups_per_sample=lookups,
            ids_per_sample=np.array([table.ids_read for table in tables]),
            id_bytes=np.array([ID_BYTES + WEIGHT_BYTES * table.weighted for table in tables], dtype=np.int64),
            features=np.array([table.feature_count for table in tables], dtype=float),
            outputs_per_sample=np.array([table.vectors_per_sample for table in tables]),
            bag_spread=np.array([_bag_spread(table) for table in tables]),
            expanded_per_sample=np.array([_expanded(table) for table in tables]),
            pooled=pooled,
            dtype=tuple(workload.dtype_of(table) for table in tables),
            precision_cache=np.array([table.precision_cache or 0.0 for table in tables]),
            cache_dtype=tuple("fp32" if table.precision_cache else table.kernel.cache_dtype for table in tables),
            state_arrays=np.array([STATE[name].arrays * training for name in optimizers], dtype=np.int64),
            state_bytes_per_row=np.array(
                [STATE_BYTES * STATE[name].per_row * training for name in optimizers], dtype=np.int64
            ),
            optimizer=optimizers,
            access=AccessCurves.of(workload, world_size),
            forward_wire_bytes=wire_bytes(forward),
            backward_wire_bytes=wire_bytes(backward),
            forward_sum_bytes=sum_bytes(forward),
            backward_sum_bytes=sum_bytes(backward),
            written_bytes=written_bytes(forward),
            codec_bytes=(codec_bytes(forward), codec_bytes(backward)),
            gradient_wire_bytes=wire_bytes(workload.dense.gradient_format),
            gradient_held_bytes=written_bytes(workload.dense.gradient_format),
            gradient_codec_bytes=reduction_codec_bytes(workload.dense.gradient_format, world_size),
            training=training,
        )

    @property
    def kept_on_device(self) -> "Tables":
        """The same, of which no vector leaves its device by itself: none is encoded, repeated or put in order."""
        none = np.zeros(len(self.rows))
        return replace(self, codec_bytes=(0.0, 0.0), expanded_per_sample=none, dim=none.astype(np.int64))

    def stored_as(self, table: Ints, dtype: Ints | None = None) -> Ints:
        """Indices into DTYPES of the formats that rows of each `table` are stored in: `dtype`, or its own where that
        is -1 or missing."""
        own = self._own_formats[table]
        return own if dtype is None else np.where(dtype < 0, own, dtype)

    @cached_property
    def _own_formats(self) -> Ints:
        """[T] indices into DTYPES."""
        return np.array([DTYPES.index(each) for each in self.dtype], dtype=np.int64)

    @cached_property
    def _cache_formats(self) -> Ints:
        """[T] the same of rows in caches, -1 where it is not stated."""
        return np.array([-1 if each is None else DTYPES.index(each) for each in self.cache_dtype], dtype=np.int64)

    def row_bytes(self, table: Ints, columns: Ints, dtype: Ints | None = None) -> Ints:
        """Weights of `columns` columns of one row of each `table`, stored as `dtype`; shape of the arguments."""
        table, columns = np.broadcast_arrays(np.asarray(table), np.asarray(columns))
        stored = self.stored_as(table, dtype)
        size = np.zeros(table.shape, dtype=np.int64)
        for code in np.unique(stored).tolist():
            size = np.where(stored == code, FORMATS[DTYPES[code]].vector_bytes(columns), size)
        return size

    def cached_row_bytes(self, blocks: Blocks) -> Ints:
        """[n] the same of a row in a cache: in fp32 where rows are updated there, in the cache's own format where it
        has one, else as the row is stored."""
        table, stored = blocks.table, self.stored_as(blocks.table, blocks.dtype)
        own = self._cache_formats[table]
        own = np.where(own < 0, stored, own)
        precise = IS_MIXED[blocks.tier] | (IS_CACHED[blocks.tier] & self.needs_cache(blocks))
        return self.row_bytes(table, blocks.columns, np.where(precise, DTYPES.index("fp32"), own))

    def needs_cache(self, blocks: Blocks) -> NDArray[np.bool_]:
        """[n] whether training writes the rows of blocks in a cache of full precision only: their format has no
        updates in place."""
        rigid = np.array([not FORMATS[dtype].updates_in_place for dtype in DTYPES])
        return np.asarray(rigid[self.stored_as(blocks.table, blocks.dtype)] & self.training)

    @cached_property
    def loaded_bytes_per_sample(self) -> Floats:
        """[T] bytes of a sample's ids with their lengths, as they come to the rank."""
        return self.ids_per_sample * self.id_bytes + LENGTH_BYTES * self.features

    @cached_property
    def whole(self) -> Blocks:
        """[T] every table as one block in HBM."""
        zeros = np.zeros(len(self.rows), dtype=np.int64)
        return Blocks(np.arange(len(zeros)), zeros + TABLE_WISE, zeros + HBM, self.dim, zeros.astype(np.float64))

    def row_state_bytes(self, table: Ints, columns: Ints) -> Ints:
        """Optimizer state that goes with `columns` columns of one row."""
        return columns * STATE_BYTES * self.state_arrays[table] + self.state_bytes_per_row[table]
