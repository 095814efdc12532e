"""What moves between two plans: every figure against a count of cells, one by one."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from cost_models.shards import EVERYWHERE, HBM, MEMORY_DDR, TABLE_WISE
from cost_models.step import StepModel
from planner.document.migration import MEMORY_OF_TIER, Migration
from planner.document.plan import Plan, TablePlan
from planner.document.provenance import provenance
from planner.document.table_differences import table_differences
from planner.document.traffic import moved_bytes_of_tables, moves_of
from planner.formulation.formulation import Formulation
from planner.formulation.options import Options, Policy
from planner.planning.assembly import placed_plan
from planner.problem.arrays import Problem
from planner.problem.placement import Placement
from planner.problem.relocation import EXACT_BLOCKS, best_order
from tests.oracles.instances import node_group, topology, workload
from tests.oracles.placements import random_placement
from topologies.cluster import Topology
from topologies.errors import InputError

SEEDS = range(60)


class Side:
    """One cluster and workload, and random plans for them."""

    def __init__(
        self,
        cluster: Topology,
        tables: list[dict[str, object]],
        optimizer: str = "adagrad",
        policy: Policy | None = None,
    ) -> None:
        self.model = StepModel(cluster, workload(tables, global_batch=64, embedding={"optimizer": optimizer}))
        self.formulation = Formulation.of(self.model, policy or Policy())
        self.options: Options = self.formulation.options
        self.problem: Problem = self.formulation.problem

    def placement(self, seed: int) -> Placement:
        return random_placement(self.problem, np.random.default_rng(seed), legal=True)

    def plan(self, placement: Placement) -> Plan:
        tables, ranks, stages, objective = placed_plan(self.formulation, placement, 1e-9)
        return Plan(
            status="feasible",
            objective=objective,
            simulated=None,
            stages=stages,
            tables=tables,
            ranks=ranks,
            provenance=provenance(self.formulation, Policy(), 0),
        )


def tables_of(random: np.random.Generator) -> list[dict[str, object]]:
    return [
        {"rows": int(random.integers(5, 40)), "dim": int(random.choice([4, 8, 16, 32, 64]))}
        for _ in range(int(random.integers(1, 5)))
    ]


def sides(seed: int) -> tuple[Side, Side, tuple[int, ...]]:
    """Before and after: tables come, go and grow; nodes come and go; of every third seed state may be apart."""
    random = np.random.default_rng(seed)
    before = tables_of(random)
    after = [dict(table, name=f"t{i}") for i, table in enumerate(before) if i == 0 or random.random() < 0.8]
    for table in after:
        table["rows"] = max(4, int(table["rows"]) + int(random.integers(-3, 6)))  # type: ignore[call-overload]
    if random.random() < 0.4:
        after.append({"name": "new", "rows": 9, "dim": 16})
    if random.random() < 0.2:
        after[-1]["dim"] = 128
    nodes = int(random.integers(1, 4))
    lost = tuple(sorted({int(node) for node in random.integers(0, nodes, int(random.integers(0, 2)))}))
    left = max(1, nodes - len(lost) + int(random.integers(0, 2)))
    optimizer = str(random.choice(["sgd", "rowwise_adagrad", "adam"]))
    make = {"ddr_bytes": 1e9, "hbm_bytes": 1e9}
    policy = None if seed % 3 else Policy(optimizer_state=("with_table", "ddr"))
    old = Side(topology(node_group("a", nodes=nodes, **make)), before, optimizer, policy)  # type: ignore[arg-type]
    new = Side(topology(node_group("a", nodes=left, **make)), after, optimizer, policy)  # type: ignore[arg-type]
    return old, new, lost


TIERS = ("hbm", "ddr_cached", "ddr", "ssd_cached")
Cells = dict[tuple[int, int], dict[int, tuple[int, int]]]


def ranks_after(before: int, after: int, lost_nodes: tuple[int, ...], ranks_per_node: int = 2) -> dict[int, int]:
    """The new number of each rank that is still there."""
    left = [node for node in range(before // ranks_per_node) if node not in lost_nodes]
    return {
        node * ranks_per_node + local: position * ranks_per_node + local
        for position, node in enumerate(left[: after // ranks_per_node])
        for local in range(ranks_per_node)
    }


def cells_of(shard: list[int]) -> list[tuple[int, int]]:
    _, row, rows, column, columns, *_ = shard
    return list(itertools.product(range(row, row + rows), range(column, column + columns)))


def memories_of(table: TablePlan) -> tuple[int, int]:
    """Those of the rows and of the optimizer state."""
    rows = int(MEMORY_OF_TIER[TIERS.index(table.tier)])
    return rows, rows if table.optimizer_state == "with_table" else MEMORY_DDR


def holders_of(former: TablePlan | None, dim: int) -> Cells:
    """For each cell of a table the ranks that held it, each with the memories that it and its state were in."""
    holders: Cells = {}
    if former is not None and (former.shards.column_start + former.shards.columns).max() == dim:
        for shard in former.shards.as_matrix().tolist():
            for cell in cells_of(shard):
                holders.setdefault(cell, {})[shard[0]] = memories_of(former)
    return holders


class Count:
    """What moves, cell by cell."""

    def __init__(self, old: Plan, new: Plan, model: StepModel, lost_nodes: tuple[int, ...]) -> None:
        self.after = ranks_after(len(old.ranks), len(new.ranks), lost_nodes)
        self.size = {what: np.zeros(3) for what in ("moved", "copied", "new")}
        self.received, self.sent, self.lost = np.zeros(len(new.ranks)), np.zeros(len(old.ranks)), 0.0
        self.tables = self.shards = 0
        former = {table.name: table for table in old.tables}
        for number, table in enumerate(new.tables):
            holders = holders_of(former.get(table.name), model.workload.tables[number].dim)
            sources, moved = [], 0.0
            for shard in table.shards.as_matrix().tolist():
                of, width = np.array([number]), np.array([shard[4]])
                row, state = model.tables.row_bytes(of, width)[0], model.tables.row_state_bytes(of, width)[0]
                sizes = float(row) / shard[4], float(state) / shard[4]
                found = self.shard(shard, holders, memories_of(table), sizes)
                sources += found
                moved += len(found) * sum(sizes)
                self.shards += bool(found)
            self.tables += bool(sources)
            for ranks in sources:
                self.send(ranks, moved / len(sources))

    def shard(
        self, shard: list[int], holders: Cells, memories: tuple[int, int], sizes: tuple[float, float]
    ) -> list[dict[int, tuple[int, int]]]:
        """The old holders of each cell that moves."""
        sources = []
        for cell in cells_of(shard):
            here = {self.after[rank]: of for rank, of in holders.get(cell, {}).items() if rank in self.after}
            for part, (memory, size) in enumerate(zip(memories, sizes, strict=True)):
                if cell not in holders:
                    self.size["new"][memory] += size
                elif shard[0] not in here:
                    self.size["moved"][memory] += size
                    self.received[shard[0]] += size
                elif here[shard[0]][part] != memory:
                    self.size["copied"][memory] += size
            if cell in holders and shard[0] not in here:
                sources.append(holders[cell])
        return sources

    def send(self, ranks: dict[int, tuple[int, int]], size: float) -> None:
        alive = [rank for rank in ranks if rank in self.after]
        for rank in alive:
            self.sent[rank] += size / len(alive)
        self.lost += 0.0 if alive else size


@pytest.mark.parametrize("seed", SEEDS)
def test_figures_are_those_of_the_cells(seed: int) -> None:
    """Moved, copied, new and lost bytes, tables and shards, busiest ranks."""
    old_side, new_side, lost = sides(seed)
    old, new = old_side.plan(old_side.placement(seed)), new_side.plan(new_side.placement(seed + 1))
    found = moves_of(Migration(old, "old", new_side.model, lost), new.tables, 0, None, None)
    expected = Count(old, new, new_side.model, lost)
    for name, size in expected.size.items():
        assert [getattr(getattr(found, name), tier) for tier in EVERYWHERE] == size.round().tolist(), name
    assert (found.tables, found.shards) == (expected.tables, expected.shards)
    assert abs(found.lost_bytes - expected.lost) <= 1
    for stated, counted in ((found.busiest_in, expected.received), (found.busiest_out, expected.sent)):
        assert (0 if stated is None else stated.bytes) == pytest.approx(counted.max(), abs=1)
        assert stated is None or counted[stated.rank] == pytest.approx(counted.max(), abs=1)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_solver_counts_as_the_document_does(seed: int) -> None:
    """Bytes moved of each table, and never fewer than the proven least."""
    old_side, new_side, lost = sides(seed)
    old, placement = old_side.plan(old_side.placement(seed)), new_side.placement(seed + 1)
    migration = Migration(old, "old", new_side.model, lost)
    incumbent = migration.incumbent(new_side.formulation)
    tables, *_ = placed_plan(new_side.formulation, placement, 1e-9, incumbent)
    of_tables = moved_bytes_of_tables(migration, tables)
    np.testing.assert_allclose(incumbent.moved_bytes(new_side.problem, placement), of_tables, rtol=1e-12)
    assert incumbent.least_moved_bytes(new_side.problem) <= of_tables.sum() * (1 + 1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_nothing_changed_for_is_found_again(seed: int) -> None:
    """The blocks and places of the old plan, and its columns."""
    old_side, _, _ = sides(seed)
    placement = old_side.placement(seed)
    old = old_side.plan(placement)
    incumbent = Migration(old, "old", old_side.model, ()).incumbent(old_side.formulation)
    assert not len(incumbent.loose)
    both = (placement, incumbent.start)
    pairs = [sorted(zip(each.item_block.tolist(), each.item_place.tolist(), strict=True)) for each in both]
    assert pairs[0] == pairs[1]
    tables, *_ = placed_plan(old_side.formulation, placement, 1e-9, incumbent)
    assert incumbent.moved_bytes(old_side.problem, placement).sum() == 0
    assert tables == old.tables or any(len(table.shards) > len(set(table.shards.rank.tolist())) for table in old.tables)


def test_ranks_follow_their_node_group_and_place() -> None:
    """Nodes that are lost close up within their group; groups are the same by name, or else by position."""
    old = Side(topology(node_group("a", nodes=3), node_group("b", nodes=2, ranks=4)), [{"rows": 9, "dim": 8}])
    plan = old.plan(old.placement(0))
    fewer = Side(topology(node_group("b", nodes=2, ranks=2), node_group("a", nodes=2)), [{"rows": 9, "dim": 8}])
    found = Migration(plan, "old", fewer.model, (1,)).rank_after
    assert found.tolist() == [4, 5, -1, -1, 6, 7, 0, 1, -1, -1, 2, 3, -1, -1]
    renamed = Side(topology(node_group("x", nodes=4)), [{"rows": 9, "dim": 8}])
    found = Migration(plan, "old", renamed.model, ()).rank_after
    assert found.tolist() == [0, 1, 2, 3, 4, 5, *[-1] * 8]


def test_faults_of_the_old_plan_are_said_at_once() -> None:
    """A plan of other tables, and a lost node that it does not have."""
    old = Side(topology(node_group("a")), [{"rows": 9, "dim": 8}])
    plan = old.plan(old.placement(0))
    other = Side(topology(node_group("a")), [{"rows": 9, "dim": 16}])
    with pytest.raises(InputError) as caught:
        Migration(plan, "old.json", other.model, (1,)).expect_usable()
    assert "old.json: ranks: there is no node 1 in it, only 0 to 0" in str(caught.value)
    assert "none is a table of workload 'tiny' by name and dim" in str(caught.value)
    empty = plan.model_copy(update={"tables": (), "status": "timeout"})
    with pytest.raises(InputError, match="this plan places no tables"):
        Migration(empty, "old.json", other.model, ()).expect_usable()


@pytest.mark.parametrize("seed", range(40))
def test_columns_are_dealt_out_best(seed: int) -> None:
    """Against all orders."""
    random = np.random.default_rng(seed)
    n = int(random.integers(2, 7))
    width = random.integers(1, 5, n)
    kept = np.zeros((n, int(width.sum()) + 1))
    kept[:, 1:] = np.cumsum(random.random((n, int(width.sum()))) < 0.3, axis=1) * random.integers(1, 9)

    def value(order: tuple[int, ...]) -> float:
        ends = np.cumsum(width[list(order)])
        return float(sum(kept[i, end] - kept[i, end - width[i]] for i, end in zip(order, ends, strict=True)))

    order = tuple(best_order(kept, width).tolist())
    assert sorted(order) == list(range(n))
    assert value(order) == max(map(value, itertools.permutations(range(n))))


def test_many_columns_that_stay_are_found() -> None:
    """More blocks than all orders can be compared of: those that can stay do."""
    n = 3 * EXACT_BLOCKS
    width = np.arange(n) % 3 + 1
    kept = np.zeros((n, int(width.sum()) + 1))
    start = np.cumsum(width) - width
    for i in range(n):
        kept[i] = np.clip(np.arange(kept.shape[1]) - start[i], 0, width[i])
    shuffled = np.random.default_rng(0).permutation(n)
    order = shuffled[best_order(kept[shuffled], width[shuffled])]
    assert order.tolist() == list(range(n))


def test_a_lost_node_and_a_small_memory_prove_what_must_move() -> None:
    """All bytes on the lost node; and those beyond what the memory of a rank holds."""
    tables = [{"rows": 10_000, "dim": 64}, {"rows": 10_000, "dim": 64}]
    before = Side(topology(node_group("a", nodes=2, ranks=1, ddr_bytes=None)), tables, "sgd")
    of = before.options
    in_hbm = of.tier[of.block_option] == HBM
    blocks = np.flatnonzero((of.block_sharding == TABLE_WISE) & (of.block_columns == 64) & in_hbm)
    one = 10_000 * 64 * 4
    apart = before.plan(Placement(blocks, np.array([0, 1])))
    after = Side(topology(node_group("a", nodes=1, ranks=1, ddr_bytes=None)), tables, "sgd")
    incumbent = Migration(apart, "old", after.model, ()).incumbent(after.formulation)
    assert incumbent.least_moved_bytes(after.problem) == pytest.approx(one)
    together = before.plan(Placement(blocks, np.array([0, 0])))
    incumbent = Migration(together, "old", before.model, ()).incumbent(before.formulation)
    assert incumbent.least_moved_bytes(before.problem) == 0
    small = replace(before.problem, pool_capacity=(np.full(2, 1.5 * one), *before.problem.pool_capacity[1:]))
    short = 0.5 * one + float(before.problem.base_bytes[0])
    assert incumbent.least_moved_bytes(small) == pytest.approx(short)


def test_state_that_changes_its_memory_is_copied() -> None:
    """Rows stay in HBM, adam's two arrays go to DDR and back: no bytes move between ranks, and the words say where."""
    policy = Policy(tiers=("hbm",), optimizer_state=("with_table", "ddr"), shardings=("table_wise",))
    side = Side(topology(node_group("a")), [{"rows": 1000, "dim": 64}], "adam", policy)
    of = side.options
    together, apart = (np.flatnonzero(of.state[of.block_option] == place)[:1] for place in (0, 1))
    plans = [side.plan(Placement(block, np.array([1]))) for block in (together, apart)]
    assert [plan.tables[0].optimizer_state for plan in plans] == ["with_table", "ddr"]
    for (old, new), memory in ((plans, "ddr"), (plans[::-1], "hbm")):
        moves = moves_of(Migration(old, "old", side.model, ()), new.tables, 0, None, None)
        assert moves.moved_bytes == 0
        assert {name: getattr(moves.copied, name) for name in EVERYWHERE} == {
            **dict.fromkeys(EVERYWHERE, 0),
            memory: 1000 * 64 * 4 * 2,
        }
    (change,) = table_differences(plans[0], plans[1], "old")
    assert change["after"] == "table_wise in hbm (state in ddr), 1 shard"


def test_state_below_leaves_room_for_rows() -> None:
    """What must move is what no memory of the rank's host has room for: with state in DDR, DDR counts."""
    policy = Policy(tiers=("hbm",), optimizer_state=("ddr",), shardings=("table_wise",))
    tables = [{"rows": 10_000, "dim": 64}] * 2
    side = Side(topology(node_group("a", ranks=2)), tables, "adam", policy)
    of, rows = side.options, 10_000 * 64 * 4
    blocks = np.array([np.flatnonzero(of.table[of.block_option] == table)[0] for table in range(2)])
    plan = side.plan(Placement(blocks, np.array([0, 0])))
    incumbent = Migration(plan, "old", side.model, ()).incumbent(side.formulation)
    base = float(side.problem.base_bytes[0])
    full = replace(side.problem, pool_capacity=(np.full(2, 2.5 * rows + base), *side.problem.pool_capacity[1:]))
    assert incumbent.moved_bytes(full, Placement(blocks, np.array([0, 0]))).sum() == 0
    assert incumbent.least_moved_bytes(full) == 0
