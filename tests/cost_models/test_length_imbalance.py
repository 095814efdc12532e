"""Histories of different lengths over ranks: the slowest rank's expected maximum, by sampling and by the simulator."""

import numpy as np
import pytest

from cost_models.length_imbalance import expected_maximum, length_imbalance_s, work_seconds
from cost_models.shards import HBM, TABLE_WISE, Blocks, PlacedShards
from cost_models.simulator.conditions import Conditions
from cost_models.simulator.simulation import simulate
from cost_models.step import StepModel
from cost_models.workload.dense_part import Dense
from cost_models.workload.histories import histories
from cost_models.workload.models import Workload
from planner import plan
from planner.document.plan import Plan
from planner.verification.verify import verify
from tests.oracles.instances import node_group, topology, workload

LAYERS = [
    {"kind": "embeddings", "name": "bags", "tables": "user"},
    {"kind": "embeddings", "name": "places", "tables": "history"},
    {"kind": "attention", "name": "looks", "inputs": "places", "heads": 4, "head_dim": 32},
    {"kind": "pool", "name": "mean", "inputs": "looks"},
    {"kind": "mlp", "name": "top", "inputs": ["bags", "mean"], "sizes": [64, 1]},
]


def model_of(std: float, ranks: int = 4, **dense: object) -> StepModel:
    tables = [
        {"name": "user", "rows": 1000, "dim": 64, "pooling_factor": 1},
        {"name": "history", "rows": 1000, "dim": 64, "pooling_factor": 400, "pooling_std": std, "pooled": False},
    ]
    own = workload(tables, dense={"layers": LAYERS, "dtype": "bf16", **dense}, global_batch=64 * ranks)
    return StepModel(topology(node_group("a", ranks=ranks, hbm_bytes=40e9)), own)


def test_the_expected_maximum_is_that_of_the_tables() -> None:
    """Of normal order statistics (Harter 1961): 2, 10, 100 and 400 of them; one has none."""
    for count, expected in ((1, 0.0), (2, 0.56419), (10, 1.53875), (100, 2.50759), (400, 2.96818)):
        assert expected_maximum(count) == pytest.approx(expected, abs=1e-4)


def test_which_layers_go_with_lengths_and_with_squares() -> None:
    """Attention over itself goes with both; what pools it reads all places, what comes after reads one vector."""
    (history,) = histories(model_of(120).workload)
    assert history.linear == {"looks", "mean"}
    assert history.pairs == {"looks"}
    assert (history.tables, history.mean, history.std) == ((1,), 400, 120)
    assert histories(model_of(0).workload) == ()


def test_pairs_by_hand() -> None:
    """Scores and weighted values of the mean squared length, three times in a training step, at the device's rate."""
    model = model_of(300)
    (history,) = histories(model.workload)
    kind = model.kinds[0]
    _, pairs_s = work_seconds(model.workload, history, kind, 64, 0.0)
    flops = 3 * 2 * 2 * (400**2 + 300**2) * 4 * 32 * 64
    assert pairs_s == pytest.approx(flops / min(rate.flops_per_s for rate in kind.products), rel=1e-9)


@pytest.mark.parametrize(("std", "samples", "most"), [(40, 64, 0.05), (200, 64, 0.07), (400, 1024, 0.05)])
@pytest.mark.parametrize("ranks", [4, 16])
def test_the_slowest_rank_is_that_of_sampled_lengths(std: float, samples: int, most: float, ranks: int) -> None:
    """Gamma lengths of every sample of 1,000 steps, drawn here: the mean of the slowest rank's seconds beyond the
    mean. The sum over few samples of lengths that vary much is skewed: its longest is longer than a normal one."""
    model = model_of(std, ranks)
    (history,) = histories(model.workload)
    tokens_s, pairs_s = work_seconds(model.workload, history, model.kinds[0], samples, 3.0)
    random, steps = np.random.default_rng(3), 1000
    lengths = random.gamma((400 / std) ** 2, std**2 / 400, (steps, ranks, samples))
    assert lengths.std() == pytest.approx(std, rel=0.02)
    seconds = tokens_s * lengths.mean(axis=2) / 400 + pairs_s * np.square(lengths).mean(axis=2) / (400**2 + std**2)
    sampled = float((seconds.max(axis=1) - seconds.mean()).mean())
    found = length_imbalance_s(model.workload, model.kinds[0], samples, ranks, 3.0)
    assert found == pytest.approx(sampled, rel=most)


