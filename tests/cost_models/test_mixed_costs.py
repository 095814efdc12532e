"""Tables with more copies than others: what they cost, what they hold, and what the simulator says of both together."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from cost_models.exchange_lines import ExchangeLine
from cost_models.joint_lines import JointLine, at_once, in_turn
from cost_models.replicas import ReplicaRule, Replicas
from cost_models.shards import DDR_CACHED, HBM, ROW_WISE, TABLE_ROW_WISE, TABLE_WISE, Blocks, Floats, Ints, PlacedShards
from cost_models.simulator.simulation import simulate
from cost_models.stages import VectorExchange
from cost_models.step import StepModel
from cost_models.workload.models import Workload
from tests.cost_models.test_replication import resized
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology
from topologies.errors import InputError

NAMES = [f"{'user' if number % 3 == 0 else 'item'}_{number}" for number in range(9)]
MORE = np.array([name.startswith("user") for name in NAMES])


def trained(rows: int = 300_001, **fields: object) -> Workload:
    tables = [
        {"name": name, "rows": rows + 1000 * number, "dim": 64, "optimizer": "rowwise_adagrad", "pooling_factor": 20}
        for number, name in enumerate(NAMES)
    ]
    given = {"software": "torchrec", "global_batch": 65536, "pipeline": "none", **fields}
    return workload(tables, **given)


def mixed(factor: int, more: int, **fields: object) -> Replicas:
    rule = ReplicaRule(tables=("user_*",), factor=more)
    return Replicas.model_validate({"factor": factor, "rules": (rule,), "sync_every": 5, "state_every": 5, **fields})


def held(model: StepModel, sharding: int, tables: Ints, copies: int) -> PlacedShards:
    """Tables on the ranks of one copy in turn, or cut over its nodes or over all of it, and the same of each other
    copy: on neighbours, or whole runs of ranks apart."""
    replicas, world = model.replicas, model.topology.world_size // copies
    on_node = model.topology.nodes[0].accelerators.count
    if replicas is None or replicas.layout == "intra":
        on_node //= copies
    cut = {TABLE_WISE: 1, TABLE_ROW_WISE: on_node, ROW_WISE: world}[sharding]
    table, rank, rows, opens = [], [], [], []
    for number in tables.tolist():
        whole, first = int(model.tables.rows[number]), number * cut % world
        size = -(-whole // cut)
        for place in range(cut):
            for copy in range(copies):
                table.append(number)
                rank.append(own_rank(model, first + place, copy, copies))
                rows.append(max(0, min(size, whole - place * size)))
                opens.append(place == copy == 0)
    of, zeros = np.array(table), np.zeros(len(table), dtype=np.int64)
    blocks = Blocks(of, zeros + sharding, zeros + HBM, model.tables.dim[of], zeros.astype(float))
    return PlacedShards(blocks, np.array(rank), np.array(rows), np.array(opens))


def own_rank(model: StepModel, place: int, copy: int, copies: int) -> int:
    """The rank of a copy that has the same shards as that at this place of all others."""
    if model.replicas is None or model.replicas.layout == "intra":
        return place * copies + copy
    return place + copy * (model.topology.world_size // copies)


def beyond_latencies(model: StepModel, placed: PlacedShards) -> dict[str, float]:
    seconds = model.evaluate(placed).stage_seconds - model.linearised_at(placed).constants
    return dict(zip(model.stages, seconds.tolist(), strict=True))


def _cluster(shared: str) -> Topology:
    """Four nodes of eight ranks, and what is special of them."""
    of_node = {"cards and switches": {"cards": 2, "ranks_per_switch": 4}, "host links": {"has_scale_up": False}}
    oversubscription = 3.0 if shared == "uplinks" else 1.0
    return topology(node_group("a", nodes=4, ranks=8, **of_node.get(shared, {})), oversubscription=oversubscription)


@lru_cache(maxsize=1)
def _models(layout: str, factor: int, more: int, shared: str, exchange: VectorExchange) -> tuple[StepModel, StepModel]:
    """Of all tables in so many copies, and of some in more than others."""
    cluster, replicas = _cluster(shared), mixed(factor, more, layout=layout)
    many = trained(global_batch=2**20)  # so many bytes that each exchange takes its line of the highest rate
    alike = StepModel(cluster, many, exchange=exchange, replicas=replicas.alike(more))
    return alike, StepModel(cluster, many, exchange=exchange, replicas=replicas)


CUT: dict[str, object] = {"strategy": "fully_sharded", "sync_every": 1}
"""Fields of copies that are cut over each other."""


SHARED: list[tuple[VectorExchange, str]] = [
    *(("flat", each) for each in ("nothing", "cards and switches", "uplinks", "host links")),
    *(("sptt", each) for each in ("cards and switches", "uplinks")),
]
"""Exchanges, and what of a cluster ranks share."""
NUMBERS_OF_COPIES = [
    *(("intra", *counts) for counts in ((1, 2), (1, 4), (2, 4), (2, 8))),
    *(("inter", *counts) for counts in ((1, 2), (1, 4), (2, 4))),
]
HALF_OF_ALL = [
    (*of, *copies) for i, of in enumerate(SHARED) for j, copies in enumerate(NUMBERS_OF_COPIES) if (i + j) % 2
]
"""Each exchange with some numbers of copies and each of these with some exchanges."""


@pytest.mark.parametrize("sharding", [TABLE_WISE, TABLE_ROW_WISE, ROW_WISE])
@pytest.mark.parametrize(("exchange", "shared", "layout", "factor", "more"), HALF_OF_ALL)
def test_they_cost_what_they_cost_where_all_have_as_many(
    layout: str, factor: int, more: int, shared: str, exchange: VectorExchange, sharding: int
) -> None:
    """Beyond latencies, which are those of the largest groups: seconds of every stage, and bytes of every rank. Also
    where a rank of theirs is a tower, whose exchange is the flat one."""
    alike, both = _models(layout, factor, more, shared, exchange)
    copies, tables = more // factor, np.flatnonzero(MORE)
    placed, one = held(both, sharding, tables, copies), held(alike, sharding, tables, 1)
    first = np.arange(len(placed.rank)) % copies == 0
    expected = dict.fromkeys(both.stages, 0.0) | beyond_latencies(alike, one)
    assert beyond_latencies(both, placed) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    stored = both.shard_bytes(placed)[first]
    np.testing.assert_allclose(stored, alike.shard_bytes(one), rtol=1e-12)


@pytest.mark.parametrize("pipeline", ["none", "prefetch"])
@pytest.mark.parametrize("layout", ["intra", "inter"])
def test_misses_load_what_they_load_where_all_have_as_many_copies(layout: str, pipeline: str) -> None:
    """Beyond what is there before any table: what ranks share on the way to a memory, prefetched or not."""
    cluster = topology(node_group("a", nodes=2, ranks=8, ranks_per_switch=4, ssd_bytes=1e12))
    asked, replicas = trained(pipeline=pipeline), mixed(1, 2, layout=layout)
    both, alike = (StepModel(cluster, asked, replicas=each) for each in (replicas, replicas.alike(2)))
    loads = []
    for model, copies in ((both, 2), (alike, 1)):
        placed = held(model, TABLE_WISE, np.flatnonzero(MORE), copies)
        tier, fraction = np.full(len(placed.rank), DDR_CACHED), np.full(len(placed.rank), 0.1)
        at, of_column = model.at_protocols((0,) * len(model.protocol_stages)), {}
        cached = replace(placed, blocks=replace(placed.blocks, tier=tier, cache_fraction=fraction))
        beyond = at.rank_loads(cached)[0] - at.base_loads[at.kind_of_rank]
        for c, column in enumerate(at.columns):
            instance = at.schedule.resource_of_rank(column.resource)
            if column.resource.row.is_below_hbm and column.resource.kind != "host_link":
                of_column[column] = float(np.bincount(instance, beyond[:, c]).max())
        loads.append({f"{at.stages[column.stage]} {column.resource}": busy for column, busy in of_column.items()})
    assert max(loads[0].values()) > 0
    assert loads[0] == pytest.approx(loads[1], rel=1e-9, abs=1e-15)


def test_a_rank_holds_its_share_of_each_number_of_copies() -> None:
    """S / N of tables by the fewest copies, and copies / N of the others; nothing else differs."""
    model = StepModel(resized(2), trained(), replicas=mixed(2, 4))
    rows, world = model.tables.rows, model.topology.world_size
    placed = [held(model, ROW_WISE, np.flatnonzero(more == MORE), copies) for more, copies in ((False, 1), (True, 2))]
    total = sum(float((each.rows * 64 * 4 + each.rows * 4).sum()) for each in placed)
    size = rows * (64 * 4 + 4.0)
    padded = 2 * 260 * world * len(rows)
    assert total == pytest.approx(size[~MORE].sum() + 2 * size[MORE].sum(), abs=padded)


def test_joint_lines() -> None:
    """At once: the longest latency, and the highest rate within it; in turn: the sum of latencies, of all pairs."""
    few = (ExchangeLine(1.0, (10.0,)), ExchangeLine(4.0, (40.0,)))
    more = (ExchangeLine(2.0, (20.0,)), ExchangeLine(3.0, (30.0,)), ExchangeLine(5.0, (50.0,)))
    assert at_once((few, more)) == (
        JointLine(2.0, (0, 0)),
        JointLine(3.0, (0, 1)),
        JointLine(4.0, (1, 1)),
        JointLine(5.0, (1, 2)),
    )
    assert [line.latency_s for line in in_turn((few, more))] == [3.0, 4.0, 6.0, 6.0, 7.0, 9.0]
    assert in_turn(((), more)) == tuple(JointLine(line.latency_s, (0, n)) for n, line in enumerate(more))


SIMULATED = [
    ("intra", factor, more, sharding, nodes)
    for factor, more in ((1, 2), (1, 4), (2, 4), (2, 8))
    for sharding, nodes in ((TABLE_WISE, 2), (TABLE_ROW_WISE, 4), (ROW_WISE, 3))
] + [
    ("inter", factor, more, sharding, nodes)
    for factor, more, nodes in ((1, 2, 4), (1, 4, 4), (2, 4, 8), (1, 3, 6))
    for sharding in (TABLE_WISE, TABLE_ROW_WISE, ROW_WISE)
]


EXCHANGED = [("flat", {}), ("sptt", {}), ("flat", CUT), ("sptt", CUT | {"state_every": None})]
"""How vectors are exchanged, and how copies are kept together."""
HALF_OF_SIMULATED = [(*of, *how) for i, of in enumerate(SIMULATED) for j, how in enumerate(EXCHANGED) if (i + j) % 2]
"""Each placement with half of the ways to exchange; the same numbers of copies with the others, too."""


@pytest.mark.parametrize(("layout", "factor", "more", "sharding", "nodes", "exchange", "fields"), HALF_OF_SIMULATED)
def test_the_simulator_plays_all_ranks_and_agrees(
    layout: str, factor: int, more: int, sharding: int, nodes: int, exchange: VectorExchange, fields: dict[str, object]
) -> None:
    """Each number of copies in groups of its own, whose exchanges share links, with the averaging of both: within 4 %
    of the estimate."""
    cluster, replicas = resized(nodes, 8 if layout == "intra" else 4), mixed(factor, more, layout=layout, **fields)
    model = StepModel(cluster, trained(global_batch=49152 * nodes), exchange=exchange, replicas=replicas)
    parts = [
        held(model, TABLE_WISE, np.flatnonzero(~MORE), 1),
        held(model, sharding, np.flatnonzero(MORE), more // factor),
    ]
    placed = _joined(parts)
    played = simulate(cluster, model.stated_workload, placed, replicas=replicas, steps=1, exchange=exchange)
    assert played.network.world == cluster.world_size
    assert played.step_s == pytest.approx(model.evaluate(placed).step_s, rel=0.04)
    names = {task.name for task in played.program.tasks}
    assert any(f"{more} copies" in name for name in names)


def _joined(parts: list[PlacedShards]) -> PlacedShards:
    def both(values: list[Ints] | list[Floats]) -> np.ndarray:
        return np.concatenate(values)

    blocks = Blocks(
        both([each.blocks.table for each in parts]),
        both([each.blocks.sharding for each in parts]),
        both([each.blocks.tier for each in parts]),
        both([each.blocks.columns for each in parts]),
        both([each.blocks.cache_fraction for each in parts]),
    )
    opens = np.concatenate([each.opens_block for each in parts])
    return PlacedShards(blocks, both([each.rank for each in parts]), both([each.rows for each in parts]), opens)


REFUSED = [
    ([{"tables": "users", "factor": 4}], "names no table"),
    ([{"tables": "user_*", "factor": 3}], "3 copies are no multiple of the 2"),
    ([{"tables": "user_*", "factor": 4}, {"tables": "user_3", "factor": 8}], "'user_3' has 4 copies by another rule"),
    ([{"tables": "*", "factor": 4}], "give the fewest, 4, as factor"),
    ([{"tables": "user_*", "factor": 4}, {"tables": "item_1", "factor": 6}], "4 and 6 copies"),
]


@pytest.mark.parametrize(("rules", "message"), REFUSED)
def test_rules_that_cannot_be_are_refused(rules: list[dict[str, object]], message: str) -> None:
    """With the tables and numbers that contradict."""
    replicas = Replicas.model_validate({"factor": 2, "rules": rules})
    with pytest.raises(InputError, match=message):
        replicas.factors(NAMES)


def test_layout_is_one_for_all_copies() -> None:
    """Stated for a rule alone it is refused, with where it belongs."""
    rule = {"tables": "user_*", "factor": 4, "layout": "inter"}
    with pytest.raises(ValueError, match="write it beside rules"):
        Replicas.model_validate({"factor": 2, "rules": [rule]})
