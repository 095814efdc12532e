"""Every field of ParameterConstraints is carried into the plan, counted, or refused by its name."""

import dataclasses
import random
from typing import Any

import pytest
import torch
from fbgemm_gpu.tbe.cache.cache_config import MultiPassPrefetchConfig
from torchrec import EmbeddingBagCollection
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import ParameterConstraints, Topology
from torchrec.distributed.types import BoundsCheckMode, CacheAlgorithm, CacheParams, KeyValueParams, ParameterSharding
from torchrec.modules.embedding_configs import DataType, EmbeddingBagConfig
from torchrec.modules.embedding_tower import EmbeddingTower

from cost_models.workload.table_profile import TableProfile
from planner.document.planned import planned_inputs
from planner.integrations.torchrec_planner import ShardPlanner
from topologies.errors import InputError

BATCH = 256
SHARDERS = [EmbeddingBagCollectionSharder()]
CLUSTER = Topology(world_size=4, local_world_size=2, compute_device="cuda", hbm_cap=2**32)
FEATURES = {"a": 1, "b": 2, "c": 3, "d": 1}
DIM = 64
CARRIED = ("enforce_hbm", "stochastic_rounding", "bounds_check_mode", "output_dtype", "key_value_params")
Found = tuple[dict[str, ParameterSharding], dict[str, TableProfile]]


def bags() -> torch.nn.Module:
    """Tables of one, two and three features."""
    tables = [
        EmbeddingBagConfig(
            num_embeddings=2000 * (i + 1),
            embedding_dim=DIM,
            name=name,
            feature_names=[f"{name}{j}" for j in range(count)],
        )
        for i, (name, count) in enumerate(FEATURES.items())
    ]
    return torch.nn.ModuleDict({"bags": EmbeddingBagCollection(tables=tables, device=torch.device("meta"))})


def planned(constraints: dict[str, ParameterConstraints]) -> Found:
    """The plan, and the profiles of the tables."""
    planner = ShardPlanner(CLUSTER, batch_size=BATCH, constraints=constraints, effort=0)
    found = planner.plan(bags(), SHARDERS).plan["bags"]
    return found, {table.name: table for table in planned_inputs(planner.document)[1].tables}


def refused(constraints: dict[str, ParameterConstraints]) -> str:
    with pytest.raises(InputError) as error:
        planned(constraints)
    return str(error.value)


CACHE = CacheParams(
    algorithm=CacheAlgorithm.LFU,
    load_factor=0.25,
    reserved_memory=1e6,
    precision=DataType.FP16,
    prefetch_pipeline=True,
    multipass_prefetch_config=MultiPassPrefetchConfig(num_passes=3, min_splitable_pass_size=1000),
)
STORE = KeyValueParams(
    ssd_storage_directory="/data@local_rank",
    ssd_rocksdb_shards=4,
    gather_ssd_cache_stats=True,
    use_passed_in_path=False,
    l2_cache_size=2,
    bulk_init_chunk_size=1000,
    ps_hosts=(("::1", 2000), ("::1", 2001)),
)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("enforce_hbm", True),
        ("enforce_hbm", False),
        ("stochastic_rounding", False),
        ("stochastic_rounding", True),
        ("bounds_check_mode", BoundsCheckMode.V2_WARNING),
        ("bounds_check_mode", BoundsCheckMode.NONE),
        ("output_dtype", DataType.BF16),
        ("output_dtype", DataType.FP16),
        ("key_value_params", STORE),
    ],
)
def test_what_kernels_are_told_is_in_the_plan(field: str, value: object) -> None:
    """With the value that the constraints have, of their table and of no other."""
    found, _ = planned({"b": ParameterConstraints(**{field: value})})
    assert getattr(found["b"], field) == value
    assert all(getattr(found[name], field) is None for name in "acd")


