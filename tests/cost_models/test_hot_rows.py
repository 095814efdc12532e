"""What hot rows of tables that are cut by rows take beyond a step: by hand, and by the simulator's own drawn rows."""

import json
from collections.abc import Sequence

import numpy as np
import pytest

from cost_models.simulator.conditions import Conditions
from planner import plan
from planner.document.plan import Plan
from planner.document.planned import placed_shards, planned_model
from planner.formulation.policy import Policy
from planner.verification.simulation import simulate_plan
from planner.verification.verify import verify
from tests.oracles.instances import node_group, topology, workload

SEEDS = 12


def planned(tables: Sequence[dict[str, object]], nodes: int = 1, ranks: int = 4, **policy: object) -> Plan:
    software = policy.pop("software", "hugectr")
    batch, pipeline = policy.pop("batch", 32_768), policy.pop("pipeline", "sparse-dist")
    cluster = topology(node_group("a", nodes=nodes, ranks=ranks, hbm_bytes=4e10, ddr_bytes=1e11))
    limits = Policy.model_validate({"tiers": ["hbm"], "shardings": ["row_wise"]} | policy)
    own = workload(tables, global_batch=batch, software=software, pipeline=pipeline)
    return plan(cluster, own, policy=limits, effort=0, simulate=False)


def hot_rows_s(found: Plan) -> float:
    assert found.objective is not None
    return found.objective.hot_rows_s or 0.0


def drawn_beyond(found: Plan) -> tuple[float, float]:
    """What the step is simulated longer with drawn rows than with ids dealt evenly, and the error of that mean."""
    even_s = simulate_plan(found).step_s
    steps = [simulate_plan(found, conditions=Conditions(draws_rows=True, seed=seed)).step_s for seed in range(SEEDS)]
    return float(np.mean(steps)) - even_s, float(np.std(steps, ddof=1)) / SEEDS**0.5


ZIPF = [
    pytest.param([(3e6, 64, 40, 1.1), (2e5, 16, 8, 0.9)], {}, id="one node"),
    pytest.param([(1e4, 128, 20, 1.3), (4e6, 128, 30, 0.6), (9e5, 64, 50, 1.6)], {"ranks": 8}, id="steep"),
    pytest.param([(5e5, 64, 30, 1.1)] * 3, {"nodes": 2, "shardings": ["table_row_wise"]}, id="cut within nodes"),
    pytest.param([(5e5, 128, 30, 1.1), (3e4, 16, 3, 1.3)], {"nodes": 2, "shardings": ["grid_shard"]}, id="grids"),
    pytest.param([(8e6, 64, 40, 1.3)], {"software": "torchrec", "tiers": ["ddr_cached"], "ranks": 8}, id="caches"),
    pytest.param([(8e6, 64, 40, 1.3)], {"software": "torchrec", "tiers": ["ddr"]}, id="in place"),
    pytest.param(
        [(9e5, 128, 50, 1.6)],
        {"software": "torchrec", "nodes": 4, "ranks": 2, "replicas": {"factor": 2, "layout": "inter"}},
        id="groups",
    ),
]


@pytest.mark.parametrize(("tables", "others"), ZIPF)
def test_the_mean_of_drawn_rows_is_met(
    tables: list[tuple[float, int, float, float]], others: dict[str, object]
) -> None:
    """Within a fifth of what it is and 0.5 % of the step, beside twice the error of the mean over drawn batches. The
    simulator draws rows and ids one by one, and shares nothing of the estimate."""
    names = ("rows", "dim", "pooling_factor", "zipf_alpha")
    found = planned([dict(zip(names, (int(each[0]), *each[1:]), strict=True)) for each in tables], **others)
    assert found.objective is not None
    beyond_s, error_s = drawn_beyond(found)
    allowed_s = 0.2 * beyond_s + 0.005 * found.objective.step_s + 2 * error_s
    assert hot_rows_s(found) == pytest.approx(beyond_s, abs=allowed_s)


def test_rows_of_small_tables_are_cut_evenly() -> None:
    """14 alike rows on 4 ranks, 3 or 4 each: no step is longer with rows drawn, as each rank has its number of them."""
    found = planned([{"rows": 14, "dim": 128, "pooling_factor": 40, "zipf_alpha": 0.0}])
    assert found.objective is not None
    beyond_s, _ = drawn_beyond(found)
    assert abs(beyond_s) < 0.01 * found.objective.step_s
    assert hot_rows_s(found) == 0


