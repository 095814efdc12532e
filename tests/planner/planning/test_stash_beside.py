"""Stashed tables beside copies, compressors, variants, robust aims and caches; as a remedy; their error bars."""

import itertools
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

from cost_models.memory_course import memory_course
from cost_models.replicas import Replicas
from cost_models.shards import HBM, MEMORY_DDR, MEMORY_HBM, PLACEMENT_TIERS, TABLE_WISE, Blocks, Floats, PlacedShards
from cost_models.simulator.simulation import simulate
from cost_models.step import StepModel
from cost_models.workload.models import Workload
from planner import plan
from planner.document.goals import stash_of_ranks
from planner.document.plan import Plan
from planner.document.planned import placed_shards, planned_model
from planner.formulation.policy import Policy
from planner.verification.verify import verify
from tests.oracles.agreement import expect_near_simulation
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology
from topologies.errors import InputError

TABLES = [{"rows": 3_000_000, "dim": 64}, {"rows": 2_000_000, "dim": 128}, {"rows": 1_000_000, "dim": 64}]
DENSE = {"top_mlp": [20000, 20000, 1]}
MODEL = workload(TABLES, dense=DENSE, global_batch=8192)
WAYS = ("hbm", "hbm_stash_weights", "hbm_stash_optimizer", "hbm_stash_all")
IN_HBM = {"tiers": ["hbm"], "shardings": ["table_wise"], "stash": "auto"}


def cluster(hbm_bytes: float) -> Topology:
    return topology(node_group("a", hbm_bytes=hbm_bytes, ranks_per_switch=2, ddr_bytes=40e9))


def whole(model: StepModel, ranks: Sequence[int], ways: Sequence[str] | None = None) -> PlacedShards:
    """Each table as one shard."""
    table = np.arange(len(ranks))
    tier = table * 0 + HBM if ways is None else np.array([PLACEMENT_TIERS.index(way) for way in ways])
    blocks = Blocks(table, table * 0 + TABLE_WISE, tier, model.tables.dim[table], np.zeros(len(table)))
    return PlacedShards(blocks, np.array(ranks), model.tables.rows[table], np.ones(len(table), dtype=bool))


def dense_s(plain: StepModel, stage_s: float, out_s: float) -> float:
    """The stage `dense` where tables need `out_s` each way, by hand: each pass hides its way, and sums of gradients,
    which may end after the backward pass, begin later where the forward pass is not done in time."""
    dense = plain.base.dense[0]
    forward_s, backward_s = dense.rest_forward_s, dense.rest_s - dense.rest_forward_s
    passes_s = max(forward_s, out_s) + max(backward_s, out_s)
    return max(stage_s, passes_s, stage_s + max(out_s - forward_s, 0.0))


def best_s(plain: StepModel, stashed: dict[str, Floats], hbm_bytes: float, switches: Sequence[Sequence[int]]) -> float:
    """The shortest step of whole tables: every rank and way of each; `stashed` [T] bytes of each way, `switches` the
    ranks, as one group numbers its own, of all groups that share each."""
    rate, best = plain.kinds[0].pcie_bytes_per_s, np.inf
    stage, world = plain.stages.index("dense"), len(plain.kind_of_rank)
    count = len(plain.workload.tables)
    for ranks in itertools.product(range(world), repeat=count):
        stays = whole(plain, ranks)
        evaluation, course = plain.evaluate(stays), memory_course(plain, stays)
        back = course.totals[:, course.moments.index("gradients sent")]
        for ways in itertools.product(stashed, repeat=count):
            away = np.array([stashed[way][t] for t, way in enumerate(ways)])
            of_rank = np.bincount(ranks, weights=away, minlength=world)
            if (np.maximum(evaluation.rank_bytes[:, MEMORY_HBM] - of_rank, back) > hbm_bytes).any():
                continue
            out_s = max(of_rank[list(sharing)].sum() for sharing in switches) / rate
            stage_s = float(evaluation.stage_seconds[stage])
            best = min(best, evaluation.step_s + dense_s(plain, stage_s, out_s) - stage_s)
    return best


