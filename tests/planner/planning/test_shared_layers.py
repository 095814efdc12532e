"""Attention and cross layers whose work the ranks of a node share: what each computes, calls and holds, the step, and
strategies that are chosen, beside what a paper, hand and brute force say."""

import itertools
import random
from typing import Any

import pytest

from cost_models.cut_layers import calls_of_units
from cost_models.dense_sharding import held_units, sharded_bytes
from cost_models.dense_size import layer_size
from cost_models.dense_units import DenseUnit, dense_units
from cost_models.shared_work import inside_calls, size_on_rank
from cost_models.simulator.shared_sizes import shared_size
from cost_models.step import StepModel
from cost_models.workload.dense_sharding import STRATEGY_WORDS, DenseSharding, Held, LayerSharding
from cost_models.workload.layer_graph import SizedLayer
from cost_models.workload.models import Workload
from planner.document.plan import Plan
from planner.formulation.dense_choices import with_sharding
from planner.formulation.formulation import Formulation
from planner.formulation.policy import Policy
from planner.planning.planning import plan
from planner.reports.memory import of_plan
from planner.verification.verify import verify
from tests.oracles.agreement import expect_near_simulation
from tests.oracles.brute_force import optimum
from tests.oracles.instances import node_group, topology, workload
from tests.oracles.wukong import dgx_h100
from topologies.cluster import Topology
from topologies.errors import InputError

TWO_NODES = topology(node_group("a", nodes=2, ranks=4, hbm_bytes=16e9))
TOKENS, WIDTH, HEADS, KV_HEADS, HEAD_DIM, INNER = 64, 128, 8, 4, 32, 96
RULES: dict[str, dict[str, Any]] = {
    "heads": {"match": "seen", "cut": "heads"},
    "keys and values": {"match": "seen", "cut": "tokens"},
    "queries": {"match": "seen", "cut": "tokens", "passes": "queries"},
    "all to all": {"match": "seen", "cut": "tokens", "passes": "all_to_all"},
    "chain": {"match": ["up", "seen", "sum", "normed"], "cut": "tokens"},
    "inner": {"match": "low", "cut": "inner"},
    "width": {"match": "full", "cut": "width"},
}


def _layers(width: int = WIDTH, heads: int = HEADS, kv_heads: int = KV_HEADS) -> list[dict[str, Any]]:
    return [
        {"kind": "embeddings", "name": "places", "tables": "history"},
        {"kind": "embeddings", "name": "bags", "tables": "t0"},
        {"kind": "linear", "name": "up", "inputs": "places", "out": width, "per": "token"},
        {"kind": "attention", "name": "seen", "heads": heads, "kv_heads": kv_heads, "head_dim": HEAD_DIM},
        {"kind": "add", "name": "sum", "inputs": ["up", "seen"]},
        {"kind": "norm", "name": "normed"},
        {"kind": "pool", "name": "pooled"},
        {"kind": "cross", "name": "low", "inputs": ["pooled", "bags"], "rank": INNER, "count": 3},
        {"kind": "cross", "name": "full", "count": 2},
        {"kind": "linear", "name": "out", "out": 1},
    ]


def _model(samples: int = 32, ranks: int = 8, tokens: int = TOKENS, **dense: Any) -> Workload:
    fields = {"optimizer": "adam", "dtype": "fp32", "layers": _layers(), **dense}
    history = {"name": "history", "rows": 50_000, "dim": 64, "pooling_factor": tokens, "pooled": False}
    return workload([{"rows": 20_000, "dim": 64}, history], global_batch=ranks * samples, dense=fields)


def _of(name: str, model: Workload) -> SizedLayer:
    return next(layer for layer in model.layers if layer.name == name)


def _planned(rule: dict[str, Any], model: Workload, strategy: str = "replicate") -> Plan:
    policy = Policy.model_validate({"dense": {"strategy": strategy, "layers": [rule]}})
    return plan(TWO_NODES, model, policy=policy, effort=0, solver="search")


# --- what a rank computes ------------------------------------------------------------------------------------------


def _unit(name: str, held: Held, **dense: Any) -> DenseUnit:
    layer = _of(name, _model(**dense))
    return DenseUnit(layer_size(layer), is_first=False, held=held, layers=(layer,))


