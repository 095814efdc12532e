"""Bytes: exact against published totals and against hand-made sums."""

import math
from dataclasses import replace

import numpy as np
import pytest

from cost_models.memory import (
    CACHE_INDEX_BYTES_PER_ROW,
    CACHE_INDEX_BYTES_PER_SLOT,
    Batching,
    block_bytes,
    has_way_to_update,
    is_supported,
    stashed_bytes,
)
from cost_models.shards import (
    DATA_PARALLEL,
    DDR,
    DDR_CACHED,
    DDR_SPLIT,
    HBM,
    HBM_MIXED,
    MEMORY_DDR,
    MEMORY_HBM,
    MEMORY_SSD,
    PLACEMENT_TIERS,
    REMOTE_CACHED,
    SCM,
    SCM_CACHED,
    SSD_CACHED,
    STASHED_TIERS,
    STATE_PLACES,
    TABLE_WISE,
    Blocks,
)
from cost_models.tables import Tables
from cost_models.workload import Workload, load_workload
from cost_models.workload.formats import DTYPES
from tests.oracles.instances import workload

BATCHING = Batching(global_samples=4096.0, samples_per_rank=1024.0, batches_in_flight=2)


def whole_tables(model: Workload, tier: int = HBM, sharding: int = TABLE_WISE, fraction: float = 0.0) -> Blocks:
    count = len(model.tables)
    return Blocks(
        table=np.arange(count),
        sharding=np.full(count, sharding),
        tier=np.full(count, tier),
        columns=np.array([table.dim for table in model.tables]),
        cache_fraction=np.full(count, fraction),
    )


def stored(model: Workload, memory: int, component: str, blocks: Blocks | None = None) -> float:
    """Bytes of all tables, each held once by one rank."""
    load = block_bytes(Tables.of(model, 4), blocks or whole_tables(model), BATCHING)[memory, component]
    return float(np.sum(load.fixed) + np.sum(load.by_rows))


def with_embedding(name: str, dtype: str, optimizer: str) -> Workload:
    return load_workload(name, overrides=[f"embedding.dtype={dtype}", f"embedding.optimizer={optimizer}"])


def test_dcnv2_is_as_large_as_mlperf_says() -> None:
    """97.36 GiB in fp32, 209.09 GB with element-wise AdaGrad; exact to the byte."""
    model = with_embedding("dlrm-dcnv2", "fp32", "adagrad")
    weights, state = (stored(model, MEMORY_HBM, component) for component in ("weights", "optimizer"))
    assert weights == state == 204_184_588 * 128 * 4
    assert f"{weights / 2**30:.2f}" == "97.36"
    assert f"{(weights + state) / 1e9:.2f}" == "209.09"


@pytest.mark.parametrize(
    ("dtype", "optimizer", "weights", "state"),
    [("fp32", "adagrad", 48e12, 48e12), ("fp16", "rowwise_adagrad", 24e12, 0.1875e12), ("fp32", "adam", 48e12, 96e12)],
)
def test_model_f_is_as_large_as_neo_says(dtype: str, optimizer: str, weights: float, state: float) -> None:
    """96 TB in fp32 with element-wise state; 24 TB in fp16 with 4 bytes of state per row of 256; exact."""
    model = with_embedding("model-f", dtype, optimizer)
    assert stored(model, MEMORY_HBM, "weights") == weights
    assert stored(model, MEMORY_HBM, "optimizer") == state


@pytest.mark.parametrize(
    ("optimizer", "bytes_per_row"),
    [("sgd", 0), ("rowwise_adagrad", 4), ("adagrad", 256), ("adam", 512), ("lamb", 512)],
)
def test_optimizer_state_of_a_row(optimizer: str, bytes_per_row: int) -> None:
    """In fp32, whatever the weights are stored in; none in inference."""
    for mode, expected in (("training", bytes_per_row), ("inference", 0)):
        model = workload([{"rows": 1000, "dim": 64}], embedding={"dtype": "fp16", "optimizer": optimizer}, mode=mode)
        assert stored(model, MEMORY_HBM, "optimizer") == 1000 * expected
        assert stored(model, MEMORY_HBM, "weights") == 1000 * 64 * 2


@pytest.mark.parametrize(
    ("tier", "home"), [(HBM, MEMORY_HBM), (DDR_CACHED, MEMORY_DDR), (DDR, MEMORY_DDR), (SSD_CACHED, MEMORY_SSD)]
)
def test_weights_and_state_live_together(tier: int, home: int) -> None:
    """In the memory of their tier, and in no other."""
    model = workload([{"rows": 1000, "dim": 64}], embedding={"optimizer": "adagrad"})
    for memory in (MEMORY_HBM, MEMORY_DDR, MEMORY_SSD):
        for component in ("weights", "optimizer"):
            expected = 1000 * 256 if memory == home else 0
            assert stored(model, memory, component, whole_tables(model, tier)) == expected


