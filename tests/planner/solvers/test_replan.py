"""Re-planning: what can stay stays, limits hold, more room to move never hurts, and what changed is coped with."""

import functools
import itertools
from typing import Any

import pytest

from cost_models.workload.models import Workload
from planner import plan
from planner.document.plan import Plan
from planner.problem.goals import GIVE
from planner.verification.verify import verify
from tests.oracles.instances import node_group, tiny_instance, topology, workload
from tests.seeds import seeds
from topologies.cluster import Topology
from topologies.loading import load_topology

LIMITS = (0, 5 * 10**9, 10**13)


SEARCH: dict[str, Any] = {"effort": 1, "time_limit_s": 3600.0, "simulate": False}
"""That effort ends alone."""
SHORT = SEARCH | {"effort": 0}
"""Enough for 30 tables on 16 ranks to gain by moves."""


def synthetic(tables: int, *, rows: float = 1.0, skip: int = 0) -> Workload:
    """The first tables of one model, with more rows, or without the first few."""
    from cost_models.workload import load_workload

    loaded = load_workload("synthetic:60@seed=3")
    kept = [t.model_copy(update={"rows": int(t.rows * rows)}) for t in loaded.tables[skip:tables]]
    return loaded.model_copy(update={"tables": tuple(kept)})


def cluster(nodes: int) -> Topology:
    return load_topology("zionex", nodes=nodes)


@functools.cache
def old_plan() -> Plan:
    """For 50 tables on four nodes of eight ranks: its search is cut short, so that there is something to gain."""
    shardings = ["table_wise", "column_wise", "data_parallel"]
    return plan(cluster(4), synthetic(50), effort=0, shardings=shardings, simulate=False)


@functools.cache
def small_plan() -> Plan:
    """For 30 tables on two nodes, whole ones."""
    return plan(cluster(2), synthetic(30), effort=0, shardings=["table_wise"], simulate=False)


def small_again(limit: int) -> Plan:
    """Followed by one that may move so much."""
    return plan(cluster(2), synthetic(30), previous=small_plan(), max_move_bytes=limit, gap=0.0, **SHORT)


def check(new: Plan, old: Plan, limit: int | None) -> None:
    assert new.status in ("optimal", "feasible")
    assert new.moves is not None
    assert verify(new, old) == []
    assert limit is None or new.moves.moved_bytes <= limit


def again(old: Plan, nodes: int = 4, model: Workload | None = None, **terms: Any) -> Plan:
    return plan(cluster(nodes), model or synthetic(50), previous=old, **{"gap": 0.05, "simulate": False, **terms})


def test_without_room_to_move_the_old_plan_is_returned() -> None:
    """To the last byte, with its step."""
    old = old_plan()
    new = again(old, max_move_bytes=0)
    assert new.tables == old.tables
    assert new.objective is not None
    assert old.objective is not None
    assert new.objective.step_s == old.objective.step_s
    assert new.moves is not None
    assert new.moves.moved_bytes == 0
    check(new, old, 0)


def test_a_plan_near_its_bound_stays_as_it_is() -> None:
    """Within the gap that is asked for nothing moves, whatever may."""
    old = old_plan()
    assert again(old, gap=0.5).tables == old.tables


@pytest.fixture(scope="module")
def by_limit() -> dict[int, Plan]:
    return {limit: small_again(limit) for limit in LIMITS}


@pytest.mark.slow
def test_limits_are_kept_and_more_room_never_hurts(by_limit: dict[int, Plan]) -> None:
    """Bytes moved are at most the limit; the step falls as limits grow, and indeed falls."""
    steps = []
    for limit, new in by_limit.items():
        check(new, small_plan(), limit)
        assert new.objective is not None
        steps.append(new.objective.step_s)
    assert all(after <= before * (1 + 1e-6) for before, after in itertools.pairwise(steps)), steps
    assert steps[-1] < steps[0] * 0.999
    assert steps[1] < steps[0], "a small part of the bytes is enough for some gain"


def steps_by_limit(where: Topology, model: Workload, old: Plan, **words: Any) -> list[tuple[float, int]]:
    """(step, moved bytes) for limits from no byte to more than all."""
    whole = sum(int(t.shards.bytes.sum()) for t in old.tables)
    steps = []
    for limit in (0, whole >> 4, whole >> 2, whole >> 1, 2 * whole):
        new = plan(where, model, previous=old, max_move_bytes=limit, **SEARCH | words)
        if new.objective is not None:
            assert new.moves is not None
            assert new.moves.moved_bytes <= limit
            steps.append((new.objective.step_s, new.moves.moved_bytes))
    return steps


