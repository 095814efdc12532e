"""The estimators against shards that the package was asked about (tests/torchrec_package asks about many more)."""

import json
from pathlib import Path

import numpy as np
import pytest

from cost_models.shards import (
    COLUMN_WISE,
    DATA_PARALLEL,
    DDR_CACHED,
    HBM,
    ROW_WISE,
    SHARDINGS,
    TABLE_WISE,
    Blocks,
)
from cost_models.torchrec.estimator import PerfEstimator
from cost_models.torchrec.storage import StorageEstimator
from cost_models.torchrec.tables import TorchRecTables
from cost_models.torchrec.topology import TorchRecTopology

GROUPS = json.loads(Path(__file__).with_name("shards.json").read_text())["groups"]
TIERS = {"fused": 0, "dense": 0, "fused_uvm_caching": 1, "fused_uvm": 2}


class Misses:
    """The cache statistics of the recording."""

    def __init__(self, misses):
        self._misses = np.array(misses)

    def expected_misses(self, table, cache_fraction):  # noqa: ARG002
        return self._misses[table]


def recorded(group):
    """Topology, tables, blocks and rows of one group of the recording."""
    told = group["tables"]
    arrays = {name: np.array([table[name] for table in told]) for name in told[0] if name != "expected_misses"}
    tables = TorchRecTables(
        **arrays,
        pipeline=group["pipeline"],
        training=group["training"],
        cache=Misses([table["expected_misses"] for table in told]),
    )
    shards = group["shards"]
    blocks = Blocks(
        np.array([shard["table"] for shard in shards]),
        np.array([SHARDINGS.index(shard["sharding"]) for shard in shards]),
        np.array([TIERS[shard["kernel"]] for shard in shards]),
        np.array([shard["columns"] for shard in shards]),
        np.array([shard["cache_fraction"] for shard in shards]),
    )
    return TorchRecTopology.from_case(group["case"]), tables, blocks, np.array([shard["rows"] for shard in shards])


every_group = pytest.mark.parametrize("group", GROUPS, ids=lambda g: f"{g['case']['world_size']}-{g['pipeline']}")


@every_group
def test_times_are_those_of_the_package(group):
    """Every term to 1e-9."""
    topology, tables, blocks, _ = recorded(group)
    found = PerfEstimator(topology, tables).estimate(blocks)
    ours = {
        "fwd_compute": found.forward_compute,
        "fwd_comms": found.forward_comms,
        "bwd_compute": found.backward_compute,
        "bwd_comms": found.backward_comms,
        "prefetch_compute": found.prefetch_compute,
        "input_dist_comms": found.input_dist_comms,
    }
    for term, seconds in ours.items():
        expected = [shard["perf_ms"][term] / 1e3 for shard in group["shards"]]
        np.testing.assert_allclose(seconds, expected, rtol=1e-9, atol=0, err_msg=term)
    np.testing.assert_allclose(found.total, [shard["total_ms"] / 1e3 for shard in group["shards"]], rtol=1e-9, atol=0)


@every_group
def test_bytes_are_those_of_the_package(group):
    """Exactly, in HBM and in DDR."""
    topology, tables, blocks, rows = recorded(group)
    found = StorageEstimator(topology, tables).estimate(blocks, rows)
    np.testing.assert_array_equal(found[:, :2], [shard["bytes"] for shard in group["shards"]])


def one_table(rows=1000, dim=128):
    """One pooled fp32 table with 10 ids per sample and 512 samples per rank, without optimizer state."""
    return TorchRecTables(
        rows=np.array([rows]),
        dim=np.array([dim]),
        element_bytes=np.array([4]),
        batch_inputs=np.array([5120.0]),
        batch_outputs=np.array([512.0]),
        pooled=np.array([True]),
        weighted=np.array([False]),
        all_to_all_bytes=np.full((1, 2), 4.0),
        reduce_scatter_bytes=np.full((1, 2), 4.0),
        state_per_weight=np.zeros(1),
    )


def block(sharding, columns, tier=HBM, fraction=0.0):
    return Blocks(*(np.array([value]) for value in (0, sharding, tier, columns)), np.array([fraction]))


def test_one_shard_by_hand():
    """A whole table on one of 8 ranks: ids, rows and vectors at HBM speed, twice that back, two all-to-alls."""
    own = TorchRecTopology.default(8, 8)
    found = PerfEstimator(own, one_table()).estimate(block(TABLE_WISE, 128))
    ids, vectors = 5120 * 8, 512 * 8
    forward = (ids * 8 + ids * 128 * 4 + vectors * 128 * 4) / (897 * 2**30)
    exchange = vectors * 128 * 4 / (600 * 2**30)
    assert found.total[0] == pytest.approx(3 * forward + 2 * exchange, rel=1e-12)


@pytest.mark.parametrize(("width", "penalty"), [(128, 1.0), (124, 1.15), (64, 1.15), (60, 1.75), (4, 1.75)])
def test_each_shard_counts_by_its_own_width(width, penalty):
    """A narrow block pays its own penalty and reads 32 columns at least, whatever the table's width."""
    estimator = PerfEstimator(TorchRecTopology.default(8, 8), one_table(dim=256))
    ids, vectors = 5120 * 8, 512 * 8
    size = ids * 8 + ids * max(width, 32) * 4 + vectors * width * 4
    found = estimator.estimate(block(COLUMN_WISE, width)).forward_compute[0]
    assert found == pytest.approx(size * penalty / (897 * 2**30), rel=1e-12)


def test_an_empty_shard_takes_time_but_no_bytes():
    """3 rows on 8 ranks: TorchRec charges the five empty ones their time, and nothing in memory."""
    own, tables = TorchRecTopology.default(8, 8), one_table(rows=3)
    blocks = block(ROW_WISE, 128).take(np.zeros(2, dtype=np.int64))
    size = StorageEstimator(own, tables).estimate(blocks, np.array([1, 0]))
    assert PerfEstimator(own, tables).estimate(blocks).total.min() > 0
    assert size[0, 0] > 0
    assert size[1].tolist() == [0, 0, 0]


def test_a_replicated_table_is_a_dense_kernel():
    """Half the HBM bandwidth, its own batch, no exchange, an all-reduce of the whole table."""
    found = PerfEstimator(TorchRecTopology.default(8, 8), one_table()).estimate(block(DATA_PARALLEL, 128))
    size = 5120 * 8 + 5120 * 128 * 4 + 512 * 128 * 4
    assert found.forward_compute[0] == pytest.approx(size / (897 * 2**30 / 2), rel=1e-12)
    assert found.forward_comms[0] == 0
    table = 1000 * 128 * 4
    reduce = table / (12.5 * 2**30 * 8) + table * 9.22 / (897 * 2**30 / 2)
    assert found.backward_comms[0] == pytest.approx(reduce, rel=1e-12)


def test_a_cached_table_needs_its_share_of_hbm_and_all_of_ddr():
    """Weights in proportion to the cache, 4 bytes a row and 16 a cached row for the index, ids and outputs."""
    own = TorchRecTopology.default(8, 8)
    size = StorageEstimator(own, one_table()).estimate(block(TABLE_WISE, 128, DDR_CACHED, 0.25), np.array([1000]))
    weights = 1000 * 128 * 4
    flight = 5120 * 8 * 8 + 512 * 8 * 128 * 4
    assert size[0].tolist() == [weights / 4 + 1000 * (4 + 0.25 * 16) + flight, weights, 0]
