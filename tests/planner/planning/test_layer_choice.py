"""Strategies chosen layer by layer: beside all choices there are, on the published models, and where memory binds."""

import itertools
import random
from typing import Any

import pytest

from cost_models.step import StepModel
from cost_models.workload.dense_sharding import DenseSharding, Held, LayerSharding
from cost_models.workload.loading import load_workload
from cost_models.workload.models import Workload
from planner.document.plan import Plan
from planner.formulation.dense_choices import with_sharding
from planner.formulation.formulation import Formulation
from planner.formulation.policy import Policy
from planner.planning.planning import plan
from planner.verification.verify import verify
from tests.oracles.brute_force import optimum
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology
from topologies.loading import load_topology

WHOLE = [Held(), *(Held(word, over) for word in ("zero1", "zero2", "fsdp") for over in ("world", "node"))]  # type: ignore[arg-type]
CUT = [Held(word, "world", cut) for cut in ("columns", "rows") for word in ("replicate", "zero1", "zero2", "fsdp")]  # type: ignore[arg-type]
FREE = ("wide", "narrow")


def drawn(seed: int) -> tuple[Topology, Workload]:
    """Two nodes of two ranks, two tables, two layers to choose for, of any size, and one that is not cut."""
    draw = random.Random(seed)
    wide, narrow = (draw.choice([64, 512, 2_048, 8_192]) for _ in range(2))
    layers = [
        {"kind": "embeddings", "name": "bags", "tables": "*"},
        {"kind": "linear", "name": "wide", "inputs": ["bags", "numerical"], "out": wide},
        {"kind": "linear", "name": "narrow", "inputs": ["wide"], "out": narrow},
        {"kind": "linear", "name": "out", "out": 1},
    ]
    if draw.random() < 0.4:
        layers[1]["inputs"], layers[2]["inputs"] = "numerical", ["bags", "wide"]
    tables = [{"rows": draw.choice([20_000, 300_000]), "dim": 64} for _ in range(2)]
    dense = {"numerical_features": 16, "optimizer": draw.choice(["adam", "sgd"]), "layers": layers}
    fields = {"global_batch": 4 * draw.choice([64, 1_024, 8_192]), "overhead": "300us"}
    nodes: dict[str, Any] = {
        "hbm_bytes": draw.choice([0.25, 0.5, 4.0]) * 1e9,
        "nic_bytes_per_s": draw.choice([2e9, 25e9, 100e9]),
    }
    return topology(node_group("a", nodes=2, ranks=2, cards_over_pcie=False, **nodes)), workload(
        tables, dense=dense, **fields
    )


def every_sharding(model: Workload, over: tuple[str, ...]) -> list[DenseSharding]:
    """Each pair of ways of the two layers that can be cut, sharded over these; the last layer is replicated."""
    found = []
    sizes = {layer.name: layer.products[0] for layer in model.layers if layer.products}
    for pair in itertools.product([*(way for way in WHOLE if way.over in over), *CUT], repeat=2):
        rules = [LayerSharding(match=("out",), strategy="replicate")]
        for name, way in zip(FREE, pair, strict=True):
            if way.cut and round(sizes[name].columns if way.cut == "columns" else sizes[name].inner) % 2:
                break
            over = None if way.cut or way.strategy == "replicate" else way.over
            rules.append(LayerSharding(match=(name,), cut=way.cut, strategy=way.strategy, over=over))
        else:
            found.append(DenseSharding(layers=tuple(rules)))
    return found


def best_of_all(cluster: Topology, model: Workload, policy: Policy, over: tuple[str, ...]) -> float:
    """The shortest step over every choice and every placement."""
    steps = []
    for sharding in every_sharding(model, over):
        costs = StepModel(cluster, with_sharding(model, sharding))
        formulation = Formulation.of(costs, policy)
        at_each = [optimum(formulation.at_protocols(lines).problem) for lines in costs.all_protocols]
        steps += [costs.whole_step_s(found.step_s) for found in at_each if found is not None]
    return min(steps, default=float("inf"))


def judge(seed: int, *over: str) -> tuple[Plan, float]:
    """The plan of a drawn model, and the shortest step of all; sharded over the world, a node, or either."""
    cluster, model = drawn(seed)
    narrow = {"tiers": ["hbm"], "shardings": ["table_wise", "row_wise"]}
    dense = {"strategy": "auto", "layers": [{"match": "out", "strategy": "replicate"}]}
    dense |= {"over": over[0]} if len(over) == 1 else {}
    chosen = plan(cluster, model, policy=Policy.model_validate(narrow | {"dense": dense}), gap=0.0, effort=1)
    return chosen, best_of_all(cluster, model, Policy.model_validate(narrow), over or ("world", "node"))


