"""Samples as each source reads them, against lists of Python."""

import csv
import gzip
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from planner.profiling import kinds
from planner.profiling.lists import Lists, joined
from planner.profiling.sources import text
from planner.profiling.sources.files import data_files
from planner.profiling.sources.parquet import ParquetSource
from planner.profiling.sources.source import Source
from planner.profiling.sources.tables import TableSource
from topologies.errors import InputError

RNG = np.random.default_rng(1)


def read(source: Source, feature: str) -> list[list[int]]:
    parts: list[Lists] = [
        lists
        for task in source.tasks()
        if feature in task.features
        for name, lists in source.read(task)
        if name == feature
    ]
    whole = joined(parts)
    return [part.tolist() for part in np.split(whole.ids, np.cumsum(whole.lengths)[:-1])]


LISTS = pa.list_(pa.int64())


def write(path: Path, columns: dict[str, Iterable[object]], kind: pa.DataType = LISTS) -> Path:
    arrays = {name: pa.array(values, None if name.startswith("_") else kind) for name, values in columns.items()}
    parquet.write_table(pa.table(arrays), path, row_group_size=50)
    return path


def samples(count: int, most: int = 6, ids: int = 1000) -> list[list[int]]:
    return [RNG.integers(0, ids, RNG.integers(0, most)).tolist() for _ in range(count)]


def test_parquet_lists_over_row_groups_and_files(tmp_path: Path) -> None:
    one, two = samples(130), samples(70)
    write(tmp_path / "b.parquet", {"f": two, "_label": [1] * 70})
    write(tmp_path / "a.parquet", {"f": one, "_label": [0] * 130})
    (tmp_path / "_SUCCESS").touch()
    source = ParquetSource(tuple(data_files([str(tmp_path)])))
    assert (source.features, source.left_out) == (("f",), ("_label",))
    assert [task.chunk for task in source.tasks()] == [0, 1, 2, 3, 4]
    assert read(source, "f") == one + two


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int32()), pa.large_list(pa.uint64()), pa.list_(pa.string()), pa.list_(pa.int64(), 2)], ids=str
)
def test_types_of_lists(tmp_path: Path, kind: pa.DataType) -> None:
    values = [[3, 1], [2, 2]]
    words = [[str(i) for i in ids] for ids in values] if pa.types.is_string(kind.value_type) else values
    source = ParquetSource((write(tmp_path / "a.parquet", {"f": words}, kind),))
    found = read(source, "f")
    if pa.types.is_string(kind.value_type):
        codes = {word: code for ids, own in zip(words, found, strict=True) for word, code in zip(ids, own, strict=True)}
        assert len(set(codes.values())) == 3
        assert [[codes[word] for word in ids] for ids in words] == found
        assert codes["3"] == -1913119288935626007  # the same on every machine: pandas' hash_array
    else:
        assert found == values


def test_missing_samples_and_ids_are_no_ids(tmp_path: Path) -> None:
    source = ParquetSource((write(tmp_path / "a.parquet", {"f": [[1, None, 2], None, [], [None], [3]]}),))
    assert read(source, "f") == [[1, 2], [], [], [], [3]]


def test_single_ids_are_read_where_they_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"_user": [5, None, 7], "_age": [0.5, 1.0, 2.0]})
    assert read(ParquetSource((path,), ("_user",)), "_user") == [[5], [], [7]]
    with pytest.raises(
        InputError, match="no column of lists of ids; name the columns that hold ids with --columns: _user"
    ):
        _ = ParquetSource((path,)).features
    with pytest.raises(InputError, match="holds double, which are no ids"):
        _ = ParquetSource((path,), ("_age",)).features
    with pytest.raises(InputError, match="did you mean '_user'"):
        _ = ParquetSource((path,), ("_usr",)).features


def test_a_file_that_lacks_a_column_is_named(tmp_path: Path) -> None:
    files = (write(tmp_path / "a.parquet", {"f": [[1]], "g": [[1]]}), write(tmp_path / "b.parquet", {"f": [[1]]}))
    with pytest.raises(InputError, match=r"b\.parquet: g: lacks the column g of .*a\.parquet"):
        ParquetSource(files).tasks()


def test_features_of_one_table_are_read_as_one(tmp_path: Path) -> None:
    a, b, c = samples(120), samples(120), samples(120)
    source = ParquetSource((write(tmp_path / "a.parquet", {"a": a, "b": b, "c": c}),))
    tables = TableSource(source, {"t": ("a", "b"), "u": ("c",)})
    assert read(tables, "t") == [x + y for x, y in zip(a, b, strict=True)]
    assert read(tables, "u") == c


def test_text_is_cut_anywhere_and_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = samples(400)
    path = tmp_path / "log.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["label", "items", "user"])
        writer.writerows([0, "|".join(map(str, ids)), f"u{len(ids)}"] for ids in rows)
    zipped = tmp_path / "log.csv.gz"
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    for part, piece in ((64 << 20, 8 << 20), (700, 97), (101, 8 << 20), (33, 33)):
        monkeypatch.setattr(text, "PART_BYTES", part)
        monkeypatch.setattr(text, "PIECE_BYTES", piece)
        for file in (path, zipped):
            source = kinds.opened([file], "csv", ("items", "user"), (), "|")
            assert read(source, "items") == rows
            users = read(source, "user")
            assert len({user for (user,) in users}) == len({len(ids) for ids in rows})
            assert source.left_out == ("label",)


def test_words_that_look_like_numbers_are_told_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "PIECE_BYTES", 20)
    path = tmp_path / "log.csv"
    path.write_text("id\n" + "12\n" * 30 + "ab\n" * 30)
    with pytest.raises(InputError, match="begins with whole numbers; name it with --words"):
        read(kinds.opened([path], "csv", ("id",), (), None), "id")
    found = read(kinds.opened([path], "csv", ("id",), ("id",), None), "id")
    assert len({number for (number,) in found}) == 2


def test_criteo_logs_are_known_by_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "day_0"
    line = ["1", *map(str, range(13)), *(f"{k:08x}" for k in range(26))]
    empty = [*line[:14], "", *line[15:]]
    path.write_text("\t".join(line) + "\n" + "\t".join(empty) + "\n")
    assert kinds.kind_of([path]) == "criteo"
    source = kinds.opened([path], "criteo", None, (), None)
    assert source.features == tuple(f"C{k}" for k in range(1, 27))
    assert [len(ids) for ids in read(source, "C1")] == [1, 0]
    assert [len(ids) for ids in read(source, "C26")] == [1, 1]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.parquet", b"PAR1 garbage", "is not a whole Parquet file"),
        ("a.csv.gz", b"\x1f\x8b\x08 garbage", "cannot be read"),
        ("a.xyz", b"", "does not tell by its name what it holds"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=words):
        _ = kinds.opened([path], kinds.kind_of([path]), None, (), None).features


def test_a_ragged_line_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("a,b\n1,2\n1,2,3\n")
    with pytest.raises(InputError, match="cannot be read between its bytes"):
        read(kinds.opened([path], "csv", ("a",), (), None), "a")


def test_places_without_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file") as error:
        data_files([str(tmp_path / "no"), str(tmp_path / "*.parquet"), str(tmp_path)])
    assert len(error.value.faults) == 3
