"""Products that are no large ones: within samples, and of rows that fast kernels do not take."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cost_models.arithmetic import ProductRate
from cost_models.dense import dense_seconds, product_seconds, within_sample_seconds
from cost_models.dense_size import dense_size
from cost_models.kinds import RankKind, rank_kinds
from cost_models.length_imbalance import _by_length, work_seconds
from cost_models.shards import HBM, TABLE_WISE, Blocks, PlacedShards
from cost_models.simulator.dense_part import DenseKernels, _attention_s
from cost_models.simulator.engine import Engine
from cost_models.simulator.network import SimulatedNetwork
from cost_models.simulator.program import Streams
from cost_models.small_products import SmallRates
from cost_models.software import software_of
from cost_models.stage_causes import stage_causes
from cost_models.step import StepModel
from cost_models.workload import Workload
from cost_models.workload.histories import histories
from cost_models.workload.layer_kinds import Product
from cost_models.workload.models import SoftwareMode
from tests.oracles.instances import workload
from topologies import load_topology

GPUS = ("dgx-h100", "dgx-a100-80", "dgx1-v100", "l40-8", "t4-8", "hgx-b200", "mi300x-8")
VECTORS: list[dict[str, Any]] = [{"name": f"t{i}", "rows": 100, "dim": 16} for i in range(6)]


def kind_of(cluster: str, dtype: str, software: str = "torchrec") -> RankKind:
    dense = {"top_mlp": [1], "dtype": dtype}
    return rank_kinds(load_topology(cluster), workload(VECTORS, dense=dense, software=software))[0]


@pytest.mark.parametrize("cluster", GPUS)
def test_a_narrower_format_is_never_slower(cluster: str) -> None:
    """Whatever the sizes: batched products, attention both ways, and layers whose rows fast kernels do not take."""
    sizes = list(itertools.product((1, 8, 27, 64, 512, 8192), repeat=3))
    laws: dict[str, list[list[float]]] = {}
    for dtype in ("fp16", "tf32", "fp32"):
        small = kind_of(cluster, dtype).small_products
        for name in ("batched", "attention", "attention_gradients", "unaligned"):
            laws.setdefault(name, []).append([product_seconds(getattr(small, name), *each) for each in sizes])
    for name, by_dtype in laws.items():
        narrow, tf32, wide = map(np.array, by_dtype)
        assert (narrow <= tf32).all(), name
        assert (tf32 <= wide).all(), name


@pytest.mark.parametrize("cluster", ["dgx-h100", "dgx-a100-80"])
@pytest.mark.parametrize("software", ["hugectr", "distributed-embeddings"])
def test_steps_that_rates_were_fitted_to_keep_the_full_rate(cluster: str, software: str) -> None:
    """Of products of HugeCTR and distributed-embeddings, whatever their sizes; backward takes twice as long."""
    kind = kind_of(cluster, "fp16", software)
    assert kind.small_products == SmallRates.at(kind.products)
    flops_per_s = min(rate.flops_per_s for rate in kind.products)
    for kernel in ("batched", "attention", "totals"):
        product = Product(27, 128, 20, kernel, 3)  # type: ignore[arg-type]
        took = within_sample_seconds(kind.small_products, product, forward_only=False)
        assert took == pytest.approx(6 * 27 * 128 * 20 / flops_per_s, rel=1e-12)


def test_small_products_by_hand() -> None:
    """A batched one with edges, three times in training; attention with its own, backward at its own rate."""
    rates = SmallRates(
        unaligned=(ProductRate(1e9),),
        full=(ProductRate(8e9),),
        batched=(ProductRate(4e9, 2, 3), ProductRate(1e12)),
        attention=(ProductRate(2e9, 5, 7),),
        attention_gradients=(ProductRate(1e9, 1, 0),),
    )
    dots, heads = Product(3, 16, 5, "batched"), Product(6, 8, 9, "attention", 4)
    passes = (3 + 2) * (5 + 2) * (16 + 3), (3 + 2) * (16 + 2) * (5 + 3), (16 + 2) * (5 + 2) * (3 + 3)
    assert within_sample_seconds(rates, dots, forward_only=True) == pytest.approx(2 * passes[0] / 4e9)
    assert within_sample_seconds(rates, dots, forward_only=False) == pytest.approx(2 * sum(passes) / 4e9)
    forward, backward = 2 * (6 + 5) * (9 + 5) * (8 + 7) / 2e9, 2 * (6 + 1) * (9 + 1) * 8 / 1e9
    assert within_sample_seconds(rates, heads, forward_only=True) == pytest.approx(forward)
    assert within_sample_seconds(rates, heads, forward_only=False) == pytest.approx(forward + backward)


def test_which_layers_no_fast_kernel_takes() -> None:
    """Those that read pairs of dots, or an odd number of numerical features beside other numbers."""

    def aligned(numerical: int, layers: list[dict[str, Any]]) -> list[bool]:
        graph = [{"kind": "embeddings", "name": "vectors", "tables": "t*"}, *layers]
        asked = workload(VECTORS, dense={"numerical_features": numerical, "layers": graph})
        return [each.is_aligned for each in dense_size(asked).products]

    joined = {"kind": "linear", "inputs": ["vectors", "numerical"], "out": 4}
    assert (aligned(13, [joined]), aligned(12, [joined])) == ([False], [True])
    alone = [{"kind": "linear", "name": "low", "inputs": "numerical", "out": 16}]
    dots = [{"kind": "dot", "name": "dots", "inputs": ["low", "vectors"]}, {"kind": "linear", "out": 3}]
    assert aligned(13, [*alone, *dots, {"kind": "linear", "out": 1}]) == [True, False, True]
    cross = {"kind": "cross", "inputs": ["vectors", "numerical"], "rank": 8, "count": 2}
    assert aligned(13, [cross]) == [False] * 4


MODELS: dict[str, dict[str, Any]] = {
    "dots": {"numerical_features": 13, "bottom_mlp": [32, 16], "interaction": "dot", "top_mlp": [64, 1]},
    "wukong": {
        "layers": [
            {"kind": "embeddings", "name": "vectors", "tables": "t*"},
            {"kind": "wukong", "vectors": 4, "compressed": 3, "rank": 5, "sizes": [32], "count": 2},
            {"kind": "linear", "out": 1},
        ]
    },
    "attention": {
        "layers": [
            {"kind": "embeddings", "name": "vectors", "tables": "t*"},
            {"kind": "attention_tower", "heads": 2, "head_dim": 8, "sizes": [32], "count": 2},
            {"kind": "linear", "out": 1},
        ]
    },
}


@pytest.mark.parametrize(
    ("software", "mode"), [("torchrec", None), ("torchrec", "eager"), ("torchrec", "compiled"), ("hugectr", "graph")]
)
@pytest.mark.parametrize("dtype", ["bf16", "tf32", "fp32"])
@pytest.mark.parametrize("name", list(MODELS))
def test_simulated_layers_take_what_the_estimate_says(
    name: str, dtype: str, software: str, mode: SoftwareMode | None
) -> None:
    """Each with its own formula, to the last digits; both passes, and inference; kernels counted or not."""
    two_gpus = ["nodes.0.accelerators.count=2", "nodes.0.links.scale_out.count=2"]
    cluster = load_topology("dgx-h100", overrides=two_gpus)
    dense_part, how = {**MODELS[name], "dtype": dtype}, {"software": software, "software_mode": mode}
    asked: Workload = workload(VECTORS, dense=dense_part, **how, global_batch=1024)
    (kind,) = rank_kinds(cluster, asked)
    coefficients = software_of(asked)
    streams = Streams(2)
    dense = DenseKernels(streams, SimulatedNetwork(cluster, (kind,)), asked, coefficients)
    dense.forward([*dense.first, *dense.rest], 0, np.ones(2))
    forward = Engine(streams.graph, np.zeros(0)).run().end.max()
    dense.backward([*dense.first, *dense.rest], 0, np.ones(2))
    both = Engine(streams.graph, np.zeros(0)).run().end.max()
    passes = coefficients.activation_passes.value
    expected = dense_seconds(asked, 512, kind, passes)
    assert both == pytest.approx(expected.total_s, rel=1e-12)
    assert forward == pytest.approx(expected.bottom_forward_s + expected.rest_forward_s, rel=1e-12)


@pytest.mark.parametrize(("software", "told"), [("torchrec", True), ("hugectr", False)])
def test_error_bars_name_small_products(software: str, told: bool) -> None:
    """Where a model has any, and the software's rates were not fitted to whole steps."""
    one_gpu = ["nodes.0.accelerators.count=1", "nodes.0.links.scale_out.count=1"]
    links = "nodes.0.links.pcie.accelerators_per_switch=1"
    cluster = load_topology("dgx-a100-80", overrides=[*one_gpu, links])
    for name, expected in ((MODELS["dots"], told), ({"numerical_features": 12, "top_mlp": [64, 1]}, False)):
        dense = {**name, "interaction": name.get("interaction", "concat")}
        asked = workload(VECTORS, dense=dense, software=software, global_batch=2**16)
        model = StepModel(cluster, asked)
        blocks = Blocks(np.arange(6), np.full(6, TABLE_WISE), np.full(6, HBM), np.full(6, 16), np.zeros(6))
        placed = PlacedShards(blocks, np.zeros(6, dtype=int), model.tables.rows, np.ones(6, dtype=bool))
        evaluation = model.evaluate(placed)
        stage = model.stages.index("dense")
        causes = {each.name for each in stage_causes(model, placed, evaluation, stage)}
        assert any("batched" in each for each in causes) == expected, (software, causes)


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize("layer", ["itself", "query"])
def test_attention_of_longer_histories(layer: str, dtype: str) -> None:
    """What goes with lengths and with their squares adds up to what longer histories take, of attention over itself
    and of one query over all; the simulator's own formula says the same."""
    table = {"name": "h", "rows": 100, "dim": 32, "pooling_factor": 200, "pooling_std": 50, "pooled": False}
    kind = kind_of("dgx-h100", dtype)
    reads = {"itself": ["places"], "query": ["query", "places"]}[layer]
    graph = [
        {"kind": "embeddings", "name": "places", "tables": "h"},
        {"kind": "pool", "name": "query", "inputs": "places"},
        {"kind": "attention", "name": "looks", "inputs": reads, "heads": 2, "head_dim": 16},
        {"kind": "pool", "name": "seen", "inputs": "looks"},
        {"kind": "linear", "inputs": ["seen", "query"], "out": 1},
    ]
    asked = workload([table], dense={"layers": graph, "dtype": dtype})
    (product,) = (each for each in dense_size(asked).within_samples if each.kernel == "attention")
    rows = layer == "itself"
    for times, only in itertools.product((0.5, 1.0, 2.5), (True, False)):
        linear, square = _by_length(kind.small_products, product, rows=rows, columns=True, forward_only=only)
        longer = replace(product, rows=product.rows * (times if rows else 1), columns=product.columns * times)
        longer_s, mean_s = (
            within_sample_seconds(kind.small_products, each, forward_only=only) for each in (longer, product)
        )
        assert longer_s - mean_s == pytest.approx(linear * (times - 1) + square * (times**2 - 1), rel=1e-9, abs=1e-18)
        own = times**2 if rows else times, times if rows else 1.0, times
        ways = ("forward",) if only else ("forward", "backward")
        simulated = sum(float(_attention_s(kind, product, way, *own)) for way in ways)  # type: ignore[arg-type]
        assert simulated == pytest.approx(product.count * longer_s, rel=1e-12)
    (history,) = histories(asked)
    tokens_s, pairs_s = work_seconds(asked, history, kind, 64, 0.0)
    assert tokens_s > 0
    assert (pairs_s > 0) == (layer == "itself")