@pytest.mark.parametrize(
    ("seed", "cuts"),
    [
        pytest.param(0, {"columns", "rows"}, marks=pytest.mark.slow),
        (16, {"columns"}),
        pytest.param(13, set(), marks=pytest.mark.slow),
    ],
)
def test_layers_and_tables_are_chosen_as_by_brute_force(seed: int, cuts: set[str]) -> None:
    """Over every pair of ways of two layers and every placement of two tables: in one of the cases nothing fits but
    cut layers, in one a cut layer is faster, in one sums end beside the update and nothing is cut. The bound over all
    of them holds, and the plan is verified."""
    chosen, best_s = judge(seed, "world")
    assert chosen.objective is not None
    assert chosen.dense is not None
    assert chosen.dense.by_layer is not None
    assert {rule.cut for rule in chosen.dense.layers} - {None} == cuts
    assert chosen.objective.step_s == pytest.approx(best_s, rel=1.2e-3)
    assert chosen.dense.by_layer.lower_bound_s <= best_s * (1 + 1e-9)
    assert verify(chosen) == []
    assert chosen.simulated is not None
    assert chosen.objective.step_s == pytest.approx(chosen.simulated.step_s, rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [4, 11])
def test_no_choice_is_below_the_bound_or_far_below_the_plan(seed: int) -> None:
    """The same of more draws: where something fits, the plan is within 0.2 % of the best, and the bound holds."""
    chosen, best_s = judge(seed)
    if chosen.objective is None:
        assert best_s == float("inf")
        return
    assert chosen.dense is not None
    assert chosen.dense.by_layer is not None
    assert best_s * (1 - 1e-9) <= chosen.objective.step_s <= best_s * 1.002
    assert chosen.dense.by_layer.lower_bound_s <= best_s * (1 + 1e-9)


def _auto(cluster: Topology, model: Workload, **more: Any) -> Plan:
    policy = Policy.model_validate({"dense": {"strategy": "auto", **more}})
    return plan(cluster, model, policy=policy, effort=0, solver="search", simulate=False)


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("dlrm-v1", 1),
        *(
            pytest.param(name, nodes, marks=pytest.mark.slow)
            for name, nodes in (
                ("dlrm-dcnv2", 1),
                ("dlrm-dcnv2", 4),
                ("dlrm-v1", 16),
                ("dlrm-dcnv2", 16),
            )
        ),
    ],
)
def test_published_models_keep_data_parallel(name: str, nodes: int) -> None:
    """On 8, 32 and 128 ranks in TorchRec, which could hold layers otherwise, with the placement and the objective of a
    plan that says nothing of the dense part; and the bound over all strategies within 5 %."""
    cluster, model = load_topology("dgx-h100", nodes=nodes), load_workload(name)
    runtime = Policy.model_validate({"runtime": "torchrec"})
    silent = plan(cluster, model, policy=runtime, effort=0, solver="search", simulate=False)
    policy = Policy.model_validate({"runtime": "torchrec", "dense": {"strategy": "auto"}})
    chosen = plan(cluster, model, policy=policy, effort=0, solver="search", simulate=False)
    assert chosen.objective is not None
    assert chosen.dense is not None
    assert chosen.dense.of_others == Held()
    assert chosen.dense.layers == ()
    assert (chosen.tables, chosen.objective, chosen.ranks) == (silent.tables, silent.objective, silent.ranks)
    assert chosen.dense.by_layer is not None
    assert chosen.objective.step_s < 1.05 * chosen.dense.by_layer.lower_bound_s


def test_a_large_layer_is_cut_where_its_gradients_cross_cards() -> None:
    """Rules that the programme writes; stated in a policy of their own they make the same plan. `by: whole` finds a
    longer step, and its plan tells of no layers."""
    cluster, model = drawn(16)
    chosen, whole = _auto(cluster, model), _auto(cluster, model, by="whole")
    assert chosen.dense is not None
    assert chosen.objective is not None
    assert whole.dense is not None
    assert whole.objective is not None
    assert "columns" in {rule.cut for rule in chosen.dense.layers}
    assert whole.dense.by_layer is None
    assert chosen.objective.step_s < whole.objective.step_s
    rules = [rule.model_dump(exclude_none=True) for rule in chosen.dense.layers]
    stated = Policy.model_validate({"dense": {"strategy": chosen.dense.strategy, "layers": rules}})
    again = plan(cluster, model, policy=stated, effort=0, solver="search", simulate=False)
    assert (again.tables, again.objective) == (chosen.tables, chosen.objective)
    followed = plan(cluster, model, policy=Policy.model_validate({"dense": {"strategy": "auto"}}), previous=chosen)
    assert followed.dense is not None
    assert followed.dense.layers == chosen.dense.layers


def test_a_bound_that_is_made_up_is_found() -> None:
    """`verify` recomputes it from the proof of the plan."""
    chosen = _auto(*drawn(13))
    assert chosen.dense is not None
    assert chosen.dense.by_layer is not None
    lied = chosen.dense.by_layer.model_copy(update={"lower_bound_s": chosen.dense.by_layer.lower_bound_s * 1.01})
    document = chosen.model_copy(update={"dense": chosen.dense.model_copy(update={"by_layer": lied})})
    assert any("dense.by_layer" in fault for fault in verify(document))


def test_by_says_what_auto_chooses() -> None:
    """Beside a strategy that is given it says nothing, and is refused."""
    with pytest.raises(ValueError, match="by says what auto chooses, and fsdp is chosen"):
        Policy.model_validate({"dense": {"strategy": "fsdp", "by": "whole"}})
