"""Cache sizes are a decision per table: the plan divides HBM among caches as the optimum does."""

import json

import numpy as np
import pytest

import planner
from cost_models.step import StepModel
from cost_models.workload.models import Workload
from planner.document.plan import Plan
from planner.formulation.formulation import Formulation
from planner.formulation.options import build_problem, coarse_fractions, enumerate_options
from planner.formulation.policy import Policy
from planner.planning.caches import with_own_fractions
from planner.planning.pipeline import Pipeline, Searched
from planner.solvers.limits import SearchLimits
from planner.solvers.search import solve
from planner.verification.verify import verify
from tests.oracles.brute_force import optimum
from tests.oracles.instances import keep_some_options, node_group, tiny_instance, topology, workload
from tests.oracles.water_filling import CachedTable, empirical_misses, least_cost, zipf_misses
from tests.seeds import seeds
from topologies.cluster import Topology

BATCH = 256
"""Few lookups for the rows: nearly no row is missed twice in a batch, so that misses are convex."""
WEIGHT_BYTES, STATE_BYTES, SLOT_BYTES = 4, 4, 16
"""Of an element; of a row's optimizer state; of a cache's slot beside its row."""


def drawn_tables(seed: int) -> list[dict[str, object]]:
    """Tables of one width, some with power laws, some with empirical curves."""
    random = np.random.default_rng(seed)
    found: list[dict[str, object]] = []
    for _ in range(int(random.integers(6, 14))):
        rows = int(10 ** random.uniform(4.7, 6.3))
        table: dict[str, object] = {"rows": rows, "dim": 64, "pooling_factor": float(random.integers(2, 40))}
        if random.random() < 0.5:
            table["zipf_alpha"] = float(random.uniform(0.6, 1.3))
        else:
            x = np.sort(random.uniform(0.001, 1.0, 5))
            y = np.cumsum(np.sort(random.exponential(size=6))[::-1] * np.diff([0.0, *x, 1.0]) ** 0.5)
            slope = np.maximum.accumulate((np.diff([0.0, *y]) / np.diff([0.0, *x, 1.0]))[::-1])[::-1]
            y = np.cumsum(slope * np.diff([0.0, *x, 1.0]))
            table["access_cdf"] = [(float(a), float(b)) for a, b in zip([*x, 1.0], y / y[-1], strict=True)]
        found.append(table)
    return found


def cached_tables(tables: list[dict[str, object]], missed_s: float) -> list[CachedTable]:
    found = []
    for table in tables:
        rows, lookups = int(table["rows"]), BATCH * float(table["pooling_factor"])
        if "zipf_alpha" in table:
            missed = zipf_misses(rows, float(table["zipf_alpha"]), lookups)
        else:
            missed = empirical_misses(rows, table["access_cdf"], lookups)
        found.append(CachedTable(rows, missed, row_bytes(table), missed_s))
    return found


def plan(cluster: Topology, tables: list[dict[str, object]], effort: int) -> Plan:
    return planner.plan(
        cluster,
        workload(tables, global_batch=BATCH),
        tiers=["ssd_cached"],
        shardings=["table_wise"],
        gap=0.0,
        effort=effort,
        simulate=False,
    )


def row_bytes(table: dict[str, object]) -> int:
    return int(table["dim"]) * WEIGHT_BYTES + STATE_BYTES + SLOT_BYTES


def one_rank(room: float, tables: list[dict[str, object]]) -> tuple[Topology, float]:
    """A single accelerator whose HBM holds a share of all rows beside everything else; and that share's bytes."""
    beside = plan(topology(node_group("a", ranks=1, hbm_bytes=1e12, ssd_bytes=1e13)), tables, effort=0)
    caches = sum(
        np.ceil(int(table["rows"]) * held.cache_fraction) * row_bytes(table)
        for table, held in zip(tables, beside.tables, strict=True)
    )
    budget = room * sum(int(table["rows"]) * row_bytes(table) for table in tables)
    hbm = beside.ranks[0].bytes.hbm - caches + budget
    return topology(node_group("a", ranks=1, hbm_bytes=float(np.ceil(hbm)), ssd_bytes=1e13)), budget


