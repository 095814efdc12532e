"""Memory per rank of plans for modules beside what TorchRec's default storage estimator counts for the same options."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingCollection
from torchrec.distributed.planner import ParameterConstraints, Topology
from torchrec.distributed.types import CacheParams, DataType
from torchrec.modules.embedding_configs import EmbeddingBagConfig, EmbeddingConfig
from torchrec.optim import RowWiseAdagrad
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward

from cost_models.workload.models import Workload
from planner.integrations.torchrec_planner import ShardPlanner
from planner.verification.verify import verify

GIB = 2**30
META = torch.device("meta")
WORLD = 4
ROUNDING = 4
"""Bytes of each shard that TorchRec rounds up, and we do not: weights and state of each memory, and two of a cache."""
WAYS = ("data_parallel", "table_wise", "column_wise", "row_wise", "table_row_wise", "table_column_wise", "grid_shard")
KERNELS = (None, ["fused"], ["fused_uvm"], ["fused_uvm_caching"])
OPTIMIZERS = (torch.optim.SGD, RowWiseAdagrad, torch.optim.Adagrad, torch.optim.Adam)


def topology(hbm_gib: float = 40) -> Topology:
    return Topology(world_size=WORLD, local_world_size=2, compute_device="cuda", hbm_cap=int(hbm_gib * GIB))


def random_module(seed: int, most_features: int = 3) -> tuple[nn.Module, dict[str, ParameterConstraints]]:
    """Bags, weighted bags and sequences of 4 to 12 tables, of either format, each under an optimizer of its own; what
    constraints say of reads, ways, kernels and outputs, every fourth time with batches of their own. Rows divide among
    the ranks."""
    draw = np.random.default_rng(seed)
    parts, constraints, varies = {}, {}, seed % 4 == 3
    for kind in ("bags", "weighted", "sequences"):
        configs = []
        for number in range(draw.integers(4, 13)):
            name = f"{kind}_{number}"
            features = [f"{name}_{i}" for i in range(draw.integers(1, most_features + 1))]
            form = EmbeddingConfig if kind == "sequences" else EmbeddingBagConfig
            columns = 64 if kind == "sequences" else int(4 * draw.integers(4, 65))
            config = form(
                name=name,
                num_embeddings=WORLD * int(10 ** draw.uniform(1, 5.5)),
                embedding_dim=columns,
                feature_names=features,
                data_type=DataType.FP16 if draw.random() < 0.3 else DataType.FP32,
            )
            configs.append(config)
            free = (WAYS[:4] if kind == "sequences" else WAYS)[varies:]
            ways = draw.choice(free, draw.integers(1, len(free)), replace=False).tolist()
            kernels = KERNELS[draw.integers(4)] if set(ways) != {"data_parallel"} else None
            told = {"sharding_types": ways, "compute_kernels": kernels} if draw.random() < 0.7 else {}
            if draw.random() < 0.3:
                told["output_dtype"] = DataType.FP16 if draw.random() < 0.5 else DataType.FP32
            if draw.random() < 0.3:
                told["cache_params"] = CacheParams(load_factor=float(draw.uniform(0.05, 0.6)))
            if varies:
                told["num_poolings"] = draw.integers(1, 4, len(features)).astype(float).tolist()
                told["batch_sizes"] = draw.integers(64, 600, len(features)).tolist()
            pooling = [float(np.exp(draw.uniform(np.log(0.3), np.log(60)))) for _ in features]
            constraints[name] = ParameterConstraints(pooling_factors=pooling, **told)
        if kind == "sequences":
            parts[kind] = EmbeddingCollection(tables=configs, device=META)
        else:
            parts[kind] = EmbeddingBagCollection(tables=configs, device=META, is_weighted=kind == "weighted")
        for parameter in parts[kind].parameters():
            apply_optimizer_in_backward(OPTIMIZERS[draw.integers(4)], [parameter], {"lr": 0.1})
    return nn.ModuleDict(parts), constraints


def counted(planner: ShardPlanner) -> dict[str, np.ndarray]:
    """[W] bytes of each memory by TorchRec's estimator, of the options of the last plan; and [W] shards."""
    found = {memory: np.zeros(WORLD) for memory in ("hbm", "ddr", "shards")}
    for option in planner.get_selected_options():
        for shard in option.shards:
            for memory in ("hbm", "ddr"):
                found[memory][shard.rank] += getattr(shard.storage, memory)
            found["shards"][shard.rank] += 1
    return found


