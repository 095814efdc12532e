"""Groups of ranks with copies of all tables: what averaging costs, what memory it takes, and what the simulator says.

Rates are those of a cluster that has the copies' ranks alone, so that nothing of the groups' own code decides them.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from cost_models.averaging import Averaging
from cost_models.registry import cost_model
from cost_models.replicas import Replicas, SyncStrategy
from cost_models.shards import DATA_PARALLEL, HBM, ROW_WISE, TABLE_ROW_WISE, TABLE_WISE, Blocks, PlacedShards
from cost_models.simulator.collective_times import collective_s
from cost_models.simulator.simulation import simulate
from cost_models.stages import VectorExchange
from cost_models.step import StepModel
from cost_models.workload.models import Workload
from tests.oracles.instances import node_group, topology, workload
from tests.seeds import seeds
from topologies.cluster import Topology
from topologies.errors import InputError
from topologies.loading import load_topology
from topologies.replica_groups import Layout, ranks_of_groups

ROWS, DIM, TABLES = 500_000, 64, 16
WEIGHTS = TABLES * ROWS * DIM * 4
STATE = TABLES * ROWS * 4
"""Bytes of all weights, and of row-wise Adagrad's moments."""


def resized(nodes: int, accelerators: int = 8, cards: int | None = None) -> Topology:
    document = load_topology("dgx-h100").model_dump(mode="json", exclude_unset=True)
    document["nodes"][0]["count"] = nodes
    document["nodes"][0]["accelerators"]["count"] = accelerators
    document["nodes"][0]["links"]["scale_out"]["count"] = cards or accelerators
    document["nodes"][0]["links"]["pcie"]["accelerators_per_switch"] = 1
    return Topology.model_validate(document)


def trained(tables: int = TABLES, rows: int = ROWS, **fields: object) -> Workload:
    profiles = [{"rows": rows, "dim": DIM, "optimizer": "rowwise_adagrad"} for _ in range(tables)]
    given = {"software": "torchrec", "global_batch": 32768, "pipeline": "none", **fields}
    return workload(profiles, **given)