def fetch_s(found: Plan) -> float:
    return next(stage.seconds for stage in found.stages if stage.name == "cache_fetch")


@pytest.mark.parametrize("seed", seeds(range(3), range(7)))
def test_hbm_is_divided_as_by_water_filling(seed: int) -> None:
    """Where caches alone compete for HBM, power laws and empirical curves mixed: within 0.5 % of the least step. Over
    drives, where every missed row is fetched, and costs as much as any other.

    Of the least misses, too, the seconds saved come near; where a curve is not concave, the oracle's are a bound.
    """
    tables, room = drawn_tables(seed), (0.02, 0.1, 0.3)[seed % 3]
    cluster, budget = one_rank(room, tables)
    found = plan(cluster, tables, effort=2)
    assert verify(found) == []
    unit = cached_tables(tables, 1.0)
    missed = sum(table.cost_at(held.cache_fraction) for table, held in zip(unit, found.tables, strict=True))
    second = fetch_s(found) / missed
    least = least_cost(cached_tables(tables, second), budget)
    worst = sum(table.cost_at(0.0) for table in cached_tables(tables, second))
    assert found.objective is not None
    assert worst - fetch_s(found) >= 0.985 * (worst - least)
    assert fetch_s(found) - least <= 0.005 * found.objective.step_s
    assert fetch_s(found) >= least * (1 - 1e-3)


SCARCE = [{"rows": 4_000_000 * (i + 1), "dim": 64, "zipf_alpha": 1.05, "pooling_factor": 5 + 3 * i} for i in range(6)]


@pytest.fixture(scope="module")
def scarce() -> tuple[Topology, Workload, Plan]:
    """Tables of 21 GB for four accelerators with 1.5 GB each, and their plan."""
    cluster = topology(node_group("a", nodes=2, ranks=2, hbm_bytes=1.5e9, ddr_bytes=2e11))
    trained = workload(SCARCE)
    return cluster, trained, planner.plan(cluster, trained)


def test_tables_have_shares_of_their_own_where_hbm_is_scarce(scarce: tuple[Topology, Workload, Plan]) -> None:
    """They are listed in the plan, which verifies after a way through its file, and repeats to the last byte."""
    cluster, trained, found = scarce
    listed = found.provenance.cache_fractions["ddr_cached"]
    cached = [table for table in found.tables if table.tier == "ddr_cached"]
    assert len({table.cache_fraction for table in cached}) > 1
    assert all(table.cache_fraction in listed[table.name] for table in cached)
    text = found.to_json()
    assert verify(Plan.model_validate(json.loads(text))) == []
    assert planner.plan(cluster, trained).to_json() == text


def test_shares_of_its_own_are_no_slower_than_the_usual_ones(scarce: tuple[Topology, Workload, Plan]) -> None:
    """The same search on the same few shares for all tables."""
    cluster, trained, found = scarce
    model = StepModel(cluster, trained)
    usual = solve(build_problem(model, enumerate_options(model, Policy())), SearchLimits())
    assert found.objective is not None
    assert usual.step_s is not None
    assert found.objective.step_s <= usual.step_s


def test_a_plan_that_follows_another_may_keep_its_shares(scarce: tuple[Topology, Workload, Plan]) -> None:
    """Nothing moves, and no cache changes, where the inputs stay."""
    cluster, trained, found = scarce
    again = planner.plan(cluster, trained, previous=found)
    assert verify(again, found) == []
    assert again.objective is not None
    assert found.objective is not None
    assert again.objective.step_s <= found.objective.step_s * (1 + 1e-9)
    assert again.moves is not None
    assert again.moves.moved_bytes == 0


def test_the_usual_shares_stay_where_hbm_is_not_scarce() -> None:
    """Nothing is listed then."""
    cluster = topology(node_group("a", nodes=2, ranks=2, hbm_bytes=40e9, ddr_bytes=2e11))
    assert planner.plan(cluster, workload(SCARCE)).provenance.cache_fractions == {}


