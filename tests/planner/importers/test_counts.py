"""Counts of reads: folders of arrays and Parquet files, and what is wrong with them, by file and table."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from planner.importers.counts import CountSource
from topologies.errors import InputError

COUNTS = np.array([5, 0, 7, 1])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "a.npy", COUNTS.astype(np.uint32))
    frame = pd.DataFrame({"id": [3, 2, 0, 2], "accesses": [1, 4, 5, 3]})
    frame.to_parquet(tmp_path / "b%2Fc.parquet")
    pd.DataFrame({"accesses": COUNTS}).to_parquet(tmp_path / "d e.parquet")
    (tmp_path / "notes.txt").write_text("not counts")
    return tmp_path


def test_a_folder_has_a_file_for_each_table(folder: Path) -> None:
    """Arrays by id, or columns: ids that are missing were not read, those that stand twice are summed."""
    source = CountSource(folder)
    assert source.names == ["a", "b/c", "d e"]
    for name in source.names:
        assert source.of(name, 4).tolist() == COUNTS.tolist()


def test_one_parquet_file_has_all_tables(tmp_path: Path) -> None:
    """By the column table."""
    file = tmp_path / "counts.parquet"
    frame = pd.DataFrame({"table": list("aabab"), "id": [2, 0, 1, 3, 0], "accesses": [7, 5, 9, 1, 2]})
    frame.to_parquet(file)
    source = CountSource(file)
    assert source.names == ["a", "b"]
    assert source.of("a", 4).tolist() == COUNTS.tolist()
    assert source.of("b", 2).tolist() == [2, 9]
    with pytest.raises(InputError, match=r"counts\.parquet: b: counts the id 1, and the table's ids are 0 to 0"):
        source.of("b", 1)
    with pytest.raises(InputError, match=r"counts\.parquet: z: has no counts here"):
        source.of("z", 1)


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (COUNTS[:3], "holds 3 counts and the table has 4 rows; count the ids 0 to 3"),
        (np.append(COUNTS, 0), "holds 5 counts"),
        (COUNTS - 1, "holds the count -1, of the id 1; counts are 0 or more"),
        (COUNTS * 1.0, "holds float64"),
        (COUNTS > 0, "holds bool"),
        (COUNTS[None], r"shape \(1, 4\)"),
        (COUNTS * 0, "no row was ever read"),
        (COUNTS.astype(np.uint64) + np.uint64(2**63), "counts are at most"),
        (np.array([{}] * 4), "is not an array of numbers"),
    ],
)
def test_wrong_arrays_are_refused(array: np.ndarray, said: str, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(InputError, match=rf"a\.npy: a: .*{said}"):
        CountSource(tmp_path).of("a", 4)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"id": [0, 4], "accesses": [1, 1]}, "counts the id 4"),
        ({"id": [0, -1], "accesses": [1, 1]}, "counts the id -1"),
        ({"id": [0, 1], "accesses": [1, -1]}, "holds the count -1"),
        ({"id": [0, 1], "accesses": [1, None]}, "holds float64 in its accesses"),
        ({"id": ["x", "y"], "accesses": [1, 1]}, "in its id"),
        ({"id": [0, 1], "reads": [1, 1]}, "lacks the column accesses"),
        ({"accesses": [1, 1]}, "holds 2 counts and the table has 4 rows"),
    ],
)
def test_wrong_columns_are_refused(columns: dict[str, list[object]], said: str, tmp_path: Path) -> None:
    pd.DataFrame(columns).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(InputError, match=rf"a\.parquet: a: .*{said}"):
        CountSource(tmp_path).of("a", 4)


def test_places_that_hold_no_counts_are_refused(folder: Path, tmp_path: Path) -> None:
    """A table that is counted twice, a folder without a table, other files, half a file."""
    np.save(folder / "d e.npy", COUNTS)
    with pytest.raises(InputError, match=r"has counts in d e\.npy and d e\.parquet; keep one"):
        CountSource(folder).of("d e", 4)
    with pytest.raises(InputError, match="f: has no counts here"):
        CountSource(folder).of("f", 4)
    for name in ("notes.txt", "nowhere"):
        with pytest.raises(InputError, match="is neither a folder"):
            _ = CountSource(folder / name).names
    with pytest.raises(InputError, match=r"nowhere\.parquet: cannot be read"):
        _ = CountSource(folder / "nowhere.parquet").names
    with pytest.raises(InputError, match="lacks the column table"):
        _ = CountSource(folder / "b%2Fc.parquet").names
    (folder / "half.parquet").write_bytes((folder / "b%2Fc.parquet").read_bytes()[:100])
    with pytest.raises(InputError, match=r"half\.parquet: is not a whole Parquet file"):
        _ = CountSource(folder / "half.parquet").names
    (folder / "a.npy").write_bytes(b"")
    with pytest.raises(InputError, match=r"a\.npy: a: is not an array of numbers"):
        CountSource(folder).of("a", 4)
