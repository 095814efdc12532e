"""The demand of a step: shards added up on their ranks."""

from dataclasses import fields

import numpy as np
import pytest

from cost_models.coefficients import software_coefficients
from cost_models.kinds import rank_kinds
from cost_models.shards import DATA_PARALLEL, DDR_CACHED, HBM, MEMORY_DDR, TABLE_WISE, Blocks, PlacedShards
from cost_models.simulator.demand import Counter
from cost_models.simulator.shard_counts import ShardCounts
from cost_models.tables import Tables
from tests.oracles.instances import node_group, topology, workload

CLUSTER = topology(node_group("a", ranks=2), node_group("b", ranks=2, hbm_bytes_per_s=3e12))
TABLES = [{"rows": 50_000, "dim": 64}, {"rows": 200_000, "dim": 32, "pooling_factor": 3}, {"rows": 10_000, "dim": 16}]


def counter(tables: list[int], ranks: list[int], *, replicated: bool = False, tier: int = HBM) -> Counter:
    """These tables, whole, on these ranks, or on all of them."""
    model = workload(TABLES)
    table = np.repeat(tables, 4) if replicated else np.array(tables)
    rank = np.tile(np.arange(4), len(tables)) if replicated else np.array(ranks)
    like = np.zeros_like(table)
    dim = np.array([64, 32, 16])[table]
    blocks = Blocks(
        table, like + (DATA_PARALLEL if replicated else TABLE_WISE), like + tier, dim, like + 0.1 * (tier != HBM)
    )
    rows = np.array([50_000, 200_000, 10_000])[table]
    opens = np.arange(len(table)) % 4 == 0 if replicated else np.ones(len(table), dtype=bool)
    placed = PlacedShards(blocks, rank, rows, opens)
    kinds, kind_of_rank = rank_kinds(CLUSTER, model), np.array([0, 0, 1, 1])
    counts = ShardCounts(Tables.of(model, 4), placed, 4, 4096.0)
    return Counter(counts, kinds, kind_of_rank, software_coefficients("torchrec"))


def test_a_rank_has_the_demand_of_all_its_tables() -> None:
    """Two tables on one rank ask what each of them asks there alone; other ranks are asked nothing by them."""
    both, first, second = (counter(tables, [1] * len(tables)).count() for tables in ([0, 1], [0], [1]))
    for field in fields(both):
        values = [np.asarray(getattr(demand, field.name)) for demand in (both, first, second)]
        if field.name not in ("raw_ids_per_sample_bytes", "ids_per_sample_bytes"):  # what is sent, whoever holds it
            assert values[0] == pytest.approx(values[1] + values[2]), field.name
    assert both.forward_s[HBM, 1] > 0
    assert not both.forward_s[:, [0, 2, 3]].any()
    assert both.ids_per_sample_bytes == pytest.approx([(10 + 3) * 8 + 2 * 4] * 4)
    assert both.raw_ids_per_sample_bytes == pytest.approx((10 + 3 + 10) * 8 + 3 * 4)


def test_replicas_take_the_time_of_each_kind_of_rank() -> None:
    """Every rank looks up its own samples; faster memory takes less time; the gradients of all rows are reduced."""
    demand = counter([0], [], replicated=True).count()
    slow, fast = demand.forward_s[HBM, :2], demand.forward_s[HBM, 2:]
    assert slow[0] == slow[1] > fast[0] == fast[1] > 0
    assert demand.replica_gradient_bytes.tolist() == [50_000 * 64 * 4] * 4
    assert not demand.vectors_to_each_bytes.any()


def test_drawn_ids_change_the_work_in_proportion() -> None:
    """Twice the ids everywhere are twice the ids that come; a rank that draws more works more on its replicas alone."""
    single, replica = counter([0], [1]), counter([0], [], replicated=True)
    assert single.count(np.full((4, 3), 2.0)).ids_received_bytes[1] == pytest.approx(4096 * (20 * 8 + 4))
    ids = np.ones((4, 3))
    ids[1] = 2.0
    usual, drawn = replica.count().forward_s[HBM], replica.count(ids).forward_s[HBM]
    assert drawn[[0, 2, 3]] == pytest.approx(usual[[0, 2, 3]])
    assert drawn[1] > usual[1]


def test_misses_are_fetched_over_the_memory_of_the_table() -> None:
    """They come from DDR to the rank that holds the table; the update also reaches the optimizer state there."""
    demand = counter([1], [3], tier=DDR_CACHED).count()
    assert demand.fetched_bytes[MEMORY_DDR, 3] > 0
    assert demand.fetched_bytes.sum() == demand.fetched_bytes[MEMORY_DDR, 3]
    assert demand.backward_host_bytes.sum() == demand.backward_host_bytes[MEMORY_DDR, 3] > 0
    assert not demand.forward_host_bytes.any()