def test_heads_divide_projections_and_what_is_between_them() -> None:
    """Of the samples of four ranks: queries, keys and values in two of eight heads and one of four, outputs of these;
    every rank has all inputs, and addends of all outputs. What is within samples stays as much."""
    unit = _unit("seen", Held(cut="heads"))
    own, whole = size_on_rank(unit, 4), unit.size
    wide, narrow, rows = HEADS * HEAD_DIM / 4, KV_HEADS * HEAD_DIM / 4, 4 * TOKENS
    made = [(each.rows, each.inputs, each.outputs) for each in own.products]
    to_heads = [(rows, WIDTH, size) for size in (wide, narrow, narrow)]
    assert made == [*to_heads, (rows, wide, WIDTH)]
    assert own.macs_within_samples == whole.macs_within_samples
    assert own.activation_elements - whole.activation_elements == 3 * TOKENS * 4 * WIDTH  # read thrice, written once
    assert own.parameters == whole.parameters


@pytest.mark.parametrize("cut", ["heads", "inner", "width", "tokens"])
def test_the_simulator_counts_the_same_work_by_itself(cut: Any) -> None:
    """It adds up what is read and written; the estimate adds to a whole layer what ranks have more."""
    name = {"heads": "seen", "tokens": "seen", "inner": "low", "width": "full"}[cut]
    unit = _unit(name, Held(cut=cut))
    own, played = size_on_rank(unit, 4), shared_size(unit, 4)
    for field in ("activation_elements", "product_inputs", "product_gradients", "macs_within_samples", "parameters"):
        assert getattr(own, field) == pytest.approx(getattr(played, field), rel=1e-12)
    sizes = [[(e.rows, e.inputs, e.outputs) for e in of.products] for of in (own, played)]
    assert sizes[0] == sizes[1]


# --- what is called ------------------------------------------------------------------------------------------------


def test_heads_and_columns_call_as_megatron_does() -> None:
    """One all-reduce forward and one backward between attention that is cut by heads and a layer cut by columns behind
    it; beside layers that are not cut a gather and a scatter, which are its halves."""
    layers = [*_layers()[:4], {"kind": "linear", "name": "wide", "out": 256, "per": "token"}, *_layers()[4:]]
    layers[5]["inputs"] = ["up", "seen"]
    layers[4]["inputs"] = "seen"
    layers.insert(5, {"kind": "pool", "name": "second", "inputs": "wide"})
    layers[-3]["inputs"] = ["pooled", "bags", "second"]
    rules = [{"match": "seen", "cut": "heads"}, {"match": "wide", "cut": "columns"}]
    model = _model(sharding={"layers": rules}, layers=layers)
    units = dense_units(model)
    calls = {
        "+".join(layer.name for layer in unit.layers): found
        for unit, found in zip(units, calls_of_units(model, units, 8, 4), strict=True)
    }
    size = 4 * 32 * TOKENS * WIDTH * 4
    assert [(e.operation, e.buffer_bytes) for e in calls["seen"].enter] == [("all_gather", size)]
    assert [(e.operation, e.buffer_bytes) for e in calls["seen"].back] == [("reduce_scatter", size)]
    assert [(e.operation, e.buffer_bytes) for e in calls["wide"].enter] == [("all_reduce", size)]
    assert [(e.operation, e.buffer_bytes) for e in calls["wide"].back] == [("all_reduce", size)]


def test_cross_layers_exchange_each_product() -> None:
    """A gather of all that three low-rank ones read and a scatter of their addends; of two full ones a gather, and
    columns for samples."""
    units = held_units(TWO_NODES, _model(sharding={"layers": [RULES["inner"], RULES["width"]]}))
    low, full = (each.calls for each in units if each.unit.held.cut)
    numbers = (WIDTH + 64) * 32 * 4
    whole = 4 * numbers
    assert [(e.operation, e.buffer_bytes) for e in low.enter] == [("all_gather", whole), ("reduce_scatter", whole)] * 3
    assert {e.operation for e in low.back} == {"all_gather", "reduce_scatter"}
    assert [(e.operation, e.buffer_bytes) for e in full.enter] == [("all_gather", whole), ("all_to_all", numbers)] * 2


