"""A device whose dense updates, ids by holder and sums were measured: estimate and simulation count them alike."""

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from cost_models.calibration.files import collective_file
from cost_models.coefficients import USER_DIRECTORY, CollectiveCoefficients, ProtocolLaw, forget
from cost_models.lookup import Lookup
from cost_models.resources import DEVICE
from cost_models.shards import COLUMN_WISE, DATA_PARALLEL, HBM, ROW_WISE, TABLE_WISE, Blocks
from cost_models.step import StepModel
from cost_models.workload.models import Workload
from planner.diagnosis.explanation import Explainer
from planner.formulation.policy import Policy
from planner.planning.planning import plan
from planner.reports import plan_summary
from planner.reports.explanation import render_plan
from planner.verification.verify import verify
from tests.oracles.agreement import steps_s
from topologies.cluster import Topology
from topologies.loading import load_topology

TERMS = {
    "dense_update_bytes_per_s": 2e9,
    "regroup_bytes_per_s": 1e9,
    "regroup_piece_s": 5e-8,
    "id_cut_s": 2e-7,
    "lookup_launch_s": 3e-4,
    "update_launch_s": 2e-4,
    "update_passes_per_lookup": 3.0,
    "l2_reach_bytes": 3e7,
}
RATES = {"all_to_all": 4e9, "all_reduce": 2e9, "reduce_scatter": 1e9, "all_gather": 2e9}


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    """Coefficients of an A100 that is as slow as a processor; more of them where the test has some."""
    terms = TERMS | getattr(request, "param", {})
    latencies = {operation: terms.pop(f"{operation}_latency_s", 1e-4) for operation in RATES}
    lines = [f"{name}: {{value: {value}, unit: x, kind: fitted, source: test}}" for name, value in terms.items()]
    (tmp_path / "device.yaml").write_text("\n".join(["name: A100-SXM4-80GB", *lines]) + "\n")
    laws = tuple(
        ProtocolLaw(
            operation=operation,
            ranks=4,
            protocols=((latencies[operation], rate),),
            buffer_bytes=(1e3, 1e9),
            rows=9,
            mean_error=0.1,
            band_90=0.2,
        )
        for operation, rate in RATES.items()
    )
    collectives = CollectiveCoefficients(
        name="links",
        devices=("A100-SXM4-80GB",),
        link="nvlink3",
        bytes_per_s=3e11,
        unit="x",
        kind="fitted",
        source="test",
        laws=laws,
        sums_apart=True,
        takes_turns=True,
    )
    (tmp_path / "links.yaml").write_text(collective_file(collectives))
    monkeypatch.setenv(USER_DIRECTORY, str(tmp_path))
    forget()
    yield
    monkeypatch.undo()
    forget()


def inputs() -> tuple[Topology, Workload]:
    """Four accelerators, and tables that are all alike."""
    cluster = load_topology("dgx-a100-80", nodes=1, overrides=["nodes.0.accelerators.count=4"])
    tables = [{"name": f"t{i}", "rows": 50_000, "dim": 64, "pooling_factor": 20} for i in range(8)]
    workload = Workload.model_validate(
        {"name": "w", "global_batch": 4096, "tables": tables, "pipeline": "none", "embedding": {"optimizer": "sgd"}}
    )
    return cluster, workload


def steps(sharding: str, **rule: str) -> tuple[float, float]:
    """Estimated and simulated seconds of a step with all tables held in one way."""
    cluster, workload = inputs()
    policy = Policy.model_validate({"shardings": [sharding], "tiers": ["hbm"], **rule})
    made = plan(cluster, workload, policy=policy, effort=0)
    return steps_s(made)


EVICTED = {
    "lookup_bytes_per_s": 2e10,
    "lookup_row_s": 2e-9,
    "lookup_distinct_row_s": 5e-9,
    "update_row_s": 1e-8,
    "update_distinct_row_s": 2e-8,
    "update_passes_per_row": 5.0,
    "l2_reach_bytes": 0.0,
    "l2_speedup": 8.0,
    "lookup_vector_s": 3e-8,
}
"""Terms of a processor whose tables push each other's rows out of its caches."""


CUT = ("table_wise", "column_wise", "row_wise")


@pytest.mark.parametrize(
    ("measured", "sharding"),
    [
        *(({}, sharding) for sharding in (*CUT, "data_parallel")),
        *((EVICTED, sharding) for sharding in CUT),
        *(({"update_distinct_row_s": 1e-6}, sharding) for sharding in CUT),
    ],
    indirect=["measured"],
)
def test_simulation_and_estimate_agree(sharding: str, measured: None) -> None:
    """Within 3 % where the tables are alike on all ranks. (Long updates of replicas hide behind their reduction.)"""
    estimated, simulated = steps(sharding)
    assert simulated == pytest.approx(estimated, rel=0.03)


