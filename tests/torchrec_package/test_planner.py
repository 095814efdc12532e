"""Our planner where TorchRec's stands."""

from typing import Any

import pytest
import torch
from torchrec import EmbeddingBagCollection, EmbeddingCollection
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.embedding_tower_sharding import EmbeddingTowerSharder
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import ParameterConstraints, Topology
from torchrec.distributed.types import ShardingPlan
from torchrec.modules.embedding_configs import DataType, EmbeddingBagConfig, EmbeddingConfig
from torchrec.modules.embedding_tower import EmbeddingTower
from torchrec.modules.feature_processor_ import PositionWeightedModuleCollection
from torchrec.modules.fp_embedding_modules import FeatureProcessedEmbeddingBagCollection

from benchmarks.gloo.processes import Processes
from planner.exporters.inputs import write_inputs
from planner.formulation.policy import load_policy
from planner.integrations.torchrec_planner import ShardPlanner
from planner.planning.planning import plan
from planner.verification.verify import verify
from topologies.errors import InputError

SHARDERS = [EmbeddingBagCollectionSharder(), EmbeddingCollectionSharder()]
CLUSTER = Topology(world_size=16, local_world_size=8, compute_device="cuda", hbm_cap=80 * 10**9)


def module() -> torch.nn.Module:
    """Bags, weighted bags and sequences, with a table `t0` in two of them."""

    def of(kind, number, **more):
        return kind(num_embeddings=10**6, embedding_dim=64, name=f"t{number}", feature_names=[f"f{number}"], **more)

    bag, sequence, meta = EmbeddingBagConfig, EmbeddingConfig, torch.device("meta")
    return torch.nn.ModuleDict(
        {
            "bags": EmbeddingBagCollection(tables=[of(bag, i) for i in range(4)], device=meta),
            "weighted": EmbeddingBagCollection(
                tables=[of(bag, 4, data_type=DataType.FP16)], is_weighted=True, device=meta
            ),
            "sequences": EmbeddingCollection(tables=[of(sequence, 0), of(sequence, 5)], device=meta),
        }
    )


def test_every_table_of_a_module_is_planned():
    """Bags, weights, sequences and equal names, on a Topology of TorchRec's; the document verifies."""
    planner = ShardPlanner(CLUSTER, batch_size=1024)
    found = planner.plan(module(), SHARDERS)
    assert isinstance(found, ShardingPlan)
    assert {path: list(tables) for path, tables in found.plan.items()} == {
        "bags": ["t0", "t1", "t2", "t3"],
        "weighted": ["t4"],
        "sequences": ["t0", "t5"],
    }
    assert verify(planner.document) == []
    tables = {t["name"]: t for t in planner.document.provenance.workload.content["tables"]}
    assert tables["weighted.t4" if "weighted.t4" in tables else "t4"]["weighted"]
    assert not tables["sequences.t0"]["pooled"]
    types = EmbeddingCollectionSharder().sharding_types("cuda")
    assert all(sharding.sharding_type in types for sharding in found.plan["sequences"].values())


def test_inputs_of_a_trainer_plan_the_same_without_it(tmp_path):
    """The files that its document is exported to give the same tables."""
    planner = ShardPlanner(CLUSTER, batch_size=1024, constraints={"t1": ParameterConstraints(pooling_factors=[30.0])})
    planner.plan(module(), SHARDERS)
    write_inputs(planner.document, tmp_path)
    policy = load_policy(tmp_path / "policy.yaml")
    again = plan(tmp_path / "topology.yaml", tmp_path / "workload.yaml", policy=policy, effort=1)
    assert again.tables == planner.document.tables
    assert again.objective == planner.document.objective


def test_constraints_are_kept():
    """Shardings, kernels, widths and pooling factors by table."""
    constraints = {
        "t1": ParameterConstraints(sharding_types=["row_wise"], pooling_factors=[30.0]),
        "t2": ParameterConstraints(sharding_types=["column_wise"], min_partition=32),
        "t3": ParameterConstraints(compute_kernels=["fused_uvm_caching"]),
    }
    planner = ShardPlanner(CLUSTER, constraints=constraints)
    found = planner.plan(module(), SHARDERS).plan["bags"]
    assert found["t1"].sharding_type == "row_wise"
    assert [shard.shard_sizes[1] for shard in found["t2"].sharding_spec.shards] == [32, 32]
    assert found["t3"].compute_kernel == "fused_uvm_caching"
    tables = {t["name"]: t for t in planner.document.provenance.workload.content["tables"]}
    assert tables["t1"]["pooling_factor"] == 30.0
    with pytest.raises(InputError, match="t1: has constraints that leave no sharding"):
        ShardPlanner(CLUSTER, constraints={"t1": ParameterConstraints(sharding_types=["none"])}).plan(
            module(), SHARDERS
        )


