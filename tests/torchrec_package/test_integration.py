"""Plans as TorchRec's own objects."""

import dataclasses
import json
import pickle

import pytest
import torch
from fbgemm_gpu.tbe.cache.cache_config import MultiPassPrefetchConfig
from torchrec import EmbeddingBagCollection, EmbeddingCollection
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner import types as planner_types
from torchrec.distributed.planner.types import ParameterConstraints
from torchrec.distributed.types import (
    BoundsCheckMode,
    CacheAlgorithm,
    CacheParams,
    CacheStatistics,
    KeyValueParams,
    ShardingPlan,
)
from torchrec.modules.embedding_configs import DataType, EmbeddingBagConfig, EmbeddingConfig

from benchmarks.gloo.model import Tables
from cost_models.shards import USUAL_SHARDINGS
from cost_models.workload.models import Workload
from planner.document.plan import Plan
from planner.exporters.torchrec import torchrec_constraints, torchrec_plan
from planner.formulation.policy import Policy
from planner.importers.adoption import AdoptionInputs, adopted
from planner.importers.torchrec import parameters_of, torchrec_tables, unpickled, with_settings
from planner.integrations.torchrec import to_constraints, to_sharding_plan
from planner.planning.planning import plan
from planner.verification.verify import verify
from topologies.cluster import Topology
from topologies.errors import InputError
from topologies.loading import load_topology


def cluster(nodes: int, each: int) -> Topology:
    overrides = [f"nodes.0.accelerators.count={each}", f"nodes.0.links.scale_out.count={each}"]
    overrides += ["nodes.0.links.pcie.accelerators_per_switch=1"]
    return load_topology("dgx-a100-80", nodes=nodes, overrides=overrides)


def all_ways(nodes: int = 1, each: int = 2, tiers: tuple[str, ...] = ("hbm",)) -> tuple[Plan, Workload]:
    """One table for each of the seven shardings, with rows that do not divide evenly, and two that are free."""
    tables = [
        {"name": f"t_{sharding}", "rows": 37 + i, "dim": 32, "pooling_factor": 2}
        for i, sharding in enumerate(USUAL_SHARDINGS)
    ]
    tables += [{"name": f"free_{i}", "rows": 101, "dim": 16, "pooling_factor": 5} for i in range(2)]
    workload = Workload.model_validate({"name": "small", "global_batch": 64, "tables": tables})
    rules = [{"match": f"t_{sharding}", "shardings": [sharding]} for sharding in USUAL_SHARDINGS]
    policy = Policy.model_validate({"runtime": "torchrec", "tiers": list(tiers), "tables": rules})
    found = plan(cluster(nodes, each), workload, policy=policy, effort=0, simulate=False)
    if each * nodes > 1 and nodes > 1:
        assert {table.sharding for table in found.tables} >= set(USUAL_SHARDINGS)
    return found, workload


def test_the_objects_say_what_the_plan_says():
    """Types, kernels, ranks, shards, placements and caches of every table."""
    found, workload = all_ways(2, 2, ("ddr_cached", "hbm"))
    sharding_plan = to_sharding_plan(found, Tables(workload, "meta"), compute_device="cuda")
    assert isinstance(sharding_plan, ShardingPlan)
    written = torchrec_plan(found, modules=["tables"])["plan"]
    for name, entry in sharding_plan._serialize()["plan"]["tables"].items():
        for key, value in entry.items():
            ours = written["tables"][name].get(key)
            if key == "shards":
                value = [shard | {"placement": shard["placement"]} for shard in value]
            assert value == ours, (name, key)
    for table in found.tables:
        held = sharding_plan.plan["tables"][table.name]
        assert held.ranks == table.shards.rank.tolist()
        assert (held.cache_params is None) == (table.cache_fraction is None)
        if table.cache_fraction is not None:
            assert held.cache_params.load_factor == table.cache_fraction
            assert held.compute_kernel == "fused_uvm_caching"


def test_what_does_not_fit_the_module_is_named_all_at_once():
    """Other rows, another type, a table too many and one too few."""
    found, workload = all_ways()
    tables = [t.model_copy(update={"rows": 9}) if t.name == "free_0" else t for t in workload.tables[:-1]]
    module = Tables(workload.model_copy(update={"tables": tuple(tables)}), "meta")
    more = EmbeddingBagConfig(
        num_embeddings=9, embedding_dim=8, name="more", feature_names=["x"], data_type=DataType.FP16
    )
    module.more = EmbeddingBagCollection(device=torch.device("meta"), tables=[more])
    with pytest.raises(InputError) as error:
        to_sharding_plan(found, module)
    said = str(error.value)
    assert "tables.free_0: num_embeddings is 9 in the module and 101 in the plan" in said
    assert "more.more: the module has this table, and the plan has no entry" in said
    assert "free_1: the plan has this table, and the module none" in said
    assert len(error.value.faults) == 3


