"""The graph of a dense part's layers: sizes that are counted by hand, and what is refused."""

import itertools
import random
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from cost_models.dense_size import dense_parts, dense_size
from cost_models.peak import Peak
from cost_models.workload import Workload
from planner import plan, verify
from tests.oracles.instances import node_group, topology, workload

Table = dict[str, Any]


def model(layers: list[dict[str, Any]], tables: int = 4, numerical: int = 0, **fields: Any) -> Workload:
    """Bags of 8 columns, read by the first layer, which is called `bags`."""
    profiles: list[Table] = [{"name": f"t{i}", "rows": 100, "dim": 8} for i in range(tables)]
    graph = [{"kind": "embeddings", "name": "bags", "tables": "t*"}, *layers]
    return workload(profiles, dense={"layers": graph, "numerical_features": numerical, **fields})


def history(layers: list[dict[str, Any]], mean: float, spread: float = 0.0) -> Workload:
    """A sequence table of 32 columns."""
    profile = {"name": "h", "rows": 100, "dim": 32, "pooling_factor": mean, "pooling_std": spread, "pooled": False}
    graph = [{"kind": "embeddings", "name": "places", "tables": "h"}, *layers]
    return workload([profile], dense={"layers": graph})


def mlp_macs(*widths: int) -> int:
    return sum(i * o for i, o in itertools.pairwise(widths))


def counted_by_hand(dense: Mapping[str, Any], tables: list[Table]) -> tuple[object, ...]:
    """MACs, parameters, activations, products with weights and other MACs of a DLRM or DCNv2, formula by formula."""
    embedded = sum(table["features"] * table["dim"] for table in tables)
    numbers = [*dense["bottom_mlp"], dense["numerical_features"]][len(dense["bottom_mlp"]) - 1]
    layers = list(itertools.pairwise((dense["numerical_features"], *dense["bottom_mlp"])))
    width, products, extra = embedded + numbers, 0, 0
    if dense["interaction"] == "dot":
        vectors = sum(table["features"] for table in tables) + 1
        products, extra = vectors * vectors * tables[0]["dim"], width + vectors * vectors
        width = vectors * (vectors - 1) // 2 + numbers
    elif dense["interaction"] == "dcn":
        layers += [(width, dense["dcn_low_rank"]), (dense["dcn_low_rank"], width)] * dense["dcn_layers"]
        extra = 2 * width * dense["dcn_layers"]
    elif dense["interaction"] == "pool":
        extra, width = width, -(-embedded // dense["pool_stride"]) + numbers
    layers += itertools.pairwise((width, *dense["top_mlp"]))
    macs = sum(i * o for i, o in layers)
    return (
        macs + products,
        macs + sum(o for _, o in layers),
        sum(i + o for i, o in layers) + extra,
        layers,
        products,
    )


@pytest.mark.parametrize("seed", range(60))
def test_shorthands_are_graphs_with_the_same_figures(seed: int) -> None:
    """bottom_mlp, interaction and top_mlp stand for layers whose sizes are those of the formulas, to the last digit."""
    draw = random.Random(seed)
    dim = draw.choice([8, 16])
    interaction = draw.choice(["concat", "dot", "dcn", "pool"])
    dims = [dim] * 3 if interaction == "dot" else [dim, draw.choice([4, 12]), dim]
    tables: list[Table] = [
        {"rows": 9, "dim": each, "features": draw.randint(1, 3), "pooled": draw.random() < 0.7} for each in dims
    ]
    dense = {
        "numerical_features": draw.randint(1, 20),
        "bottom_mlp": [draw.randint(1, 70), dim],
        "interaction": interaction,
        "top_mlp": draw.choice([[], [5], [draw.randint(1, 99), 1]]),
        "dcn_layers": draw.randint(1, 3),
        "dcn_low_rank": draw.randint(1, 80),
        "pool_stride": draw.randint(1, 9),
    }
    size = sum(dense_parts(workload(tables, dense=dense)).values(), start=type(dense_size(model([])))())
    products = [(each.inputs, each.outputs) for each in size.products]
    found = (size.macs, size.parameters, size.activation_elements, products, size.macs_within_samples)
    assert found == counted_by_hand(dense, tables)


@pytest.mark.parametrize(("compressed", "vectors"), [(3, 5), (2, 2), (1, 6)])
def test_wukong(compressed: int, vectors: int) -> None:
    """Two layers on n vectors of d: n c d + 2 n d k + n k h + h m + m v d, and n (c + v) d where the number of vectors
    changes; projections without biases, an MLP with, norms of n k and of d numbers."""
    n, d, k, (h, m) = 6, 8, 3, (10, 7)
    asked = model(
        [
            {
                "kind": "wukong",
                "compressed": compressed,
                "vectors": vectors,
                "rank": k,
                "sizes": [h, m],
                "count": 2,
            }
        ],
        tables=n,
    )
    macs = parameters = 0
    for _ in range(2):
        new = compressed + vectors
        residual = n * new if n != new else 0
        macs += n * compressed * d + 2 * n * d * k + mlp_macs(n * k, h, m, vectors * d) + residual * d
        parameters += n * compressed + n * k + mlp_macs(n * k, h, m, vectors * d) + h + m + vectors * d
        parameters += residual + 2 * n * k + 2 * d
        n = new
    size = dense_size(asked)
    assert (size.macs, size.parameters) == (macs, parameters)
    assert (asked.layers[-1].output.tokens, asked.layers[-1].output.width) == (n, d)


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal: bool) -> None:
    """2 T T heads head_dim multiply-accumulates, half of them where a place sees those before, and four projections."""
    places, width, heads, groups, head_dim = 10, 32, 4, 2, 6
    layer = {"kind": "attention", "heads": heads, "kv_heads": groups, "head_dim": head_dim, "causal": causal}
    size = dense_size(history([layer], places))
    projections = 2 * width * heads * head_dim + 2 * width * groups * head_dim
    assert size.macs == places * projections + 2 * places**2 * heads * head_dim / (1 + causal)
    assert size.parameters == projections + heads * head_dim + 2 * groups * head_dim + width


