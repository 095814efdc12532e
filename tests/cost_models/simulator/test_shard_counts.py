"""Shards of a placement and what a step asks of them, counted by hand."""

import numpy as np
import pytest

from cost_models.shards import (
    COLUMN_WISE,
    DATA_PARALLEL,
    DDR,
    DDR_CACHED,
    HBM,
    RANK,
    ROW_WISE,
    WORLD,
    Blocks,
    PlacedShards,
)
from cost_models.simulator.shard_counts import ShardCounts
from cost_models.tables import Tables
from tests.oracles.instances import workload

MODEL = workload([{"rows": 1000, "dim": 64, "pooling_factor": 5}, {"rows": 400, "dim": 32}, {"rows": 100, "dim": 16}])
WORLD_SIZE, SAMPLES = 4, 4096.0


def counts(tier: int = HBM, cache_fraction: float = 0.0) -> ShardCounts:
    """The first table in two column blocks on ranks 1 and 2, the second cut by rows, the third on all ranks."""
    table = np.array([0, 0, *[1] * 4, *[2] * 4])
    sharding = np.array([COLUMN_WISE] * 2 + [ROW_WISE] * 4 + [DATA_PARALLEL] * 4)
    columns = np.array([32, 32, *[32] * 4, *[16] * 4])
    first = table == 0
    fraction = np.where(first, cache_fraction, 0.0)
    blocks = Blocks(table, sharding, np.where(first, tier, HBM), columns, fraction)
    rank = np.array([1, 2, 0, 1, 2, 3, 0, 1, 2, 3])
    rows = np.array([1000, 1000, 100, 100, 100, 100, 100, 100, 100, 100])
    opens = np.array([True, True, True, False, False, False, True, False, False, False])
    return ShardCounts(Tables.of(MODEL, WORLD_SIZE), PlacedShards(blocks, rank, rows, opens), WORLD_SIZE, SAMPLES)


def test_replicas_stand_for_one_shard() -> None:
    """Two blocks, four cut shards and one replica, which sees the samples of one rank."""
    shards = counts()
    assert len(shards) == 7
    assert shards.replicated.tolist() == [False] * 6 + [True]
    assert shards.share.tolist() == [1, 1, 0.25, 0.25, 0.25, 0.25, 1]
    assert shards.extent.tolist() == [RANK, RANK] + [WORLD] * 5
    assert shards.lookups.tolist() == [5 * SAMPLES] * 2 + [10 * SAMPLES] * 4 + [10 * SAMPLES / 4]
    assert shards.vectors.tolist() == [SAMPLES] * 6 + [SAMPLES / 4]


def test_vectors_of_single_holders_leave_whole() -> None:
    """Columns of each block; sums and replicas are no such vectors."""
    assert counts().whole_elements.tolist() == [SAMPLES * 32] * 2 + [0.0] * 5


def test_rows_are_read_where_the_tier_keeps_them() -> None:
    """In HBM all are hot; in DDR all are cold, and no more than are asked for; a cache misses some, and those that find
    no place in it are read in place: of 1,000 rows that are all read, 900 of a cache of 100."""
    in_hbm, in_ddr, cached = counts(), counts(DDR), counts(DDR_CACHED, 0.1)
    assert in_hbm.cold.tolist() == in_hbm.missed.tolist() == [0.0] * 7
    assert in_ddr.cold[:2] == pytest.approx(in_ddr.unique[:2])
    assert in_ddr.unique.max() <= 1000
    assert not in_ddr.missed.any()
    assert cached.cold[:2] == pytest.approx([900.0, 900.0])
    assert cached.missed[:2] == pytest.approx([0.0, 0.0], abs=1e-3)
    assert not cached.cold[2:].any()
    assert cached.state_apart[:2].all()