@pytest.mark.parametrize("measured", [{}, EVICTED], indirect=True)
def test_simulation_and_estimate_agree_where_one_rank_has_all(measured: None) -> None:
    """Within 1 %, though no rank sends as much as it gets: ports take turns."""
    estimated, simulated = steps("table_wise", ranks="0")
    assert simulated == pytest.approx(estimated, rel=0.01)


def test_each_term_is_counted(measured: None) -> None:
    """Gradients of whole tables and their update; ids that are sorted, sums that travel slower."""
    whole = 8 * 50_000 * 64 * 4 / TERMS["dense_update_bytes_per_s"]
    cut = 8 * 20 * 1024 * TERMS["id_cut_s"]
    assert steps("data_parallel")[0] > whole
    assert steps("row_wise")[0] > steps("table_wise")[0] + cut


def test_cut_columns_are_put_in_order(measured: None) -> None:
    """All vectors of a rank's samples, once, by their bytes and each piece of them."""
    cluster, workload = inputs()
    model = StepModel(cluster, workload)
    every = np.arange(8)
    halves = Blocks(every, every * 0 + COLUMN_WISE, every * 0 + HBM, every * 0 + 32, every * 0.0)
    on_device = [i for i, column in enumerate(model.columns) if column.resource == DEVICE]
    torn = 1024 * (32 * 4 / TERMS["regroup_bytes_per_s"] + TERMS["regroup_piece_s"])
    torn_s = model.block_costs(halves, 0).everywhere[:, on_device].sum(axis=1)
    assert torn_s == pytest.approx(np.full(8, torn))


def test_kinds_in_use_are_weighed(measured: None) -> None:
    """One kind costs nothing more; a mix joins all vectors, and each further kind has kernels and exchanges of its own:
    cut columns as many as whole tables, replicas one reduction."""
    model = StepModel(*inputs())
    assert model.mixing_seconds(np.array([TABLE_WISE])) == 0
    joined = 1024 * (8 * 64 * 4 / TERMS["regroup_bytes_per_s"] + 2 * TERMS["regroup_piece_s"])
    launches = TERMS["lookup_launch_s"] + TERMS["update_launch_s"]
    replicated = model.mixing_seconds(np.array([TABLE_WISE, DATA_PARALLEL]))
    assert replicated == pytest.approx(joined + launches + 1e-4)
    mixed = model.mixing_seconds(np.array([TABLE_WISE, COLUMN_WISE]))
    assert mixed == pytest.approx(joined + launches + 3 * 1e-4)
    every = model.mixing_seconds(np.array([TABLE_WISE, COLUMN_WISE, DATA_PARALLEL]))
    assert every == pytest.approx(joined + 1024 * TERMS["regroup_piece_s"] + 2 * launches + 4 * 1e-4)


@pytest.mark.parametrize("measured", [{"reduce_scatter_latency_s": 5e-3, "all_gather_latency_s": 3e-3}], indirect=True)
def test_latencies_of_sums_are_those_of_tables_cut_by_rows(measured: None) -> None:
    """Where all tables are, both are counted in full; whole tables have none of them."""
    cluster, workload = inputs()
    sums = 4096 * 8 * 64 * 4 * 3 / 4
    rates = sums / RATES["reduce_scatter"], sums / RATES["all_gather"]
    model = StepModel(cluster, workload)
    every, none = np.arange(8), np.zeros(8, dtype=np.int64)
    exchanged = [i for i, column in enumerate(model.columns) if str(column.resource) == "link_out"]
    exchanged = [i for i in exchanged if model.stages[model.columns[i].stage] in ("output_dist", "gradient_dist")]
    rows = Blocks(every, none + ROW_WISE, none + HBM, none + 64, none * 0.0)
    costs = model.block_costs(rows, 0)
    busy = (costs.fixed + costs.by_rows / 4 + costs.everywhere)[:, exchanged].sum()
    assert busy == pytest.approx(sum(rates) + 8e-3)
    whole = Blocks(every, none + TABLE_WISE, none + HBM, none + 64, none * 0.0)
    both = model.block_costs(whole, 0)
    assert (both.fixed / 4 + both.everywhere)[:, exchanged].sum() == pytest.approx(2 * sums / 4 / RATES["all_to_all"])


