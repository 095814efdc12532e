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
        InputError,
        match="no column of lists of whole numbers or words; name those with an id each with --columns: _user",
    ):
        _ = ParquetSource((path,)).features
    with pytest.raises(InputError, match="holds double; ids are whole numbers or words"):
        _ = ParquetSource((path,), ("_age",)).features
    with pytest.raises(InputError, match="did you mean '_user'"):
        _ = ParquetSource((path,), ("_usr",)).features


def test_a_file_that_lacks_a_column_is_named(tmp_path: Path) -> None:
    files = (write(tmp_path / "a.parquet", {"f": [[1]], "g": [[1]]}), write(tmp_path / "b.parquet", {"f": [[1]]}))
    with pytest.raises(InputError, match=r"b\.parquet: g: lacks the column g of .*a\.parquet"):
        ParquetSource(files).tasks()


def test_a_file_that_has_more_columns_is_named(tmp_path: Path) -> None:
    """Unless the features were named: then what else there is, is left out on purpose."""
    files = (write(tmp_path / "a.parquet", {"f": [[1]]}), write(tmp_path / "b.parquet", {"f": [[2]], "g": [[1]]}))
    with pytest.raises(InputError, match=r"b\.parquet: g: has the column g, and .*a\.parquet has not"):
        ParquetSource(files).tasks()
    assert read(ParquetSource(files, ("f",)), "f") == [[1], [2]]


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


@pytest.mark.parametrize(
    ("cells", "separator", "lists"),
    [
        (["1|2", "3", "", "2||1|"], "|", [[1, 2], [3], [], [2, 1]]),
        (['"[1, 2]"', '"[3]"', '"[]"', '"[2, 1]"'], ",", [[1, 2], [3], [], [2, 1]]),
        (["[1  2]", "[3]", "[]", "[ 2 1]"], " ", [[1, 2], [3], [], [2, 1]]),
    ],
)
def test_lists_in_cells(tmp_path: Path, cells: list[str], separator: str, lists: list[list[int]]) -> None:
    """As pandas and numpy print them, too: brackets, spaces and what is missing are no ids."""
    (tmp_path / "t.csv").write_text("a\n" + "".join(f"{cell}\n" for cell in cells) + '"1"\n')
    assert read(kinds.opened([tmp_path / "t.csv"], kinds.CSV, ("a",), (), separator), "a") == [*lists, [1]]


@pytest.mark.parametrize(
    ("cell", "separator", "words"),
    [
        ("1|2|3", None, "holds '1|2|3': name what separates"),
        ('"[1, 2]"', None, "holds '[1, 2]': name what separates"),
        ("1;2", "|", "holds '1;2': name what separates"),
        ("12.0", None, "write them without a fraction"),
        ("7|12.0", "|", "write them without a fraction"),
    ],
)
def test_cells_that_are_no_ids_are_refused(tmp_path: Path, cell: str, separator: str | None, words: str) -> None:
    """Each would be counted as a word of its own; named with --words, it is."""
    (tmp_path / "t.csv").write_text("a\n" + f"{cell}\n" * 3)
    source = kinds.opened([tmp_path / "t.csv"], kinds.CSV, ("a",), (), separator)
    if cell == "7|12.0":
        (tmp_path / "t.csv").write_text("a\n" + "7.0|12.0\n" * 3)
    with pytest.raises(InputError) as refused:
        read(source, "a")
    assert words in str(refused.value)
    assert read(kinds.opened([tmp_path / "t.csv"], kinds.CSV, ("a",), ("a",), separator), "a")


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".zst"])
def test_compressed_text(tmp_path: Path, suffix: str) -> None:
    """The same ids; cut off or damaged it is refused."""
    text = b"a,b\n" + b"".join(b"%d|%d,1\n" % (number * 7919 % 997, number) for number in range(5_000))
    path = tmp_path / f"t.csv{suffix}"
    with pa.output_stream(str(path), compression={".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}[suffix]) as stream:
        stream.write(text)
    (tmp_path / "t.csv").write_bytes(text)
    assert kinds.kind_of([path]) == kinds.CSV
    plain = read(kinds.opened([tmp_path / "t.csv"], kinds.CSV, ("a",), (), "|"), "a")
    assert read(kinds.opened([path], kinds.CSV, ("a",), (), "|"), "a") == plain
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[len(whole) // 2 : len(whole) // 2 + 64] = bytes(64)
    for content in (whole[: len(whole) // 2], bytes(damaged), b""):
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"t\.csv"):
            read(kinds.opened([path], kinds.kind_of([path]), ("a",), (), "|"), "a")


def test_one_kind_of_ids_in_a_column(tmp_path: Path) -> None:
    """Numbers in one file and words in another would be ids of their own."""
    write(tmp_path / "a.parquet", {"f": [[1], [2]]})
    write(tmp_path / "b.parquet", {"f": [["1"], ["2"]]}, pa.list_(pa.string()))
    with pytest.raises(InputError, match=r"b\.parquet: f: holds string, and .*a\.parquet holds another kind of ids"):
        ParquetSource(tuple(data_files([str(tmp_path)]))).tasks()


def test_columns_that_hold_no_ids_are_named(tmp_path: Path) -> None:
    """With what they hold."""
    write(tmp_path / "a.parquet", {"f": [[[1]], [[2]]]}, pa.list_(LISTS))
    with pytest.raises(InputError, match=r"no column of lists of whole numbers or words, but f list"):
        ParquetSource((tmp_path / "a.parquet",)).tasks()
    with pytest.raises(InputError, match="flatten lists of lists"):
        ParquetSource((tmp_path / "a.parquet",), ("f",)).tasks()
