"""Plans and the simulator: what the document says of the step, and whether the solver's plans hold when played."""

from collections.abc import Callable

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.stats import kendalltau

from benchmarks.validation.ranking import random_shards
from cost_models.model import CostModel
from cost_models.registry import cost_model
from cost_models.simulator.conditions import Conditions
from cost_models.simulator.simulation import simulate
from planner import plan, verify
from planner.diagnosis.sensitivity import deduplication
from planner.document.plan import Plan
from planner.document.planned import placed_shards, planned_inputs, planned_model
from planner.verification.simulation import simulate_conditions, simulate_plan
from tests.oracles.agreement import expect_near_simulation
from tests.oracles.instances import node_group, topology, workload

TABLES = [
    {
        "rows": 50_000 * (1 + 5 * i % 13),
        "dim": 32 + 32 * (i % 3),
        "pooling_factor": 20 + 70 * i % 800,
        "pooling_std": 4000.0,
    }
    for i in range(24)
]
CLUSTER = topology(node_group("a", nodes=2, ranks=4))


@pytest.fixture(scope="module")
def planned() -> Plan:
    return plan(CLUSTER, workload(TABLES), effort=0)


def test_a_plan_says_how_it_plays(planned: Plan) -> None:
    expect_near_simulation(planned, 0.03)
    assert planned.simulated.samples_per_s == pytest.approx(4096 / planned.simulated.step_s)
    assert 0 < planned.simulated.exposed_comm_fraction < 1


def test_other_figures_are_refused(planned: Plan) -> None:
    assert verify(planned) == []
    assert planned.simulated is not None
    other = planned.simulated.model_copy(update={"step_s": planned.simulated.step_s * 1.001})
    (fault,) = verify(planned.model_copy(update={"simulated": other}))
    assert fault.startswith("simulated: step_s is ")


def test_simulation_can_be_left_out() -> None:
    found = plan(CLUSTER, workload(TABLES[:3]), simulate=False)
    assert found.simulated is None
    assert verify(found) == []


def test_conditions_are_priced_one_by_one(planned: Plan) -> None:
    """Together they cost as much as the worst of them, and no more than all of them one by one."""
    found = simulate_conditions(planned, None, Conditions(pooling=True, slow_ranks={1: 2.0}), default_steps=8)
    words = [effect.condition for effect in found.effects]
    assert words == ["mean step", "pooling varies", "rank 1 takes 2 times as long", "all together"]
    costs = dict(zip(words, (effect.cost for effect in found.effects), strict=True))
    assert costs["mean step"] == 0
    assert 0 < costs["pooling varies"] < costs["rank 1 takes 2 times as long"]
    assert costs["rank 1 takes 2 times as long"] <= costs["all together"] * 1.1
    assert costs["all together"] <= 1.1 * (costs["pooling varies"] + costs["rank 1 takes 2 times as long"])
    assert len(found.simulation.step_seconds) == 8


def test_rows_can_be_drawn(planned: Plan) -> None:
    """The simulator's own count of rows and ids gives nearly the same step, the same for the same seed."""
    drawn = Conditions(draws_rows=True)
    found = simulate_conditions(planned, None, drawn, default_steps=8)
    assert [effect.condition for effect in found.effects] == ["mean step", "rows drawn"]
    assert abs(found.effects[1].cost) < 0.02
    assert simulate_plan(planned, conditions=drawn).step_s == found.simulation.step_s


def test_the_critical_path_makes_the_step(planned: Plan) -> None:
    """Its parts add up to the counted time."""
    found = simulate_plan(planned, steps=3)
    assert sum(share.seconds for share in found.critical_path()) == pytest.approx(found.step_s, rel=1e-6)


Cluster = Callable[[], CostModel]
WORKLOADS: dict[str, Cluster] = {
    "few, large": lambda: cost_model("physical", CLUSTER, workload(TABLES[:6])),
    "many": lambda: cost_model("physical", CLUSTER, workload(TABLES)),
    "one node": lambda: cost_model("physical", topology(node_group("a", ranks=8)), workload(TABLES)),
    "mixed": lambda: cost_model(
        "physical",
        topology(node_group("a", nodes=2, ranks=2), node_group("b", ranks=4, hbm_bytes_per_s=3e12)),
        workload(TABLES),
    ),
    "no pipeline": lambda: cost_model("physical", CLUSTER, workload(TABLES, pipeline="none")),
}


@pytest.mark.parametrize("name", WORKLOADS)
def test_both_rank_plans_alike(name: str) -> None:
    """Estimate and simulator order 16 random placements alike: Kendall's tau of at least 0.9."""
    model = WORKLOADS[name]()
    estimates, steps = [], []
    for seed in range(16):
        placed = random_shards(model, np.random.default_rng(seed), tuple(range(1, 7)))
        estimates.append(model.evaluate(placed).step_s)
        steps.append(simulate(model.topology, model.workload, placed).step_s)
    assert kendalltau(estimates, steps).statistic >= 0.9


def test_a_long_dense_optimizer_takes_as_long_in_both() -> None:
    """With Adam on ever more weights, estimate and simulated step grow by the same seconds."""
    steps = []
    for parameters in (10**9, 3 * 10**9):
        dense = {"macs_per_sample": 1e6, "parameters": parameters, "optimizer": "adam"}
        model = cost_model("physical", CLUSTER, workload(TABLES[:4], dense=dense))
        placed = random_shards(model, np.random.default_rng(0), (1,))
        steps.append((model.evaluate(placed).step_s, simulate(model.topology, model.workload, placed).step_s))
    (estimate, played), (longer, longer_played) = steps
    assert longer - estimate == pytest.approx(longer_played - played, rel=0.01)
    assert estimate == pytest.approx(played, rel=0.05)