def test_attention_of_queries_over_a_history() -> None:
    """One query looks at all places: products go with their number, not its square."""
    asked = [
        {"kind": "pool", "name": "query", "inputs": "places"},
        {"kind": "attention", "inputs": ["query", "places"], "heads": 2, "head_dim": 16},
    ]
    size = dense_size(history(asked, 10, spread=4))
    assert size.macs == pytest.approx(32 * 32 * (2 + 2 * 10) + 2 * 10 * 32)
    with pytest.raises(ValidationError, match="look at their own history"):
        history([asked[0], {**asked[1], "causal": True}], 10)


def test_histories_of_several_lengths_cost_the_mean_of_their_squares() -> None:
    """Lengths of mean 10 and spread 5: scores as of 125 pairs, projections as of 10 places."""
    layer = {"kind": "attention", "heads": 1, "head_dim": 32}
    same, spread = (dense_size(history([layer], 10, spread=each)).macs for each in (0, 5))
    assert spread - same == pytest.approx(2 * 25 * 32)


def test_an_attention_tower_is_attention_and_an_mlp_of_every_place() -> None:
    """Two layers over 10 places of 32 numbers, then their mean."""
    tower = {"kind": "attention_tower", "heads": 2, "head_dim": 16, "sizes": [64], "count": 2}
    asked = history([tower, {"kind": "linear", "out": 1}], 10)
    each = 10 * 4 * 32 * 32 + 2 * 100 * 32 + 10 * 2 * 32 * 64
    assert dense_size(asked).macs == 2 * each + 32
    norms = 2 * 2 * 2 * 32
    assert dense_size(asked).parameters == 2 * (4 * 32 * 32 + 4 * 32 + 2 * 32 * 64 + 64 + 32) + norms + 33


def test_parts_of_the_step() -> None:
    """What needs no vectors runs while they are exchanged; linear layers at the end give their gradients first."""
    asked = model(
        [
            {"kind": "mlp", "name": "bottom", "inputs": "numerical", "sizes": [16, 8]},
            {"kind": "dot", "inputs": ["bags", "bottom"]},
            {"kind": "mlp", "inputs": ["dot", "bottom"], "sizes": [4, 1]},
        ],
        numerical=3,
    )
    parts = dense_parts(asked)
    assert parts["bottom_mlp"].macs == mlp_macs(3, 16, 8)
    assert parts["interaction"].macs == 5 * 5 * 8
    assert parts["top_mlp"].macs == mlp_macs(10 + 8, 4, 1)
    written = {"numerical_features": 3, "bottom_mlp": [16, 8], "interaction": "dot", "top_mlp": [4, 1]}
    assert dense_parts(workload([{"name": f"t{i}", "rows": 100, "dim": 8} for i in range(4)], dense=written)) == parts


def test_a_graph_is_planned_as_the_shorthand_is() -> None:
    """The same model in either form: the same plan, step and bytes; and both are verified."""
    layers = [
        {"kind": "mlp", "name": "bottom", "inputs": "numerical", "sizes": [16, 8]},
        {"kind": "dot", "inputs": ["bags", "bottom"]},
        {"kind": "mlp", "inputs": ["dot", "bottom"], "sizes": [4, 1]},
    ]
    written = {"numerical_features": 3, "bottom_mlp": [16, 8], "interaction": "dot", "top_mlp": [4, 1]}
    tables = [{"name": f"t{i}", "rows": 100, "dim": 8} for i in range(4)]
    cluster = topology(node_group("n", nodes=1, ranks=2))
    graph = plan(cluster, model(layers, numerical=3), effort=0)
    short = plan(cluster, workload(tables, dense=written), effort=0)
    assert graph.tables == short.tables
    assert graph.objective == short.objective
    assert not verify(graph)


def test_layers_may_stand_in_any_order() -> None:
    """Inputs come first in the graph, wherever they stand in the file."""
    layers = [
        {"kind": "linear", "name": "head", "inputs": ["cross"], "out": 1},
        {"kind": "cross", "name": "cross", "inputs": ["bags"], "rank": 2},
    ]
    assert [layer.name for layer in model(layers).layers] == ["bags", "cross", "head"]