def test_tables_of_one_name_are_told_apart_by_their_module():
    """Two collections with a table `t`: the plan calls them `path.t`."""
    tables = [{"name": f"{path}.t", "rows": 50, "dim": 16, "pooling_factor": 1} for path in ("a", "b.c")]
    tables[1]["pooled"] = False
    workload = Workload.model_validate({"name": "two", "global_batch": 8, "tables": tables})
    policy = Policy(runtime="torchrec", shardings=("table_wise", "row_wise"))
    found = plan(cluster(1, 2), workload, policy=policy, effort=0, simulate=False)
    module = torch.nn.ModuleDict({"a": None, "b": torch.nn.ModuleDict()})
    of = {"num_embeddings": 50, "embedding_dim": 16, "name": "t", "feature_names": ["f"]}
    module["a"] = EmbeddingBagCollection(device=torch.device("meta"), tables=[EmbeddingBagConfig(**of)])
    module["b"]["c"] = EmbeddingCollection(device=torch.device("meta"), tables=[EmbeddingConfig(**of)])
    for source in (found, torchrec_plan(found, modules=["a.*=a", "b.*=b.c"])):
        objects = to_sharding_plan(source, module).plan
        assert {path: list(of_module) for path, of_module in objects.items()} == {"a": ["t"], "b.c": ["t"]}
        for path, of_module in objects.items():
            shards = next(table for table in found.tables if table.name == f"{path}.t").shards
            assert of_module["t"].ranks == shards.rank.tolist()


def test_constraints_are_those_of_the_package():
    """TorchRec's own planner takes them, and holds every table in the way, kernel and cache that ours chose."""
    found, workload = all_ways(2, 2, ("ddr_cached", "hbm"))
    constraints = to_constraints(torchrec_constraints(found))
    assert list(constraints) == [table.name for table in workload.tables]
    for table in found.tables:
        held = constraints[table.name]
        assert isinstance(held, ParameterConstraints)
        assert held.sharding_types == [table.sharding]
    topology = planner_types.Topology(world_size=4, local_world_size=2, compute_device="cuda", hbm_cap=80 * 10**9)
    theirs = EmbeddingShardingPlanner(topology=topology, constraints=constraints).plan(
        Tables(workload, "meta"), [EmbeddingBagCollectionSharder()]
    )
    for table in found.tables:
        held = theirs.plan["tables"][table.name]
        assert held.sharding_type == table.sharding
        cached = {"ddr_cached": "fused_uvm_caching", "hbm": "dense" if table.sharding == "data_parallel" else "fused"}
        assert held.compute_kernel == cached[table.tier]
        if table.cache_fraction is not None:
            assert held.cache_params.load_factor == table.cache_fraction


@pytest.mark.parametrize("pickled", [False, True])
def test_a_plan_of_torchrecs_planner_comes_in(pickled, tmp_path):
    """Made by its default planner for 16 ranks, serialised or pickled: it verifies, and ours is not slower."""
    tables = [{"name": f"t{i}", "rows": 10 ** (3 + i % 5), "dim": 64, "pooling_factor": 1 + i} for i in range(10)]
    workload = Workload.model_validate({"name": "w", "global_batch": 16 * 512, "tables": tables})
    cluster_of_16 = load_topology("dgx-a100-80", nodes=2)
    topology = planner_types.Topology(world_size=16, local_world_size=8, compute_device="cuda", hbm_cap=80 * 10**9)
    theirs = EmbeddingShardingPlanner(topology=topology).plan(
        Tables(workload, "meta"), [EmbeddingBagCollectionSharder()]
    )
    file = tmp_path / "plan"
    if pickled:
        file.write_bytes(pickle.dumps(theirs))
        document = unpickled(file)
    else:
        document = json.loads(json.dumps(theirs._serialize()))
    told = AdoptionInputs(cluster_of_16, workload, "physical", Policy(runtime="torchrec"))
    found = adopted(torchrec_tables(parameters_of(document, "theirs"), told, "theirs"), told, "torchrec", "theirs")
    assert verify(found) == []
    ours = plan(cluster_of_16, workload, policy=told.policy, effort=0, simulate=False)
    assert ours.objective.step_s <= found.objective.step_s
    assert found.objective.gap >= ours.objective.gap - 1e-9
    again = to_sharding_plan(torchrec_plan(found, modules=["tables"]), Tables(workload, "meta"))
    assert again._serialize() == theirs._serialize()