def _message_bytes(cut: Held, queries: int, seen: int, heads: int, kv_heads: int) -> float:
    """Bytes of a message forward of attention of some tokens over others, on 4 ranks in 2 bytes a number."""
    layers = [
        {"kind": "embeddings", "name": "places", "tables": "history"},
        {"kind": "embeddings", "name": "before", "tables": "t0"},
        {"kind": "attention", "name": "seen", "inputs": ["places", "before"], "heads": heads, "kv_heads": kv_heads,
         "head_dim": 128},
        {"kind": "pool"},
        {"kind": "linear", "out": 1},
    ]  # fmt: skip
    tables = [
        {"rows": 9, "dim": 64, "pooling_factor": seen, "pooled": False},
        {"name": "history", "rows": 9, "dim": 64, "pooling_factor": queries, "pooled": False},
    ]
    model = workload(tables, global_batch=4, dense={"layers": layers})
    ring = inside_calls(_of("seen", model), cut, 4, 1.0, 2.0).ring
    assert ring is not None
    return ring.forward.buffer_bytes * 3 / 4  # an all-to-all that each rank sends to the next one alone


@pytest.mark.parametrize(("new", "is_kv"), [(100, False), (124, False), (126, True), (800, True)])
def test_keys_and_values_are_the_smaller_message_from_one_eighth_of_new_tokens_on(new: int, is_kv: bool) -> None:
    """128 heads and 8 of keys and values: 12.5 % (arXiv:2411.01783), of queries that see 1,000 tokens."""
    kv, queries = (
        _message_bytes(Held(cut="tokens", passes=each), new, 1_000, 128, 8) for each in ("keys_and_values", "queries")
    )
    assert kv == 1_000 * 2 * 8 * 128 * 2
    assert queries == new * 128 * 128 * 2
    assert (kv <= queries) == is_kv


# --- plans ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RULES)
def test_plans_of_shared_layers_are_as_simulated(name: str) -> None:
    """Within 3 % of the step, verified; of weights that are cut each rank holds a quarter, 16 bytes of a parameter."""
    model = _model()
    found = _planned(RULES[name], model)
    assert verify(found) == []
    expect_near_simulation(found, 0.03)
    parts = {"heads": "seen", "inner": "low", "width": "full"}
    held = sum(e.parameters for e in model.layers) - 0.75 * sum(
        e.parameters for e in model.layers if e.name == parts.get(name)
    )
    (record,) = [each for each in of_plan(found) if each["part"] == "dense parameters, gradients, state"]
    assert record["hbm_bytes"] == pytest.approx(8 * 16 * held, rel=1e-9)


def test_messages_of_a_ring_are_held_while_they_go_around() -> None:
    """One that comes and one that goes, of the backward pass: keys and values in 4 bytes with gradients in 4. A ring at
    a time, of two that follow each other."""
    layers = _layers()
    layers.insert(4, {**layers[3], "name": "again", "inputs": "seen"})
    layers[5]["inputs"] = ["up", "again"]
    rule = {"match": ["seen", "again"], "cut": "tokens"}
    model = _model(layers=layers, sharding={"layers": [rule]})
    numbers = 2 * TOKENS * KV_HEADS * HEAD_DIM
    assert sharded_bytes(TWO_NODES, model).more_activations == pytest.approx(2 * 2 * numbers)