@pytest.mark.parametrize("fraction", [0.02, 0.1, 0.3, 1.0])
def test_a_cache_holds_rows_with_state_and_its_index(fraction: float) -> None:
    """In HBM: whole rows with their state, 16 bytes for each slot, 4 bytes for each row of the table."""
    model = workload([{"rows": 1003, "dim": 64}], embedding={"optimizer": "rowwise_adagrad"})
    blocks = whole_tables(model, DDR_CACHED, fraction=fraction)
    slots = math.ceil(1003 * fraction)
    expected = slots * (256 + 4 + CACHE_INDEX_BYTES_PER_SLOT) + 1003 * CACHE_INDEX_BYTES_PER_ROW
    assert stored(model, MEMORY_HBM, "cache", blocks) == expected
    assert stored(model, MEMORY_HBM, "cache", whole_tables(model, DDR)) == 0


def test_ids_and_outputs_in_flight() -> None:
    """Ids of two batches, with their weights; outputs and gradients of one; a replica has its own samples only."""
    model = workload([{"rows": 1000, "dim": 64, "pooling_factor": 10, "features": 2, "weighted": True}])
    assert stored(model, MEMORY_HBM, "ids") == 4096 * 10 * (8 + 4) * 2
    assert stored(model, MEMORY_HBM, "outputs") == 4096 * 2 * 64 * 4 * 2
    replica = whole_tables(model, sharding=DATA_PARALLEL)
    assert stored(model, MEMORY_HBM, "ids", replica) == 1024 * 10 * (8 + 4) * 2
    assert stored(model, MEMORY_HBM, "outputs", replica) == 1024 * 2 * 64 * 4 * 2


def test_a_sequence_gives_a_vector_for_every_id() -> None:
    """An unpooled table's outputs are as many as its ids; deduplication makes both fewer."""
    table = {"rows": 1000, "dim": 64, "pooling_factor": 10, "pooled": False}
    model, fewer = workload([table], mode="inference"), workload([{**table, "dedup_factor": 2}], mode="inference")
    assert stored(model, MEMORY_HBM, "outputs") == 4096 * 10 * 64 * 4 * 2
    assert stored(fewer, MEMORY_HBM, "outputs") == stored(model, MEMORY_HBM, "outputs") / 2
    assert stored(fewer, MEMORY_HBM, "ids") == stored(model, MEMORY_HBM, "ids") / 2


def test_a_replica_has_a_gradient_of_its_size() -> None:
    """Dense, in the table's own type, where the table is trained; shards are updated row by row and have none."""
    table = {"rows": 1000, "dim": 64, "dtype": "fp16"}
    model = workload([table])
    assert stored(model, MEMORY_HBM, "gradients", whole_tables(model, sharding=DATA_PARALLEL)) == 1000 * 64 * 2
    assert stored(model, MEMORY_HBM, "gradients") == 0
    served = workload([table], mode="inference")
    assert stored(served, MEMORY_HBM, "gradients", whole_tables(served, sharding=DATA_PARALLEL)) == 0


def test_prefetched_misses_need_room_to_be_sorted() -> None:
    """The ids of a cached table seven times more, those of others not."""
    model = workload([{"rows": 1000, "dim": 64, "pooling_factor": 10}])
    batching = Batching(4096.0, 1024.0, batches_in_flight=3, is_prefetched=True)
    for tier, times in ((HBM, 3), (DDR, 3), (DDR_CACHED, 10)):
        load = block_bytes(Tables.of(model, 4), whole_tables(model, tier, fraction=0.1), batching)
        assert float(np.sum(load[MEMORY_HBM, "ids"].by_rows)) == 4096 * 10 * 8 * times


@pytest.mark.parametrize(
    ("memories", "tiers"),
    [
        ((1, 0, 0, 0, 0), {HBM, HBM_MIXED}),
        ((1, 1, 0, 0, 0), {HBM, HBM_MIXED, DDR_CACHED, DDR, DDR_SPLIT, *map(PLACEMENT_TIERS.index, STASHED_TIERS)}),
        ((1, 0, 1, 0, 0), {HBM, HBM_MIXED, SSD_CACHED}),
        ((1, 0, 0, 1, 0), {HBM, HBM_MIXED, SCM_CACHED, SCM}),
        ((1, 0, 0, 0, 1), {HBM, HBM_MIXED, REMOTE_CACHED}),
        ((1, 1, 1, 1, 1), set(range(len(PLACEMENT_TIERS)))),
    ],
)
def test_a_tier_needs_its_memory(memories: tuple[int, ...], tiers: set[int]) -> None:
    """HBM alone holds HBM alone, with or without caches beside, and so on."""
    every = np.arange(len(PLACEMENT_TIERS))
    blocks = Blocks(0 * every, 0 * every + TABLE_WISE, every, 0 * every + 64, np.zeros(len(every)))
    assert set(np.flatnonzero(is_supported(blocks, memories)).tolist()) == tiers


