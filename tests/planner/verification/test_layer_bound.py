"""The bound over strategies of layers: never above what a step takes, whatever the layers are held in."""

import math
import random
from dataclasses import replace

import pytest

from cost_models.workload.dense_sharding import Held
from cost_models.workload.models import Workload
from planner.document.plan import Plan
from planner.document.planned import planned_inputs
from planner.formulation.dense_choices import DenseChoices
from planner.formulation.layer_options import LayerOptions, layer_options
from planner.formulation.policy import Policy
from planner.formulation.question import Question
from planner.planning.layer_choice import TablesInPlace
from planner.planning.planning import plan
from planner.verification.layer_bound import LayerRelaxation
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology
from topologies.documents import Document

MODELS = {
    "mlp": [{"kind": "mlp", "name": "top", "inputs": ["bags", "numbers"], "sizes": [4_096, 8_192, 512, 1]}],
    "wukong": [
        {"kind": "wukong", "inputs": ["bags", "numbers"], "vectors": 8, "compressed": 8, "rank": 8, "sizes": [2_048],
         "count": 3},
        {"kind": "mlp", "name": "top", "sizes": [1_024, 1]},
    ],
    "branches": [
        {"kind": "linear", "name": "a", "inputs": ["bags", "numbers"], "out": 4_096},
        {"kind": "linear", "name": "b", "inputs": "a", "out": 2_048},
        {"kind": "linear", "name": "c", "inputs": ["a", "b"], "out": 4_096},
        {"kind": "linear", "name": "d", "inputs": "c", "out": 1},
    ],
    "attention": [
        {"kind": "embeddings", "name": "places", "tables": "history"},
        {"kind": "attention", "name": "seen", "inputs": "places", "heads": 16, "head_dim": 64, "kv_heads": 8},
        {"kind": "attention", "name": "again", "heads": 8, "head_dim": 32, "causal": True},
        {"kind": "pool"},
        {"kind": "linear", "name": "top", "inputs": ["pool", "bags", "numbers"], "out": 2_048},
        {"kind": "linear", "out": 1},
    ],
    "crosses": [
        {"kind": "cross", "name": "low", "inputs": ["bags", "numbers"], "rank": 2_048, "count": 3},
        {"kind": "cross", "name": "full", "count": 2},
        {"kind": "mlp", "name": "top", "sizes": [4_096, 1]},
    ],
}  # fmt: skip


def _drawn(draw: random.Random, name: str) -> tuple[Topology, Workload]:
    """A model whose links or computing bind, on one or several nodes."""
    nodes, ranks = draw.choice([(1, 4), (2, 4), (4, 2)])
    layers = [
        {"kind": "embeddings", "name": "bags", "tables": "t*"},
        {"kind": "mlp", "name": "numbers", "inputs": "numerical", "sizes": [draw.choice([64, 4_096]), 64]},
        *MODELS[name],
    ]
    dense = {"numerical_features": 16, "optimizer": draw.choice(["adam", "sgd"]), "layers": layers}
    dense |= {"checkpointing": "full"} if draw.random() < 0.3 else {}
    samples, pipeline = draw.choice([32, 512, 4_096]), draw.choice(["none", "sparse-dist", "prefetch"])
    rates = {"nic_bytes_per_s": draw.choice([2e9, 25e9, 100e9]), "cards": draw.choice([1, ranks])}
    tables = [{"rows": 20_000, "dim": 64, "pooling_factor": draw.choice([1, 30])} for _ in range(3)]
    if name == "attention":
        tables.append({"name": "history", "rows": 20_000, "dim": 256, "pooling_factor": 64, "pooled": False})
    cluster = topology(node_group("a", nodes=nodes, ranks=ranks, hbm_bytes=20e9, **rates))
    fields = {"global_batch": nodes * ranks * samples, "pipeline": pipeline, "overhead": "50us"}
    return cluster, workload(tables, dense=dense, **fields)


def _open(cluster: Topology, model: Workload) -> tuple[Plan, Question, LayerOptions]:
    """The plan with the best strategy for all layers, as one whose policy leaves them open."""
    whole = Policy.model_validate({"dense": {"strategy": "auto", "by": "whole"}})
    found = plan(cluster, model, policy=whole, effort=0, solver="search", simulate=False)
    policy = found.provenance.policy.model_copy(update={"dense": DenseChoices()})
    found = found.model_copy(update={"provenance": found.provenance.model_copy(update={"policy": policy})})
    planned = planned_inputs(found)[1]
    asked = Question.asked(cluster, model, Document({"dense": {"strategy": "auto"}}, "policy"))
    options = layer_options(DenseChoices(), cluster, planned)
    assert options is not None
    return found, replace(asked, workload=planned), options


def _any(draw: random.Random, options: LayerOptions) -> dict[str, Held]:
    """One strategy for all layers, or one for each, most often of a few."""
    few = draw.sample(sorted({way.words for ways in options.ways.values() for way in ways}), 2)
    chosen = {name: [way for way in ways if way.words in few] for name, ways in options.ways.items()}
    return {name: draw.choice(chosen[name] or ways[:1]) for name, ways in options.ways.items()}


@pytest.mark.parametrize("name", MODELS)
def test_no_strategies_of_layers_take_less_than_is_proven_of_them(name: str) -> None:
    """10 drawn choices: their step with the tables of a plan is not below what its proof says of the choice, and that
    is not below what it says of all."""
    draw = random.Random(f"layers of {name}")
    found, asked, options = _open(*_drawn(draw, name))
    relaxation, beside = LayerRelaxation(found, options, asked.workload), TablesInPlace(found, asked)
    least_s, judged = relaxation.bound_s(), 0
    for _ in range(10):
        sharding = options.sharding(_any(draw, options), asked.workload.layers)
        if not sharding.is_sharded or math.isinf(step_s := beside.step_s(sharding)):
            continue
        proven_s = relaxation.at_least_s(options.held(sharding))
        assert least_s * (1 - 1e-9) <= proven_s <= step_s * (1 + 1e-9)
        assert proven_s > 0.3 * step_s
        judged += 1
    assert judged >= 5