@pytest.mark.parametrize("tier", ["ddr", "ddr_split"])
def test_curves_that_are_finer_than_a_row(tier: str) -> None:
    """All reads of five rows in place are kept from crossing PCIe, whatever part of a row the curve speaks of."""
    curve = [(0.001, 0.3), (0.1, 0.8), (1.0, 1.0)]
    few: dict[str, object] = {"rows": 5, "dim": 16, "pooling_factor": 8, "access_cdf": curve}
    found = planned([few], tiers=[tier], software="torchrec")
    assert found.objective is not None
    beyond_s, _ = drawn_beyond(found)
    assert abs(beyond_s - hot_rows_s(found)) < 0.01 * found.objective.step_s


@pytest.mark.parametrize(("pipeline", "stages"), [("sparse-dist", 2), ("none", 3)])
def test_one_hot_row_by_hand(pipeline: str, stages: int) -> None:
    """One row gets half of the ids, so that one of four ranks has 62.5 % of them in the place of 25, wherever it is: in
    its lookup, its update, and the ids that are sent to it where these are not sent ahead."""
    curve = [(1 / 4_000_000, 0.5), (1.0, 1.0)]
    table: dict[str, object] = {"rows": 4_000_000, "dim": 64, "pooling_factor": 20, "access_cdf": curve}
    hot = planned([table], pipeline=pipeline)
    placed = placed_shards(hot)
    model = planned_model(hot).linearised_at(placed)
    again = model.repeat_costs(placed.blocks.distinct[0], 0).by_rows[0]
    assert len({column.stage for column, seconds in zip(model.columns, again, strict=True) if seconds}) == stages
    load, stored = model.rank_loads(placed)
    beyond = np.array([-0.125, -0.125, 0.375, -0.125])[:, None] * again
    even_s, hot_s = (model.evaluate_loads(each, stored).step_s for each in (load, load + beyond))
    assert hot_rows_s(hot) == pytest.approx(hot_s - even_s, rel=1e-6)
    assert hot_s > even_s


def test_reading_rows_again_costs_what_more_of_the_same_ids_do() -> None:
    """Ids of two rows alone, all read by every batch: twice as many cost exactly what reading them again does."""
    small: dict[str, object] = {"rows": 8, "dim": 64}
    once, twice = (planned([{**small, "pooling_factor": factor}]) for factor in (20, 40))
    loads = [planned_model(each).rank_loads(placed_shards(each))[0] for each in (once, twice)]
    model, placed = planned_model(once), placed_shards(once)
    again = model.repeat_costs(placed.blocks.distinct[0], 0).by_rows[0] / 4
    columns = np.flatnonzero(again)
    assert (loads[1] - loads[0])[:, columns] == pytest.approx(np.tile(again[columns], (4, 1)), rel=1e-6)


@pytest.mark.parametrize(
    ("table", "policy"),
    [
        ({"rows": 1_000_000, "zipf_alpha": 0.0}, {}),
        ({"rows": 100, "zipf_alpha": 0.0}, {}),
        ({"rows": 1_000_000, "zipf_alpha": 1.2}, {"shardings": ["table_wise"]}),
        ({"rows": 1_000_000, "zipf_alpha": 1.2}, {"shardings": ["data_parallel"]}),
    ],
)
def test_nothing_where_no_rows_are_hotter_or_no_table_is_cut(
    table: dict[str, object], policy: dict[str, object]
) -> None:
    found = planned([{"dim": 32, **table}] * 3, **policy)
    assert found.objective is not None
    assert found.objective.hot_rows_s is None
    assert "hot_rows_s" not in json.loads(found.model_dump_json())["objective"]


def test_every_group_has_hot_rows_of_its_own() -> None:
    """The slowest of more groups of two nodes is later: the same shards, the same ids for each group."""
    table: dict[str, object] = {"rows": 900_000, "dim": 128, "pooling_factor": 50, "zipf_alpha": 1.1}
    beyond = [
        hot_rows_s(
            planned(
                [table],
                nodes=2 * factor,
                ranks=2,
                software="torchrec",
                batch=16_384 * factor,
                replicas={"factor": factor, "layout": "inter"},
            )
        )
        for factor in (1, 2, 8)
    ]
    assert 0 < beyond[0] < beyond[1] < beyond[2]


def test_a_plan_that_states_it_otherwise_is_refused() -> None:
    found = planned([{"rows": 1_000_000, "dim": 64, "zipf_alpha": 1.2}])
    assert hot_rows_s(found) > 0
    assert verify(found) == []
    for stated in (None, 2 * hot_rows_s(found)):
        assert found.objective is not None
        objective = found.objective.model_copy(update={"hot_rows_s": stated})
        assert any("hot_rows_s" in fault for fault in verify(found.model_copy(update={"objective": objective})))