def test_parameters_of_a_cache_are_in_the_plan() -> None:
    """All of them, whether the plan caches the table or not; load factors as stated."""
    caching = ParameterConstraints(compute_kernels=["fused_uvm_caching"], cache_params=CACHE)
    found, _ = planned({"a": caching, "b": ParameterConstraints(compute_kernels=["fused"], cache_params=CACHE)})
    assert found["a"].cache_params == found["b"].cache_params == CACHE
    assert found["c"].cache_params is None


def test_numbers_are_counted() -> None:
    """Ids and vectors of all features of a table, each by its own poolings and batch."""
    _, tables = planned(
        {
            "a": ParameterConstraints(pooling_factors=[7.0], is_weighted=True),
            "b": ParameterConstraints(pooling_factors=[2.0, 3.0], num_poolings=[4.0, 1.0]),
            "c": ParameterConstraints(pooling_factors=[1.0, 1.0, 8.0], batch_sizes=[BATCH, BATCH // 2, BATCH * 2]),
        }
    )
    assert (tables["a"].pooling_factor, tables["a"].weighted) == (7.0, True)
    assert (tables["b"].pooling_factor, tables["b"].poolings) == (2 * 4 + 3, 2.5)
    assert (tables["c"].pooling_factor, tables["c"].poolings) == (1 + 0.5 + 16, pytest.approx(3.5 / 3))
    assert (tables["d"].pooling_factor, tables["d"].poolings, tables["d"].weighted) == (1.0, 1.0, False)


@pytest.mark.parametrize("field", ["pooling_factors", "num_poolings", "batch_sizes"])
def test_counts_are_one_for_each_feature(field: str) -> None:
    """Two numbers for three features are an error that names the table, the key and the features; and a 0 is one."""
    said = refused({"c": ParameterConstraints(**{field: [2, 3]}), "a": ParameterConstraints(**{field: [0]})})
    assert f"c: {field}: has 2 numbers for 3 features (c0, c1, c2); give one for each" in said
    assert f"a: {field}: is [0]; every number must be above 0" in said


def test_constraints_of_unknown_tables_are_errors() -> None:
    """With the nearest name; those of tables that no sharder shards are known."""
    said = refused({"aa": ParameterConstraints(), "bags.b": ParameterConstraints()})
    assert "aa: has constraints, and the module has no such table; did you mean 'a'?" in said
    assert "bags.b: has constraints, and the module has no such table" in said
    model = bags()
    lone = EmbeddingBagConfig(num_embeddings=10, embedding_dim=8, name="lone", feature_names=["f"])
    model["tower"] = EmbeddingTower(EmbeddingBagCollection(tables=[lone]), torch.nn.Linear(8, 8))

    class First(EmbeddingBagCollectionSharder):
        def shardable_parameters(self, module: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
            found = super().shardable_parameters(module)
            return {} if "lone" in found else found

    planner = ShardPlanner(CLUSTER, constraints={"lone": ParameterConstraints(pooling_factors=[3.0])})
    assert list(planner.plan(model, [First()]).plan) == ["bags"]


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"device_group": "cpu"}, "device_group: is 'cpu', and this plan is for cuda"),
        ({"use_virtual_table": True}, "use_virtual_table: is set: ShardPlanner has no plans for virtual tables"),
        ({"feature_names": ["a0", "other"]}, "feature_names: are a0, other, and the table's are a0"),
        ({"min_partition": 0}, "min_partition: is 0; it must be at least 1"),
        ({"sharding_types": ["row_wide"]}, "'row_wide' is none; did you mean 'row_wise'?"),
        ({"compute_kernels": ["key_value"]}, "leave no kernel of key_value"),
        ({"cache_params": CacheParams(load_factor=2.0)}, "has the cache load factor 2"),
    ],
)
def test_what_no_plan_keeps_is_named(told: dict[str, Any], words: str) -> None:
    """The table, the field, and why."""
    said = refused({"a": ParameterConstraints(**told)})
    assert said.startswith("a: ")
    assert words in said


