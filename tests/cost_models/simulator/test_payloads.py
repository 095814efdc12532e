"""Bytes between ranks and the work on what has come, counted by hand."""

from dataclasses import replace

import numpy as np
import pytest

from cost_models.coefficients import software_coefficients
from cost_models.kinds import rank_kinds
from cost_models.shards import (
    COLUMN_WISE,
    MULTI_RANK_ROW_WISE,
    NODE,
    RANK,
    RANK_PART,
    ROW_WISE,
    TABLE_ROW_WISE,
    TABLE_WISE,
    WORLD,
    Blocks,
    PlacedShards,
)
from cost_models.simulator.payloads import exchanged, rearranged
from cost_models.simulator.shard_counts import ShardCounts
from cost_models.tables import Tables
from tests.oracles.instances import node_group, topology, workload

CLUSTER = topology(node_group("a", nodes=2, ranks=2))
SAMPLES = 4096.0


def placed(sharding: int, ranks: list[int], columns: int) -> ShardCounts:
    """One table of 1,000 rows and 64 columns, ten ids a sample."""
    model = workload([{"rows": 1000, "dim": 64}])
    count = len(ranks)
    zeros, cut = np.zeros(count, dtype=np.int64), columns < 64 or sharding == TABLE_WISE
    blocks = Blocks(zeros, zeros + sharding, zeros, zeros + columns, zeros * 0.0)
    rows = zeros + (1000 if cut else 1000 // count)
    opens = np.ones(count, dtype=bool) if cut else np.arange(count) == 0
    return ShardCounts(Tables.of(model, 4), PlacedShards(blocks, np.array(ranks), rows, opens), 4, SAMPLES)


@pytest.mark.parametrize(
    ("sharding", "ranks", "columns", "extent"),
    [
        (TABLE_WISE, [2], 64, RANK),
        (COLUMN_WISE, [1, 3], 32, RANK),
        (TABLE_ROW_WISE, [2, 3], 64, NODE),
        (ROW_WISE, [0, 1, 2, 3], 64, WORLD),
        (MULTI_RANK_ROW_WISE, [1, 2], 64, RANK_PART),
    ],
)
def test_results_go_by_the_extent_of_their_block(sharding: int, ranks: list[int], columns: int, extent: int) -> None:
    """Whole vectors for the samples of each rank; sums of all samples on every rank that holds rows."""
    fields = exchanged(placed(sharding, ranks, columns), np.ones(len(ranks)), None)
    holds = np.isin(np.arange(4), ranks)
    vectors, sums = fields["vectors_to_each_bytes"], fields["sums_bytes"]
    assert vectors.tolist() == ((SAMPLES / 4 * columns * 4 * holds) if extent == RANK else np.zeros(4)).tolist()
    for each in (RANK, NODE, WORLD, RANK_PART):
        expected = SAMPLES * 64 * 4 * holds if each == extent != RANK else np.zeros(4)
        assert sums[each].tolist() == expected.tolist()


def test_every_holder_gets_the_number_of_ids_of_every_sample() -> None:
    """Ids go to whoever holds their rows, eight bytes each; four bytes for every sample go to every holder."""
    fields = exchanged(placed(ROW_WISE, [0, 1, 2, 3], 64), np.ones(4), None)
    assert fields["ids_received_bytes"] == pytest.approx(np.full(4, SAMPLES * (10 * 8 / 4 + 4)))
    assert fields["ids_per_sample_bytes"] == pytest.approx(np.full(4, 10 * 8 + 4 * 4))


def test_drawn_ids_are_sent_by_those_who_drew_them() -> None:
    """A rank with twice the ids sends twice as many; receivers get the mean."""
    drawn = np.array([[2.0], [1.0], [0.5], [0.5]])
    fields = exchanged(placed(TABLE_WISE, [2], 64), np.ones(1), drawn)
    assert fields["ids_per_sample_bytes"] - 4 == pytest.approx(drawn[:, 0] * 80)
    assert fields["ids_received_bytes"].tolist() == [0, 0, SAMPLES * 84, 0]


def test_nothing_is_rearranged_of_plain_vectors() -> None:
    """Without formats, duplicates and cut blocks; where sorting ids was measured, row-wise tables pay for it."""
    kinds, ranks = rank_kinds(CLUSTER, workload([{"rows": 1000, "dim": 64}])), np.zeros(4, dtype=np.int64)
    software = software_coefficients("torchrec")
    forward, backward = rearranged(placed(TABLE_WISE, [2], 64), software, kinds, ranks)
    assert forward.tolist() == backward.tolist() == [0.0] * 4
    measured = (replace(kinds[0], id_cut_s=1e-9),)
    forward, _ = rearranged(placed(ROW_WISE, [0, 1, 2, 3], 64), software, measured, ranks)
    assert forward == pytest.approx([SAMPLES / 4 * 10 * 1e-9] * 4)