def of_document(planner: ShardPlanner) -> dict[str, np.ndarray]:
    assert verify(planner.document) == []
    return {
        memory: np.array([getattr(rank.bytes, memory) for rank in planner.document.ranks]) for memory in ("hbm", "ddr")
    }


def expect_no_less(planner: ShardPlanner) -> None:
    """Every rank takes in each memory what TorchRec's estimator counts, or more of HBM."""
    theirs, ours = counted(planner), of_document(planner)
    rounding = ROUNDING * theirs["shards"]
    assert (ours["hbm"] >= theirs["hbm"] - rounding).all()
    assert (abs(ours["ddr"] - theirs["ddr"]) <= rounding).all()


@pytest.mark.parametrize("seed", range(12))
def test_torchrecs_count_is_never_undercut(seed: int) -> None:
    """By its cost model: bags, weighted bags and sequences; more is counted only where features of one table are read
    unequally, of which its profile has the mean."""
    module, constraints = random_module(seed)
    planner = ShardPlanner(topology(), 512, constraints=constraints, cost_model="torchrec", stats=[], effort=0)
    planner.plan(module)
    expect_no_less(planner)


@pytest.mark.parametrize("seed", range(8))
def test_tables_of_one_feature_are_counted_to_the_byte(seed: int) -> None:
    """What TorchRec's estimator counts, but for its rounding, of tables that are not cut by columns: those of one rank
    are joined for TorchRec, and we count the ids of each block."""
    module, constraints = random_module(seed, most_features=1)
    for name, told in constraints.items():
        uncut = [way for way in told.sharding_types or () if "column" not in way and way != "grid_shard"]
        kernels = None if uncut == ["data_parallel"] else told.compute_kernels
        constraints[name] = replace(told, sharding_types=uncut or ["table_wise"], compute_kernels=kernels)
    planner = ShardPlanner(topology(), 512, constraints=constraints, cost_model="torchrec", stats=[], effort=0)
    planner.plan(module)
    theirs, ours = counted(planner), of_document(planner)
    for memory in ("hbm", "ddr"):
        assert (abs(ours[memory] - theirs[memory]) <= ROUNDING * theirs["shards"]).all()


@pytest.mark.parametrize("seed", range(8))
def test_our_own_count_is_no_less(seed: int) -> None:
    """By the cost model that is the default, which counts what a rank takes at its peak: outputs, gradients and ids of
    the batches in flight."""
    module, constraints = random_module(seed)
    planner = ShardPlanner(topology(), 512, constraints=constraints, stats=[], effort=0)
    planner.plan(module)
    theirs, ours = counted(planner), of_document(planner)
    for memory in ("hbm", "ddr"):
        assert (ours[memory] >= theirs[memory] - ROUNDING * theirs["shards"]).all()


def test_a_plan_by_torchrecs_count_alone_has_its_memory(caplog: pytest.LogCaptureFixture) -> None:
    """Where nothing fits by our own count, and a plan is made by TorchRec's."""
    configs = [
        EmbeddingBagConfig(num_embeddings=100, embedding_dim=64, name=name, feature_names=[name]) for name in "abcd"
    ]
    module = nn.ModuleDict({"bags": EmbeddingBagCollection(tables=configs, device=META)})
    planner = ShardPlanner(topology(hbm_gib=2 / 1024), 512, stats=[])
    with caplog.at_level("WARNING", "planner"):
        planner.plan(module)
    assert "the plan fits by TorchRec's count of memory and rating alone" in caplog.text
    expect_no_less(planner)


def test_a_pipeline_that_is_stated_is_counted() -> None:
    """Twice the ids of a batch and no outputs, as TorchRec's estimator counts for a sparse pipeline."""
    module, constraints = random_module(0)
    stated = {"name": "w", "batch_per_rank": 512, "tables": [{"name": "any", "rows": 4, "dim": 4, "pooling_factor": 1}]}
    workload = Workload.model_validate(stated | {"pipeline": "sparse-dist"})
    planner = ShardPlanner(
        topology(), 512, constraints=constraints, cost_model="torchrec", workload=workload, stats=[], effort=0
    )
    planner.plan(module)
    assert planner.document.provenance.workload.content.get("pipeline", "sparse-dist") == "sparse-dist"
    assert (of_document(planner)["hbm"] < counted(planner)["hbm"]).any()
