"""The dense part layer by layer: sums of what the step takes."""

import pytest

from cost_models.dense import dense_seconds
from cost_models.dense_size import dense_size
from cost_models.shampoo import ShampooStep
from cost_models.step import StepModel
from planner.diagnosis.dense_layers import layer_reasons
from tests.oracles.instances import node_group, topology, workload

LAYERS = [
    {"kind": "embeddings", "name": "bags", "tables": "*"},
    {"kind": "mlp", "name": "bottom", "inputs": "numerical", "sizes": [64, 8]},
    {"kind": "wukong", "inputs": ["bags", "bottom"], "vectors": 4, "compressed": 3, "rank": 2, "sizes": [32]},
    {"kind": "mlp", "name": "top", "sizes": [16, 1]},
]


@pytest.mark.parametrize("mode", ["training", "inference"])
def test_layers_add_up_to_the_dense_part(mode: str) -> None:
    """Seconds, FLOPs and parameters of all layers are those of the step's dense part."""
    tables = [{"rows": 100, "dim": 8}] * 3
    asked = workload(tables, dense={"layers": LAYERS, "numerical_features": 5, "dtype": "bf16"}, mode=mode)
    model = StepModel(topology(node_group("n", nodes=1, ranks=2)), asked)
    found = layer_reasons(model)
    (kind,), passes = model.kinds, model.coefficients.software.activation_passes.value
    whole = dense_seconds(asked, model.batching.samples_per_rank, kind, passes)
    assert sum(each.seconds for each in found) == pytest.approx(whole.total_s, rel=1e-9)
    assert sum(each.flops_per_sample for each in found) == (6 if mode == "training" else 2) * dense_size(asked).macs
    assert sum(each.layer.parameters for each in found) == dense_size(asked).parameters


def test_blocks_of_layers_add_up_to_those_of_a_rank_that_has_them_all() -> None:
    """State and seconds of Shampoo without groups; layers without weights have none."""
    dense = {"layers": LAYERS, "numerical_features": 5, "optimizer": "shampoo", "shampoo": {"block": 20}}
    model = StepModel(topology(node_group("n", nodes=1, ranks=2)), workload([{"rows": 100, "dim": 8}] * 3, dense=dense))
    step = ShampooStep.of(model.workload)
    assert step is not None
    found = [each.blocks for each in layer_reasons(model) if each.blocks is not None]
    assert len(found) < len(layer_reasons(model))
    assert sum(each.count for each in found) == len(step.blocks)
    assert sum(each.state_bytes for each in found) == step.state_bytes == step.rank_state_bytes
    assert sum(each.each_step_s for each in found) == pytest.approx(model.update.preconditioned_s)
    assert sum(each.roots_s for each in found) == pytest.approx(model.update.roots_s)


def test_a_pattern_names_layers() -> None:
    """Layers of a shorthand have its name with a part behind it; the last one has the name itself."""
    tables = [{"rows": 100, "dim": 8}] * 3
    model = StepModel(
        topology(node_group("n", nodes=1, ranks=2)), workload(tables, dense={"layers": LAYERS, "numerical_features": 5})
    )
    assert [each.layer.name for each in layer_reasons(model, "bottom*")] == ["bottom.0", "bottom"]
    assert not layer_reasons(model, "tower")


def test_layers_that_are_cut_take_what_one_rank_computes() -> None:
    """Columns over the 4 ranks of a node: as many FLOPs of a sample, inputs of all of them read by each; the rule in
    words, on the layers that it holds and on the others, and on none where there are no rules."""
    layers = [
        {"kind": "linear", "name": "numbers", "inputs": "numerical", "out": 64},
        {"kind": "embeddings", "name": "bags", "tables": "*"},
        {"kind": "linear", "name": "wide", "inputs": ["bags", "numbers"], "out": 4_096},
    ]
    cluster = topology(node_group("a", nodes=2, ranks=4))
    found = []
    for rules in ([], [{"match": ["wide"], "cut": "columns"}]):
        dense = {"numerical_features": 8, "layers": layers, "sharding": {"layers": rules}}
        model = StepModel(cluster, workload([{"rows": 1000, "dim": 64}], global_batch=8 * 512, dense=dense))
        found.append({each.layer.name: each for each in layer_reasons(model)})
    whole, cut = found
    assert cut["numbers"].seconds == whole["numbers"].seconds
    assert cut["wide"].flops_per_sample == whole["wide"].flops_per_sample
    samples, inputs = 512, 64 + 64
    more = (4 - 1) * inputs * samples * model.workload.dense.activation_bytes
    assert cut["wide"].activation_bytes == pytest.approx(whole["wide"].activation_bytes + more)
    assert {each.held for each in whole.values()} == {None}
    assert (cut["wide"].held, cut["numbers"].held) == ("columns, replicate", "replicate")