@pytest.mark.parametrize(("dtype", "share", "bits"), [("int8", "5%", 9.6), ("int4", "1%", 4.32)])
def test_a_cache_of_full_precision_costs_the_published_bits(dtype: str, share: str, bits: float) -> None:
    """INT8 with 5 % of its rows in fp32 takes 9.6 bits a number, INT4 with 1 % 4.32 (arXiv:2010.11305)."""
    rows, dim = 100_000, 64
    model = workload([{"rows": rows, "dim": dim, "dtype": dtype, "precision_cache": share, "optimizer": "sgd"}])
    slots = rows * model.tables[0].precision_cache
    index = rows * CACHE_INDEX_BYTES_PER_ROW + slots * CACHE_INDEX_BYTES_PER_SLOT
    total = stored(model, MEMORY_HBM, "weights") + stored(model, MEMORY_HBM, "cache") - index
    assert total * 8 / (rows * dim) == pytest.approx(bits, rel=1e-12)


def test_below_hbm_the_cache_is_of_full_precision_too() -> None:
    """Rows in DDR as they are stored; slots of the plan's cache in fp32."""
    rows, dim = 10_000, 64
    model = workload([{"rows": rows, "dim": dim, "dtype": "mx6", "precision_cache": "5%", "optimizer": "sgd"}])
    blocks = whole_tables(model, DDR_CACHED, fraction=0.1)
    assert stored(model, MEMORY_DDR, "weights", blocks) == rows * 48
    index = rows * CACHE_INDEX_BYTES_PER_ROW + 1000 * CACHE_INDEX_BYTES_PER_SLOT
    assert stored(model, MEMORY_HBM, "cache", blocks) == 1000 * dim * 4 + index


@pytest.mark.parametrize(("rows", "number_bytes"), [(2**31 - 1, 4), (2**31, 8)])
def test_the_map_of_a_split_table_has_numbers_that_hold_its_rows(rows: int, number_bytes: int) -> None:
    """int32, and int64 for rows that it cannot count; in DDR, where data is loaded."""
    model = workload([{"rows": rows, "dim": 4}])
    assert stored(model, MEMORY_DDR, "remap", whole_tables(model, DDR_SPLIT, fraction=0.1)) == rows * number_bytes
    assert stored(model, MEMORY_DDR, "remap", whole_tables(model, DDR_CACHED, fraction=0.1)) == 0


@pytest.mark.parametrize(
    ("optimizer", "numbers_of_row"),
    [("lars_sgd", 128), ("lamb", 256), ("partial_rowwise_adam", 129), ("partial_rowwise_lamb", 129)],
)
def test_optimizers_keep_what_fbgemm_does(optimizer: str, numbers_of_row: int) -> None:
    """One or two fp32 numbers a weight, or one a weight and one a row, of rows of 128 columns."""
    model = with_embedding("dlrm-dcnv2", "fp32", optimizer)
    assert stored(model, MEMORY_HBM, "optimizer") == 204_184_588 * numbers_of_row * 4


def test_a_cache_of_another_precision_takes_its_own_bytes() -> None:
    """Half a table of 4,000 rows of 64 columns in fp16, cached in fp32: twice the bytes a row, the index on top."""
    told = [{"kernel": {"cache_params": {"precision": precision}}} for precision in ("FP16", "FP32")]
    plain, wide = (workload([{"rows": 4000, "dim": 64, "dtype": "fp16", "optimizer": "sgd", **more}]) for more in told)
    cached = whole_tables(plain, DDR_CACHED, fraction=0.5)
    index = 4000 * CACHE_INDEX_BYTES_PER_ROW + 2000 * CACHE_INDEX_BYTES_PER_SLOT
    assert stored(plain, MEMORY_HBM, "cache", cached) == 2000 * 64 * 2 + index
    assert stored(wide, MEMORY_HBM, "cache", cached) == 2000 * 64 * 4 + index