def test_layers_that_are_cut_share_lengths_over_a_node() -> None:
    """Attention by heads, tokens or both: the ranks of each of four nodes take as long as the mean of their histories.
    Where they share attention alone, they differ by what pools it. Gamma lengths of 2,000 steps, drawn here."""
    per_node, ranks, samples, std = 4, 16, 64, 200
    random = np.random.default_rng(5)
    lengths = random.gamma((400 / std) ** 2, std**2 / 400, (2_000, ranks, samples))
    means = lengths.mean(axis=2) / 400, np.square(lengths).mean(axis=2) / (400**2 + std**2)
    of_nodes = [np.repeat(each.reshape(2_000, 4, per_node).mean(axis=2), per_node, axis=1) for each in means]
    layers = {"layers": [{"match": "looks", "cut": "heads"}]}
    whole = model_of(std, ranks)
    cluster = topology(node_group("a", nodes=4, ranks=per_node, hbm_bytes=40e9))
    dense = {"layers": LAYERS, "dtype": "bf16", "sharding": layers}
    model = StepModel(cluster, whole.workload.model_copy(update={"dense": Dense.model_validate(dense)}))
    (history,) = histories(model.workload)
    kind = model.kinds[0]
    shared = work_seconds(model.workload, history, kind, samples, 3.0, {"looks"})
    own = work_seconds(model.workload, history, kind, samples, 3.0, {"mean"})
    seconds = sum(s * node + o * mean for s, o, node, mean in zip(shared, own, of_nodes, means, strict=True))
    sampled = float((seconds.max(axis=1) - seconds.mean()).mean())
    found = length_imbalance_s(model.workload, kind, samples, ranks, 3.0, per_node)
    assert found == pytest.approx(sampled, rel=0.05)
    assert found < 0.6 * length_imbalance_s(whole.workload, kind, samples, ranks, 3.0)


def placed(model: StepModel) -> PlacedShards:
    table = np.arange(2)
    blocks = Blocks(table, table * 0 + TABLE_WISE, table * 0 + HBM, model.tables.dim[table], np.zeros(2))
    return PlacedShards(blocks, table, model.tables.rows[table], np.ones(2, dtype=bool))


def test_the_simulator_draws_both_sums_from_the_same_lengths() -> None:
    """Means of one, spreads as those of gamma lengths, correlated; ids as many as places; nothing without a draw."""
    own = model_of(200, 4).workload
    drawn = Conditions(pooling=True, seed=1).lengths(own, 4, 500)
    length, square = (np.array([each["places"][n] for each in drawn]) for n in (0, 1))
    assert length.mean() == pytest.approx(1, abs=0.005)
    assert square.mean() == pytest.approx(1, abs=0.01)
    assert length.std() * 8 == pytest.approx(0.5, rel=0.1)
    assert square.std() * 8 == pytest.approx(np.sqrt(1.5 * 1.75 / 1.25 - 1), rel=0.1)
    assert np.corrcoef(length.ravel(), square.ravel())[0, 1] > 0.9
    ids = list(Conditions(pooling=True, seed=1).ids(own, 4, 500, drawn))
    assert all(each is not None and (each[:, 1] == drawn[n]["places"][0]).all() for n, each in enumerate(ids))
    assert Conditions().lengths(own, 4, 500) == []


@pytest.mark.parametrize("checkpointing", ["none", "full"])
def test_simulated_steps_are_longer_by_the_expected_maximum(checkpointing: str) -> None:
    """Mean of many drawn steps, beyond one of mean lengths; exchanges, whose lookups vary, are a small part."""
    model = model_of(300, 4, checkpointing=checkpointing)
    shards = placed(model)
    mean_s = simulate(model.topology, model.workload, shards).step_s
    drawn = [
        simulate(
            model.topology, model.workload, shards, steps=10, conditions=Conditions(pooling=True, seed=seed)
        ).step_s
        for seed in range(6)
    ]
    assert np.mean(drawn) - mean_s == pytest.approx(model.length_imbalance_s, rel=0.25)


def planned(own: Workload, where: StepModel) -> Plan:
    return plan(where.topology, own, effort=0)


def test_a_plan_says_what_the_slowest_rank_takes_and_verify_recomputes_it() -> None:
    """Beside the step, which is that of mean lengths; no word of it where all are as long."""
    model = model_of(200)
    found = planned(model.workload, model)
    assert found.objective is not None
    assert found.objective.length_imbalance_s == pytest.approx(model.length_imbalance_s)
    assert verify(found) == []
    data = found.model_dump(mode="json")
    data["objective"]["length_imbalance_s"] *= 0.5
    assert any("length_imbalance_s" in fault for fault in verify(Plan.model_validate(data)))
    equal = planned(model_of(0).workload, model_of(0))
    assert equal.objective is not None
    assert "length_imbalance_s" not in equal.objective.model_dump(mode="json")