def dealt(
    world: int, tables: int = TABLES, sharding: int = TABLE_WISE, rows: int = ROWS, node: int = 0
) -> PlacedShards:
    """Whole tables on ranks in turn, or cut by rows over all of them, or over the ranks of a node, in turn."""
    holders = {TABLE_WISE: 1, TABLE_ROW_WISE: node}.get(sharding, world)
    table = np.repeat(np.arange(tables), holders)
    rank = (np.arange(tables * holders)) % world
    held = np.full(tables * holders, rows // holders)
    blocks = Blocks(
        table, np.full_like(table, sharding), np.full_like(table, HBM), np.full_like(table, DIM), table * 0.0
    )
    return PlacedShards(blocks, rank, held, np.unique(table, return_index=True)[1][table] == np.arange(len(table)))


def seconds(model: StepModel, placed: PlacedShards, stage: str) -> float:
    return float(model.evaluate(placed).stage_seconds[model.stages.index(stage)])


@pytest.mark.parametrize("every", [1, 5])
@pytest.mark.parametrize("rows", [2_000, 50_000, ROWS, 4 * ROWS])
@pytest.mark.parametrize(("layout", "factor"), [("intra", 2), ("intra", 4), ("inter", 2)])
def test_averaging_takes_as_long_as_two_all_reduces_of_the_copies(
    layout: Layout, factor: int, rows: int, every: int
) -> None:
    """Of a rank's weights and of its state, each by the law for its own bytes, from 8 kB to 4 GB: on M GPUs of a node,
    or one GPU on each of M nodes."""
    cluster, placed = resized(4), dealt(32 // factor, rows=rows)
    replicas = Replicas(factor=factor, layout=layout, sync_every=every, state_every=every)
    model = StepModel(cluster, trained(rows=rows), replicas=replicas)
    tables = int(np.bincount(placed.rank).max())
    alone = resized(1, factor) if layout == "intra" else resized(factor, 1)
    expected = sum(
        float(collective_s(alone, "all_reduce", size).max()) for size in (tables * rows * DIM * 4, tables * rows * 4)
    )
    assert seconds(model, placed, "replica_sync") == pytest.approx(expected / every, rel=1e-6)


def test_few_bytes_take_a_line_of_less_latency_and_many_need_no_other() -> None:
    """Small copies end first by protocols of less latency; where a model has no room for replicated tables, all others
    are left out."""
    cluster = resized(4)
    small, large = (
        StepModel(cluster, trained(rows=rows), replicas=Replicas(factor=2, state_every=1))
        for rows in (2_000, 200 * ROWS)
    )
    stage = small.protocol_stages.index("replica_sync")
    assert len(small.lines_of("replica_sync")) > len(large.lines_of("replica_sync")) == 1
    (last,) = large.lines_of("replica_sync")
    own = small.linearised_at(dealt(16, rows=2_000))
    assert own.lines_of("replica_sync")[own.protocols[stage]].latency_s < 0.5 * last.latency_s
    plain = StepModel(cluster, trained()).all_protocols
    assert len(large.all_protocols) == len(plain) - 2  # groups have no case of sums around all ranks or of no exchange


def _all_pairs(averaging: Averaging) -> Iterator[tuple[int, int]]:
    return itertools.product(range(len(averaging._all)), repeat=2)


@pytest.mark.parametrize("seed", seeds(range(3), range(12)))
def test_lines_that_are_left_out_end_first_for_no_placement(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all of them kept, random placements take as long: replicated and whole tables, of a model about as large as
    the memory."""
    random = np.random.default_rng(seed)
    rows = int(10 ** random.uniform(3, 8.3))
    replicas = Replicas(factor=2, state_every=1, layout=random.choice(["intra", "inter"]))
    model = StepModel(resized(2), trained(rows=rows), replicas=replicas)
    monkeypatch.setattr(Averaging, "_possible_pairs", _all_pairs)
    every = StepModel(resized(2), trained(rows=rows), replicas=replicas)
    assert len(every.all_protocols) >= len(model.all_protocols)
    capacity = float(model.kinds[0].memory_bytes[0])
    for share in (0.0, 0.3, 1.0):
        placed = dealt(8, rows=rows)
        size = rows * (DIM + 1) * 4.0
        replicated = np.flatnonzero(random.random(TABLES) < share)[: int(capacity // size)]
        sharding = np.where(np.isin(placed.blocks.table, replicated), DATA_PARALLEL, TABLE_WISE)
        placed = replace(placed, blocks=replace(placed.blocks, sharding=sharding))
        found = seconds(model, placed, "replica_sync")
        assert found == pytest.approx(seconds(every, placed, "replica_sync"), rel=1e-12)


def test_state_may_be_averaged_less_often_or_never() -> None:
    """A step has that of weights by their interval, and that of state by its own."""
    cluster, placed = resized(2), dealt(8)

    def sync(**every: int | None) -> float:
        return seconds(StepModel(cluster, trained(), replicas=Replicas(factor=2, **every)), placed, "replica_sync")

    never, always, seldom = sync(state_every=None), sync(state_every=1), sync(state_every=10)
    state_s = float(collective_s(resized(1, 2), "all_reduce", 2 * STATE / TABLES).max())
    assert always - never == pytest.approx(state_s, rel=1e-6)
    assert seldom - never == pytest.approx(state_s / 10, rel=1e-6)


@pytest.mark.parametrize("layout", ["intra", "inter"])
@pytest.mark.parametrize("factor", [2, 4])
def test_a_rank_holds_its_share_of_a_copy(layout: Layout, factor: int) -> None:
    """S / N instead of S / T: more by S (M - 1) / T; with copies that are cut over each other 1 / M of that at most
    beside it."""
    cluster = resized(4)
    one = StepModel(cluster, trained())

    def tables(model: StepModel) -> float:
        """Of whole tables on all ranks alike: rows and state, without what batches bring."""
        world = model.topology.world_size
        held = model.block_memory(dealt(world, sharding=ROW_WISE).blocks, 0)
        bytes_of = held.by_rows[:, 0] / world
        return float(bytes_of.sum()) / world - _ids(model)

    def _ids(model: StepModel) -> float:
        """Bytes of ids by rows: what is no weight and no state."""
        held = model.block_memory(dealt(model.topology.world_size).blocks, 0).by_rows[:, 0]
        whole = (WEIGHTS + STATE) * (1 + extra(model) * WEIGHTS / (WEIGHTS + STATE))
        return float(held.sum() - whole) / model.topology.world_size

    def extra(model: StepModel) -> float:
        replicas = model.replicas
        return 1 / factor if replicas is not None and replicas.is_fully_sharded else 0.0

    own = StepModel(cluster, trained(), replicas=Replicas(factor=factor, layout=layout))
    cut = StepModel(cluster, trained(), replicas=Replicas(factor=factor, layout=layout, strategy="fully_sharded"))
    size = WEIGHTS + STATE
    assert tables(one) == pytest.approx(size / 32)
    assert tables(own) - tables(one) == pytest.approx(size * (factor - 1) / 32)
    assert tables(cut) - tables(own) == pytest.approx(WEIGHTS / (32 / factor) / factor)


def test_replicated_tables_and_dense_gradients_are_summed_over_all_ranks() -> None:
    """Their copies stay equal by themselves: nothing is averaged, and the all-reduce is that of one world."""
    cluster = resized(4)
    fields = {"dense": {"top_mlp": [1024, 1024, 1]}, "software": "torchrec"}
    one, own = StepModel(cluster, trained(**fields)), StepModel(cluster, trained(**fields), replicas=Replicas(factor=4))

    def everywhere(model: StepModel) -> PlacedShards:
        world = model.topology.world_size
        placed = dealt(world, sharding=ROW_WISE)
        blocks = Blocks(
            placed.blocks.table,
            np.full(len(placed.rank), DATA_PARALLEL),
            placed.blocks.tier,
            placed.blocks.columns,
            placed.blocks.cache_fraction,
        )
        return PlacedShards(blocks, placed.rank, np.full(len(placed.rank), ROWS), placed.opens_block)

    nothing = own.linearised_at(everywhere(own))
    assert seconds(own, everywhere(own), "replica_sync") == nothing.constants[own.stages.index("replica_sync")]

    def summed(model: StepModel) -> float:
        stage = "gradient_dist" if "all_reduce" not in one.stages else "all_reduce"
        constants = model.linearised_at(everywhere(model)).constants
        return seconds(model, everywhere(model), stage) - float(constants[model.stages.index(stage)])

    assert summed(own) == pytest.approx(summed(one), rel=1e-9)


CASES = [
    (factor, layout, strategy)
    for factor, layout, strategy in itertools.product((2, 4, 8), ("intra", "inter"), ("default", "fully_sharded"))
]


@pytest.mark.parametrize(("factor", "layout", "strategy"), CASES)
def test_the_simulator_plays_all_ranks_and_agrees(factor: int, layout: Layout, strategy: SyncStrategy) -> None:
    """Every rank of every group, with the averaging between them: within 3 % of the estimate."""
    cluster, replicas = resized(8), Replicas(factor=factor, layout=layout, strategy=strategy)
    model = StepModel(cluster, trained(global_batch=65536), replicas=replicas)
    placed = dealt(model.topology.world_size, sharding=ROW_WISE if factor == 4 else TABLE_WISE)
    played = simulate(cluster, model.stated_workload, placed, replicas=replicas, steps=1)
    assert played.network.world == 64
    assert played.step_s == pytest.approx(model.evaluate(placed).step_s, rel=0.03)


@pytest.mark.parametrize("layout", ["intra", "inter"])
@pytest.mark.parametrize("rows", [20_000, ROWS, 20 * ROWS])
@pytest.mark.parametrize("factor", [2, 4])
def test_what_is_cut_and_gathered_waits_for_its_first_bytes(factor: int, rows: int, layout: Layout) -> None:
    """Copies of few bytes and of many in steps of little else: within 3 % of the simulator."""
    cluster, replicas = resized(4), Replicas(factor=factor, layout=layout, strategy="fully_sharded")
    model = StepModel(cluster, trained(rows=rows, overhead="100us"), replicas=replicas)
    placed = dealt(model.topology.world_size, rows=rows)
    played = simulate(cluster, model.stated_workload, placed, replicas=replicas, steps=1)
    assert played.step_s == pytest.approx(model.evaluate(placed).step_s, rel=0.03)


@pytest.mark.parametrize("exchange", ["flat", "sptt"])
def test_what_blocks_exchange_counts_what_is_cut_beside_it(exchange: VectorExchange) -> None:
    """In the stages whose lines a search changes, blocks cost what they exchange: the part of the cut with it."""
    replicas = Replicas(factor=2, layout="intra", strategy="fully_sharded")
    model = StepModel(resized(4), trained(global_batch=65536), exchange=exchange, replicas=replicas)
    blocks, stages = dealt(16).blocks, [model.stages.index(stage) for stage in model.protocol_stages]
    changed = np.isin([column.stage for column in model.columns], stages)
    every, exchanged = (costs(blocks, 0) for costs in (model.block_costs, model.exchange_costs))
    assert np.array_equal(every.by_rows[:, changed], exchanged.by_rows[:, changed])
    assert 0 < model.cut_shares["output_dist"] < 1


@pytest.mark.parametrize("pipeline", ["none", "sparse-dist"])
@pytest.mark.parametrize("layout", ["intra", "inter"])
@pytest.mark.parametrize("rows", [30_000, 300_000, 2_000_000])
def test_dense_gradients_are_summed_beside_copies_that_are_cut(rows: int, layout: Layout, pipeline: str) -> None:
    """Sums begin as late as where copies are averaged, and exchanges share links with what is cut: within 3 % of the
    simulator, or 34 us of short steps, where steps were 21 % longer than estimated."""
    fields = {"global_batch": 65536, "overhead": "100us", "pipeline": pipeline, "dense": {"top_mlp": [4096, 1]}}
    cluster, replicas = resized(4), Replicas(factor=2, layout=layout, strategy="fully_sharded")
    model = StepModel(cluster, trained(rows=rows, **fields), replicas=replicas)
    placed = dealt(model.topology.world_size, rows=rows)
    played = simulate(cluster, model.stated_workload, placed, replicas=replicas, steps=1)
    assert played.step_s == pytest.approx(model.evaluate(placed).step_s, rel=0.03, abs=34e-6)


@pytest.mark.parametrize("strategy", ["default", "fully_sharded"])
@pytest.mark.parametrize(
    ("nodes", "factor", "levels"),
    [(4, 2, [(2, 6.0)]), (8, 2, [(2, 3.0)]), (8, 4, [(4, 3.0)]), (8, 2, [(2, 3.0), (4, 2.0)]), (8, 4, [(1, 2.0)])],
)
def test_ranks_that_average_much_share_uplinks_with_others(
    nodes: int, factor: int, levels: list[tuple[int, float]], strategy: SyncStrategy
) -> None:
    """Groups of whole nodes average through oversubscribed switches of one group, or of several: within 3 % of the
    simulator, and where few ranks have all tables of a group, which averaged no faster than if all had (28 %)."""
    cluster = topology(node_group("a", nodes=nodes, ranks=4), levels=levels)
    model = StepModel(cluster, trained(), replicas=Replicas(factor=factor, layout="inter", strategy=strategy))
    few = 3 if strategy == "default" else 2 * model.topology.world_size
    placed = dealt(model.topology.world_size, tables=min(few, TABLES), sharding=TABLE_WISE)
    played = simulate(cluster, model.stated_workload, placed, replicas=model.replicas, steps=1)
    assert played.step_s == pytest.approx(model.evaluate(placed).step_s, rel=0.03)


@pytest.mark.parametrize("cards", [8, 2])
@pytest.mark.parametrize(("factor", "layout", "strategy"), [case for case in CASES if case[0] < 8])
def test_groups_exchange_through_towers_of_their_own(
    factor: int, layout: Layout, strategy: SyncStrategy, cards: int
) -> None:
    """A group's part of a domain is its tower, and cards that groups share are loaded by all of them: on all ranks
    within 3 % of the estimate, whether or not each has a card of its own."""
    cluster, replicas = resized(8, cards=cards), Replicas(factor=factor, layout=layout, strategy=strategy)
    model = cost_model("physical", cluster, trained(global_batch=65536), exchange="sptt", replicas=replicas)
    assert isinstance(model, StepModel)
    assert model.schedule.has_towers
    sharding = {"default": TABLE_ROW_WISE, "fully_sharded": TABLE_WISE}[strategy]
    placed = dealt(model.topology.world_size, sharding=sharding, node=model.kinds[0].node_ranks)
    played = simulate(cluster, model.stated_workload, placed, replicas=replicas, exchange="sptt", steps=1)
    assert played.step_s == pytest.approx(model.evaluate(placed).step_s, rel=0.03)
    towers, peers = played.network.towers, played.network.peers
    assert set(towers.size.tolist()) == {8 // factor if layout == "intra" else 8}
    assert set((towers.size * peers.size).tolist()) == {64 // factor}
    members = ranks_of_groups(64, factor, layout)
    assert all(
        set(peers.group_of_rank[one]).isdisjoint(peers.group_of_rank[other])
        for one, other in itertools.pairwise(members)
    )


def test_what_groups_exchange_through_towers_is_theirs() -> None:
    """Exchanges of a group in towers are those of a cluster of its own, where cards are not shared; averaging aside."""
    cluster, placed = resized(8), dealt(32)
    own = cost_model("physical", cluster, trained(), exchange="sptt", replicas=Replicas(factor=2, layout="inter"))
    alone = cost_model("physical", resized(4), trained(global_batch=16384), exchange="sptt")
    for name in ("output_intra_host", "output_dist", "gradient_dist", "gradient_intra_host"):
        found, expected = (
            float(model.evaluate(placed).stage_seconds[model.stages.index(name)]) for model in (own, alone)
        )
        assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("strategy", ["default", "fully_sharded"])
def test_inference_averages_nothing(strategy: SyncStrategy) -> None:
    """Weights that do not change are not averaged, played or estimated."""
    cluster, replicas = resized(2), Replicas(factor=2, strategy=strategy)
    model = StepModel(cluster, trained(mode="inference"), replicas=replicas)
    played = simulate(cluster, model.stated_workload, dealt(8), replicas=replicas, steps=1)
    assert "replica_sync" not in model.stages
    assert played.step_s == pytest.approx(model.evaluate(dealt(8)).step_s, rel=1e-3)


def test_a_slow_rank_of_any_group_makes_all_wait() -> None:
    """Groups are played, not multiplied: a slow rank of the second group lengthens the step through the averaging."""
    from cost_models.simulator.conditions import Conditions

    cluster, replicas = resized(2), Replicas(factor=2)
    model = StepModel(cluster, trained(), replicas=replicas)
    placed = dealt(8)
    steps = [
        simulate(cluster, model.stated_workload, placed, replicas=replicas, steps=1, conditions=conditions).step_s
        for conditions in (None, Conditions(slow_ranks={3: 3.0}))
    ]
    assert steps[1] > steps[0] * 1.01


def test_what_cannot_be_is_refused() -> None:
    """Batches that do not divide, groups of one rank, intervals that do not go into each other."""
    with pytest.raises(InputError, match="batches of 32769 samples, no multiple of the 2 groups"):
        StepModel(resized(2), trained(global_batch=32769), replicas=Replicas(factor=2))
    with pytest.raises(InputError, match="one rank each"):
        StepModel(resized(1, 2), trained(), replicas=Replicas(factor=2))
    with pytest.raises(ValueError, match="must be a multiple of sync_every"):
        Replicas(factor=2, sync_every=4, state_every=6)
    with pytest.raises(ValueError, match="leave out sync_every"):
        Replicas(factor=2, sync_every=4, strategy="fully_sharded")
