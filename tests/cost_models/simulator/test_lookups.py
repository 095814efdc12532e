"""Formats and deduplication: the simulator's own count of each rank's device time is the closed form's."""

import numpy as np
import pytest

from cost_models.coefficients import replaced
from cost_models.lookup import Lookup
from cost_models.resources import DEVICE
from cost_models.shards import (
    COLUMN_WISE,
    DDR,
    DDR_CACHED,
    HBM,
    HBM_MIXED,
    ROW_WISE,
    SSD_CACHED,
    TABLE_WISE,
    Blocks,
    PlacedShards,
)
from cost_models.simulator.demand import Counter, Demand
from cost_models.simulator.shard_counts import ShardCounts
from cost_models.step import StepModel
from tests.oracles.instances import node_group, topology, workload

CLUSTER = topology(node_group("a", nodes=2, ranks=2, ssd_bytes=1e12))
DTYPES = ("int8_row", "mx9", "mxfp4", "int4", "fp16", "fp8", "fp32")


@pytest.mark.parametrize("tier", [HBM, HBM_MIXED, DDR_CACHED, SSD_CACHED])
@pytest.mark.parametrize("wire", ["fp32", "bf16", "fp8", "mx4"])
@pytest.mark.parametrize("group", [None, "user"])
def test_device_seconds_are_those_of_the_estimate(tier: int, wire: str, group: str | None) -> None:
    """Rows read and written, caches of full precision, encoding and decoding, copies of deduplicated vectors."""
    tables = [
        {
            "rows": 100_000 * (i + 1),
            "dim": 48,
            "pooling_factor": 5 + i,
            "dtype": dtype,
            "precision_cache": "5%" if i < 4 else None,
            "zipf_alpha": 1.05,
            "pooled": i != 5,
            "dedup_factor": 3.0,
            "dedup_group": group,
        }
        for i, dtype in enumerate(DTYPES)
    ]
    model = StepModel(CLUSTER, workload(tables, communication={"forward": wire, "backward": wire}))
    count = len(tables)
    whole = Blocks(
        np.arange(count),
        np.full(count, TABLE_WISE),
        np.full(count, tier),
        np.full(count, 48),
        np.full(count, 0.0 if tier == HBM else 0.1),
    )
    halves = np.repeat(np.arange(count), 2)
    blocks = Blocks(
        halves,
        np.full(2 * count, COLUMN_WISE),
        whole.tier[halves],
        np.full(2 * count, 24),
        whole.cache_fraction[halves],
    )
    rank = np.arange(2 * count) % 3
    ones = np.ones(2 * count, dtype=bool)
    placed = PlacedShards(blocks, rank, model.tables.rows[halves], ones)
    software = model.coefficients.software
    counts = ShardCounts(model.tables, placed, len(model.kind_of_rank), model.batching.global_samples)
    counter = Counter(counts, model.kinds, model.kind_of_rank, software)
    demand = counter.count()
    lookup = Lookup(model.tables, blocks, model.kinds[0], model.batching, software)
    forward, backward = demand.forward_s.sum(axis=0), demand.backward_s.sum(axis=0)
    for loads, seconds in ((lookup.forward(), forward), (lookup.backward(), backward)):
        load, busy = loads[DEVICE], np.asarray(seconds)
        if tier == DDR_CACHED and seconds is backward:  # state in host memory, counted apart
            busy = busy + demand.backward_host_bytes.sum(axis=0) / model.kinds[0].pcie_bytes_per_s
        own = np.bincount(rank, weights=np.broadcast_to(load.fixed + load.by_rows, rank.shape), minlength=4)
        assert busy == pytest.approx(own + np.sum(np.broadcast_to(load.everywhere, rank.shape)), rel=1e-9)


def counted(model: StepModel, blocks: Blocks) -> Demand:
    """The simulator's count of blocks on rank 0."""
    count, software = len(blocks), model.coefficients.software
    zeros, ones = np.zeros(count, dtype=np.int64), np.ones(count, dtype=bool)
    placed = PlacedShards(blocks, zeros, model.tables.rows[blocks.table], ones)
    samples = model.batching.global_samples
    counts = ShardCounts(model.tables, placed, len(model.kind_of_rank), samples)
    return Counter(counts, model.kinds, model.kind_of_rank, software).count()


