"""Layers of the dense part that are held each in their own way: bytes, step, proof, and what is refused by name."""

from typing import Any

import pytest

from cost_models.cut_layers import calls_of_units
from cost_models.dense_units import dense_units
from cost_models.workload.models import Workload
from planner.document.plan import Plan
from planner.exporters.formats import FORMATS, ExportRequest
from planner.formulation.policy import Policy
from planner.planning.planning import plan
from planner.reports.memory import of_plan
from planner.verification.verify import verify
from tests.oracles.agreement import expect_near_simulation
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology
from topologies.errors import InputError

TWO_NODES = topology(node_group("a", nodes=2, ranks=4, hbm_bytes=4e9))
PAIR = [{"match": "wide", "cut": "columns"}, {"match": "narrow", "cut": "rows"}]
WIDE, NARROW = 4_096, 1_024
READ = 2 * 64 + 64


def _model(**dense: Any) -> Workload:
    layers = [
        {"kind": "embeddings", "name": "bags", "tables": "*"},
        {"kind": "linear", "name": "numbers", "inputs": "numerical", "out": 64},
        {"kind": "linear", "name": "wide", "inputs": ["bags", "numbers"], "out": WIDE},
        {"kind": "linear", "name": "narrow", "out": NARROW},
        {"kind": "linear", "name": "out", "out": 1},
    ]
    fields = {"numerical_features": 8, "optimizer": "adam", "dtype": "fp32", "layers": layers, **dense}
    tables = [{"rows": 20_000, "dim": 64}, {"rows": 90_000, "dim": 64}]
    return workload(tables, global_batch=8 * 512, dense=fields)


def _planned(dense: dict[str, Any] | None, cluster: Topology = TWO_NODES, **stated: Any) -> Plan:
    policy = Policy.model_validate({} if dense is None else {"dense": dense})
    return plan(cluster, _model(**stated), policy=policy, effort=0, solver="search")


@pytest.mark.parametrize("strategy", ["replicate", "zero2", "fsdp"])
def test_ranks_hold_what_their_rules_say(strategy: str) -> None:
    """16 bytes a parameter of Adam in fp32. Of the two layers that are cut a quarter, of which two nodes share what the
    strategy shards; of the first layer everything. The step is within 3 % of the simulated one, and all is verified."""
    rules = [*PAIR, {"match": "numbers", "strategy": "replicate"}]
    found = _planned({"strategy": strategy, "layers": rules})
    whole, cut = 8 * 64 + 64, (READ * WIDE + WIDE + WIDE * NARROW + NARROW) / 4
    shared, kept = {"replicate": (0, 16), "zero2": (12, 4), "fsdp": (16, 0)}[strategy]
    expected = 16 * whole + (kept + shared / 2) * cut + (kept + shared / 8) * (NARROW + 1)
    assert found.dense is not None
    assert [rule.cut for rule in found.dense.layers] == ["columns", "rows", None]
    assert verify(found) == []
    expect_near_simulation(found, 0.03)
    (record,) = [each for each in of_plan(found) if each["part"] == "dense parameters, gradients, state"]
    assert record["hbm_bytes"] == pytest.approx(8 * expected, rel=1e-9)
    lied = found.model_copy(update={"dense": found.dense.model_copy(update={"layers": ()})})
    assert any("dense: is " in fault for fault in verify(lied))


def test_a_pair_of_layers_calls_as_megatron_does() -> None:
    """With samples of each rank's own around it: the inputs of the node's samples are gathered and their gradients
    summed in parts, and outputs the other way round; between the two nothing is called."""
    model = _model(sharding={"layers": PAIR})
    units = dense_units(model)
    calls = dict(
        zip(
            ["+".join(layer.name for layer in unit.layers) for unit in units],
            calls_of_units(model, units, 8, 4),
            strict=True,
        )
    )
    node_bytes = 4 * 512 * 4  # ranks, samples of each, fp32
    sizes = [call.buffer_bytes for call in calls["wide"].enter]
    assert sorted(sizes) == [node_bytes * 64, node_bytes * 128]
    assert {call.operation for call in calls["wide"].enter} == {"all_gather"}
    assert {call.operation for call in calls["wide"].back} == {"reduce_scatter"}
    assert calls["narrow"].enter + calls["narrow"].back == ()
    (scatter,), (gather,) = calls["out"].enter, calls["out"].back
    assert (scatter.operation, scatter.buffer_bytes) == ("reduce_scatter", node_bytes * NARROW)
    assert (gather.operation, gather.buffer_bytes) == ("all_gather", node_bytes * NARROW)


def test_a_pair_that_is_computed_again_calls_once_more() -> None:
    """What columns read, which each block keeps as its ranks' own samples; not what the last layer reads, which its
    block keeps as it was summed. The plan is verified."""
    model = _model(sharding={"layers": PAIR}, checkpointing="full")
    units = dense_units(model)
    wide, narrow, out = calls_of_units(model, units, 8, 4)[-3:]
    assert wide.answer == wide.enter
    assert narrow.answer == ()
    assert out.answer == ()
    assert len(out.enter) == 1
    found = _planned({"strategy": "fsdp", "layers": PAIR}, checkpointing="full")
    assert verify(found) == []
    expect_near_simulation(found, 0.03)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"match": "nobody", "cut": "rows"}, "no layer is called nobody; with parameters there are numbers, wide"),
        ({"match": "bags", "cut": "rows"}, "bags is a layer embeddings, and only linear ones are cut by rows"),
        ({"match": "out", "cut": "columns"}, "out has 1 outputs, which 4 ranks do not share evenly"),
    ],
)
def test_rules_that_cannot_hold_are_refused_by_name(rule: dict[str, str], words: str) -> None:
    """Of one strategy, and of all that are open."""
    for strategy in ("fsdp", "auto"):
        with pytest.raises(InputError, match=words):
            _planned({"strategy": strategy, "layers": [rule]})


def test_layers_are_not_cut_over_one_rank() -> None:
    """Nor over nodes of different sizes."""
    single = topology(node_group("a", nodes=2, ranks=1, hbm_bytes=4e9))
    with pytest.raises(InputError, match="nodes have one rank each"):
        _planned({"strategy": "fsdp", "layers": PAIR}, single)


def test_every_strategy_is_planned_with_the_rules() -> None:
    """`auto` takes the best of those that are sharded over all ranks or over a node, and tells all of them."""
    found = _planned({"strategy": "auto", "layers": PAIR})
    assert found.dense is not None
    assert len(found.dense.others) == 6
    assert all(other.layers == found.dense.layers for other in found.dense.others)
    assert verify(found) == []


def test_torch_is_told_which_layers_are_cut() -> None:
    """As styles of parallelize_module, beside FSDP2."""
    document = FORMATS["fsdp2"].export(ExportRequest(_planned({"strategy": "fsdp", "layers": PAIR}), "plan")).document
    assert document is not None
    assert document["mesh"] == {"shape": [2, 4], "dim_names": ["shard", "tensor"]}
    assert document["parallel_plan"] == {
        "wide": {"style": "ColwiseParallel", "input_shard": 0},
        "narrow": {"style": "RowwiseParallel", "output_shard": 0},
    }