@pytest.mark.slow
def test_the_estimate_of_shared_layers_is_near_the_simulated_step_of_drawn_cases() -> None:
    """Of histories of 64 to 16,384 tokens on 1 or 2 nodes of H100, from those whose links bind to those that compute,
    with and without checkpointing: all within 3 %."""
    draw = random.Random(23)
    for name in [*RULES] * 2:
        nodes, tokens = draw.choice([1, 2]), draw.choice([64, 1_024, 16_384])
        samples = max(1, draw.choice([4_096, 65_536]) // tokens)
        layers = _layers(draw.choice([128, 1_024]), 16, 8)
        more = {"checkpointing": "full"} if draw.random() < 0.5 else {}
        model = _model(samples, 8 * nodes, tokens, layers=layers, dtype="bf16", **more)
        dense = {"strategy": draw.choice(STRATEGY_WORDS), "layers": [RULES[name]]}
        found = plan(dgx_h100(nodes), model, policy=Policy.model_validate({"dense": dense}), effort=0, solver="search")
        expect_near_simulation(found, 0.03)


@pytest.mark.parametrize("cut", ["columns", "rows"])
def test_samples_swapped_for_columns_take_what_the_estimate_says(cut: str) -> None:
    """Both ways of 256 MiB of each rank and more: within 2 % of the simulated step, of which they are a fifth."""
    layers = _layers(512)
    layers[2:4] = [{**layers[2], "out": 4_096}, {**layers[2], "name": "seen", "inputs": "up"}]
    rule = {"match": "up" if cut == "columns" else "seen", "cut": cut}
    policy = Policy.model_validate({"dense": {"strategy": "replicate", "layers": [rule]}})
    layers = [{**each, **({"inputs": "seen"} if each["name"] == "normed" else {})} for each in layers]
    model = _model(256, 8, 64, layers=[each for each in layers if each["name"] != "sum"], dtype="bf16")
    found = plan(dgx_h100(1), model, policy=policy, effort=0, solver="search")
    expect_near_simulation(found, 0.02)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"match": "low", "cut": "heads"}, "low is a layer cross, and only attention is cut by heads"),
        ({"match": "full", "cut": "inner"}, "full is full, and only low-rank cross layers are cut by inner"),
        ({"match": "seen", "cut": "columns"}, "seen is a layer attention, and only linear ones are cut by columns"),
        ({"match": "out", "cut": "tokens"}, "out is a layer linear, and only attention, norm, add and linear layers"),
        (
            {"match": "normed", "cut": "tokens", "passes": "queries"},
            "normed is a layer norm, and only attention",
        ),
    ],
)
def test_cuts_that_layers_do_not_have_are_refused_by_name(rule: dict[str, str], words: str) -> None:
    """By the layer, the kind and what has them."""
    with pytest.raises(InputError, match=words):
        _planned(rule, _model())


@pytest.mark.parametrize(
    ("rule", "layers", "tokens", "words"),
    [
        (RULES["heads"], _layers(heads=6, kv_heads=2), 64, "seen has 6 heads, which 4 ranks do not share evenly"),
        (RULES["heads"], _layers(kv_heads=2), 64, "seen has 2 key-value heads, which 4 ranks do not share evenly"),
        (RULES["all to all"], _layers(kv_heads=2), 64, "seen has 2 key-value heads, which 4 ranks do not share"),
        (RULES["queries"], _layers(), 66, "seen has 66 tokens, which 4 ranks do not share evenly"),
    ],
)
def test_heads_and_tokens_are_shared_evenly(rule: dict[str, Any], layers: Any, tokens: int, words: str) -> None:
    """Or refused."""
    with pytest.raises(InputError, match=words):
        _planned(rule, _model(tokens=tokens, layers=layers))


def test_passes_stand_beside_tokens_alone() -> None:
    """Elsewhere nothing goes around."""
    with pytest.raises(ValueError, match="is of attention whose tokens are cut"):
        LayerSharding(match=("seen",), cut="heads", passes="queries")


# --- chosen --------------------------------------------------------------------------------------------------------

WHOLE = [Held(word) for word in STRATEGY_WORDS]
ATTENTION = [*WHOLE, *(Held(word, "world", "heads") for word in STRATEGY_WORDS)]
ATTENTION += [Held(word, "world", "tokens", passes) for word in STRATEGY_WORDS
              for passes in ("keys_and_values", "queries", "all_to_all")]  # type: ignore[arg-type] # fmt: skip
CROSS = [*WHOLE, *(Held(word, "world", "inner") for word in STRATEGY_WORDS)]


def _drawn(seed: int) -> tuple[Topology, Workload]:
    """Two nodes of two ranks, a table, attention over a history and cross layers, both large or small."""
    draw = random.Random(seed)
    width, heads, inner = draw.choice([64, 1_024]), draw.choice([2, 16]), draw.choice([64, 4_096])
    layers = [
        {"kind": "embeddings", "name": "places", "tables": "t0"},
        {"kind": "linear", "name": "up", "out": width, "per": "token"},
        {"kind": "attention", "name": "seen", "heads": heads, "head_dim": 128},
        {"kind": "pool", "name": "pooled"},
        {"kind": "linear", "name": "wide", "out": 1_024},
        {"kind": "cross", "name": "low", "rank": inner, "count": draw.choice([1, 3])},
        {"kind": "linear", "name": "out", "out": 1},
    ]
    tables = [{"rows": draw.choice([20_000, 300_000]), "dim": 64, "pooling_factor": 8, "pooled": False}]
    fields = {"global_batch": 4 * draw.choice([2, 32]), "overhead": "100us"}
    rates: dict[str, Any] = {"hbm_bytes": draw.choice([0.3, 4.0]) * 1e9, "nic_bytes_per_s": draw.choice([1e9, 100e9])}
    dense = {"optimizer": draw.choice(["adam", "sgd"]), "layers": layers}
    return topology(node_group("a", nodes=2, ranks=2, cards_over_pcie=False, **rates)), workload(
        tables, dense=dense, **fields
    )


