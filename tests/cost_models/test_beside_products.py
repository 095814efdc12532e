"""What kernels beside products read and write, counted by hand."""

from typing import Any

import pytest

from cost_models.beside_products import BesideRates
from cost_models.coefficients import software_coefficients
from cost_models.dense_size import dense_size
from cost_models.software import software_of
from cost_models.workload import Workload
from tests.oracles.instances import workload

VECTORS: list[dict[str, object]] = [{"rows": 10, "dim": 16, "pooling_factor": 1}] * 6
TABLES = {"kind": "embeddings", "name": "vectors", "tables": "*"}
LAYERS: dict[str, tuple[list[dict[str, Any]], tuple[float, float], float]] = {
    # an activation of 7: read and written; its gradient: two read, one written; the bias's: read
    "linear": ([{"kind": "linear", "out": 7}], (2 * 7, 3 * 7 + 7), 1),
    "without bias": ([{"kind": "linear", "out": 7, "bias": False}], (2 * 7, 3 * 7), 0),
    # x0 * y + x: three numbers moved twice; backward two products, two sums; biases of 96 and 5
    "cross": ([{"kind": "cross", "rank": 5}], (6 * 96, 12 * 96 + 96 + 5), 2),
    "two squares": ([{"kind": "cross", "count": 2}], (12 * 96, 24 * 96 + 2 * 96), 2),
    # of 36 dots 15 picked; backward 36 zeros, and two gradients added
    "dot": ([{"kind": "dot"}], (2 * 15, 36 + 3 * 96), 0),
    # weights by vectors: copies of 96 in, of 32 out; backward one of 32
    "compress": ([{"kind": "compress", "vectors": 2}], (2 * 96 + 2 * 32, 2 * 32), 0),
    "norm": ([{"kind": "norm"}], (2 * 96, 5 * 96), 0),
    # joined, with gradients of vectors copied out; the second reader's added
    "read twice": (
        [
            {"kind": "norm", "name": "normed", "inputs": "vectors"},
            {"kind": "linear", "name": "l", "inputs": ["normed", "vectors"], "out": 7},
        ],
        (2 * 96 + 2 * 192 + 2 * 7, 5 * 96 + 2 * 96 + 3 * 96 + 4 * 7),
        1,
    ),
}
"""Layers over six vectors of 16; numbers of a sample that are moved forward and backward; rows that are summed."""


def asked(layers: list[dict[str, Any]], mode: str | None = "eager", software: str = "torchrec") -> Workload:
    dense = {"layers": [TABLES, *layers]}
    found: Workload = workload(VECTORS, dense=dense, software=software, software_mode=mode)
    return found


@pytest.mark.parametrize("name", list(LAYERS))
def test_counts_of_each_kind_of_layer(name: str) -> None:
    """Eager; a compiled step moves no more, and sums nothing by itself."""
    layers, (forward, backward), summed = LAYERS[name]
    found = dense_size(asked(layers)).beside
    assert found.forward + found.turned_forward == forward
    assert found.backward + found.summed + found.turned_backward == backward
    assert found.summed_rows == summed
    assert found.fused_forward <= found.forward
    assert found.fused_backward <= found.backward + found.summed


@pytest.mark.parametrize("name", list(LAYERS))
@pytest.mark.parametrize("mode", ["eager", "compiled", "graph"])
def test_bytes_of_device_memory_in_a_mode(name: str, mode: str) -> None:
    """Counted numbers at 1.15 times their bytes; rows and layouts beyond, forward and in a step."""
    workload, software = asked(LAYERS[name][0], mode), software_coefficients("torchrec")
    size, rates = dense_size(workload), BesideRates.of(workload, software)
    passes = software_of(workload).activation_passes.value
    named = ("turned_number_bytes", "counted_norm_row_bytes", "norm_gradient_row_bytes", "summed_row_bytes")
    turned, normed, gradient, summed = (getattr(software, each).value for each in named)
    picked, beside = software.picked_gradient_bytes, size.beside
    assert picked is not None
    if mode == "compiled":
        forward, step = beside.fused_forward, beside.fused_forward + beside.fused_backward
        normed = gradient = summed = 0.0
    else:
        forward, step = beside.forward, beside.forward + beside.backward + beside.summed
    forward_bytes = passes * 4 * (forward + beside.turned_forward)
    forward_bytes += turned * beside.turned_forward + normed * size.norm_rows
    layouts = beside.turned_forward + beside.turned_backward
    step_bytes = passes * 4 * (step + layouts) + turned * layouts + (normed + gradient) * size.norm_rows
    step_bytes += picked.value * size.picked + summed * beside.summed_rows
    moved = [rates.moved_bytes(size, workload.dense, passes, forward_only=only) for only in (True, False)]
    assert moved == pytest.approx([forward_bytes, step_bytes], rel=1e-12)


def test_crossings_are_counted_where_no_mode_is_stated() -> None:
    """Nor in any mode of software whose crossings were fitted to whole steps; a third of them forward."""
    layers = [{"kind": "linear", "out": 7}]
    for software, mode in (("torchrec", None), ("hugectr", None), ("hugectr", "graph")):
        workload = asked(layers, mode, software)
        size, passes = dense_size(workload), software_of(workload).activation_passes.value
        rates = BesideRates.of(workload, software_coefficients(software))
        moved = [rates.moved_bytes(size, workload.dense, passes, forward_only=only) for only in (True, False)]
        assert moved == pytest.approx([passes * 4 * (96 + 7) / 3, passes * 4 * (96 + 7)])
