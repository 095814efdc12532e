"""Scenarios: means are kept, what cannot vary does not, and the simulator finds the same of them."""

import numpy as np
import pytest

from cost_models.access import AccessCurves
from cost_models.registry import cost_model
from cost_models.scenario_steps import ScenarioModels
from cost_models.scenarios import Variance, draw_scenarios, steepened
from cost_models.shards import HBM, TABLE_WISE, Blocks, PlacedShards
from cost_models.simulator.conditions import Conditions
from cost_models.simulator.simulation import simulate
from tests.oracles.instances import node_group, topology, workload

STEADY = Variance(pooling_drift=0.0, skew_drift=0.0, slow_rank=1.0)
TABLES = [
    {"rows": 100_000, "dim": 64, "pooling_factor": 20.0, "zipf_alpha": 1.1},
    {"rows": 400_000, "dim": 32, "pooling_factor": 8.0, "access_cdf": [[0.01, 0.6], [0.3, 0.9], [1, 1]]},
    {"rows": 50_000, "dim": 64, "pooling_factor": 30.0, "unique_fraction": 0.05},
    {"rows": 80_000, "dim": 64, "pooling_factor": 1.0},
]
TRAINED = workload(TABLES, global_batch=8192)
CLUSTER = topology(node_group("g", ranks=4, hbm_bytes=4e9))


def test_drift_keeps_the_mean() -> None:
    """Factors of the ids of a sample have mean 1 and the spread that was asked for."""
    drawn = draw_scenarios(TRAINED, 4, Variance(0.2, 0.1, 1.0), 500, seed=3)
    ids = np.array([[table.pooling_factor for table in each.workload.tables] for each in drawn]) / [20, 8, 30, 1]
    assert ids.mean(axis=0) == pytest.approx(1.0, abs=0.03)
    assert ids[:, :3].std(axis=0) == pytest.approx(0.2, rel=0.1)
    alpha = np.array([each.workload.tables[0].zipf_alpha for each in drawn]) / 1.1
    assert alpha.mean() == pytest.approx(1.0, abs=0.02)
    assert alpha.std() == pytest.approx(0.1, rel=0.1)


def test_one_id_for_each_feature_stays_one() -> None:
    """A table that every sample reads once is read once in every scenario; one that says it varies, varies."""
    varied = workload([TABLES[3] | {"pooling_std": 0.5}, TABLES[3]], global_batch=64)
    drawn = draw_scenarios(varied, 4, Variance(0.2, 0.0, 1.0), 50, seed=0)
    ids = np.array([[table.pooling_factor for table in each.workload.tables] for each in drawn])
    assert (ids[:, 1] == 1.0).all()
    assert ids[:, 0].std() > 0.1


def test_chance_of_a_batch_alone() -> None:
    """Without drift the ids of a step vary by pooling_std over the root of the samples."""
    varied = workload([TABLES[0] | {"pooling_std": 40.0}], global_batch=100)
    drawn = draw_scenarios(varied, 4, STEADY, 500, seed=1)
    ids = np.array([each.workload.tables[0].pooling_factor for each in drawn])
    assert ids.std() == pytest.approx(40 / np.sqrt(100), rel=0.1)


def test_without_variance_scenarios_are_the_profile() -> None:
    """Nothing varies: the same step as at the means, in every scenario."""
    model = cost_model("physical", CLUSTER, TRAINED)
    steps = ScenarioModels(model, draw_scenarios(TRAINED, 4, STEADY, 3, seed=0)).of(_placed(model.tables.rows))
    assert steps.step_s == pytest.approx(model.evaluate(_placed(model.tables.rows)).step_s, rel=1e-6)
    assert not steps.is_overfull.any()


def test_more_scenarios_begin_with_fewer() -> None:
    """Drawn numbers depend on the seed and on the scenario's number alone."""
    varies = Variance(0.1, 0.1, 1.2)
    few, many = (draw_scenarios(TRAINED, 4, varies, count, seed=5) for count in (3, 6))
    assert few == many[:3]
    assert few[0] != draw_scenarios(TRAINED, 4, varies, 1, seed=6)[0]


def test_a_curve_is_steepened_as_a_power_law_is() -> None:
    """Probabilities to a power: of a power law, that multiplies the exponent."""
    ranks = np.arange(1.0, 2001.0)
    laws = [np.cumsum(ranks**-alpha) / (ranks**-alpha).sum() for alpha in (0.8, 0.8 * 1.3)]
    curve = tuple(zip((ranks / 2000).tolist(), [*laws[0][:-1].tolist(), 1.0], strict=True))
    assert np.array(steepened(curve, 1.3))[:, 1] == pytest.approx(laws[1], rel=1e-9)
    assert steepened(((0.5, 0.5), (1.0, 1.0)), 1.7) == ((0.5, 0.5), (1.0, 1.0))  # uniform access stays so
    assert np.diff(np.array(steepened(((0.1, 0.8), (0.5, 1.0), (1.0, 1.0)), 0.5))[:, 1]).min() >= 0


def test_a_measured_fraction_follows_its_exponent() -> None:
    """Of a table whose distinct ids were measured, the exponent that fits them drifts as stated ones do."""
    (drawn,) = draw_scenarios(TRAINED, 4, Variance(0.3, 0.3, 1.0), 1, seed=2)
    alphas = [AccessCurves.of(each, 4).unique_alpha for each in (TRAINED, drawn.workload)]
    skew = np.random.default_rng((2, 2, 0)).standard_normal(8)[4:]
    spread = np.log1p(0.3**2)
    assert alphas[1][2] / alphas[0][2] == pytest.approx(np.exp(np.sqrt(spread) * skew[2] - spread / 2), rel=1e-3)


@pytest.mark.parametrize("pipeline", ["none", "sparse-dist"])
def test_the_simulator_finds_the_same(pipeline: str) -> None:
    """What scenarios do to the estimate they do to the simulated step, a slow rank included."""
    dense = {"bottom_mlp": [512, 64], "top_mlp": [2048, 2048, 1], "numerical_features": 13}
    trained = TRAINED.model_validate(
        workload(TABLES[:1] + TABLES[2:], global_batch=8192).model_dump() | {"pipeline": pipeline, "dense": dense}
    )
    model = cost_model("physical", CLUSTER, trained)
    placed = _placed(model.tables.rows)
    drawn = draw_scenarios(trained, 4, Variance(0.2, 0.2, 1.5), 8, seed=0)
    estimated = ScenarioModels(model, drawn).of(placed).step_s / model.evaluate(placed).step_s
    usual = simulate(CLUSTER, trained, placed).step_s
    simulated = [
        simulate(CLUSTER, each.workload, placed, conditions=Conditions(slow_ranks={each.slow_rank: 1.5})).step_s / usual
        for each in drawn
    ]
    assert estimated == pytest.approx(np.array(simulated), rel=0.015)
    assert estimated.max() > estimated.min() * 1.02


def _placed(rows: np.ndarray) -> PlacedShards:
    """Whole tables, one to a rank."""
    tables = np.arange(len(rows))
    dims = np.array([each.dim for each in TRAINED.tables])[: len(rows)]
    if len(rows) == 3:
        dims = np.array([64, 64, 64])
    blocks = Blocks(tables, tables * 0 + TABLE_WISE, tables * 0 + HBM, dims, tables * 0.0)
    return PlacedShards(blocks, tables % 4, rows, np.ones(len(rows), dtype=bool))