def test_fields_of_newer_releases_are_named() -> None:
    """One that says something and that nothing here knows."""
    newer = dataclasses.make_dataclass("Newer", [("colour", str, "none")], bases=(ParameterConstraints,))
    assert "a: colour: is a constraint that ShardPlanner does not know; leave it out" in refused(
        {"a": newer(colour="red")}
    )
    assert planned({"a": newer()})


def test_blocks_have_the_columns_that_are_asked_for() -> None:
    """`min_partition`, also where it divides no table: the next width that does, as in TorchRec."""
    for least, width in ((20, 32), (16, 16), (64, 64), (100, 64)):
        constraint = ParameterConstraints(sharding_types=["column_wise"], min_partition=least, pooling_factors=[90.0])
        found, _ = planned({"d": constraint})
        widths = {shard.shard_sizes[1] for shard in found["d"].sharding_spec.shards}
        assert all(each % width == 0 for each in widths)


def test_variable_batches_and_replicas_do_not_meet() -> None:
    """No table of a module is replicated where a feature of it has a batch of its own: TorchRec crashes there."""
    only = ParameterConstraints(sharding_types=["data_parallel"])
    same, varying = (ParameterConstraints(batch_sizes=[size]) for size in (BATCH, BATCH // 2))
    assert planned({"a": only, "d": same})[0]["a"].sharding_type == "data_parallel"
    both = {name: ParameterConstraints(sharding_types=["data_parallel", "table_wise"]) for name in "abc"}
    found, _ = planned(both | {"d": varying})
    assert "data_parallel" not in {held.sharding_type for held in found.values()}
    said = refused({"a": only, "d": varying})
    assert "a: has constraints that leave no sharding: data_parallel does not run where features of the module" in said


WAYS = ("data_parallel", "table_wise", "column_wise", "row_wise", "table_row_wise", "table_column_wise", "grid_shard")
KERNELS = ("dense", "fused", "fused_uvm", "fused_uvm_caching")


def drawn(draw: random.Random, features: int) -> dict[str, Any]:
    """Fields of one table's constraints; one in twelve has a fault."""

    def some(values: tuple[str, ...]) -> list[str]:
        return draw.sample(values, draw.randint(1, 3))

    def cache() -> CacheParams:
        return CacheParams(
            algorithm=draw.choice([None, *CacheAlgorithm]),
            load_factor=draw.choice([None, 0.05, 0.3, 1.0]),
            reserved_memory=draw.choice([None, 2.0**20]),
            precision=draw.choice([None, DataType.FP32, DataType.FP16]),
            prefetch_pipeline=draw.choice([None, False]),
        )

    makers = {
        "sharding_types": lambda: some(WAYS),
        "compute_kernels": lambda: some(KERNELS),
        "min_partition": lambda: draw.choice([4, 8, 16, 20, 32, 64]),
        "pooling_factors": lambda: [draw.choice([0.5, 1.0, 3.0, 20.0]) for _ in range(features)],
        "num_poolings": lambda: [draw.choice([1.0, 2.0]) for _ in range(features)],
        "batch_sizes": lambda: [draw.choice([BATCH, BATCH // 4]) for _ in range(features)],
        "is_weighted": lambda: draw.choice([True, False]),
        "cache_params": cache,
        "enforce_hbm": lambda: draw.choice([True, False]),
        "stochastic_rounding": lambda: draw.choice([True, False]),
        "bounds_check_mode": lambda: draw.choice(list(BoundsCheckMode)),
        "output_dtype": lambda: draw.choice([DataType.FP32, DataType.FP16, DataType.BF16]),
        "device_group": lambda: "cuda",
        "key_value_params": lambda: KeyValueParams(ssd_rocksdb_shards=draw.randint(1, 9)),
    }
    found = {key: make() for key, make in makers.items() if draw.random() < 0.25}
    faults = {
        "pooling_factors": [1.0] * (features + 1),
        "num_poolings": [0.0] * features,
        "batch_sizes": [1] * (features + 2),
        "device_group": "cpu",
        "use_virtual_table": True,
        "feature_names": ["nobody"],
    }
    if draw.random() < 1 / 12:
        key = draw.choice(sorted(faults))
        found[key] = faults[key]
        found["faulty"] = key
    return found


def may_be_held(told: dict[str, Any], *, varies: bool) -> bool:
    """Whether a sharding and a kernel of this sharder are left."""
    for way in told.get("sharding_types", WAYS):
        for kernel in ("dense",) if way == "data_parallel" else KERNELS[1:]:
            in_hbm = kernel in ("dense", "fused")
            is_free = in_hbm or not told.get("enforce_hbm")
            runs = not (varies and way == "data_parallel")
            if kernel in told.get("compute_kernels", KERNELS) and is_free and runs:
                return True
    return False


def expect_kept(told: dict[str, Any], held: ParameterSharding, table: TableProfile) -> None:
    """Every field that was stated, in the plan or in what was counted."""
    features = table.feature_count
    assert held.sharding_type in told.get("sharding_types", WAYS)
    assert held.compute_kernel in told.get("compute_kernels", KERNELS)
    for key in CARRIED:
        assert getattr(held, key) == told.get(key), key
    if held.sharding_spec is not None:
        widths = {shard.shard_sizes[1] for shard in held.sharding_spec.shards}
        assert min(widths) >= told.get("min_partition", 4)
    assert not (told.get("enforce_hbm") and "uvm" in held.compute_kernel)
    stated = told.get("cache_params") or CacheParams()
    carried = held.cache_params or CacheParams()
    keys = ["algorithm", "reserved_memory", "precision", "prefetch_pipeline"]
    keys += ["load_factor"] if stated.load_factor is not None or held.compute_kernel != "fused_uvm_caching" else []
    for key in keys:
        assert getattr(carried, key) == getattr(stated, key), key
    factors = told.get("pooling_factors", [1.0] * features)
    poolings = told.get("num_poolings", [1.0] * features)
    batches = [size / BATCH for size in told.get("batch_sizes", [BATCH] * features)]
    ids = sum(a * b * c for a, b, c in zip(factors, poolings, batches, strict=True))
    vectors = sum(b * c for b, c in zip(poolings, batches, strict=True))
    assert table.pooling_factor == pytest.approx(ids)
    assert table.vectors_per_sample == pytest.approx(vectors)
    assert table.weighted == told.get("is_weighted", False)


def test_any_constraints_are_kept_or_named() -> None:
    """120 random sets: the plan has every field of every table, or the refusal names the tables and fields at fault."""
    outcomes = {"planned": 0, "faults": 0, "nothing left": 0}
    for seed in range(120):
        draw = random.Random(seed)
        sets = {name: drawn(draw, count) for name, count in FEATURES.items() if draw.random() < 0.7}
        faults = {name: told.pop("faulty") for name, told in sets.items() if "faulty" in told}
        constraints = {name: ParameterConstraints(**told) for name, told in sets.items()}
        varies = any(
            any(size != BATCH for size in told.get("batch_sizes", ()))
            or any(n != 1 for n in told.get("num_poolings", ()))
            for told in sets.values()
        )
        impossible = [name for name, told in sets.items() if not may_be_held(told, varies=varies)]
        if faults or impossible:
            said = refused(constraints)
            for name, field in faults.items():
                assert f"{name}: {field}: " in said, seed
            for name in impossible:
                assert f"{name}: has constraints that leave no " in said or name in faults, seed
            outcomes["faults" if faults else "nothing left"] += 1
            continue
        found, tables = planned(constraints)
        for name in FEATURES:
            expect_kept(sets.get(name, {}), found[name], tables[name])
        outcomes["planned"] += 1
    assert min(outcomes.values()) >= 10, outcomes