def test_vectors_of_a_variable_batch_take_the_bytes_of_those_there_are() -> None:
    """A quarter of a vector per sample: a quarter of the bytes of outputs, as many of ids."""
    usual, fewer = (workload([{"rows": 4000, "dim": 64, "poolings": poolings}]) for poolings in (1.0, 0.25))
    assert stored(fewer, MEMORY_HBM, "outputs") == stored(usual, MEMORY_HBM, "outputs") / 4
    assert stored(fewer, MEMORY_HBM, "ids") == stored(usual, MEMORY_HBM, "ids")


def test_the_hot_rows_of_a_split_table_are_in_hbm_the_others_in_ddr() -> None:
    """A tenth of 1,003 rows, rounded up; weights and state together; nothing anywhere else."""
    model = workload([{"rows": 1003, "dim": 64}], embedding={"optimizer": "adagrad"})
    blocks = whole_tables(model, DDR_SPLIT, fraction=0.1)
    for component in ("weights", "optimizer"):
        found = [stored(model, memory, component, blocks) for memory in (MEMORY_HBM, MEMORY_DDR, MEMORY_SSD)]
        assert found == pytest.approx([101 * 256, 902 * 256, 0])


@pytest.mark.parametrize(
    ("tier", "weights", "state"), [("hbm_stash_weights", 1, 0), ("hbm_stash_optimizer", 0, 1), ("hbm_stash_all", 1, 1)]
)
def test_what_is_stashed_leaves_hbm_for_ddr(tier: str, weights: int, state: int) -> None:
    """As many bytes as are in HBM otherwise, and of the number format that the block is stored in."""
    for dtype, row_bytes in (("fp32", 256), ("fp16", 128)):
        model = workload([{"rows": 1000, "dim": 64, "dtype": dtype}], embedding={"optimizer": "adam"})
        blocks = whole_tables(model, PLACEMENT_TIERS.index(tier))
        away = {"weights": weights * 1000 * row_bytes, "optimizer": state * 1000 * 512}
        as_fp16 = replace(blocks, dtype=np.array([DTYPES.index("fp16")]))
        assert stashed_bytes(Tables.of(model, 4), as_fp16).tolist() == [weights * 1000 * 128 + away["optimizer"]]
        assert stashed_bytes(Tables.of(model, 4), blocks).tolist() == [sum(away.values())]
        for component, whole in (("weights", 1000 * row_bytes), ("optimizer", 1000 * 512)):
            assert stored(model, MEMORY_DDR, component, blocks) == away[component]
            assert stored(model, MEMORY_HBM, component, blocks) == whole - away[component]
            assert stored(model, MEMORY_SSD, component, blocks) == 0


def ways(model: Workload, sharding: int = TABLE_WISE, dtype: str | None = None, state: str = "") -> set[str]:
    """The tiers in which a table can be updated, in a format other than its own or with its optimizer state apart."""
    every = np.arange(len(PLACEMENT_TIERS))
    formats = None if dtype is None else 0 * every + DTYPES.index(dtype)
    places = 0 * every + STATE_PLACES.index(state) if state else None
    blocks = Blocks(0 * every, 0 * every + sharding, every, 0 * every + 64, 0 * every + 0.1, formats, places)
    return {PLACEMENT_TIERS[tier] for tier in np.flatnonzero(has_way_to_update(Tables.of(model, 4), blocks)).tolist()}


def test_a_format_without_updates_is_written_in_a_cache_of_full_precision() -> None:
    """fp32 is updated wherever it is; mx6 where a cache is above it or beside it. A table with a stated cache beside it
    is never read in place, nor replicated; what is served needs no updates."""
    cached = {"ddr_cached", "ssd_cached", "scm_cached", "remote_cached", "hbm_mixed"}
    table = {"rows": 1000, "dim": 64, "optimizer": "sgd"}
    plain, stated = workload([table]), workload([{**table, "dtype": "mx6", "precision_cache": "5%"}])
    served = workload([{"rows": 1000, "dim": 64}], mode="inference")
    assert ways(plain) == set(PLACEMENT_TIERS)
    assert ways(plain, dtype="mx6") == cached
    assert ways(served, dtype="mx6") == set(PLACEMENT_TIERS)
    assert ways(stated) >= {"hbm", *cached}
    assert not ways(stated) & {"ddr", "scm", "ddr_split"}
    assert not ways(stated, DATA_PARALLEL)
    assert "hbm" in ways(plain, DATA_PARALLEL)
    assert "hbm" not in ways(plain, DATA_PARALLEL, dtype="mx6")
    assert "hbm" in ways(plain, state="ddr")
    assert "hbm" not in ways(plain, DATA_PARALLEL, state="ddr"), "replicas are updated where they are"