@pytest.mark.parametrize(
    ("listed", "words"), [({"t9": [0.1]}, "no such table"), ({"t0": [0.2, 0.1]}, "ascending"), ({"t0": []}, "none")]
)
def test_shares_that_cannot_be_are_named(
    scarce: tuple[Topology, Workload, Plan], listed: dict[str, list[float]], words: str
) -> None:
    """Of a table that does not exist; out of order; an empty list."""
    data = json.loads(scarce[2].to_json())
    data["provenance"]["cache_fractions"]["ddr_cached"] |= listed
    assert any(words in fault for fault in verify(Plan.model_validate(data)))


def test_rounds_end_with_their_time(scarce: tuple[Topology, Workload, Plan]) -> None:
    """Without time the usual shares stay; a round is begun only where one that lasts as long as the last has time."""
    cluster, model, _ = scarce
    costs = StepModel(cluster, model)
    usual = Formulation.of(costs, Policy())
    assert with_own_fractions(usual, None, lambda _: False) is usual
    asked: list[float] = []

    def twice(seconds: float) -> bool:
        asked.append(seconds)
        return len(asked) < 4

    found = with_own_fractions(usual, None, twice).options
    assert found.fractions is not None
    assert asked[0] == 0.0
    assert len(asked) <= 4
    assert all(seconds > 0 for seconds in asked[2:])


@pytest.mark.parametrize("seed", seeds(range(2, 90, 9), range(2, 90, 3)))
def test_no_plan_is_faster_than_the_bound(seed: int) -> None:
    """Tiny instances with tight memory: the optimum over the shares found is known by trying everything."""
    instance = tiny_instance(seed)
    options = with_own_fractions(Formulation(instance.model, instance.options, instance.problem)).options
    if options.fractions is None:
        return
    random = np.random.default_rng(seed)
    some = keep_some_options(options, 4, random)
    problem = build_problem(instance.model, some)
    best = optimum(problem)
    found = solve(problem, SearchLimits(gap=0.0))
    if best is None:
        assert found.placement is None
        return
    assert found.bound_s is not None
    assert found.bound_s <= best.step_s * (1 + 1e-12)


@pytest.mark.parametrize(
    ("tier", "listed", "words"),
    [
        ("ddr_cached", {"t0": [0.0005]}, "t0 in ddr_cached: without 0.02, which is tried of every table"),
        ("ddr_cached", {"t0": [0.02, 0.3]}, "t0 in ddr_cached: without 0.1"),
        ("ddr", {"t0": [0.1]}, "ddr: has no caches"),
    ],
)
def test_sizes_that_leave_out_the_usual_ones_are_named(
    scarce: tuple[Topology, Workload, Plan], tier: str, listed: dict[str, list[float]], words: str
) -> None:
    """A bound on plans of fewer sizes than are tried of every table says less than it seems to."""
    data = json.loads(scarce[2].to_json())
    data["provenance"]["cache_fractions"].setdefault(tier, {}).update(listed)
    assert any(words in fault for fault in verify(Plan.model_validate(data)))


def test_a_plan_of_a_narrower_question_does_not_verify(scarce: tuple[Topology, Workload, Plan]) -> None:
    """Everything in it fits, and its bound is right for caches of one size: not the question that was asked."""
    cluster, trained, found = scarce
    model, policy = StepModel(cluster, trained), Policy(tiers=("ddr_cached",))
    sizes = dict(coarse_fractions(model)) | {"ddr_cached": np.full((len(SCARCE), 1), 0.0005)}
    question = Formulation.of(model, policy, sizes)
    outcome = solve(question.problem, SearchLimits())
    narrow = Pipeline(policy, SearchLimits()).assembled(Searched(question, outcome))
    assert narrow.objective is not None
    assert found.objective is not None
    assert narrow.objective.lower_bound_s > found.objective.step_s
    faults = verify(narrow)
    assert faults
    assert all("without 0.02" in fault for fault in faults)