def test_what_mixing_takes_is_told(measured: None) -> None:
    """A plan of several kinds of sharding says what they take beyond its step, in print too; whole tables have nothing
    to say, and a document that says something else is refused."""
    cluster, workload = inputs()
    thirds = [{"match": f"t{i}", "shardings": ["row_wise" if i < 3 else "table_wise"]} for i in range(8)]
    mixed, whole = (
        plan(cluster, workload, policy=Policy.model_validate(policy), effort=0, simulate=False)
        for policy in ({"tables": thirds, "tiers": ["hbm"]}, {"shardings": ["table_wise"], "tiers": ["hbm"]})
    )
    assert mixed.objective is not None
    assert whole.objective is not None
    expected = StepModel(cluster, workload).mixing_seconds(np.array([TABLE_WISE, ROW_WISE]))
    assert mixed.objective.mixing_s == pytest.approx(expected)
    assert whole.objective.mixing_s is None
    assert "mixing_s" not in whole.objective.model_dump()
    assert verify(mixed) == verify(whole) == []
    console = Console(width=120, record=True, file=io.StringIO())
    plan_summary.render(mixed, console)
    render_plan(mixed, Explainer(mixed).plan(), console)
    assert console.export_text().count("Mixing kinds of sharding takes") == 2
    for stated in (None, expected / 2):
        objective = mixed.objective.model_copy(update={"mixing_s": stated})
        assert any("mixing_s" in fault for fault in verify(mixed.model_copy(update={"objective": objective})))


@pytest.mark.slow
@pytest.mark.parametrize("measured", [{"lookup_bytes_per_s": 5e9}], indirect=True)
def test_whole_tables_where_mixing_costs_more(measured: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of more ids than others is cut where that gains more than joining all vectors costs, and only there."""
    assert shardings(32) == {"table_wise"}
    assert len(shardings(80)) > 1
    monkeypatch.setattr(StepModel, "mixing_seconds", lambda *_: 0.0)
    assert len(shardings(32)) > 1


def shardings(pooling_factor: float) -> set[str]:
    """Those of a plan for tables of which one has so many ids per sample."""
    cluster, workload = inputs()
    many = workload.tables[0].model_copy(update={"pooling_factor": pooling_factor})
    workload = workload.model_copy(update={"tables": (many, *workload.tables[1:])})
    made = plan(cluster, workload, policy=Policy(tiers=("hbm",)), gap=0.0, simulate=False)
    assert verify(made) == []
    return {table.sharding for table in made.tables}


@pytest.mark.parametrize("measured", [EVICTED], indirect=True)
def test_evicted_rows_by_hand(measured: None) -> None:
    """Distinct rows and gradients of vectors come from memory once, what is read again from a cache."""
    cluster, workload = inputs()
    model = StepModel(cluster, workload)
    one = np.zeros(1, dtype=np.int64)
    whole = Blocks(one, one + TABLE_WISE, one + HBM, one + 64, one * 0.0)
    lookup = Lookup(model.tables, whole, model.kinds[0], model.batching, model.coefficients.software)
    ids, vectors, once, again = 4096 * 20, 4096 * 256, 1 / 2e10, 1 / 16e10
    distinct = float(model.tables.access.unique_rows(one, np.array([float(ids)]))[0])
    read = ids * 2e-9 + distinct * (256 * once + 5e-9) + (ids - distinct) * 256 * again + (ids * 8 + vectors) * once
    read += 4096 * 3e-8
    summed = 3 * (vectors * once + (ids * 256 - vectors) * again)
    rewritten = distinct * (5 * 256 * once + 2e-8) + ids * 1e-8
    for loads, seconds in ((lookup.forward(), read), (lookup.backward(), summed + rewritten)):
        on_device = loads[DEVICE]
        assert np.sum(on_device.fixed) + np.sum(on_device.by_rows) == pytest.approx(seconds)


@pytest.mark.parametrize("measured", [EVICTED], indirect=True)
def test_cutting_columns_gains_no_cache(measured: None) -> None:
    """The parts of a table find none of its rows in the caches either, and each of them pays for its ids and rows."""
    cluster, workload = inputs()
    model = StepModel(cluster, workload)
    on_device = [i for i, column in enumerate(model.columns) if column.resource == DEVICE]

    def seconds(columns: int) -> float:
        one = np.zeros(1, dtype=np.int64)
        sharding = TABLE_WISE if columns == 64 else COLUMN_WISE
        block = Blocks(one, one + sharding, one + HBM, one + columns, one * 0.0)
        costs = model.block_costs(block, 0)
        return float((costs.fixed + costs.by_rows)[:, on_device].sum())

    ids = 4096 * 20
    assert 4 * seconds(16) > seconds(64) + 3 * ids * (2e-9 + 1e-8)
