"""More work never makes a step shorter at the same placement: neither estimated nor played."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, note, settings
from hypothesis import strategies as st

from benchmarks.validation.ranking import random_shards
from cost_models.registry import cost_model
from cost_models.shards import HBM, SHARDINGS, Blocks, PlacedShards
from cost_models.workload.formats import FORMATS, wire_bytes
from cost_models.workload.words import Dtype
from tests.oracles.instances import node_group, topology, workload
from tests.properties.placed_cases import (
    Case,
    cases,
    expect_no_shorter,
    expect_no_shorter_estimate,
    factors,
    wide_cases,
)

WIDER: dict[str, dict[str, dict[str, object]]] = {
    "tables": {"embedding": {"dtype": "fp32"}},
    "vectors": {"communication": {"forward": "fp32"}},
    "gradients": {"communication": {"backward": "fp32"}},
    "dense part": {"dense": {"dtype": "fp32"}},
    "products": {"dense": {"macs_per_sample": 20_000_000}},
    "parameters": {"dense": {"parameters": 100_000_000}},
}
"""What is written over the fields of a job to make it more work, each for one more kind of work."""


@settings(max_examples=20, deadline=None, derandomize=True)
@given(case=cases(), factor=factors)
def test_a_larger_batch(case: Case, factor: float) -> None:
    """With more samples in a step it is not shorter."""
    ranks = case.cluster.world_size
    larger = -(-int(case.fields["global_batch"] * factor) // ranks) * ranks
    expect_no_shorter(replace(case, fields={**case.fields, "global_batch": larger}), case)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(case=cases(), factor=factors)
def test_more_ids(case: Case, factor: float) -> None:
    """With more ids in a bag it is not shorter."""
    tables = tuple({**table, "pooling_factor": table["pooling_factor"] * factor} for table in case.tables)
    expect_no_shorter(replace(case, tables=tables), case)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(case=cases())
def test_wider_formats(case: Case) -> None:
    """With rows or vectors in a wider format it is not shorter."""
    for worse in ({"embedding": {"dtype": "fp32"}}, {"communication": {"forward": "fp32", "backward": "fp32"}}):
        expect_no_shorter(case.with_more(worse), case)


COMPUTED: list[Dtype] = ["bf16", "fp16", "fp32"]
"""What lookups and products write themselves, from narrow to wide."""
ENCODED: list[Dtype] = sorted((word for word in FORMATS if word not in COMPUTED), key=wire_bytes)
"""What is encoded from fp32, in the same order."""


def on_the_wire(case: Case, word: Dtype) -> Case:
    """With vectors and all gradients in this format."""
    dense = {"gradients": word} if case.fields["mode"] == "training" else {}
    return case.with_more({"communication": {"forward": word, "backward": word}, "dense": dense})


@settings(max_examples=10, deadline=None, derandomize=True)
@given(case=cases())
def test_every_wider_format_on_the_wire(case: Case) -> None:
    """With vectors and gradients in the next wider format that is encoded, or that is not, it is not shorter."""
    for family in (COMPUTED, ENCODED):
        all_of_it = [on_the_wire(case, word) for word in family]
        for narrower, wider in pairwise(all_of_it):
            note(f"{narrower.fields} {wider.fields}")
            expect_no_shorter(wider, narrower)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(case=wide_cases())
def test_every_wider_format_on_the_wire_of_tables_anywhere(case: Case) -> None:
    """With them in the next wider format of the same family it is not estimated shorter."""
    for family in (COMPUTED, ENCODED):
        all_of_it = [on_the_wire(case, word) for word in family]
        for narrower, wider in pairwise(all_of_it):
            note(f"{narrower.fields} {wider.fields}")
            expect_no_shorter_estimate(wider, narrower)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(case=cases())
def test_more_tables(case: Case) -> None:
    """With any of its tables as well it is not shorter."""
    for table in range(len(case.tables)) if len(case.tables) > 1 else ():
        expect_no_shorter_estimate(case, without_table(case, table))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(case=wide_cases(), factor=factors)
def test_a_larger_batch_of_tables_anywhere(case: Case, factor: float) -> None:
    """With more samples in a step, or more ids in all bags, it is not estimated shorter."""
    ranks = case.cluster.world_size
    larger = -(-int(case.fields["global_batch"] * factor) // ranks) * ranks
    expect_no_shorter_estimate(replace(case, fields={**case.fields, "global_batch": larger}), case)
    tables = tuple({**table, "pooling_factor": table["pooling_factor"] * factor} for table in case.tables)
    expect_no_shorter_estimate(replace(case, tables=tables), case)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(case=wide_cases())
def test_wider_formats_and_more_products_of_tables_anywhere(case: Case) -> None:
    """With any of them it is not estimated shorter."""
    for what, wider in WIDER.items():
        note(what)
        expect_no_shorter_estimate(case.with_more(wider), case)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(case=wide_cases(), strategy=st.sampled_from(["zero1", "zero2", "fsdp"]), millions=st.integers(1, 300))
def test_more_work_beside_a_sharded_dense_part(case: Case, strategy: str, millions: int) -> None:
    """With more ids in all bags, wider rows, vectors, gradients or products it is not estimated shorter, without any
    of its tables not longer. While sums that outlast the dense part were hidden by evenly spread tables, 2 % of such
    questions were answered the other way round, by 0.3 % at most."""
    assume(case.replicas is None and case.exchange == "flat" and case.cluster.world_size > 1)
    dense = {"sharding": {"strategy": strategy}, "parameters": millions * 1_000_000}
    fields = case.fields | {"software": "torchrec", "mode": "training", "overhead": "0us"}
    case = replace(case, fields=fields).with_more({"dense": dense})
    for what, wider in WIDER.items():
        note(what)
        if what != "parameters":
            expect_no_shorter_estimate(case.with_more(wider), case)
    tables = tuple({**table, "pooling_factor": 3 * table["pooling_factor"]} for table in case.tables)
    expect_no_shorter_estimate(replace(case, tables=tables), case)
    for table in range(len(case.tables)) if len(case.tables) > 1 else ():
        note(f"without table {table}")
        expect_no_shorter_estimate(case, without_table(case, table))


def without_table(case: Case, table: int) -> Case:
    """The same placement of all other tables."""
    placed = case.placed
    kept = np.flatnonzero(placed.blocks.table != table)
    blocks = placed.blocks.take(kept)
    blocks = replace(blocks, table=np.where(blocks.table > table, blocks.table - 1, blocks.table))
    fewer = PlacedShards(blocks, placed.rank[kept], placed.rows[kept], placed.opens_block[kept])
    return replace(case, tables=case.tables[:table] + case.tables[table + 1 :], placed=fewer)


@pytest.mark.parametrize("software", ["torchrec", "hugectr"])
@pytest.mark.parametrize("sharding", ["table_wise", "row_wise"])
def test_every_batch_takes_longer_than_the_one_before(sharding: str, software: str) -> None:
    """On four A100, from 64 to 65,536 samples by an eighth more each: through all protocols of an exchange."""
    cluster = topology(node_group("a", ranks=4))
    tables = tuple({"rows": 100_000, "dim": 128, "pooling_factor": 2.0} for _ in range(4))
    fields = {"software": software, "pipeline": "none"}
    model = cost_model("physical", cluster, workload(tables, **fields))
    shards = random_shards(model, np.random.default_rng(0), (SHARDINGS.index(sharding),))
    case = Case(cluster, tables, fields, shards)
    batches = dict.fromkeys(int(64 * 1.125**power) // 4 * 4 for power in range(60))
    each = [replace(case, fields={**fields, "global_batch": batch}) for batch in batches]
    for steps in ([one.estimated_s for one in each], [one.played_s for one in each]):
        assert steps == sorted(steps)


@pytest.mark.parametrize("sharding", ["data_parallel", "table_wise", "row_wise"])
@pytest.mark.parametrize("software", ["torchrec", "hugectr", "distributed-embeddings"])
def test_a_table_beside_one_whose_sums_go_around_a_ring(sharding: str, software: str) -> None:
    """Whatever it is, it takes nothing of what these wait for away: neither estimated nor played. HugeCTR's step was
    estimated 0.3 % shorter with it while the ring was spread over the bytes of all tables."""
    cluster = topology(node_group("a", nodes=6, ranks=1))
    tables = tuple({"rows": 10_000, "dim": dim, "pooling_factor": 2.0} for dim in (64, 64))
    fields = {"software": software, "mode": "inference", "global_batch": 96}
    held = {"data_parallel": range(6), "table_wise": range(1), "row_wise": range(6)}[sharding]
    ranks = np.array([*range(6), *held])
    table = np.repeat([0, 1], [6, len(held)])
    cut = np.repeat([SHARDINGS.index("row_wise"), SHARDINGS.index(sharding)], [6, len(held)])
    rows = np.where((table == 1) & (sharding != "row_wise"), 10_000, np.where(ranks < 5, 1667, 1665))
    blocks = Blocks(table, cut, np.full(len(ranks), HBM), np.full(len(ranks), 64), np.zeros(len(ranks)))
    both = PlacedShards(blocks, ranks, rows, ranks == 0)
    first = PlacedShards(blocks.take(np.arange(6)), ranks[:6], rows[:6], ranks[:6] == 0)
    expect_no_shorter(Case(cluster, tables, fields, both), Case(cluster, tables[:1], fields, first))


@pytest.mark.parametrize(
    ("pipeline", "parameters"),
    [("none", 3_000_000), ("sparse-dist", 1_000), ("prefetch", 1_000), ("prefetch", 3_000_000)],
)
def test_a_table_that_lengthens_no_update_but_the_mean(pipeline: str, parameters: int) -> None:
    """Of sums, or of the next ids, that outlast the dense part, no update hides more with a table more on a rank that
    has less of it than another: neither estimated nor played. While windows were those of evenly spread tables, such
    steps were estimated up to 0.8 % shorter with it."""
    cluster = topology(node_group("a", nodes=4, ranks=1, nic_bytes_per_s=1e9))
    of_ranks = ((128, 60.0), (4, 200.0), (128, 50.0))
    tables = tuple({"rows": 1_000_000, "dim": dim, "pooling_factor": ids} for dim, ids in of_ranks)
    dense = {"macs_per_sample": 10_000, "parameters": parameters}
    fields = {"pipeline": pipeline, "global_batch": 32_768, "overhead": "0us", "dense": dense}
    each, held = np.arange(3), np.ones(3, dtype=bool)
    table_wise = SHARDINGS.index("table_wise")
    widths = np.array([dim for dim, _ in of_ranks])
    blocks = Blocks(each, np.full(3, table_wise), np.full(3, HBM), widths, np.zeros(3))
    placed = PlacedShards(blocks, each, np.full(3, 1_000_000), held)
    fewer = PlacedShards(blocks.take(each[:2]), each[:2], placed.rows[:2], held[:2])
    with_it, without = Case(cluster, tables, fields, placed), Case(cluster, tables[:2], fields, fewer)
    expect_no_shorter(with_it, without)