def _rule(name: str, way: Held) -> LayerSharding:
    passes = way.passes if way.cut == "tokens" else None
    return LayerSharding(match=(name,), cut=way.cut, strategy=way.strategy, passes=passes)


def _judged(seed: int) -> tuple[Plan, float, DenseSharding | None]:
    """The plan of a drawn model, and the shortest step of all ways of both layers and all placements."""
    cluster, model = _drawn(seed)
    others = tuple(LayerSharding(match=(name,), strategy="replicate") for name in ("up", "wide", "out"))
    narrow = {"tiers": ["hbm"], "shardings": ["table_wise", "row_wise"]}
    told = [rule.model_dump(exclude_none=True) for rule in others]
    policy = Policy.model_validate(narrow | {"dense": {"strategy": "auto", "over": "world", "layers": told}})
    best: tuple[float, DenseSharding | None] = (float("inf"), None)
    for one, other in itertools.product(ATTENTION, CROSS):
        sharding = DenseSharding(layers=(*others, _rule("seen", one), _rule("low", other)))
        costs = StepModel(cluster, with_sharding(model, sharding))
        formulation = Formulation.of(costs, Policy.model_validate(narrow))
        for lines in costs.all_protocols:
            found = optimum(formulation.at_protocols(lines).problem)
            if found is not None and costs.whole_step_s(found.step_s) < best[0]:
                best = costs.whole_step_s(found.step_s), sharding
    return plan(cluster, model, policy=policy, gap=0.0, effort=1), *best


@pytest.mark.parametrize("seed", [12, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 9))])
def test_shared_layers_are_chosen_as_by_brute_force(seed: int) -> None:
    """Over every way of an attention and of cross layers and every placement of a table: the plan is within 0.2 % of
    the best, and the bound over all of them holds. The plan is verified. In two of the draws attention is cut by heads
    and cross layers by inner columns."""
    chosen, best_s, best = _judged(seed)
    assert chosen.objective is not None
    assert chosen.dense is not None
    assert chosen.dense.by_layer is not None
    assert best is not None
    if seed in (9, 12):
        assert [rule.cut for rule in best.layers[-2:]] == ["heads", "inner"]
    assert best_s * (1 - 1e-9) <= chosen.objective.step_s <= best_s * 1.002
    assert chosen.dense.by_layer.lower_bound_s <= best_s * (1 + 1e-9)
    assert verify(chosen) == []


def test_cuts_limit_what_is_chosen() -> None:
    """Of the same draw: without heads cross layers alone are cut, and with none nothing is."""
    cluster, model = _drawn(12)
    others = [{"match": name, "strategy": "replicate"} for name in ("up", "wide", "out")]
    found = {}
    for cuts in (None, ["inner"], []):
        dense = {"strategy": "auto", "over": "world", "layers": others} | ({} if cuts is None else {"cuts": cuts})
        policy = Policy.model_validate({"dense": dense})
        chosen = plan(cluster, model, policy=policy, effort=0, solver="search", simulate=False)
        assert chosen.dense is not None
        assert chosen.objective is not None
        assert verify(chosen) == []
        found[str(cuts)] = chosen.objective.step_s, {rule.cut for rule in chosen.dense.layers} - {None}
    steps, ways = zip(*found.values(), strict=True)
    assert list(ways) == [{"heads", "inner"}, {"inner"}, set()]
    assert steps[0] < steps[1] < steps[2]
    with pytest.raises(ValueError, match="cuts limits what auto chooses layer by layer"):
        Policy.model_validate({"dense": {"strategy": "fsdp", "cuts": ["heads"]}})