@pytest.mark.slow
@pytest.mark.parametrize("seed", [8, 11])
@pytest.mark.parametrize("gap", [0.0, 0.01])
def test_no_limit_is_better_than_a_larger_one(seed: int, gap: float) -> None:
    """From whole tables on tiny clusters of every sort: the step never grows with the limit, at any gap; a limit that
    the plan of the largest one keeps to gives its step within 0.1 %, which is at most that of a plan that follows
    none."""
    instance = tiny_instance(seed)
    where, model = instance.model.topology, instance.model.workload
    old = plan(where, model, shardings=["table_wise"], tiers=["hbm", "ddr"], **SEARCH)
    free = plan(where, model, gap=gap, tiers=["hbm", "ddr"], **SEARCH)
    if not old.tables or free.objective is None:
        return
    steps = steps_by_limit(where, model, old, gap=gap, tiers=["hbm", "ddr"])
    assert all(after <= before for (before, _), (after, _) in itertools.pairwise(steps)), steps
    best_s, moved = steps[-1]
    assert best_s <= free.objective.step_s * (1 + max(GIVE, gap))
    words = {"gap": gap, "tiers": ["hbm", "ddr"], **SEARCH}
    just = plan(where, model, previous=old, max_move_bytes=moved + 4, **words)
    assert just.objective is not None
    assert just.objective.step_s <= best_s * (1 + GIVE)


@pytest.mark.slow
def test_what_may_move_is_used() -> None:
    """From whole tables on two nodes: half of the bytes go most of the way to the plan that follows none, all of them
    all of it."""
    where, model = cluster(2), synthetic(30)
    old = plan(where, model, shardings=["table_wise"], **SHORT)
    free = plan(where, model, **SHORT)
    steps = steps_by_limit(where, model, old, **SHORT)
    assert old.objective is not None
    assert free.objective is not None
    to_gain = old.objective.step_s - free.objective.step_s
    assert to_gain > 0.015 * free.objective.step_s
    assert all(after <= before for (before, _), (after, _) in itertools.pairwise(steps)), steps
    assert steps[-1][0] <= free.objective.step_s * (1 + GIVE)
    assert old.objective.step_s - steps[-2][0] > 0.6 * to_gain


@pytest.mark.slow
def test_the_same_inputs_give_the_same_plan(by_limit: dict[int, Plan]) -> None:
    """Byte for byte."""
    assert small_again(LIMITS[1]).to_json() == by_limit[LIMITS[1]].to_json()


@pytest.mark.slow
def test_a_higher_price_moves_less() -> None:
    """Moves that must pay for themselves in one step are fewer than those that have a million."""
    moved = []
    for steps in (1, 1_000_000):
        new = plan(cluster(2), synthetic(30), previous=small_plan(), pay_back_steps=steps, gap=0.0, **SHORT)
        check(new, small_plan(), None)
        assert new.moves is not None
        moved.append(new.moves.moved_bytes)
    assert moved[0] < moved[1]


