"""Numbering of split tables: a permutation, the hottest rows hot, each row block its part; what plans say of it."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_models.shards import MEMORY_TIERS, block_rows
from planner.document import remaps
from planner.document.plan import Plan, Remap, TablePlan
from planner.document.remaps import hot_row_count, hot_rows_of_shards, hottest, numbering_fault, rows_of_ids, sha256_of
from planner.document.shards import Shards

counted = st.lists(st.integers(0, 4) | st.integers(2**16 - 2, 2**40), min_size=1, max_size=60)


def split_table(rows: int, share: float, ranks: int = 1, column_blocks: int = 1) -> TablePlan:
    """A table whose column blocks are each cut by rows over as many ranks."""
    held = block_rows(np.array(rows), ranks, np.arange(ranks))
    matrix = [
        [rank, start, size, 8 * block, 8, *(0 for _ in MEMORY_TIERS)]
        for block in range(column_blocks)
        for rank, (start, size) in enumerate(zip(np.cumsum(held) - held, held, strict=True))
    ]
    shards = Shards.from_matrix(np.array(matrix))
    hot_rows = hot_row_count(rows, share)
    return TablePlan(
        name="t",
        sharding="table_wise",
        tier="ddr_split",
        dtype="fp32",
        cache_fraction=share,
        remap=Remap(hot_rows=hot_rows, ids="ranked"),
        shards=replace(shards, hot_rows=hot_rows_of_shards(shards, hot_rows, rows)),
    )


def hot_rows(table: TablePlan) -> set[int]:
    """The rows in HBM, as a loader reads them from the shards."""
    shards = json.loads(table.model_dump_json())["shards"]
    return {row for shard in shards for row in range(shard["row_start"], shard["row_start"] + shard["hot_rows"])}


@settings(deadline=None)
@given(counted, st.floats(0, 1), st.integers(1, 7), st.integers(1, 2))
def test_hot_rows_are_the_hottest_and_no_row_is_shared(
    counts: Sequence[int], share: float, ranks: int, column_blocks: int
) -> None:
    """A permutation; who sorts all ids finds the same hot ones; the same in chunks of a few ids."""
    array = np.array(counts)
    table = split_table(len(array), share, ranks, column_blocks)
    assert table.remap is not None
    with mock.patch.object(remaps, "CHUNK", 7):
        hot = hottest(array, table.remap.hot_rows)
    assert hot.tolist() == np.lexsort((np.arange(len(array)), -array))[: table.remap.hot_rows].tolist()
    found = rows_of_ids(table.shards, hot)
    assert found.dtype == np.int32
    assert sorted(found.tolist()) == list(range(len(array)))
    assert {int(row) for row in found[hot]} == hot_rows(table)
    assert numbering_fault(table, len(array)) is None


@settings(deadline=None)
@given(st.integers(1, 10**13), st.floats(0, 1), st.integers(1, 64))
def test_row_blocks_hold_their_part_of_the_hot_rows(rows: int, share: float, ranks: int) -> None:
    """In whole rows that sum up to those of the table, less than one off, and never more than the block has."""
    table = split_table(rows, share, ranks)
    assert table.remap is not None
    found = table.shards.hot_rows
    assert found is not None
    assert found.sum() == table.remap.hot_rows
    assert (found <= table.shards.rows).all()
    for hot, held in zip(found.tolist(), table.shards.rows.tolist(), strict=True):
        assert abs(hot * rows - table.remap.hot_rows * held) < rows


def test_ranked_ids_stay_where_they_are_without_row_blocks() -> None:
    """With row blocks they are dealt in turn: hot ones first, the first of each block, then the others."""
    assert rows_of_ids(split_table(9, 0.5).shards, np.arange(5)).tolist() == list(range(9))
    table = split_table(9, 0.5, ranks=2)
    assert table.shards.hot_rows is not None
    assert table.shards.hot_rows.tolist() == [2, 3]
    assert rows_of_ids(table.shards, np.arange(5)).tolist() == [0, 5, 1, 6, 7, 2, 8, 3, 4]


def test_reads_are_spread_over_row_blocks() -> None:
    """Wherever the ids of a power law are, hot rows of two blocks differ by the reads of the hottest row at most."""
    rows, ranks = 100_000, 8
    reads = np.arange(1, rows + 1) ** -0.8
    counts = (1e9 * reads / reads.sum()).astype(np.int64)[np.random.default_rng(3).permutation(rows)]
    table = split_table(rows, 0.1, ranks)
    assert table.remap is not None
    hot = hottest(counts, table.remap.hot_rows)
    of_block = np.bincount(rows_of_ids(table.shards, hot)[hot] // -(-rows // ranks), weights=counts[hot])
    assert len(of_block) == ranks
    assert np.ptp(of_block) <= counts.max()


def test_a_split_table_comes_back_as_it_was() -> None:
    """From its JSON, with its hot rows; and tables that are not split have no keys for them."""
    table = split_table(1000, 0.3, ranks=3, column_blocks=2)
    written = table.model_dump_json()
    assert TablePlan.model_validate_json(written) == table
    assert TablePlan.model_validate_json(written.replace('"hot_rows":100}', '"hot_rows":99}', 1)) != table
    assert list(json.loads(written)["shards"][0])[-1] == "hot_rows"
    assert json.loads(f"[{table.shards.to_json()}]") == json.loads(written)["shards"]
    whole = table.model_copy(update={"remap": None, "shards": replace(table.shards, hot_rows=None)})
    assert "remap" not in json.loads(whole.model_dump_json())
    assert "hot_rows" not in whole.model_dump_json()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"remap": None}, "go with split tables"),
        ({"tier": "ddr_cached"}, "go with split tables"),
        ({"remap": Remap(hot_rows=299, ids="ranked")}, "has 300 hot rows"),
        ({"cache_fraction": 0.31}, "has 310 hot rows"),
    ],
)
def test_wrong_hot_rows_are_found(change: dict[str, object], said: str) -> None:
    assert said in str(numbering_fault(split_table(1000, 0.3, ranks=3).model_copy(update=change), 1000))


def test_hot_rows_of_shards_are_checked() -> None:
    """Moved from one row block to another, or left out."""
    table = split_table(1000, 0.3, ranks=3)
    assert table.shards.hot_rows is not None
    for hot, said in (
        (table.shards.hot_rows + np.array([1, -1, 0]), "not their parts"),
        (None, "go with split tables"),
    ):
        changed = table.model_copy(update={"shards": replace(table.shards, hot_rows=hot)})
        assert said in str(numbering_fault(changed, 1000))


@pytest.mark.parametrize("item", [{"hot_rows": -1}, {"hot_rows": 0.5}, None])
def test_shards_have_hot_rows_all_or_none(item: dict[str, object] | None) -> None:
    """Whole numbers."""
    document = json.loads(split_table(10, 0.5, ranks=2).model_dump_json())
    if item is None:
        del document["shards"][0]["hot_rows"]
    else:
        document["shards"][0] |= item
    with pytest.raises(ValueError, match="shard 1 has unknown keys" if item is None else "shard 0 must hold whole"):
        TablePlan.model_validate(document)


@pytest.mark.parametrize(
    "keys", [{"ids": "mapped"}, {"ids": "ranked", "path": "t.npy"}, {"ids": "mapped", "path": "t"}]
)
def test_files_go_with_mapped_ids(keys: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="go with mapped ids"):
        Remap.model_validate({"hot_rows": 1, **keys})


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.array([0, 1, 1]), "gives 1 rows no id"),
        (np.array([0, 1, 3]), "not below 3"),
        (np.array([0, 1, -1]), "not below 3"),
        (np.array([0, 1]), "is not an array of 3 int32 or int64"),
        (np.array([[0, 1, 2]]), "is not an array of 3 int32 or int64"),
        (np.array([0.0, 1.0, 2.0]), "is not an array of 3 int32 or int64"),
        (np.array([2, 0, 1], dtype=np.int32), None),
    ],
)
def test_files_of_remaps_are_checked(array: np.ndarray, said: str | None, tmp_path: Path) -> None:
    """Shape, type, and that no two ids share a row; and that it is the file of the plan."""
    file = tmp_path / "t.npy"
    np.save(file, array)
    table = split_table(3, 0.5)
    mapped = {"hot_rows": 2, "ids": "mapped", "path": "t.npy", "sha256": sha256_of(file)}
    plan = Plan.model_construct(tables=(table.model_copy(update={"remap": Remap.model_validate(mapped)}),))
    found = list(remaps.faults_of_files(plan, tmp_path))
    assert [fault.partition("t.npy ")[2] for fault in found] == ([] if said is None else [mock.ANY])
    assert said is None or said in found[0]
    np.save(file, array[::-1] if said is None else array[:0])
    assert len(list(remaps.faults_of_files(plan, tmp_path))) == 1
    file.write_bytes(b"rows")
    assert "is not a .npy file" in next(remaps.faults_of_files(plan, tmp_path))
    file.unlink()
    assert "cannot be read" in next(remaps.faults_of_files(plan, tmp_path))