def test_activations_of_a_graph_count_as_memory() -> None:
    """Inputs and outputs of all layers, in the format of the products."""
    asked = model([{"kind": "mlp", "sizes": [5, 1]}], dtype="bf16").model_copy(update={"mode": "inference"})
    peak = Peak(asked, 2, loads_ids=True, static_buffers=False, hbm_bytes=1e9)
    assert peak.rank_bytes["activations"] == (32 + 5 + 5 + 1) * 2 * peak.samples_per_rank


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([{"kind": "linear", "out": 1, "rank": 2}], "is not of a layer linear"),
        ([{"kind": "linear"}], "a layer linear needs out"),
        ([{"kind": "fm", "rank": 2}], "a layer fm needs vectors and sizes"),
        ([{"kind": "linear", "inputs": "bag", "out": 1}], "there is no layer 'bag'; known here: numerical, bags"),
        ([{"kind": "linear", "name": "bags", "out": 1}], "'bags' is the name of layer 0, too"),
        ([{"kind": "linear", "inputs": "numerical", "out": 1}], "needs numerical_features"),
        (
            [
                {"kind": "linear", "name": "a", "inputs": "b", "out": 1},
                {"kind": "linear", "name": "b", "inputs": "a", "out": 1},
            ],
            "read each other in a circle: a -> b -> a",
        ),
        ([{"kind": "dot", "name": "lost"}, {"kind": "linear", "inputs": "bags", "out": 1}], "no layer reads lost"),
        (
            [{"kind": "linear", "name": "wide", "out": 9}, {"kind": "dot", "inputs": ["bags", "wide"]}],
            "have tokens of 8, 9 numbers",
        ),
        (
            [{"kind": "linear", "name": "a", "out": 9}, {"kind": "add", "inputs": ["bags", "a"]}],
            "cannot be added: they have 4 x 8, 1 x 9 numbers",
        ),
        ([{"kind": "attention", "heads": 4, "kv_heads": 3, "head_dim": 2}], "3 do not divide the 4 heads"),
        ([{"kind": "embeddings", "tables": "x*"}, {"kind": "linear", "out": 1}], "no table is called 'x\\*'"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(layers: list[dict[str, Any]], message: str) -> None:
    """Keys of other kinds, missing ones, inputs that do not exist or do not fit, circles, outputs that nobody reads."""
    with pytest.raises(ValidationError, match=message):
        model(layers)


def test_what_no_layer_reads_is_refused() -> None:
    """Tables and numerical features of the workload; and layers beside what they take the place of."""
    tables = [{"name": name, "rows": 100, "dim": 8} for name in ("a", "b")]
    one = [{"kind": "embeddings", "tables": "a"}, {"kind": "linear", "out": 1}]
    with pytest.raises(ValidationError, match="no layer reads the vectors of b"):
        workload(tables, dense={"layers": one})
    with pytest.raises(ValidationError, match="no layer reads the numerical features"):
        model([{"kind": "linear", "out": 1}], numerical=3)
    for key, value in {"top_mlp": [1], "interaction": "concat", "macs_per_sample": 3}.items():
        with pytest.raises(ValidationError, match=f"give layers or {key}, not both"):
            model([{"kind": "linear", "out": 1}], **{key: value})


@pytest.mark.parametrize("kind", ["linear", "dot", "cross", "compress"])
def test_a_history_is_pooled_before_it_is_one_vector(kind: str) -> None:
    """Samples have as many places as their history; layers that need as many of each refuse it."""
    keys = {"linear": {"out": 1}, "cross": {"rank": 2}, "compress": {"vectors": 2}}.get(kind, {})
    with pytest.raises(ValidationError, match="pool it first"):
        history([{"kind": kind, **keys}], 10, spread=2)
    pooled = history([{"kind": "pool"}, {"kind": kind, **keys}], 10, spread=2)
    assert pooled.layers[-1].kind == kind


def test_what_has_no_kind_counts_by_its_totals() -> None:
    """Products, parameters, and numbers read and written; what reads it gets the tokens that it gives."""
    conv = {"kind": "other", "name": "conv", "out": 6, "vectors": 5, "macs": 720, "parameters": 50}
    size = dense_size(model([conv, {"kind": "linear", "out": 7}]))
    assert (size.macs, size.parameters) == (720 + 30 * 7, 50 + 30 * 7 + 7)
    assert size.activation_elements == (4 * 8 + 30) + (30 + 7)
    assert size.macs_within_samples == 720
    alone = dense_size(
        model([{"kind": "other", "out": 1, "parameters": 3}, {"kind": "linear", "inputs": "bags", "out": 2}])
    )
    assert (alone.macs, alone.parameters) == (64, 3 + 66)


def test_an_inner_product_may_have_no_bias() -> None:
    """Of cross layers: TorchRec's have none."""
    sizes = [
        dense_size(model([{"kind": "cross", "rank": 5, "count": 3, "inner_bias": each}])) for each in (True, False)
    ]
    assert sizes[0].parameters - sizes[1].parameters == 3 * 5
    assert sizes[0].macs == sizes[1].macs
