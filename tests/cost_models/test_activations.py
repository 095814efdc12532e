"""Activation checkpointing: what is kept, what is computed again, and what is refused."""

import random
from dataclasses import replace
from typing import Any

import pytest

from cost_models.activations import KeptBlock, course_of, kept_blocks, kept_elements
from cost_models.dense_size import dense_size, layer_sizes
from cost_models.step import StepModel
from cost_models.workload.loading import load_workload
from cost_models.workload.models import Workload
from planner.verification.dense import _faults_of_activations
from topologies.errors import InputError
from topologies.loading import load_topology

TABLE = {"name": "t", "rows": 1000, "dim": 16, "pooling_factor": 4, "features": 4}
TOWER = [
    {"kind": "embeddings", "tables": "*", "name": "vectors"},
    {"kind": "wukong", "name": "deep", "vectors": 2, "compressed": 2, "rank": 4, "sizes": [32], "count": 3},
    {"kind": "mlp", "name": "top", "sizes": [64, 64, 1]},
]


def of_layers(**dense: object) -> Workload:
    return Workload.model_validate(
        {"name": "w", "global_batch": 4096, "tables": [TABLE], "dense": {"layers": TOWER} | dense}
    )


def test_an_mlp_keeps_its_input_and_is_there_as_a_whole_in_its_backward_pass() -> None:
    """By hand: 16 -> 64 -> 64 -> 1 behind vectors of 4 x 16 keeps 64 numbers; in its backward pass it has all of
    (64 + 64) + (64 + 64) + (64 + 1), and the gradient of its output."""
    (block,) = [each for each in kept_blocks(of_layers(checkpointing=["top"])) if each.name == "top"]
    assert (block.kept, block.whole, block.returned) == (64, 321, 1)


def test_the_course_is_that_of_a_backward_pass_played_by_hand() -> None:
    """Two blocks, the first checkpointed: both as they are kept; the second whole; the first again, with gradients."""
    first, second = KeptBlock("a", 100, 10, 5, True), KeptBlock("b", 30, 30, 1, False)
    assert course_of([first, second]) == (40, 40, 105)
    assert max(course_of([replace(first, kept=100, is_checkpointed=False), second])) == 130


def test_nothing_is_kept_otherwise_where_nothing_is_checkpointed() -> None:
    """Unset and none are all that layers read and write."""
    for workload in (of_layers(), of_layers(checkpointing="none")):
        assert kept_elements(workload) == dense_size(workload).activation_elements


def test_repetitions_are_blocks_and_a_name_means_all_of_them() -> None:
    """The name of a repeated layer, a pattern of its repetitions, and full, on a model of many blocks, keep less."""
    every, some = of_layers(checkpointing="deep"), of_layers(checkpointing=["deep.0"])
    assert [each.name for each in kept_blocks(every) if each.is_checkpointed] == ["deep.0", "deep.1", "deep"]
    assert [each.name for each in kept_blocks(some) if each.is_checkpointed] == ["deep.0"]
    assert kept_elements(of_layers(checkpointing="full")) < kept_elements(some) < kept_elements(of_layers())


def test_what_is_computed_again_goes_forward_once_more() -> None:
    """The step of the closed form grows by one forward pass of exactly the layers that are checkpointed."""
    topology = load_topology("dgx-h100")
    plain, top = StepModel(topology, of_layers()), StepModel(topology, of_layers(checkpointing=["top"]))
    again = dense_size(top.workload).recomputed
    assert again is not None
    named = [size.macs for size, layer in zip(layer_sizes(plain.workload), plain.workload.layers, strict=True)
             if layer.stated == "top"]  # fmt: skip
    assert again.macs == pytest.approx(sum(named))
    full = StepModel(topology, of_layers(checkpointing="full"))
    forward_s = plain.base.dense[0].rest_forward_s
    assert full.base.dense[0].rest_s - plain.base.dense[0].rest_s == pytest.approx(forward_s)
    assert plain.base.dense[0].rest_s < top.base.dense[0].rest_s < full.base.dense[0].rest_s


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mode": "inference"}, "does not train"),
        ({"software": "hugectr"}, "computes no layer again"),
        ({"dense": {"macs_per_sample": 10, "parameters": 5, "checkpointing": "full"}}, "instead of totals"),
        ({"dense": {"layers": TOWER, "activations_per_sample": 9, "checkpointing": "full"}}, "activations_per_sample"),
        ({"dense": {"layers": TOWER, "checkpointing": ["tops*"]}}, "no layer is called 'tops*'"),
    ],
)
def test_what_cannot_be_checkpointed_is_refused_by_name(change: dict[str, object], words: str) -> None:
    """Inference, HugeCTR, totals, stated activations, patterns without a match."""
    dense = {"dense": {"layers": TOWER, "checkpointing": "full"}}
    workload = Workload.model_validate({"name": "w", "global_batch": 64, "tables": [TABLE], **dense, **change})
    with pytest.raises(InputError) as error:
        kept_elements(workload)
    assert words.replace("*", "") in str(error.value).replace("*", "")


def test_models_of_the_catalog_keep_their_content() -> None:
    """A workload that says nothing of checkpointing is written as before."""
    assert "checkpointing" not in load_workload("criteo-kaggle").model_dump(mode="json")["dense"]


def _drawn(seed: int) -> Workload:
    """A graph of 3 to 8 layers, joined at the end, of which some are checkpointed."""
    drawn, layers, names = random.Random(seed), [{"kind": "embeddings", "tables": "*", "name": "v"}], ["v"]
    kinds: list[dict[str, Any]] = [
        {"kind": "mlp", "sizes": [200, 16]},
        {"kind": "linear", "out": 16},
        {"kind": "stack"},
        {"kind": "wukong", "vectors": 2, "compressed": 2, "rank": 4, "sizes": [32], "count": 3},
    ]
    for number in range(drawn.randint(2, 7)):
        read = drawn.sample(names, min(len(names), drawn.choice([1, 1, 2])))
        layers.append({**drawn.choice(kinds), "name": f"l{number}", "inputs": read})  # type: ignore[dict-item]
        names.append(f"l{number}")
    unread = [name for name in names if not any(name in layer.get("inputs", ()) for layer in layers)]
    layers.append({"kind": "mlp", "name": "top", "inputs": unread, "sizes": [32, 1]})  # type: ignore[dict-item]
    again = drawn.sample([layer["name"] for layer in layers[1:]], drawn.randint(1, len(layers) - 1))
    return of_layers(layers=layers, checkpointing=drawn.choice(["full", again]))


def test_what_is_kept_is_never_below_a_backward_pass_that_verify_plays() -> None:
    """On drawn graphs, by the account of each tensor's life that verify keeps."""
    topology = load_topology("dgx-h100")
    for seed in range(20):
        assert list(_faults_of_activations(StepModel(topology, _drawn(seed)))) == []