def alone(tier: int) -> Blocks:
    """The first table, whole."""
    zero = np.zeros(1, dtype=np.int64)
    return Blocks(zero, zero + TABLE_WISE, zero + tier, zero + 64, np.where(zero + tier == HBM, 0.0, 0.1))


@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_rows_that_were_measured_as_distinct_are_updated_once_each(factor: float) -> None:
    """A tenth of all ids, whatever deduplication leaves of the others: so many rows of 256 bytes, and their state,
    cross PCIe in an update of a table in host memory; 1 %."""
    table = {"rows": 10_000_000, "dim": 64, "pooling_factor": 20, "unique_fraction": 0.1, "dedup_factor": factor}
    model = StepModel(CLUSTER, workload([table], global_batch=65_536))
    blocks = alone(DDR)
    again = model.coefficients.software.uvm_backward_passes_per_row.value
    expected = 131_072 * again * (256 + 32)
    assert counted(model, blocks).backward_host_bytes.sum() == pytest.approx(expected, rel=0.01)
    loads = Lookup(model.tables, blocks, model.kinds[0], model.batching, model.coefficients.software).backward()
    on_device = np.sum(loads[DEVICE].by_rows) - expected / model.kinds[0].memories["ddr"].link_bytes_per_s
    assert 0 < on_device == pytest.approx(counted(model, blocks).backward_s.sum(), rel=0.01)


@pytest.mark.parametrize(("tier", "is_searched"), [(HBM, False), (DDR_CACHED, True)])
def test_only_caches_of_tables_below_hbm_are_searched(tier: int, is_searched: bool) -> None:
    """The time of a search was measured on those; a cache of full precision beside a table in HBM has none."""
    table = {"rows": 100_000, "dim": 64, "pooling_factor": 5, "dtype": "int8_row", "precision_cache": "5%"}
    asked = workload([table])
    pairs = []
    for seconds in (0.0, 1e-6):
        with replaced({("software", "torchrec", "cache_search_s"): seconds}):
            model = StepModel(CLUSTER, asked)
            lookup = Lookup(model.tables, alone(tier), model.kinds[0], model.batching, model.coefficients.software)
            closed = float(np.sum(lookup.forward()[DEVICE].by_rows))
            pairs.append((closed, float(counted(model, alone(tier)).forward_s.sum())))
    (closed, played), (closed_searched, played_searched) = pairs
    assert (closed_searched > closed) is is_searched
    assert closed_searched - closed == pytest.approx(played_searched - played, abs=1e-12)


def test_encoding_and_wire_bytes_follow_the_format() -> None:
    """Whole vectors take an eighth of fp32 in MX4; sums travel in 16 bits instead."""
    table = {"rows": 100_000, "dim": 64, "pooling_factor": 5}
    sent = {}
    for wire in ("fp32", "mx4"):
        model = StepModel(CLUSTER, workload([table], communication={"forward": wire, "backward": wire}))
        one = np.zeros(1, dtype=np.int64)
        by_sharding = {}
        for sharding, ranks in ((TABLE_WISE, 1), (ROW_WISE, 4)):
            zeros = np.zeros(ranks, dtype=np.int64)
            blocks = Blocks(zeros, zeros + sharding, zeros, zeros + 64, zeros + 0.0)
            placed = PlacedShards(blocks, np.arange(ranks), zeros + 100_000 // ranks, np.arange(ranks) == one)
            software = model.coefficients.software
            counts = ShardCounts(model.tables, placed, len(model.kind_of_rank), 4096.0)
            counter = Counter(counts, model.kinds, model.kind_of_rank, software)
            demand = counter.count()
            by_sharding[sharding] = demand.vectors_to_each_bytes.sum() + demand.sums_bytes.sum()
        sent[wire] = by_sharding
    assert sent["fp32"][TABLE_WISE] == 8 * sent["mx4"][TABLE_WISE] > 0
    assert sent["fp32"][ROW_WISE] == 2 * sent["mx4"][ROW_WISE] > 0
