"""The dense part of a step, worked out by hand."""

import itertools

import numpy as np
import pytest

from cost_models.coefficients import software_coefficients
from cost_models.dense import dense_seconds
from cost_models.dense_size import dense_parts
from cost_models.kinds import rank_kinds
from cost_models.simulator.dense_part import BUCKET_BYTES, DenseKernels
from cost_models.simulator.engine import Engine
from cost_models.simulator.network import SimulatedNetwork
from cost_models.simulator.program import Streams
from tests.oracles.instances import node_group, topology, workload

LAYERS = {"numerical_features": 13, "bottom_mlp": [512, 64], "interaction": "concat", "top_mlp": [4096, 4096, 1]}
CLUSTER = topology(node_group("a", ranks=2))


def built(**dense: object) -> tuple[Streams, DenseKernels]:
    model = workload([{"rows": 1000, "dim": 64}], dense=dense)
    streams = Streams(2)
    network = SimulatedNetwork(CLUSTER, rank_kinds(CLUSTER, model))
    return streams, DenseKernels(streams, network, model, software_coefficients("torchrec"))


def test_parts_that_need_no_vectors_come_first() -> None:
    """The bottom MLP alone; a model that is given by its size has no such part, one without layers has none at all."""
    assert (built(**LAYERS)[1].first, built(**LAYERS)[1].rest) == (["bottom_mlp"], ["interaction", "top_mlp"])
    given = built(macs_per_sample=1e6, parameters=1000)[1]
    assert (given.first, given.rest) == ([], ["top_mlp"])
    assert built()[1].rest == []


def test_kernels_take_their_flops_and_the_backward_pass_twice_as_many() -> None:
    """2 FLOPs per multiply-accumulate, edges included; a device that is half as fast takes twice as long."""
    streams, dense = built(macs_per_sample=2**20, parameters=1000)
    slow = np.array([1.0, 2.0])
    dense.forward(dense.rest, 0, slow)
    (bucket,) = dense.backward(dense.rest, 0, slow)
    run = Engine(streams.graph, np.zeros(0)).run()
    (kind,) = rank_kinds(CLUSTER, workload([{"rows": 1000, "dim": 64}], dense={}))
    (rate,) = kind.products
    outer, inner = 1024 + rate.edge, 1024 + rate.inner_edge
    forward = 2 * (2048 + rate.edge) * outer * inner / rate.flops_per_s
    backward = forward + 2 * outer**2 * (2048 + rate.inner_edge) / rate.flops_per_s
    spans = {task.name: run.end[task.last] - run.start[task.first] for task in streams.program.tasks}
    assert spans["top mlp forward"] == pytest.approx(forward * slow)
    assert spans["top mlp backward"] == pytest.approx(backward * slow)
    assert bucket[1] == 1000 * 4


@pytest.mark.parametrize("dtype", ["fp32", "tf32", "bf16"])
def test_simulated_layers_take_what_the_estimate_says(dtype: str) -> None:
    """Each with its own formula, to the last digits, narrow layers included."""
    layers = {"numerical_features": 13, "top_mlp": [1024, 3, 1], "dtype": dtype}
    model = workload([{"rows": 1000, "dim": 64}], dense=layers)
    (kind,) = rank_kinds(CLUSTER, model)
    streams, dense = built(**layers)
    dense.forward(dense.rest, 0, np.ones(2))
    dense.backward(dense.rest, 0, np.ones(2))
    run = Engine(streams.graph, np.zeros(0)).run()
    passes = software_coefficients("torchrec").activation_passes.value
    assert run.end.max() == pytest.approx(dense_seconds(model, 2048, kind, passes).total_s, rel=1e-12)


def test_gradients_are_ready_bucket_by_bucket() -> None:
    """As many buckets as 25 MB go into a part's gradients, in order; together they are its gradients."""
    streams, dense = built(**LAYERS)
    buckets = dense.backward(dense.rest, 0, np.ones(2))
    model = workload([{"rows": 1000, "dim": 64}], dense=LAYERS)
    gradient = 4 * np.array([dense_parts(model)[part].parameters for part in reversed(dense.rest)])
    assert len(buckets) == int(np.maximum(1, np.ceil(gradient / BUCKET_BYTES)).sum()) > 2
    assert sum(size for _, size in buckets) == pytest.approx(gradient.sum())
    ends = Engine(streams.graph, np.zeros(0)).run().end
    assert all(ends[a[0]] <= ends[b[0]] for (a, _), (b, _) in itertools.pairwise(buckets))


def test_the_optimizer_is_a_part_of_the_measured_overhead() -> None:
    """Both together are the overhead, unless the optimizer alone takes longer; inference has all of it."""
    _, dense = built(**LAYERS)
    overhead = software_coefficients("torchrec").step_overhead_s.value
    assert dense.overhead_s(np.ones(2)) + dense.optimizer_s(np.ones(2)) == pytest.approx([overhead] * 2)
    _, huge = built(macs_per_sample=1e6, parameters=int(1e10))
    assert huge.overhead_s(np.ones(2)).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("dtype", "gradients", "size"), [("bf16", None, 2), ("bf16", "fp32", 4), ("tf32", "mx6", 0.75)]
)
def test_gradients_are_reduced_in_the_format_asked_for(dtype: str, gradients: str | None, size: float) -> None:
    """Bytes of every bucket follow it; unset, it is that of 16-bit matrix products."""
    given = {"gradients": gradients} if gradients else {}
    _, dense = built(macs_per_sample=1e6, parameters=1000, dtype=dtype, **given)
    (bucket,) = dense.backward(dense.rest, 0, np.ones(2))
    assert bucket[1] == 1000 * size


def test_mixed_precision_updates_master_weights_and_their_copy() -> None:
    """Adam reads and writes fp32 weights and two arrays of state, reads a bf16 gradient, writes a bf16 copy."""
    _, dense = built(macs_per_sample=1e6, parameters=10**9, dtype="bf16", optimizer="adam")
    (kind,) = rank_kinds(CLUSTER, workload([{"rows": 1000, "dim": 64}], dense={}))
    moved = 1e9 * (2 * 4 + 2 * 8 + 2 + 2)
    assert dense.optimizer_s(np.ones(2)) == pytest.approx([moved / kind.hbm_bytes_per_s] * 2)