def bags(*names: str) -> list[EmbeddingBagConfig]:
    return [EmbeddingBagConfig(num_embeddings=10**6, embedding_dim=64, name=n, feature_names=[f"f_{n}"]) for n in names]


def test_without_sharders_those_of_torchrec_hold():
    """As in DistributedModelParallel: sequences have no grids, and tables of managed collisions are row_wise."""
    model = module()
    found = ShardPlanner(CLUSTER).plan(model).plan
    assert list(found) == ["bags", "weighted", "sequences"]


def test_modules_without_a_sharder_stay_whole_and_are_named(caplog):
    """As in TorchRec's planner, which says nothing of them."""
    with caplog.at_level("WARNING", "planner"):
        found = ShardPlanner(CLUSTER).plan(module(), SHARDERS[:1]).plan
    assert list(found) == ["bags", "weighted"]
    assert "no sharder shards the tables of sequences: they stay whole on every rank" in caplog.text


def test_feature_processors_are_cut_by_rows_only_where_constraints_say_so():
    """Like TorchRec's planner, which calls that path not well tested."""
    inner = EmbeddingBagCollection(device=torch.device("meta"), tables=bags("a", "b"), is_weighted=True)
    positions = PositionWeightedModuleCollection({"f_a": 3, "f_b": 3}, device=torch.device("meta"))
    model = torch.nn.ModuleDict({"fp": FeatureProcessedEmbeddingBagCollection(inner, positions)})
    constraints = {
        name: ParameterConstraints(sharding_types=["row_wise", "table_row_wise"], pooling_factors=[20.0])
        for name in "ab"
    }
    planner = ShardPlanner(CLUSTER, constraints={"a": constraints["a"]})
    found = planner.plan(model).plan["fp"]
    assert found["a"].sharding_type in ("row_wise", "table_row_wise")
    of_b = next(rule for rule in planner.document.provenance.policy.tables if "b" in rule.match)
    assert not {"row_wise", "table_row_wise", "grid_shard"} & set(of_b.shardings)
    assert found["b"].sharding_type in of_b.shardings


def test_a_tower_without_its_sharder_is_planned_by_what_is_in_it():
    """Its tables need not share a host then."""
    inner = EmbeddingBagCollection(device=torch.device("meta"), tables=bags("a"))
    model = torch.nn.ModuleDict({"tower": EmbeddingTower(inner, torch.nn.Linear(64, 8))})
    assert list(ShardPlanner(CLUSTER).plan(model, SHARDERS).plan) == ["tower.embedding"]
    assert list(ShardPlanner(CLUSTER).plan(model, [*SHARDERS, EmbeddingTowerSharder()]).plan) == ["tower"]


def _collective() -> dict[str, Any]:
    cluster = Topology(world_size=2, compute_device="cpu")
    found = ShardPlanner(cluster).collective_plan(module(), SHARDERS, torch.distributed.group.WORLD)
    bad = ShardPlanner(cluster, constraints={"t1": ParameterConstraints(sharding_types=["none"])})
    with pytest.raises(InputError, match="leave no sharding"):
        bad.collective_plan(module(), SHARDERS)
    return found._serialize()


def test_all_ranks_get_one_plan_and_one_error(two_ranks: Processes) -> None:
    """Rank 0 plans; what it raises is raised everywhere, so that nobody waits for ever."""
    first, second = two_ranks.run(_collective)
    assert first == second
    shards = first["plan"]["bags"]["t1"].get("shards", [])
    assert all(shard["placement"].endswith("/cpu") for shard in shards)


def test_processes_on_cpus_hold_tables_in_their_share_of_host_memory():
    """A table over all of their DDR fits, as in TorchRec's planner; HBM there is none."""
    gib = 2**30
    big = EmbeddingBagConfig(num_embeddings=10**8, embedding_dim=128, name="big", feature_names=["f"])
    model = torch.nn.ModuleDict({"a": EmbeddingBagCollection(tables=[big], device=torch.device("meta"))})
    cluster = Topology(world_size=2, compute_device="cpu", ddr_cap=40 * gib)
    planner = ShardPlanner(cluster)
    found = planner.plan(model, SHARDERS).plan["a"]["big"]
    assert all(shard.placement.device() == torch.device("cpu") for shard in found.sharding_spec.shards)
    assert {rank.capacity.hbm for rank in planner.document.ranks} <= {int(40 * gib * 0.85)}
    with pytest.raises(InputError, match="no plan"):
        ShardPlanner(Topology(world_size=2, compute_device="cpu", ddr_cap=10 * gib)).plan(model, SHARDERS)
