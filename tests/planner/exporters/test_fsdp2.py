"""The strategy of a dense part as PyTorch takes it: the document, and what is refused."""

import pytest

from cost_models.cut_layers import strategy_of
from cost_models.dense_strategies import DenseStrategy
from cost_models.workload.dense_part import Dense
from cost_models.workload.dense_sharding import DenseSharding, DenseStrategyWord, Held, LayerSharding, ShardedOver
from planner.exporters.fsdp2 import HeldLayer, dense_strategy, held_layers, strategy_notes
from tests.oracles.instances import workload
from topologies.errors import InputError

BF16 = Dense(dtype="bf16", optimizer="adam")


def layers(strategy: DenseStrategy) -> list[HeldLayer]:
    return [HeldLayer("bottom", strategy), HeldLayer("top.*", strategy)]


@pytest.mark.parametrize(
    ("word", "over", "api", "mesh"),
    [
        ("replicate", "world", "ddp", {"replicate": 16}),
        ("zero1", "world", "zero_redundancy_optimizer", {"shard": 16}),
        ("zero1", "node", "zero_redundancy_optimizer", {"replicate": 2, "shard": 8}),
        ("zero2", "world", "fully_shard", {"shard": 16}),
        ("fsdp", "node", "fully_shard", {"replicate": 2, "shard": 8}),
    ],
)
def test_a_strategy_is_what_torch_calls_so(
    word: DenseStrategyWord, over: ShardedOver, api: str, mesh: dict[str, int]
) -> None:
    """Its function, and a mesh whose last dimension is of consecutive ranks."""
    document = dense_strategy(layers(strategy_of(Held(word, over), 16, 8)), BF16, 16)
    assert document["api"] == api
    assert dict(zip(document["mesh"]["dim_names"], document["mesh"]["shape"], strict=True)) == mesh
    if api == "fully_shard":
        assert document["units"] == {"bottom": word == "fsdp", "top.*": word == "fsdp"}
        assert document["mixed_precision"] == {"param_dtype": "bfloat16", "reduce_dtype": "bfloat16"}
    else:
        assert (document["autocast"], document["gradient_hook"]) == ("bfloat16", "bf16_compress_hook")


def test_formats_are_torchs() -> None:
    """Types of parameters, products and sums; tf32 is a setting of its products."""
    whole = layers(strategy_of(Held("fsdp", "world"), 4, 4))
    tf32 = dense_strategy(whole, Dense(dtype="tf32"), 4)
    assert tf32["float32_matmul_precision"] == "high"
    assert tf32["mixed_precision"] == {"param_dtype": None, "reduce_dtype": "float32"}
    short = dense_strategy(whole, Dense(dtype="bf16", master_weights="bf16", gradients="fp32"), 4)
    assert (short["parameters"], short["mixed_precision"]["param_dtype"]) == ("bfloat16", None)
    assert short["mixed_precision"]["reduce_dtype"] == "float32"


def test_cut_layers_have_styles() -> None:
    """Neighbours that exchange columns keep them; at the ends samples are cut."""
    whole, copies = DenseStrategy("samples", 1, 3, 8), (3, 4)
    told = [
        HeldLayer("a", whole),
        HeldLayer("b", DenseStrategy("columns", 2, *copies), ("a",)),
        HeldLayer("c", DenseStrategy("rows", 2, *copies), ("b",)),
        HeldLayer("d", DenseStrategy("columns", 2, *copies), ("c",)),
        HeldLayer("e", whole, ("d",)),
    ]
    document = dense_strategy(told, BF16, 8)
    assert document["mesh"] == {"shape": [4, 2], "dim_names": ["shard", "tensor"]}
    assert document["parallel_plan"] == {
        "b": {"style": "ColwiseParallel", "input_shard": 0},
        "c": {"style": "RowwiseParallel"},
        "d": {"style": "ColwiseParallel", "output_shard": 0},
    }


def test_heads_cross_layers_and_tokens_are_told() -> None:
    """Linear layers inside attention and cross layers by the style of each; attention whose tokens are cut beside them,
    whose weights every rank has."""
    copies, whole = (3, 4), DenseStrategy("samples", 1, 3, 8)
    told = [
        HeldLayer("seen", DenseStrategy("heads", 2, *copies), (), "attention"),
        HeldLayer("far", DenseStrategy("tokens", 2, 3, 8), ("seen",), "attention"),
        HeldLayer("low", DenseStrategy("inner", 2, *copies), ("far",), "cross", 2),
        HeldLayer("full", DenseStrategy("width", 2, *copies), ("low",), "cross", 1),
        HeldLayer("out", whole, ("full",)),
    ]
    document = dense_strategy(told, BF16, 8)
    assert document["mesh"] == {"shape": [4, 2], "dim_names": ["shard", "tensor"]}
    assert document["parallel_plan"] == {
        "seen": {"style": "heads", "inputs": 1, "columns": ["q_proj", "k_proj", "v_proj"], "rows": ["out_proj"]},
        "low": {"style": "inner", "columns": ["V.0", "V.1"], "rows": ["U.0", "U.1"]},
        "full": {"style": "width", "columns": ["W.0"], "rows": []},
    }
    assert document["context_parallel"] == {"ranks": 2, "rotate_method": "alltoall", "layers": ["far"]}
    around = HeldLayer("far", DenseStrategy("tokens", 2, 3, 8), (), "attention", 1, "queries")
    with pytest.raises(InputError, match=r"layers.far: passes queries: torch's context_parallel passes keys"):
        dense_strategy([around, told[-1]], BF16, 8)