SETTINGS = {
    "enforce_hbm": False,
    "stochastic_rounding": True,
    "bounds_check_mode": BoundsCheckMode.V2_FATAL,
    "output_dtype": DataType.BF16,
    "cache_params": CacheParams(
        algorithm=CacheAlgorithm.LFU,
        load_factor=0.125,
        reserved_memory=1e6,
        precision=DataType.FP16,
        prefetch_pipeline=False,
        multipass_prefetch_config=MultiPassPrefetchConfig(num_passes=3, min_splitable_pass_size=1000),
    ),
    "key_value_params": KeyValueParams(
        ssd_storage_directory="/ssd",
        ssd_rocksdb_write_buffer_size=1,
        ssd_rocksdb_shards=2,
        gather_ssd_cache_stats=True,
        use_passed_in_path=False,
        l2_cache_size=3,
        max_l1_cache_size=4,
        enable_async_update=True,
        bulk_init_chunk_size=5,
        lazy_bulk_init_enabled=True,
        enable_raw_embedding_streaming=False,
        res_store_shards=6,
        load_ckpt_without_opt=True,
        ps_hosts=(("::1", 2000), ("::1", 2001)),
        ps_client_thread_num=7,
        ps_max_key_per_request=8,
        ps_max_local_index_length=9,
    ),
}


def test_every_field_of_a_plan_comes_in_and_goes_out(tmp_path):
    """Settings of kernels of tables in HBM, cached and in DDR: a pickled plan, brought in and exported, is the same."""
    workload = all_ways(2, 2)[1]
    rules = [{"match": "free_0", "tiers": ["ddr"]}, {"match": "t_row_wise", "tiers": ["ddr_cached"]}]
    rules += [{"match": f"t_{sharding}", "shardings": [sharding]} for sharding in USUAL_SHARDINGS]
    policy = Policy.model_validate({"runtime": "torchrec", "tables": rules})
    found = plan(cluster(2, 2), workload, policy=policy, effort=0, simulate=False)
    module = Tables(workload, "meta")
    theirs = to_sharding_plan(found, module, compute_device="cuda")
    for name in ("free_0", "t_row_wise", "t_table_wise", "t_data_parallel"):
        held = theirs.plan["tables"][name]
        for key, value in SETTINGS.items():
            setattr(held, key, value)
    theirs.plan["tables"]["t_column_wise"].compute_kernel = "fused_triton"
    file = tmp_path / "plan.pkl"
    file.write_bytes(pickle.dumps(theirs))
    parameters = parameters_of(unpickled(file), "theirs")
    told = with_settings(
        parameters, AdoptionInputs(cluster(2, 2), workload, "physical", Policy(runtime="torchrec")), "theirs"
    )
    again = adopted(torchrec_tables(parameters, told, "theirs"), told, "torchrec", "theirs")
    for source in (again, json.loads(json.dumps(torchrec_plan(again, modules=["tables"])))):
        back = to_sharding_plan(source, module, compute_device="cuda")
        assert back.plan["tables"].keys() == theirs.plan["tables"].keys()
        for name, held in theirs.plan["tables"].items():
            own = back.plan["tables"][name]
            for field in dataclasses.fields(held):
                assert getattr(own, field.name) == getattr(held, field.name), (name, field.name)
    constraints = to_constraints(again)
    for key, value in SETTINGS.items():
        assert getattr(constraints["free_0"], key) == value
        assert getattr(constraints["free_1"], key) is None


def test_settings_that_no_document_holds_are_named(tmp_path):
    """Statistics of a cache are an object of TorchRec's and no data."""
    found, workload = all_ways()
    theirs = to_sharding_plan(found, Tables(workload, "meta"), compute_device="cuda")
    theirs.plan["tables"]["free_0"].cache_params = CacheParams(stats=Statistics())
    file = tmp_path / "plan.pkl"
    file.write_bytes(pickle.dumps(theirs))
    with pytest.raises(InputError, match=r"free_0: cache_params.stats: is Statistics, which no plan document holds"):
        unpickled(file)


class Statistics(CacheStatistics):
    """Of nothing."""

    @property
    def expected_lookups(self) -> float:
        """None."""
        return 0.0

    def expected_miss_rate(self, clf: float) -> float:  # noqa: ARG002
        """None."""
        return 0.0

    @property
    def cacheability(self) -> float:
        """None."""
        return 0.0
