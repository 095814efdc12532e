"""The dense part: FLOPs as published, and sizes that can be counted by hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cost_models.arithmetic import ProductRate
from cost_models.dense import dense_seconds, layers_seconds, parameter_bytes
from cost_models.dense_size import dense_size
from cost_models.kinds import RankKind, rank_kinds
from cost_models.workload import Workload, load_workload
from cost_models.workload.formats import reduction_codec_bytes
from tests.oracles.instances import node_group, topology, workload


def model(dense: dict[str, object], tables: int = 2, **fields: object) -> Workload:
    return workload([{"rows": 100, "dim": 8}] * tables, dense=dense, **fields)


def plain(flops_per_s: float, hbm_bytes_per_s: float, edge: float = 0.0, inner: float = 0.0) -> RankKind:
    """A rank with these rates."""
    (kind,) = rank_kinds(topology(node_group("a")), model({}))
    products = (ProductRate(flops_per_s, edge, inner),)
    return replace(kind, products=products, hbm_bytes_per_s=hbm_bytes_per_s)


@pytest.mark.parametrize(("name", "mflop"), [("dlrm-dcnv2", 96.2), ("dlrm-v1", 14.74)])
def test_training_flops_of_the_mlperf_models(name: str, mflop: float) -> None:
    """MFLOP per sample, forward and backward, within 0.1 %."""
    assert dense_size(load_workload(name)).training_flops / 1e6 == pytest.approx(mflop, rel=1e-3)


@pytest.mark.parametrize(("name", "mflop"), [("model-a", 638), ("model-i", 60), ("model-f", 5)])
def test_forward_flops_of_neos_models(name: str, mflop: float) -> None:
    """MAD-Max's table, which is rounded to whole MFLOP."""
    assert round(2 * dense_size(load_workload(name)).macs / 1e6) == mflop


def test_dcnv2_layer_by_layer() -> None:
    """Bottom MLP, three low-rank cross layers on 27 vectors of 128, top MLP: multiply-accumulates and parameters."""
    width = 27 * 128
    bottom = 13 * 512 + 512 * 256 + 256 * 128
    cross = 3 * (width * 512 + 512 * width)
    top = width * 1024 + 1024 * 1024 + 1024 * 512 + 512 * 256 + 256
    biases = 512 + 256 + 128 + 3 * (512 + width) + 1024 + 1024 + 512 + 256 + 1
    size = dense_size(load_workload("dlrm-dcnv2"))
    assert size.macs == bottom + cross + top
    assert size.parameters == bottom + cross + top + biases


def test_dot_interaction_of_dlrm() -> None:
    """27 vectors: all pairs are multiplied, those above the diagonal are kept beside the dense vector."""
    bottom = 13 * 512 + 512 * 256 + 256 * 128
    kept = 27 * 26 // 2 + 128
    top = kept * 1024 + 1024 * 1024 + 1024 * 512 + 512 * 256 + 256
    assert dense_size(load_workload("dlrm-v1")).macs == bottom + 27 * 27 * 128 + top


@pytest.mark.parametrize(
    ("dense", "macs", "parameters"),
    [
        ({}, 0, 0),
        ({"top_mlp": [4, 1]}, 16 * 4 + 4, 16 * 4 + 4 + 5),
        ({"numerical_features": 3, "bottom_mlp": [8], "top_mlp": [1]}, 3 * 8 + 24, 3 * 8 + 8 + 24 + 1),
        ({"top_mlp": [1], "interaction": "pool", "pool_stride": 4}, 4, 5),
        ({"numerical_features": 3, "top_mlp": [1]}, 19, 20),
        ({"macs_per_sample": 7, "parameters": 9}, 7, 9),
    ],
)
def test_small_dense_parts(dense: dict[str, object], macs: int, parameters: int) -> None:
    """Two tables of 8 columns, joined with what the bottom MLP (or nothing) gives."""
    size = dense_size(model(dense))
    assert (size.macs, size.parameters) == (macs, parameters)
    assert size.training_flops == 6 * macs