@pytest.mark.parametrize("lost", [(), (0,), (2,)])
def test_a_lost_node(lost: tuple[int, ...]) -> None:
    """Its bytes move, and little else need; a limit below them is proven too small."""
    old = old_plan()
    new = again(old, nodes=3, lost_nodes=lost, pay_back_steps=1)
    check(new, old, None)
    assert new.moves is not None
    assert new.moves.lost_bytes > 0
    assert new.moves.least_bytes <= new.moves.moved_bytes < 3 * new.moves.least_bytes
    short = again(old, nodes=3, lost_nodes=lost, max_move_bytes=new.moves.least_bytes // 2)
    assert short.status == "infeasible"
    assert short.infeasibility is not None
    assert "must move, and the limit is" in short.infeasibility.summary
    assert verify(short, old) == []


def test_more_nodes_are_used() -> None:
    """Tables move to them where that pays."""
    old = old_plan()
    new = again(old, nodes=6, max_move_bytes=10**12)
    check(new, old, 10**12)
    assert any((table.shards.rank >= 32).any() for table in new.tables if table.sharding != "data_parallel")


def test_tables_added_dropped_and_grown() -> None:
    """New tables and rows are placed without a move, what stays does not move, and the rest of the plan is kept."""
    old = old_plan()
    new = again(old, model=synthetic(60, rows=1.1, skip=3), max_move_bytes=0)
    check(new, old, 0)
    assert new.moves is not None
    assert new.moves.new.hbm > 0
    kept = {table.name: table for table in old.tables}
    single = [table for table in new.tables if table.sharding == "table_wise" and table.name in kept]
    assert single
    assert all((table.shards.rank == kept[table.name].shards.rank).all() for table in single)


def test_a_tier_that_is_no_longer_allowed() -> None:
    """Tables change their memory where they are: copied within the host, not moved."""
    tables = [{"rows": 100_000, "dim": 64} for _ in range(6)]
    small, model = topology(node_group("a", nodes=2)), workload(tables)
    old = plan(small, model, tiers=["ddr_cached"], shardings=["table_wise"])
    new = plan(small, model, tiers=["hbm"], shardings=["table_wise"], previous=old, max_move_bytes=0)
    assert verify(new, old) == []
    assert new.moves is not None
    assert new.moves.moved_bytes == 0
    assert new.moves.copied.hbm > 0


def test_a_memory_that_became_too_small_is_left() -> None:
    """As few tables as needed leave it; with no room to move, none are found and the least found is said."""
    tables = [{"rows": 100_000 + i, "dim": 64} for i in range(8)]
    model = workload(tables, global_batch=64)
    ample = topology(node_group("a", nodes=1, ranks=2, hbm_bytes=1e9, ddr_bytes=None))
    old = plan(ample, model, shardings=["table_wise"])
    assert sorted(len(r) for r in _ranks(old)) == [4, 4]
    uneven = old.model_copy(update={"tables": tuple(_on_rank(table, 0) for table in old.tables)})
    taken = 8 * 100_000 * (64 * 4 + 4)
    tight = topology(node_group("a", nodes=1, ranks=2, hbm_bytes=taken * 0.75, ddr_bytes=None))
    new = plan(tight, model, shardings=["table_wise"], previous=uneven, max_move_bytes=10**9, gap=1.0)
    assert new.status in ("feasible", "optimal")
    assert verify(new, uneven) == []
    assert new.moves is not None
    assert 0 < new.moves.least_bytes <= new.moves.moved_bytes < 0.5 * taken
    one_less = plan(tight, model, shardings=["table_wise"], previous=uneven, max_move_bytes=new.moves.least_bytes)
    assert one_less.status == "timeout"
    assert one_less.moves is not None
    assert one_less.moves.found_bytes is not None
    assert one_less.moves.found_bytes > new.moves.least_bytes
    assert verify(one_less, uneven) == []


def _ranks(made: Plan) -> list[list[str]]:
    return [[t.name for t in made.tables if t.shards.rank[0] == rank] for rank in range(len(made.ranks))]


def _on_rank(table: Any, rank: int) -> Any:
    from dataclasses import replace

    return table.model_copy(update={"shards": replace(table.shards, rank=table.shards.rank * 0 + rank)})


@pytest.mark.parametrize("seed", seeds((1, 12, 13), (*range(0, 14, 2), 9)))
def test_tiny_clusters_of_every_sort(seed: int) -> None:
    """Any policy, tiers and kinds of rank: an old plan is kept without room to move, and every limit holds."""
    instance = tiny_instance(seed)
    where, model, policy = instance.model.topology, instance.model.workload, instance.policy
    words: dict[str, Any] = {"tiers": policy.tiers, "shardings": policy.shardings, "simulate": False}
    old = plan(where, model, **words, effort=0)
    if not old.tables:
        return
    kept = plan(where, model, **words, previous=old, max_move_bytes=0, gap=0.0)
    assert kept.objective is not None
    assert old.objective is not None
    assert kept.objective.step_s <= old.objective.step_s * (1 + 1e-9)
    check(kept, old, 0)
    half = sum(int(t.shards.bytes.sum()) for t in old.tables) // 2
    check(plan(where, model, **words, previous=old, max_move_bytes=half, gap=0.0), old, half)
    check(plan(where, model, previous=old, gap=0.0, simulate=False), old, None)