def expect_best(found: Plan, best: float) -> None:
    """The optimum, with a bound below it; what `verify` recomputes; and about what is simulated."""
    assert verify(found) == []
    assert found.objective is not None
    assert found.simulated is not None
    assert found.objective.step_s == pytest.approx(best, rel=2e-3)  # finishing may give up 0.1 % for fewer bytes
    assert found.objective.lower_bound_s <= best * (1 + 1e-9)
    assert stash_of_ranks(found).any()


# -- copies of tables ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("per_switch", "layout"),
    [
        pytest.param(1, "intra", marks=pytest.mark.slow),
        (2, "intra"),
        pytest.param(4, "intra", marks=pytest.mark.slow),
        (2, "inter"),
    ],
)
def test_copies_are_stashed_as_one_world_is(per_switch: int, layout: str) -> None:
    """The plan of a group is the best of all; the copies of other groups load the switches that they share with it."""
    ranks, nodes = (4, 1) if layout == "intra" else (2, 2)
    where = topology(
        node_group("a", ranks=ranks, nodes=nodes, hbm_bytes=6.9e9, ranks_per_switch=per_switch, ddr_bytes=40e9)
    )
    own = workload(TABLES, dense=DENSE, global_batch=32768)
    plain = StepModel(where, own, replicas=Replicas(factor=2, layout=layout, state_every=1))  # type: ignore[arg-type]
    one = np.array([3e6 * 64, 2e6 * 128, 1e6 * 64]) * 4
    state = np.array([3e6, 2e6, 1e6]) * 4
    stashed = dict(zip(WAYS, (0 * one, one, state, one + state), strict=True))
    numbers = [rank // 2 for rank in range(4)] if layout == "intra" else [rank % 2 for rank in range(4)]
    switches = [numbers[begin : begin + per_switch] for begin in range(0, 4, per_switch)]
    policy = Policy.model_validate({**IN_HBM, "replicas": {"factor": 2, "layout": layout}})
    found = plan(where, own, policy=policy, effort=1)
    expect_best(found, best_s(plain, stashed, 6.9e9, switches))
    expect_near_simulation(found, 0.1)


def test_tables_with_more_copies_than_others() -> None:
    """Bytes of each moment and the switch's seconds of all copies, by hand, and as simulated."""
    where = topology(node_group("a", ranks=4, hbm_bytes=20e9, ranks_per_switch=4, ddr_bytes=40e9))
    own = workload(TABLES, dense={"top_mlp": [8000, 8000, 1]}, global_batch=8192)
    replicas = Replicas.model_validate({"factor": 1, "rules": [{"tables": ["t0"], "factor": 2}]})
    table = np.array([0, 0, 1, 2])
    shards = {}
    for name, way in (("stays", "hbm"), ("stashed", "hbm_stash_weights")):
        model = StepModel(where, own, replicas=replicas, stashes=name == "stashed")
        tier = table * 0 + PLACEMENT_TIERS.index(way)
        blocks = Blocks(table, table * 0 + TABLE_WISE, tier, model.tables.dim[table], np.zeros(len(table)))
        opens = np.array([True, False, True, True])
        shards[name] = model, PlacedShards(blocks, np.array([0, 1, 2, 3]), model.tables.rows[table], opens)
    plain, stays = shards["stays"]
    model, away = shards["stashed"]
    size = np.array([3e6 * 64, 3e6 * 64, 2e6 * 128, 1e6 * 64]) * 4
    before, after = plain.evaluate(stays), model.evaluate(away)
    back = memory_course(plain, stays)
    returned = back.totals[:, back.moments.index("gradients sent")]
    expected = np.maximum(before.rank_bytes[:, MEMORY_HBM] - size, returned)
    assert after.rank_bytes[:, MEMORY_HBM] == pytest.approx(expected, rel=1e-9)
    assert after.rank_bytes[:, MEMORY_DDR] == pytest.approx(size, rel=1e-9)
    stage = plain.stages.index("dense")
    own_s = dense_s(plain, float(before.stage_seconds[stage]), size.sum() / plain.kinds[0].pcie_bytes_per_s)
    assert after.stage_seconds[stage] == pytest.approx(own_s, rel=1e-9)
    assert np.delete(after.stage_seconds, stage) == pytest.approx(np.delete(before.stage_seconds, stage), rel=1e-9)
    simulated = simulate(where, own, away, replicas=replicas)
    assert simulated.step_s == pytest.approx(after.step_s, rel=0.1)


def test_copies_that_are_cut_are_not_stashed() -> None:
    where = topology(node_group("a", ranks=4, hbm_bytes=20e9))
    policy = Policy.model_validate({"stash": "auto", "replicas": {"factor": 2, "strategy": "fully_sharded"}})
    with pytest.raises(InputError, match="cut over their replicas"):
        plan(where, MODEL, policy=policy, effort=0)


# -- compressors and variants ----------------------------------------------------------------------------------------


def test_both_parts_of_a_table_are_stashed() -> None:
    """Quotient and remainder leave together: bytes at both moments, in DDR, and over PCIe in the simulator."""
    tables = [{"rows": 3_000_000, "dim": 64, "compressor": "qr:3:multiply"}, {"rows": 1_000_000, "dim": 64}]
    own = workload(tables, dense={"top_mlp": [8000, 8000, 1]}, global_batch=8192)
    plain, model = StepModel(cluster(20e9), own), StepModel(cluster(20e9), own, stashes=True)
    stays, away = whole(plain, [0, 1]), whole(model, [0, 1], ["hbm_stash_all"] * 2)
    size = np.array(
        [(1e6 + 3) * (64 * 4 + 4), 1e6 * (64 * 4 + 4)]
    )  # rows of quotients and remainders, with their state
    found, before, course = model.evaluate(away), plain.evaluate(stays), memory_course(model, away)
    assert found.rank_bytes[:, MEMORY_DDR] == pytest.approx(size, rel=1e-9)
    back = memory_course(plain, stays)
    returned = back.totals[:, back.moments.index("gradients sent")]
    expected = np.maximum(before.rank_bytes[:, MEMORY_HBM] - size, returned)
    assert found.rank_bytes[:, MEMORY_HBM] == pytest.approx(expected, rel=1e-9)
    assert (course.totals.max(axis=1) <= course.counted * (1 + 1e-12)).all()
    assert simulate(model.topology, own, away).step_s == pytest.approx(found.step_s, rel=0.02)


def test_variants_and_stashes_are_chosen_together() -> None:
    """The best of every variant, rank and way of each table within the budget."""
    variants = {"none": (1.0, 0.0), "hash:2": (0.5, 0.1)}
    tables = [{"rows": 3_000_000, "dim": 64}, {"rows": 2_000_000, "dim": 128}]
    own, hbm_bytes = workload(tables, dense=DENSE, global_batch=16384), 6.2e9
    losses = [{"table": f"t{n}", "variant": "hash:2", "loss": 0.1} for n in range(2)]
    best = {}
    for budget in (0.0, 0.1):
        steps = [np.inf]
        for chosen in itertools.product(variants, repeat=2):
            if sum(variants[each][1] for each in chosen) > budget:
                continue
            given = [table | {"compressor": each} for table, each in zip(tables, chosen, strict=True)]
            stated = workload(given, dense=DENSE, global_batch=16384)
            plain = StepModel(cluster(hbm_bytes), stated)
            # The base of a step is that of tables as large as they are stated, whatever variants they have.
            one = np.array([3e6 * 64, 2e6 * 128]) * 4 * [variants[each][0] for each in chosen]
            state = np.array([3e6, 2e6]) * 4 * [variants[each][0] for each in chosen]
            stashed = dict(zip(WAYS, (0 * one, one, state, one + state), strict=True))
            steps.append(best_s(plain, stashed, hbm_bytes, [[0, 1]]))
        best[budget] = min(steps)
        policy = Policy.model_validate({**IN_HBM, "variants": {"losses": losses, "budget": budget}})
        found = plan(cluster(hbm_bytes), own, policy=policy, effort=1)
        expect_best(found, best[budget])
    assert best[0.1] < best[0.0]


# -- caches, robust aims ---------------------------------------------------------------------------------------------


def test_a_stated_cache_stays_while_its_table_is_away() -> None:
    """Rows in int8 leave, the rows in fp32 beside them do not; simulator and bytes agree with that."""
    tables = [{"rows": 3_000_000, "dim": 64, "dtype": "int8", "precision_cache": 0.1}] * 2
    own = workload(tables, dense={"top_mlp": [8000, 8000, 1]}, global_batch=8192)
    plain, model = StepModel(cluster(20e9), own), StepModel(cluster(20e9), own, stashes=True)
    stays, away = whole(plain, [0, 1]), whole(model, [0, 1], ["hbm_stash_weights"] * 2)
    before, after = plain.evaluate(stays), model.evaluate(away)
    row_bytes = after.rank_bytes[0, MEMORY_DDR] / 3e6
    assert 64 <= row_bytes <= 64 + 8  # scale and offset
    assert before.rank_bytes[0, MEMORY_HBM] - after.rank_bytes[0, MEMORY_HBM] <= 3e6 * row_bytes
    assert after.rank_bytes[0, MEMORY_HBM] >= 3e5 * 64 * 4
    assert simulate(model.topology, own, away).step_s == pytest.approx(after.step_s, rel=0.02)


@pytest.mark.parametrize(("caches", "stash", "ways"), [([0.05], "auto", set()), (["off", 0.05], "weights", {WAYS[1]})])
def test_caches_of_a_plan_and_stashes_exclude_each_other(caches: list[object], stash: str, ways: set[str]) -> None:
    """A table that must have its cache is not stashed, and one that must be stashed has none."""
    own = workload([{"rows": 100_000, "dim": 64}] * 2, dense={"top_mlp": [64, 1]})
    policy = Policy.model_validate({"tiers": ["hbm"], "precision_caches": caches, "stash": stash})
    found = plan(cluster(10e9), own, policy=policy, effort=0)
    assert {table.tier for table in found.tables} == (ways or {"hbm_mixed"})
    assert verify(found) == []


@pytest.mark.slow
def test_robust_plans_stash_tables() -> None:
    """Scenarios change lookups, not what is stashed: the plan of the quantile fits as the nominal one does."""
    own = workload([{"rows": 3_000_000, "dim": 64}] * 2, dense=DENSE, global_batch=8192)
    found = plan(
        cluster(4.6e9),
        own,
        policy=Policy.model_validate({**IN_HBM, "robust": {"quantile": "p95", "scenarios": 40, "simulated": 4}}),
        effort=0,
    )
    assert verify(found) == []
    assert found.robust is not None
    assert stash_of_ranks(found).any()
    assert found.robust.sampled.planned.overfull == 0


# -- a remedy, and how far off it may be -----------------------------------------------------------------------------


def planned(where: Topology, own: Workload = MODEL, **policy: object) -> Plan:
    return plan(where, own, policy=Policy.model_validate({"tiers": ["hbm"], **policy}), effort=0)


@cache
def stashing() -> Plan:
    """Tables that fit once some are stashed."""
    return planned(cluster(5e9), stash="auto")


def test_a_stash_is_a_remedy_where_it_makes_tables_fit() -> None:
    """A plan that does not fit names `--stash auto`, which plans; not where it would not help, nor where it may not
    be."""
    remedies = {}
    for hbm_bytes in (5e9, 3e9):
        found = planned(cluster(hbm_bytes))
        assert found.infeasibility is not None
        remedies[hbm_bytes] = {each.change: each for each in found.infeasibility.remedies}
    assert remedies[5e9]["stash"].flags == "--stash auto"
    assert stashing().objective is not None
    assert remedies[3e9]["stash"].flags is None
    assert remedies[3e9]["stash"].words.startswith("stashing tables between the passes")
    assert planned(cluster(3e9), stash="auto").objective is None
    for given in ({"software": "hugectr"}, {"mode": "inference"}):
        other = planned(cluster(1e9), workload(TABLES, dense=DENSE, global_batch=8192, **given))
        assert other.infeasibility is not None
        assert "stash" not in {each.change for each in other.infeasibility.remedies}


def test_plans_with_stashed_tables_have_error_bars() -> None:
    """By what the time rests on: PCIe for the ways, the dense part for its passes."""
    found = stashing()
    assert found.objective is not None
    bar = found.objective.error_bar
    assert bar is not None
    assert bar.low_s < found.objective.step_s < bar.high_s
    assert "on other hardware or tiers only" in bar.basis
    (dense,) = (stage for stage in found.stages if stage.name == "dense")
    assert dense.error_bar is not None
    assert any("pcie_efficiency" in words for words in (*dense.error_bar.spec_only, dense.error_bar.basis))
    model = planned_model(found)
    assert isinstance(model, StepModel)
    lookups = model.error_bars(placed_shards(found))
    assert lookups is not None
    assert "uvm" not in lookups.stages[model.stages.index("lookup_forward")].basis
