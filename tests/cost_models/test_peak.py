"""What a step keeps in HBM: exact against hand-made sums, and never below the larger of its two moments."""

import numpy as np
import pytest

from cost_models.peak import Peak
from cost_models.tables import Tables
from cost_models.workload.models import Workload
from tests.oracles.instances import workload

GIB = 2.0**30


def model(dense: dict[str, object], **more: object) -> Workload:
    return workload([{"rows": 10, "dim": 8, "features": 2}], dense=dense, **more)


def peak(own: Workload, *, static: bool = False, hbm_bytes: float = 80 * GIB, world: int = 4) -> Peak:
    return Peak(own, world, loads_ids=True, static_buffers=static, hbm_bytes=hbm_bytes)


@pytest.mark.parametrize(("optimizer", "copies"), [("sgd", 2), ("adagrad", 3), ("adam", 4)])
def test_parameters_with_gradients_and_state(optimizer: str, copies: int) -> None:
    """Of the dense part, in fp32; in inference the parameters alone."""
    dense = {"macs_per_sample": 7, "parameters": 9, "optimizer": optimizer}
    assert peak(model(dense)).rank_bytes["parameters"] == 4 * 9 * copies
    assert peak(model(dense, mode="inference")).rank_bytes["parameters"] == 36


def test_embeddings_are_there_twice_while_their_gradients_are_sent() -> None:
    """A dense part that keeps nothing: gradients as they were made and as they are sent; received once in inference."""
    dense = {"macs_per_sample": 7, "parameters": 9}
    own = model(dense, communication={"forward": "fp16"})
    samples = own.batch(4) / 4
    assert peak(own).rank_bytes["embeddings"] == 2 * samples * 2 * 8 * 2
    assert peak(own).rank_bytes["activations"] == 0
    served = model(dense, mode="inference")
    assert peak(served).rank_bytes["embeddings"] == samples * 2 * 8 * 4


def test_activations_that_are_stated_take_the_place_of_the_layers() -> None:
    """Numbers of one sample, in the type of the matrix products; without them inputs and outputs of the layers."""
    layers = {"top_mlp": [100], "dtype": "fp16"}
    samples = model(layers).batch(4) / 4
    assert peak(model(layers)).rank_bytes["activations"] == samples * (16 + 100) * 2
    stated = model(layers | {"activations_per_sample": 1000})
    assert peak(stated).rank_bytes["activations"] == samples * 1000 * 2


@pytest.mark.parametrize(
    ("given", "loaded", "received"),
    [
        ({"pipeline": "none"}, 1, 1),
        ({"pipeline": "sparse-dist"}, 3, 2),
        ({"pipeline": "sparse-dist", "free_inputs_early": True}, 1, 2),
        ({"pipeline": "prefetch"}, 3, 3),
        ({"pipeline": "prefetch", "mode": "inference"}, 1, 1),
    ],
)
def test_batches_whose_ids_are_there(given: dict[str, object], loaded: int, received: int) -> None:
    """By pipeline, as they were loaded and as they were exchanged."""
    own = model({}, **given)
    one = peak(own).loaded_bytes
    assert one == own.batch(4) / 4 * (own.tables[0].pooling_factor * 8 + 2 * 4)
    assert peak(own).rank_bytes["loaded"] == loaded * one
    assert peak(own).batching.batches_in_flight == received


def test_freeing_inputs_early_needs_a_pipeline() -> None:
    """Where one batch is there at a time it would change nothing: refused."""
    with pytest.raises(ValueError, match="is of a training pipeline that holds several batches"):
        model({}, pipeline="none", free_inputs_early=True)


@pytest.mark.parametrize("kept", [0, 10, 30, 100, 1000, 100_000])
@pytest.mark.parametrize("hbm_bytes", [2e5, 80 * GIB])
def test_the_sum_over_shards_is_never_below_the_larger_moment(kept: int, hbm_bytes: float) -> None:
    """For any share of all vectors that a rank looks up and that fits it."""
    own = model({"activations_per_sample": kept, "dtype": "fp32"})
    found = peak(own, hbm_bytes=hbm_bytes)
    samples = own.batch(4) / 4
    embeddings, tables = samples * 2 * 8 * 4, Tables.of(own, 4)
    vectors = own.batch(4) * float((tables.outputs_per_sample * tables.dim).sum()) * 4
    beside = found.rank_bytes["activations"] + found.rank_bytes["embeddings"]
    for share in np.linspace(0, 1, 21):
        held = share * vectors
        after_forward, in_exchange = samples * kept * 4 + embeddings, 2 * embeddings + 2 * held
        summed = beside + found.batching.output_copies * held
        if in_exchange <= hbm_bytes:
            assert summed >= max(after_forward, in_exchange) * (1 - 1e-12)
        else:
            assert summed >= hbm_bytes * (1 - 1e-12)


def test_static_buffers_take_the_place_of_no_other() -> None:
    """Both moments' bytes are there for the whole step."""
    own = model({"activations_per_sample": 1000})
    shared, static = peak(own), peak(own, static=True)
    assert static.rank_bytes["activations"] == shared.rank_bytes["activations"]
    assert static.rank_bytes["embeddings"] == 2 * shared.rank_bytes["embeddings"]
    assert static.batching.output_copies == 2