def test_rules_inside_a_repeated_layer_are_no_secret() -> None:
    """A tower of which attention alone is cut stands for layers that are held in several ways."""
    tables = [{"name": "history", "rows": 99, "dim": 32, "pooling_factor": 8, "pooled": False}]
    tower = {"kind": "attention_tower", "name": "tower", "heads": 4, "head_dim": 8, "sizes": [64]}
    stated = [{"kind": "embeddings", "tables": "history"}, tower, {"kind": "linear", "out": 1}]
    model = workload(tables, dense={"layers": stated})
    rules = [{"match": "tower.*.attention", "cut": "heads"}]
    sharding = DenseSharding.model_validate({"strategy": "fsdp", "layers": rules})
    with pytest.raises(InputError, match="tower: stands for layers that are held in several ways"):
        held_layers(model.dense, sharding, 8, 4, "plan", model.layers)
    alike = DenseSharding(strategy="fsdp")
    assert [each.name for each in held_layers(model.dense, alike, 8, 4, "plan", model.layers)] == ["tower", "linear"]


@pytest.mark.parametrize(
    ("told", "dense", "said"),
    [
        ([], BF16, "no layer with parameters is stated"),
        (layers(DenseStrategy()), Dense(dtype="fp8"), "has no policy for fp8"),
        (layers(DenseStrategy()), Dense(gradients="int8"), "has no policy for int8"),
        (
            [*layers(DenseStrategy()), HeldLayer("z", DenseStrategy("samples", 1, 3, 8))],
            BF16,
            "layers.z: is held as FSDP",
        ),
        ([HeldLayer("t", DenseStrategy("tokens", 2))], BF16, "is sequence parallel: torch has no style for it"),
        ([HeldLayer("c", DenseStrategy("columns", 8))], BF16, "layers.c: is cut over all ranks"),
        ([HeldLayer("c", DenseStrategy("columns", 2))], BF16, "has copies that neither FSDP nor ZeRO-2 shards"),
        (
            [HeldLayer("c", DenseStrategy("columns", 2, 3, 4)), HeldLayer("u", DenseStrategy())],
            BF16,
            "layers.u: stands beside layers that are cut",
        ),
    ],
)
def test_what_torch_has_not_is_refused_by_name(told: list[HeldLayer], dense: Dense, said: str) -> None:
    """On eight ranks."""
    with pytest.raises(InputError) as error:
        dense_strategy(told, dense, 8)
    assert said in str(error.value)


def test_layers_without_parameters_are_no_units() -> None:
    """Nor are tables, which others shard."""
    dlrm = Dense(numerical_features=13, bottom_mlp=(64, 16), interaction="dot", top_mlp=(8, 1))
    assert [each.name for each in held_layers(dlrm, DenseSharding(), 8, 8)] == ["bottom_mlp", "top_mlp"]
    stated = [
        {"kind": "embeddings", "tables": "t"},
        {"kind": "other", "name": "selects", "out": 3},
        {"kind": "other", "name": "conv", "out": 3, "parameters": 5},
    ]
    dense = Dense.model_validate({"layers": stated})
    assert [each.name for each in held_layers(dense, DenseSharding(), 8, 8)] == ["conv"]


def test_layers_are_held_each_in_its_own_way() -> None:
    """As their rules say, of the simple layers that a shorthand stands for; these must be held alike."""
    stated = [
        {"kind": "embeddings", "name": "bags", "tables": "t"},
        {"kind": "linear", "name": "wide", "out": 64},
        {"kind": "linear", "name": "narrow", "out": 8},
        {"kind": "mlp", "name": "top", "sizes": [16, 1]},
    ]
    dense = Dense.model_validate({"layers": stated, "dtype": "bf16"})
    rules = [
        {"match": "wide", "cut": "columns"},
        {"match": "narrow", "cut": "rows"},
        {"match": "top*", "strategy": "zero2"},
    ]
    held = held_layers(dense, DenseSharding.model_validate({"strategy": "fsdp", "layers": rules}), 8, 4)
    document = dense_strategy(held, dense, 8)
    assert document["units"] == {"wide": True, "narrow": True, "top": False}
    assert document["parallel_plan"] == {
        "wide": {"style": "ColwiseParallel", "input_shard": 0},
        "narrow": {"style": "RowwiseParallel", "output_shard": 0},
    }
    with pytest.raises(InputError, match=r"dense.layers.top: stands for layers that are held in several ways"):
        held_layers(dense, DenseSharding(layers=(LayerSharding(match=("top.0",), strategy="fsdp"),)), 8, 4)


def test_what_torch_does_otherwise_is_said() -> None:
    """Its ZeRO-1 sums whole gradients."""
    assert "all-reduces whole ones" in strategy_notes(layers(strategy_of(Held("zero1", "world"), 4, 4)))[0]
    assert not strategy_notes(layers(strategy_of(Held("fsdp", "world"), 4, 4)))