def test_time_is_flops_and_activations() -> None:
    """Six FLOPs per multiply-accumulate in training and two in inference; a third of the activation traffic."""
    dense = {"numerical_features": 3, "bottom_mlp": [8], "top_mlp": [1], "dtype": "fp16"}
    size = dense_size(model(dense))
    training = dense_seconds(model(dense), 100, plain(1e9, 1e6), passes=3)
    assert training.total_s == pytest.approx(6 * size.macs * 100 / 1e9 + size.activation_elements * 2 * 100 * 3 / 1e6)
    inference = dense_seconds(model(dense, mode="inference"), 100, plain(1e9, 1e6), passes=3)
    assert inference.total_s == pytest.approx(training.total_s / 3)


@pytest.mark.parametrize("columns", [1, 64, 640])
def test_products_have_edges(columns: int) -> None:
    """Forward, gradients of inputs, gradients of weights: each as its own sizes say; FLOPs are the layer's own."""
    asked = model({"numerical_features": 3, "bottom_mlp": [columns], "interaction": "concat"})
    took = dense_seconds(asked, 100, plain(1e9, 1e6, edge=8, inner=2), passes=0)
    macs = (108 * (columns + 8) * 5, 108 * 11 * (columns + 2), 11 * (columns + 8) * 102)
    assert took.total_s == pytest.approx(2 * sum(macs) / 1e9)
    assert dense_size(asked).macs == 3 * columns


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=4), st.floats(0, 1e5), st.integers(0, 3), st.floats(0, 1e4))
def test_wider_layers_and_larger_batches_never_take_less(
    widths: list[int], samples: float, wider: int, more: float
) -> None:
    """Whatever the widths; without tolerance."""

    def seconds(widths: list[int], samples: float) -> float:
        size = dense_size(model({"top_mlp": widths}))
        return layers_seconds((ProductRate(1e12, 86, 29),), size, samples, forward_only=False)

    other = [w + 1 if at == wider else w for at, w in enumerate(widths)]
    assert seconds(widths, samples) <= seconds(other, samples + more)


@pytest.mark.parametrize(
    ("dense", "size"),
    [
        ({"dtype": "tf32"}, 4 + 4),
        ({"dtype": "tf32", "optimizer": "adam"}, 4 + 4 + 8),
        ({"dtype": "bf16", "optimizer": "adam"}, 16),
        ({"dtype": "bf16", "optimizer": "adam", "master_weights": "bf16", "optimizer_state": "bf16"}, 8),
        ({"dtype": "bf16", "gradients": "fp32"}, 4 + 2 + 4),
        ({"dtype": "fp8", "optimizer": "adagrad"}, 4 + 1 + 2 + 4),
        ({"dtype": "mx6"}, 4 + 6 / 8 + 2),
        ({"dtype": "tf32", "gradients": "mx4"}, 4 + 4),
    ],
)
def test_bytes_of_a_parameter_by_the_formats_asked_for(dense: dict[str, object], size: float) -> None:
    """Weights, their copy for the matrix products, gradient, state; Adam in mixed precision takes 16 bytes (ZeRO,
    arXiv:1910.02054, section 3.1)."""
    totals = {"macs_per_sample": 7, "parameters": 9}
    assert parameter_bytes(model({**totals, **dense})) == pytest.approx(9 * size)


def test_weights_that_serve_have_the_format_of_the_matrix_products() -> None:
    """No master weights and no gradients: 2 bytes in bf16. What is of training is refused by its name."""
    dense = {"macs_per_sample": 7, "parameters": 9, "dtype": "bf16"}
    assert parameter_bytes(model(dense, mode="inference")) == 18
    with pytest.raises(ValidationError, match="is of training, and the mode is inference"):
        model({**dense, "master_weights": "bf16"}, mode="inference")


@pytest.mark.parametrize(("gradients", "size"), [("bf16", 0.0), ("fp32", 0.0), ("mx9", 4 + 9 / 8), ("fp8", 4 + 1)])
def test_gradients_that_cannot_be_added_are_encoded_and_decoded(gradients: str, size: float) -> None:
    """Among four ranks: all encoded, as many decoded, a quarter (the sums) encoded, all decoded."""
    assert reduction_codec_bytes(model({"gradients": gradients}).dense.gradient_format, 4) == pytest.approx(3.25 * size)
