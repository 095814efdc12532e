"""The runtimes that a plan may be for, and what each executes."""

from dataclasses import dataclass
from typing import Literal, get_args

from cost_models.shards import (
    PLACEMENT_TIERS,
    ROWS_OF_NODE,
    SHARDINGS,
    STATE_PLACES,
    USUAL_SHARDINGS,
    WITHIN_NODE,
    PlacementTier,
    Sharding,
    StatePlace,
)
from cost_models.stages import VectorExchange
from cost_models.workload.compressors import Kind as CompressorKind
from cost_models.workload.formats import DTYPES
from cost_models.workload.kernels import SERVED_OF
from cost_models.workload.words import Dtype

Runtime = Literal["torchrec", "hugectr", "any"]


@dataclass(frozen=True)
class RuntimeRules:
    """What a runtime executes correctly, as far as a plan can get it wrong."""

    tiers: tuple[PlacementTier, ...]
    shardings: tuple[Sharding, ...]
    column_multiple: int
    needs_equal_nodes: tuple[Sharding, ...] = ()
    """Shardings that need as many ranks on every node."""
    pooled_only: tuple[Sharding, ...] = ()
    """Shardings of pooled tables alone."""
    dtypes: tuple[Dtype, ...] = DTYPES
    """Formats of stored rows."""
    served_dtypes: tuple[Dtype, ...] = ()
    """More of them, of tables that answer and do not train."""
    precise_caches: tuple[PlacementTier, ...] = ()
    """Tiers that may hold rows in fp32, whatever the table is stored in: what a stated `precision_cache` needs."""
    state_places: tuple[StatePlace, ...] = ("with_table",)
    """FBGEMM gives optimizer state the location of its table (construct_split_state), HugeCTR keeps both in HBM."""
    compressors: tuple[CompressorKind, ...] = ("none", "hash", "dim")
    """What may make a table smaller. Neither has a module of two tables on one rank whose vectors meet there: their
    collections pool each table by itself."""
    exchanges: tuple[VectorExchange, ...] = ("flat",)
    """Exchanges of vectors. Neither groups the ranks of a place across hosts (TorchRec's comm.py has process groups
    within and across nodes for table_row_wise alone)."""

    def dtypes_in(self, mode: str) -> tuple[Dtype, ...]:
        """Formats of stored rows in a workload of this mode."""
        return (*self.dtypes, *self.served_dtypes) if mode == "inference" else self.dtypes


RUNTIMES: dict[Runtime, RuntimeRules] = {
    # All seven were run with 2 and 4 processes and matched the unsharded model, with widths in multiples of 4 and row
    # blocks of ceil(rows / ranks). Kernels of its default planner: fused, fused_uvm_caching, fused_uvm; key_value (SSD)
    # is none of them. Node-wide shardings take the local world size for that of every node; row_wise takes a shard for
    # every rank (rw_sharding.py, `_shard`), so that rows over some ranks crash. Sequences
    # (EmbeddingCollection) know none of the three that keep to nodes.
    # Source: TorchRec 1.8.0 (distributed/sharding, distributed/embedding.py, planner/enumerators.py).
    "torchrec": RuntimeRules(
        ("hbm", "ddr_cached", "ddr", "hbm_stash_weights"),
        USUAL_SHARDINGS,
        4,
        needs_equal_nodes=ROWS_OF_NODE,
        pooled_only=WITHIN_NODE,
        dtypes=("fp32", "fp16", "bf16", "fp8", "int8"),
        served_dtypes=tuple(dict.fromkeys(dtype for of in SERVED_OF.values() for dtype in of.values())),
        precise_caches=("ddr_cached",),
    ),
    # shard_matrix lists the tables of each GPU and cuts the rows of a table evenly over the GPUs that list it: one of
    # them, those of a node or some of them, those of several nodes, or all. shard_strategy sets data-parallel tables
    # apart. Nothing is cut by columns.
    # Source: NVIDIA-Merlin/HugeCTR, samples/dlrm/sharding.
    # Rows and their state are stored as float, whatever travels: EmbeddingTableParam has no format, static tables are
    # tensors of ScalarType::Float, dynamic ones DynamicEmbeddingTable<key_t, float>; `emb_type` (float or half) is that
    # of vectors and gradients. Source: its HugeCTR/embedding_storage/common.hpp, ragged_static_embedding.cu and
    # dynamic_embedding.cu.
    "hugectr": RuntimeRules(
        ("hbm",),
        ("data_parallel", "table_wise", "row_wise", "table_row_wise", "multi_node_row_wise", "multi_rank_row_wise"),
        1,
        dtypes=("fp32",),
    ),
    "any": RuntimeRules(
        PLACEMENT_TIERS,
        SHARDINGS,
        1,
        precise_caches=PLACEMENT_TIERS,
        state_places=STATE_PLACES,
        compressors=get_args(CompressorKind),
        exchanges=("flat", "sptt"),
    ),
}
