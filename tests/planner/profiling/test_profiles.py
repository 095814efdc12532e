"""Profiles of a small log: exact figures, the same from every engine, and after an interruption."""

from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from planner.profiling.engines.dask import dask_engine
from planner.profiling.engines.duckdb import count_in_duckdb
from planner.profiling.engines.local import count_locally
from planner.profiling.run import Engine, Settings, profile
from planner.profiling.sources.files import data_files
from planner.profiling.sources.parquet import ParquetSource
from planner.profiling.sources.tables import TableSource

ROWS = {"a": 300, "b": 20_000, "c": 400_000}
SAMPLES = 6_000


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three features, with a session of three samples each, in two files of four row groups."""
    folder = tmp_path_factory.mktemp("log")
    rng = np.random.default_rng(3)
    for number in range(2):
        columns: dict[str, pa.Array] = {"user": pa.array(np.arange(SAMPLES // 2) // 3 + number * SAMPLES)}
        for name, rows in ROWS.items():
            lengths = rng.integers(0, 12, SAMPLES // 2)
            ids = (rows * rng.random(lengths.sum()) ** 3).astype(np.int64)
            columns[name] = pa.ListArray.from_arrays(np.append(0, np.cumsum(lengths)).astype(np.int32), pa.array(ids))
        parquet.write_table(pa.table(columns), folder / f"part-{number}.parquet", row_group_size=SAMPLES // 8)
    return folder


def source(log: Path) -> TableSource:
    files = ParquetSource(tuple(data_files([str(log)])))
    return TableSource(files, {name: (name,) for name in ROWS} | {"both": ("a", "c")})


def profiles(log: Path, engine: Engine = count_locally, **settings: object) -> list[dict[str, object]]:
    how = Settings(**({"batch": 1000, "memory_bytes": 1 << 20} | settings))
    found = profile(source(log), {}, how, engine=engine)
    assert found is not None
    return [table.profile() for table in found]


def test_exact_where_all_ids_fit(log: Path) -> None:
    table = parquet.read_table(log)
    for found in profiles(log, memory_bytes=1 << 30, session="user"):
        names = ("a", "c") if found["name"] == "both" else (str(found["name"]),)
        rows = zip(*(table[name].to_pylist() for name in names), strict=True)
        lists = [[each for ids in row for each in ids] for row in rows]
        ids = [each for row in lists for each in row]
        lengths = np.array(list(map(len, lists)))
        assert found["rows"] == max(ids) + 1
        assert found["pooling_factor"] == pytest.approx(lengths.mean(), rel=1e-5)
        assert found["pooling_std"] == pytest.approx(lengths.std(), rel=1e-5)
        batches = [lists[start : start + 1000] for k in range(8) if (start := k * 750) + 1000 <= SAMPLES]
        distinct = sum(len({each for row in batch for each in row}) for batch in batches)
        assert found["unique_fraction"] == pytest.approx(distinct / sum(len(r) for b in batches for r in b), rel=1e-5)
        top = sum(count for _, count in Counter(ids).most_common(max(found["rows"] // 10, 1)))
        curve = np.array([(0.0, 0.0), *found["access_cdf"]])
        assert np.interp(0.1, curve[:, 0], curve[:, 1]) == pytest.approx(top / len(ids), abs=0.002)
        assert found["samples_per_session"] == pytest.approx(3, rel=0.01)


@pytest.mark.parametrize("memory_bytes", [1 << 20, 1 << 30])
def test_duckdb_counts_the_same(log: Path, memory_bytes: int) -> None:
    assert profiles(log, count_in_duckdb, memory_bytes=memory_bytes) == profiles(log, memory_bytes=memory_bytes)


@pytest.mark.slow
def test_a_cluster_counts_the_same(log: Path) -> None:
    assert profiles(log, dask_engine(None)) == profiles(log)


def test_threads_do_not_matter(log: Path) -> None:
    assert profiles(log, workers=7) == profiles(log, workers=1)


@pytest.mark.parametrize("after", [0, 1, 5, 31])
def test_an_interrupted_count_goes_on(log: Path, tmp_path: Path, after: int) -> None:
    file = tmp_path / "progress"
    settings = Settings(batch=1000, memory_bytes=1 << 20, workers=1, progress_file=file)
    seen: list[float] = []
    first = profile(source(log), {}, settings, stop=lambda: len(seen) >= after, shown=lambda s, _: seen.append(s))
    assert first is None
    assert file.exists()
    shares: list[float] = []
    again = profile(source(log), {}, settings, resumed=shares.append)
    assert again is not None
    assert len(shares) == 1
    assert shares[0] == pytest.approx(len(seen) / 32)
    assert [table.profile() for table in again] == profiles(log)
    assert not file.exists()


@pytest.mark.parametrize("damage", ["cut", "other", "none"])
def test_progress_of_other_data_is_not_used(log: Path, tmp_path: Path, damage: str) -> None:
    file = tmp_path / "progress"
    settings = Settings(batch=1000, memory_bytes=1 << 20, workers=1, progress_file=file)
    assert profile(source(log), {}, settings, stop=lambda: True) is None
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-100])
    other = Settings(**{**vars(settings), "batch": 900}) if damage == "other" else settings
    shares: list[float] = []
    found = profile(source(log), {}, other, resumed=shares.append)
    assert found is not None
    assert shares == ([0.0] if damage == "none" else [])
    assert [table.profile() for table in found] == profiles(log, batch=other.batch)


def test_any_flipped_byte_of_progress_is_a_miss_or_changes_nothing(log: Path, tmp_path: Path) -> None:
    """The file is an archive whose parts carry checksums: what is damaged counts as absent, and nothing is raised."""
    file = tmp_path / "progress"
    settings = Settings(batch=1000, memory_bytes=1 << 20, workers=1, progress_file=file)
    assert profile(source(log), {}, settings, stop=lambda: True) is None
    whole = file.read_bytes()
    random = Random(0)
    for _ in range(12):
        damaged = bytearray(whole)
        damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
        file.write_bytes(damaged)
        found = profile(source(log), {}, settings)
        assert found is not None
        assert [table.profile() for table in found] == profiles(log)


def test_a_share_of_the_data_is_spread_over_it(log: Path) -> None:
    found = profile(source(log), {}, Settings(batch=500, share=0.5))
    assert found is not None
    lengths = found[0].statistics.lengths
    assert lengths is not None
    assert lengths.total == SAMPLES // 2


def test_a_batch_longer_than_the_log_says_so(log: Path) -> None:
    found = profile(source(log), {}, Settings(batch=SAMPLES + 1))
    assert found is not None
    assert "unique_fraction" not in found[0].profile()
    assert any("no whole batch of 6,001 samples" in warning for warning in found[0].warnings)
