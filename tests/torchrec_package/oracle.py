"""The real TorchRec package, asked shard by shard."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torchrec.optim as trec_optim
from torchrec import EmbeddingBagCollection
from torchrec.distributed.planner.shard_estimators import EmbeddingPerfEstimator, EmbeddingStorageEstimator
from torchrec.distributed.planner.types import (
    HardwareConfig,
    KernelConfig,
    Perf,
    Shard,
    SharderData,
    ShardingOption,
    Storage,
    StorageUsageType,
    Topology,
    TopologyFactory,
    TrainerConfig,
)
from torchrec.distributed.sharding_plan import calculate_shard_sizes_and_offsets
from torchrec.distributed.types import CacheParams, CacheStatistics, PipelineType
from torchrec.modules.embedding_configs import EmbeddingBagConfig

from cost_models.torchrec.topology import TorchRecTopology

OPTIMIZERS = {
    None: None,
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "rowwise_adagrad": trec_optim.RowWiseAdagrad,
    "adagrad": torch.optim.Adagrad,
}
DTYPES = {4: torch.float32, 2: torch.float16, 1: torch.int8}
PIPELINES = {
    "none": PipelineType.NONE,
    "sparse-dist": PipelineType.TRAIN_SPARSE_DIST,
    "prefetch": PipelineType.TRAIN_PREFETCH_SPARSE_DIST,
}


@dataclass(frozen=True)
class Table:
    """One table as TorchRec is told about it; lists are by feature."""

    rows: int
    dim: int
    element_bytes: int
    pooling: tuple[float, ...]
    poolings: tuple[float, ...]
    pooled: bool
    weighted: bool
    optimizer: str | None
    misses: tuple[float, int] | None = None
    """Miss rate and expected unique lookups; None: no cache statistics."""


@dataclass(frozen=True)
class Way:
    """One way to hold a table; `widths` are its column blocks (all of the columns in one unless it splits them)."""

    sharding: str
    kernel: str
    widths: tuple[int, ...]
    cache_fraction: float


@dataclass(frozen=True)
class Run:
    """What holds for all tables."""

    batch: int
    pipeline: str = "none"
    inference: bool = False
    codecs: tuple[float, float] | None = None
    """Bytes of an element in quantized collectives: forward, backward; None: no quantization."""


class _Statistics(CacheStatistics):
    def __init__(self, rate: float, lookups: int) -> None:
        self._rate, self._lookups = rate, lookups

    @property
    def expected_lookups(self) -> int:
        return self._lookups

    def expected_miss_rate(self, clf: float) -> float:  # noqa: ARG002
        return self._rate

    @property
    def cacheability(self) -> float:
        return 0.0


def topology_of(own: TorchRecTopology, hbm_bytes: int | None = None) -> Topology:
    """TorchRec's, with bandwidths in bytes/ms; `hbm_bytes` is the capacity where TorchRec takes off the reserve."""
    hbm = hbm_bytes or own.hbm_bytes[0]
    hardware = HardwareConfig(
        hbm_cap_bytes=hbm,
        ddr_cap_bytes=own.ddr_bytes[0],
        intra_host_bw=own.intra_host_bytes_per_s / 1000,
        inter_host_bw=own.inter_host_bytes_per_s / 1000,
        hbm_mem_bw=own.hbm_bytes_per_s / 1000,
        ddr_mem_bw=own.ddr_bytes_per_s / 1000,
        hbm_to_ddr_mem_bw=own.hbm_to_ddr_bytes_per_s / 1000,
        ssd_mem_bw=own.ssd_bytes_per_s / 1000,
    )
    trainer = TrainerConfig(world_size=own.world_size, local_world_size=own.local_world_size, pod_size=own.pod_size)
    kernel = KernelConfig(
        compute_device="cuda",
        bwd_compute_multiplier=own.backward_ratio,
        weighted_feature_bwd_compute_multiplier=own.weighted_backward_ratio,
        use_hardware_based_bandwidth=True,
    )
    return TopologyFactory.create_topology(trainer_config=trainer, hardware_config=hardware, kernel_config=kernel)


def default_topology(world_size: int, local_world_size: int) -> Topology:
    """TorchRec's with everything at its default."""
    return TopologyFactory.create_topology(TrainerConfig(world_size=world_size, local_world_size=local_world_size))


def shard_sizes(way: Way, table: Table, own: TorchRecTopology) -> list[list[int]]:
    """[rows, columns] of every shard, block by block: TorchRec's own cut of the rows, our widths."""
    sizes = []
    for width in way.widths:
        cut = "table_row_wise" if way.sharding == "grid_shard" else way.sharding
        cut = "table_wise" if cut in ("column_wise", "table_column_wise") else cut
        block = torch.empty(table.rows, width, device="meta")
        sizes += calculate_shard_sizes_and_offsets(block, own.world_size, own.group_size, cut)[0]
    return [list(size) for size in sizes]


def ask(
    topology: Topology, table: Table, way: Way, run: Run, sizes: Sequence[list[int]]
) -> tuple[list[Perf], list[Storage]]:
    """Its estimate of every shard of one table held in one way."""
    tensor = torch.empty(table.rows, table.dim, device="meta", dtype=DTYPES[table.element_bytes])
    if (optimizer := OPTIMIZERS[table.optimizer]) is not None:
        tensor._optimizer_classes = [optimizer]
    module = EmbeddingBagCollection(
        device=torch.device("meta"),
        is_weighted=table.weighted,
        tables=[EmbeddingBagConfig(num_embeddings=1, embedding_dim=4, name="t", feature_names=["f"])],
    )
    stats = _Statistics(*table.misses) if table.misses else None
    cache = CacheParams(load_factor=way.cache_fraction, stats=stats, prefetch_pipeline=run.pipeline == "prefetch")
    option = ShardingOption(
        name="t",
        tensor=tensor,
        module=("m", module),
        input_lengths=list(table.pooling),
        batch_size=run.batch,
        sharding_type=way.sharding,
        partition_by="device",
        compute_kernel=way.kernel,
        shards=[Shard(size=size, offset=[0, 0]) for size in sizes],
        cache_params=cache if way.kernel == "fused_uvm_caching" else None,
        is_pooled=table.pooled,
        num_poolings=list(table.poolings),
    )
    option.is_weighted = table.weighted
    names = ("POOLED_EMBEDDINGS_ALL_TO_ALL", "POOLED_EMBEDDINGS_REDUCE_SCATTER", "SEQUENCE_EMBEDDINGS_ALL_TO_ALL")
    codecs = dict.fromkeys(names, run.codecs) if run.codecs else {}
    data = {option.module_type_key: SharderData({}, codecs, StorageUsageType.BASE)}
    EmbeddingPerfEstimator(topology, is_inference=run.inference).estimate([option], data)
    storage = EmbeddingStorageEstimator(topology, pipeline_type=PIPELINES[run.pipeline], is_inference=run.inference)
    storage.estimate([option], data)
    assert all(math.isfinite(shard.perf.total) for shard in option.shards)
    return [shard.perf for shard in option.shards], [shard.storage for shard in option.shards]
