"""Memory per rank beside what TorchRec's own storage estimator counts for the same plan."""

import numpy as np
import pytest
import torch
from torchrec.distributed.planner.shard_estimators import EmbeddingStorageEstimator
from torchrec.distributed.planner.types import Shard, SharderData, ShardingOption, StorageUsageType
from torchrec.distributed.types import CacheParams, PipelineType
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection

from cost_models.workload.models import Workload
from planner.document.plan import Plan, TablePlan
from planner.exporters.torchrec import KERNELS
from planner.formulation.policy import Policy
from planner.planning.planning import plan
from tests.torchrec_package.oracle import DTYPES, OPTIMIZERS, default_topology
from topologies.loading import load_topology

PIPELINES = {
    "none": PipelineType.NONE,
    "sparse-dist": PipelineType.TRAIN_SPARSE_DIST,
    "prefetch": PipelineType.TRAIN_PREFETCH_SPARSE_DIST,
}
TIERS = (["hbm"], ["hbm", "ddr_cached"], ["ddr_cached"], ["hbm", "ddr_cached", "ddr"])
NODES, LOCAL = 2, 2


def random_plan(seed: int) -> tuple[Plan, Workload]:
    """10 to 30 tables on four ranks, every second time each in one to three ways; rows divide among the ranks."""
    draw = np.random.default_rng(seed)
    tables = [
        {
            "name": f"t{i}",
            "rows": int(4 * 10 ** draw.uniform(1, 5.5)),
            "dim": int(4 * draw.integers(4, 65)),
            "features": int(draw.integers(1, 3)),
            "pooling_factor": float(draw.choice([1, 3, 20, 60])),
            "weighted": bool(draw.integers(2)),
            "dtype": str(draw.choice(["fp32", "fp16"])),
            "optimizer": str(draw.choice(["sgd", "rowwise_adagrad", "adagrad", "adam"])),
        }
        for i in range(draw.integers(10, 31))
    ]
    told = {"name": f"random {seed}", "batch_per_rank": int(draw.choice([64, 2048])), "tables": tables}
    workload = Workload.model_validate(told | {"pipeline": list(PIPELINES)[seed % 3]})
    overrides = [f"nodes.0.accelerators.count={LOCAL}", f"nodes.0.links.scale_out.count={LOCAL}"]
    overrides += ["nodes.0.links.pcie.accelerators_per_switch=1"]
    ways = ["table_wise", "column_wise", "row_wise", "table_row_wise", "table_column_wise", "grid_shard"]
    ways += ["data_parallel"] if "hbm" in TIERS[seed % 4] else []
    rules = [
        {"match": table["name"], "shardings": draw.choice(ways, draw.integers(1, 4), replace=False).tolist()}
        for table in tables
        if seed % 2
    ]
    policy = Policy.model_validate({"runtime": "torchrec", "tiers": TIERS[seed % 4], "tables": rules})
    cluster = load_topology("dgx-a100-80", nodes=NODES, overrides=overrides)
    return plan(cluster, workload, policy=policy, effort=0, simulate=False), workload


def option(table: TablePlan, workload: Workload, number: int) -> ShardingOption:
    """A table as TorchRec's estimator takes it."""
    profile = workload.tables[number]
    element = 2 if table.dtype == "fp16" else 4
    tensor = torch.empty(profile.rows, profile.dim, device="meta", dtype=DTYPES[element])
    if (optimizer := OPTIMIZERS[workload.optimizer_of(profile)]) is not None:
        tensor._optimizer_classes = [optimizer]
    config = EmbeddingBagConfig(num_embeddings=1, embedding_dim=4, name="t", feature_names=["f"])
    module = EmbeddingBagCollection(device=torch.device("meta"), is_weighted=profile.weighted, tables=[config])
    held = table.shards.as_matrix()[:, :5].tolist()
    count = profile.feature_count
    return ShardingOption(
        name=table.name,
        tensor=tensor,
        module=("m", module),
        input_lengths=[profile.pooling_factor / count] * count,
        batch_size=workload.batch_per_rank or 0,
        sharding_type=table.sharding,
        partition_by="device",
        compute_kernel="dense" if table.sharding == "data_parallel" else KERNELS[table.tier],
        shards=[Shard(size=[rows, columns], offset=[0, 0], rank=rank) for rank, _, rows, _, columns in held],
        cache_params=CacheParams(load_factor=table.cache_fraction) if table.cache_fraction else None,
        is_pooled=True,
    )


@pytest.mark.parametrize("seed", range(36))
def test_no_rank_takes_less_than_torchrec_counts(seed: int) -> None:
    """HBM of every rank, in all shardings, kernels, optimizers and pipelines; both count the same plan."""
    found, workload = random_plan(seed)
    options = [option(table, workload, number) for number, table in enumerate(found.tables)]
    data = {each.module_type_key: SharderData({}, {}, StorageUsageType.BASE) for each in options}
    topology = default_topology(NODES * LOCAL, LOCAL)
    EmbeddingStorageEstimator(topology, pipeline_type=PIPELINES[workload.pipeline]).estimate(options, data)
    theirs = np.zeros(NODES * LOCAL)
    for shard in (shard for each in options for shard in each.shards):
        theirs[shard.rank] += shard.storage.hbm
    ours = np.array([rank.bytes.hbm for rank in found.ranks])
    assert (ours >= theirs).all(), (ours / theirs - 1).tolist()
