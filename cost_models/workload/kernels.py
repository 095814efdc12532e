"""How TorchRec is to set up the kernel of a table, beyond its sharding and tier: what a plan carries to the runtime.

Keys and words are those of `ParameterSharding`, `CacheParams` and `KeyValueParams` of TorchRec 1.8 and 1.9.
"""

from typing import Annotated, Literal

from pydantic import Field

from cost_models.workload.words import Dtype
from topologies.documents import Record

DataType = Literal["FP32", "FP16", "BF16", "INT64", "INT32", "INT8", "UINT8", "INT4", "INT2", "NFP8"]
BoundsCheckMode = Literal["FATAL", "WARNING", "IGNORE", "NONE", "V2_FATAL", "V2_WARNING", "V2_IGNORE"]
DTYPE_OF: dict[str, Dtype] = {"FP32": "fp32", "FP16": "fp16", "BF16": "bf16", "INT8": "int8", "NFP8": "fp8"}
"""Those that rows are stored in, in our words."""
SERVED_OF: dict[Literal["cuda", "cpu"], dict[str, Dtype]] = {
    "cuda": {"INT8": "int8_nbit", "INT4": "int4_nbit", "INT2": "int2_nbit"},
    "cpu": {"INT8": "int8_row", "INT4": "int4_row", "INT2": "int2_row"},
}
"""Those of quantized tables, which answer and do not train: FBGEMM pads their rows on GPUs. On CPUs a row of INT8 has 4
bytes of scale and bias, and we count the 8 of int8_row."""
BITS_OF: dict[DataType, int] = {
    "FP32": 32,
    "FP16": 16,
    "BF16": 16,
    "INT64": 64,
    "INT32": 32,
    "INT8": 8,
    "UINT8": 8,
    "INT4": 4,
    "INT2": 2,
    "NFP8": 8,
}
"""Bits of one number."""


class MultipassPrefetch(Record):
    """How rows are fetched in several passes."""

    num_passes: int
    """Passes."""
    min_splitable_pass_size: int
    """Ids below which a pass is not split."""


class CacheParams(Record):
    """Settings of the cache in HBM of a table below it."""

    algorithm: Literal["LRU", "LFU"] | None = None
    """Which row leaves a full cache: the least recently or the least frequently used."""
    load_factor: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of the rows that HBM holds where the plan caches or splits the table, unless the policy's cache_fraction
    says another."""
    reserved_memory: Annotated[float, Field(ge=0)] | None = None
    """Bytes of HBM that FBGEMM leaves free when it makes the cache."""
    precision: DataType | None = None
    """The data type of the cached rows. Unset: as the table is stored."""
    prefetch_pipeline: bool | None = None
    """Whether rows of the next batch are fetched ahead."""
    multipass_prefetch_config: MultipassPrefetch | None = None
    """Fetch them in several passes; unset: in one."""


class KeyValueParams(Record):
    """Settings of tables on drives and parameter servers."""

    ssd_storage_directory: str | None = None
    """The folder on the drive."""
    ssd_rocksdb_write_buffer_size: int | None = None
    """Bytes of RocksDB's write buffer."""
    ssd_rocksdb_shards: int | None = None
    """Shards of the store."""
    gather_ssd_cache_stats: bool | None = None
    """Whether hits and misses are counted."""
    use_passed_in_path: bool = True
    """Whether the given folder is used as it is."""
    l2_cache_size: int | None = None
    """GB"""
    max_l1_cache_size: int | None = None
    """MB"""
    enable_async_update: bool | None = None
    """Whether rows are written in the background."""
    bulk_init_chunk_size: int | None = None
    """Rows that are initialised at a time."""
    lazy_bulk_init_enabled: bool | None = None
    """Whether rows are initialised in the background."""
    enable_raw_embedding_streaming: bool | None = None
    """Whether updated rows are streamed to a server."""
    res_store_shards: int | None = None
    """Shards of the store that streamed rows go to."""
    load_ckpt_without_opt: bool = False
    """Whether a checkpoint is loaded without its optimizer state."""
    ps_hosts: tuple[tuple[str, int], ...] | None = None
    """Parameter servers: host and port of each."""
    ps_client_thread_num: int | None = None
    """Threads of their client."""
    ps_max_key_per_request: int | None = None
    """The most keys of one request."""
    ps_max_local_index_length: int | None = None
    """The most indices that are looked up at once."""


class KernelSettings(Record):
    """What the runtime is told of one table. What is unset is the runtime's own choice."""

    hbm_kernel: Literal["dense", "fused_triton"] | None = None
    """The kernel of the table in HBM where it is not replicated. Unset: fused."""
    enforce_hbm: bool | None = None
    """Whether weights and optimizer state are in HBM whatever the kernel."""
    stochastic_rounding: bool | None = None
    """Whether updated weights of fewer than 32 bits are rounded at random. Of FBGEMM; no estimate depends on it."""
    bounds_check_mode: BoundsCheckMode | None = None
    """What happens to an id that the table does not have."""
    output_dtype: DataType | None = None
    """The data type of the vectors that the lookup writes."""
    cache_params: CacheParams | None = None
    """Settings of the table's cache in HBM."""
    key_value_params: KeyValueParams | None = None
    """Settings of a table on drives or parameter servers."""

    @property
    def cache_dtype(self) -> Dtype | None:
        """The format of the rows in a cache, where it is stated and rows are stored in it."""
        cache = self.cache_params
        return DTYPE_OF.get(cache.precision) if cache is not None and cache.precision is not None else None

    @property
    def output_bytes(self) -> float | None:
        """Bytes of a number of the vectors that the lookup writes, where that is stated."""
        return None if self.output_dtype is None else BITS_OF[self.output_dtype] / 8