def test_no_neighbour_plays_faster() -> None:
    """None of 25 plans in which one or two shards are elsewhere is played more than 2 % faster."""
    planned = plan(CLUSTER, workload(TABLES), shardings=["table_wise", "column_wise"], effort=0)
    placed = placed_shards(planned)
    inputs = planned_inputs(planned)
    own = simulate(*inputs, placed).step_s
    random = np.random.default_rng(0)
    movable = np.flatnonzero(np.isin(placed.blocks.sharding, (1, 2)))
    best = np.inf
    for _ in range(25):
        rank = placed.rank.copy()
        chosen = random.choice(movable, size=int(random.integers(1, 3)), replace=False)
        rank[chosen] = random.integers(0, CLUSTER.world_size, len(chosen))
        best = min(best, simulate(*inputs, type(placed)(placed.blocks, rank, placed.rows, placed.opens_block)).step_s)
    assert own <= best * 1.02


FORMATS_IN_USE = ("int8_row", "mx9", "mxfp4", "int4", "fp16", "fp8")


@pytest.mark.parametrize(("tiers", "wire"), [(["hbm"], "fp32"), (["hbm"], "mx4"), (["ddr_cached"], "fp8")])
def test_formats_cost_the_same_to_estimate_and_simulator(tiers: list[str], wire: str) -> None:
    """Rows, caches of full precision, encoding and what travels, counted twice; where nothing overlaps they agree."""
    tables = [
        {**table, "dtype": FORMATS_IN_USE[i % 6], "precision_cache": "5%" if i % 6 < 4 else None, "zipf_alpha": 1.05}
        for i, table in enumerate(TABLES)
    ]
    model = workload(tables, pipeline="none", communication={"forward": wire, "backward": wire})
    found = plan(CLUSTER, model, tiers=tiers, shardings=["table_wise", "row_wise"], effort=0)
    expect_near_simulation(found, 0.03)
    assert {str(table.dtype) for table in found.tables} == set(FORMATS_IN_USE)
    assert verify(found) == []


def test_a_table_with_a_cache_of_full_precision_has_one() -> None:
    """It is neither read in place nor replicated, and it costs more than one whose rows are written as they are."""
    table = {"rows": 200_000, "dim": 64, "pooling_factor": 20, "dtype": "int8_row", "zipf_alpha": 1.05}
    terms = {"simulate": False, "effort": 0, "shardings": ["table_wise"]}
    plain = plan(CLUSTER, workload([table], pipeline="none"), tiers=["hbm"], **terms)
    cached = workload([{**table, "precision_cache": "5%"}], pipeline="none")
    found = plan(CLUSTER, cached, tiers=["hbm"], **terms)
    assert plain.objective is not None
    assert found.objective is not None
    assert found.objective.step_s > plain.objective.step_s
    assert plan(CLUSTER, cached, simulate=False, tiers=["ddr"]).status == "infeasible"
    assert plan(CLUSTER, cached, simulate=False, shardings=["data_parallel"]).status == "infeasible"


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("group", [None, "user"])
def test_deduplication_saves_the_same_in_both(pooled: bool, group: str | None) -> None:
    """Lookups and ids; vectors of sequences, and of pooled features that change together."""
    steps, played = [], []
    stages: list[dict[str, float]] = []
    for factor in (1.0, 4.0):
        tables = [
            {"rows": 500_000, "dim": 64, "pooling_factor": 20, "dedup_factor": factor, "pooled": pooled}
            | ({"dedup_group": group} if group else {})
            for _ in range(8)
        ]
        found = plan(CLUSTER, workload(tables, pipeline="none"), tiers=["hbm"], shardings=["table_wise"], effort=0)
        assert found.objective is not None
        assert found.simulated is not None
        steps.append(found.objective.step_s)
        played.append(found.simulated.step_s)
        model = planned_model(found).linearised_at(placed_shards(found))
        beside = dict(zip(model.stages, model.constants.tolist(), strict=True))
        stages.append({stage.name: stage.seconds - beside[stage.name] for stage in found.stages})
    assert steps[0] - steps[1] == pytest.approx(played[0] - played[1], rel=0.25)
    before, after = stages
    for name in ("input_dist", "lookup_forward", "lookup_backward"):
        assert after[name] < before[name]
    if pooled and group is None:
        assert after["output_dist"] == pytest.approx(before["output_dist"])
    else:
        assert after["output_dist"] < before["output_dist"] * 0.6


def test_what_deduplication_saves_is_said() -> None:
    """Against the same placement without it; nothing where there is none."""
    tables = [{**table, "dedup_factor": 2.0, "dedup_group": "user"} for table in TABLES[:6]]
    found = plan(CLUSTER, workload(tables, pipeline="none"), effort=0)
    model = cost_model("physical", *planned_inputs(found))
    saved = deduplication(model, placed_shards(found))
    assert saved is not None
    assert saved.lookups == saved.vectors == 0.5
    assert found.objective is not None
    assert saved.step == pytest.approx(1 - found.objective.step_s / saved.step_s)
    assert 0 < saved.step < 0.5
    assert deduplication(cost_model("physical", CLUSTER, workload(TABLES)), placed_shards(found)) is None


def test_features_that_change_together_repeat_equally_often() -> None:
    tables = [{**table, "dedup_factor": 2.0 + i, "dedup_group": "user"} for i, table in enumerate(TABLES[:2])]
    with pytest.raises(ValidationError, match="'user' have dedup_factor 2, 3; features that change together"):
        workload(tables)
