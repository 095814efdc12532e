"""`planner profile`: tables from logs and from counts made elsewhere, and the mistakes people make."""

import json
import signal
import subprocess
import sys
from collections import Counter

import datasketches
import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import sqlglot
from pyarrow import parquet

from cost_models.workload.profiles import read_profiles
from cost_models.workload.table_profile import TableProfile
from planner.document.plan import read_plan
from topologies.documents import Document, validate

ROWS = {"items": 30_000, "users": 200_000, "countries": 200}


def drawn(rng, rows, alpha, count):
    weights = np.cumsum(np.arange(1, rows + 1.0) ** -alpha)
    return rng.permutation(rows)[np.searchsorted(weights, rng.random(count) * weights[-1])]


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """Three features of 24,000 samples."""
    folder = tmp_path_factory.mktemp("data") / "logs"
    folder.mkdir()
    rng = np.random.default_rng(2)
    columns = {"label": pa.array(rng.integers(0, 2, 24_000))}
    for (name, rows), alpha, pooling in zip(ROWS.items(), (1.1, 0.7, 1.0), (20, 4, 1), strict=True):
        lengths = rng.poisson(pooling, 24_000) if pooling > 1 else np.ones(24_000, int)
        ids = drawn(rng, rows, alpha, lengths.sum())
        columns[name] = pa.ListArray.from_arrays(np.append(0, np.cumsum(lengths)).astype(np.int32), pa.array(ids))
    parquet.write_table(pa.table(columns), folder / "part-0.parquet", row_group_size=4_000)
    return folder


def profiles(path):
    document = read_profiles(path)
    return {row["name"]: validate(Document(dict(row), str(path)), TableProfile) for row in document.data}


def test_logs_become_a_file_of_profiles(run, logs, tmp_path):
    done = run("profile", logs, "--dim", 64, "--batch", 4000, "-o", tmp_path / "t.csv")
    assert done.exit_code == 0, done.stderr
    assert done.stderr.startswith("left out: label (no lists of ids; name columns with --columns)\n")
    found = profiles(tmp_path / "t.csv")
    assert list(found) == list(ROWS)
    assert found["countries"].rows == 200
    assert found["items"].pooling_factor == pytest.approx(20, rel=0.01)
    assert found["items"].dim == 64
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["table", "rows", "rows", "are", "ids", "spread", "distinct", "top", "1%", "top", "10%"]
    assert max(map(len, lines)) <= 80
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("suffix", [".yaml", ".parquet"])
def test_every_kind_of_file_says_the_same(run, logs, tmp_path, suffix):
    words = ("profile", logs, "--dim", 64, "--batch", 4000, "-q", "-o")
    for each in (".csv", suffix):
        assert run(*words, tmp_path / f"t{each}").exit_code == 0
    assert profiles(tmp_path / f"t{suffix}") == profiles(tmp_path / "t.csv")


def test_a_plan_from_a_profile_is_that_from_exact_counts(run, logs, tmp_path):
    """Within 1 %, below HBM, where the curve decides what a cache serves; counts are cut to 1,024 a table."""
    data = parquet.read_table(logs)
    exact = []
    for name, rows in ROWS.items():
        lists = data[name].combine_chunks()
        ids, lengths = lists.flatten().to_numpy(), np.diff(lists.offsets.to_numpy())
        reads = np.sort(np.bincount(ids, minlength=rows))[::-1]
        seen = int(ids.max()) + 1
        at = np.unique(np.linspace(1, seen, 400).astype(int))
        curve = [(float(rank / seen), float(reads[:rank].sum() / len(ids))) for rank in at]
        curve = [point for point in curve if point[1] < 1 - 1e-12] + [(1.0, 1.0)]
        ends = np.cumsum(lengths)[3999::4000]
        batches = np.split(ids, ends[:-1])
        distinct = sum(len(np.unique(batch)) for batch in batches) / len(ids)
        table = {"name": name, "rows": seen, "dim": 64, "pooling_factor": float(lengths.mean())}
        exact.append({**table, "access_cdf": curve, "unique_fraction": distinct})
    (tmp_path / "exact.json").write_text(json.dumps(exact))
    found = run("profile", logs, "--dim", 64, "--batch", 4000, "--memory", "1MiB", "-q", "-o", tmp_path / "found.csv")
    assert found.exit_code == 0
    steps = []
    for name in ("exact.json", "found.csv"):
        (tmp_path / "w.yaml").write_text(f"name: m\nglobal_batch: 4000\ntables: {name}\n")
        words = (
            "plan",
            "-t",
            "a30-8",
            "-w",
            tmp_path / "w.yaml",
            "--tiers",
            "ddr_cached",
            "-q",
            "-o",
            tmp_path / "p.json",
        )
        done = run(*words)
        assert done.exit_code == 0, done.stderr
        plan = read_plan(tmp_path / "p.json")
        steps.append(plan.objective.step_s)
    assert steps[1] == pytest.approx(steps[0], rel=0.01)


def test_the_printed_query_gives_the_same_profile(run, logs, tmp_path):
    """Run by DuckDB itself, its result read back."""
    query = run("profile", f"'{logs}/*.parquet'", "--sql", "duckdb", "--columns", ",".join(ROWS))
    assert query.exit_code == 0
    counts = duckdb.execute(query.stdout).df()
    counts.to_csv(tmp_path / "counts.csv", index=False)
    counts.to_csv(tmp_path / "counts.csv.gz", index=False)
    counts.to_parquet(tmp_path / "counts.parquet")
    parts = tmp_path / "parts"  # as Spark writes a result: cut anywhere, with files without rows and of its own
    parts.mkdir()
    for number, start in enumerate(range(0, len(counts) + 7, 7)):
        counts[start : start + 7].to_parquet(parts / f"part-{number:05d}.snappy.parquet")
    (parts / "_SUCCESS").touch()
    (parts / ".part-00000.snappy.parquet.crc").write_bytes(b"crc")
    words = ("profile", "--dim", 64, "-q", "-o", tmp_path / "t.csv")
    assert run(*words, logs, "--batch", 4000).exit_code == 0
    direct = profiles(tmp_path / "t.csv")
    for name in ("counts.csv", "counts.csv.gz", "counts.parquet", "parts"):
        done = run(*words, tmp_path / name)
        assert done.exit_code == 0, done.stderr
        again = profiles(tmp_path / "t.csv")
        assert {
            n: t.model_copy(update={"unique_fraction": None, "unique_fraction_batch": None}) for n, t in direct.items()
        } == again
    twice = run(*words, parts, tmp_path / "counts.csv")
    assert twice.exit_code == 3
    assert "query all data at once" in " ".join(twice.stderr.split())


@pytest.mark.parametrize("dialect", ["duckdb", "spark", "bigquery"])
def test_queries_in_every_dialect(run, dialect, tmp_path):
    """What the query of each engine means, as sqlglot understands its SQL, run by DuckDB; lists and ids may be missing,
    names hold quotes."""
    rng = np.random.default_rng(0)
    name = 'it`s a "name"'
    lists = [
        None if length == 0 else [None if i % 7 == 0 else i for i in rng.integers(0, 40, length)]
        for length in rng.integers(0, 6, 400)
    ]
    pd.DataFrame({name: lists}).to_parquet(tmp_path / "logs.parquet")
    query = run("profile", "logs", "--sql", dialect, "--columns", name)
    assert query.exit_code == 0, query.stderr
    connection = duckdb.connect()
    connection.execute(f"CREATE VIEW logs AS SELECT * FROM '{tmp_path}/logs.parquet'")
    (translated,) = sqlglot.transpile(query.stdout, read=dialect, write="duckdb")
    counts = connection.execute(translated).fetchall()
    assert {feature for feature, *_ in counts} == {name}
    found = {(key, value): count for _, key, value, count in counts}
    ids = [[i for i in each or () if i is not None] for each in lists]
    reads = Counter(i for each in ids for i in each)
    truth = {("reads", n): count for n, count in Counter(reads.values()).items()}
    truth |= {("length", n): count for n, count in Counter(map(len, ids)).items()}
    truth |= {("least", min(reads)): 1, ("largest", max(reads)): 1}
    assert found == truth
    assert max(map(len, query.stdout.splitlines())) < 200


def test_categories_of_nvtabular(run, tmp_path):
    sizes = np.sort(np.random.default_rng(0).zipf(1.3, 500))[::-1]
    frame = pd.DataFrame({"items": [None, *range(500)], "items_size": [7, *sizes]})
    frame.to_parquet(tmp_path / "unique.items.parquet")
    (tmp_path / "w.csv").write_text("name,dim,pooling_factor\nitems,16,3.5\n")
    words = ("profile", tmp_path / "unique.items.parquet", "-q", "-o", tmp_path / "t.csv")
    missing = run(*words, "--dim", 16)
    assert missing.exit_code == 3
    assert "items.pooling_factor: is missing" in missing.stderr
    assert run(*words, "--tables", tmp_path / "w.csv").exit_code == 0
    table = profiles(tmp_path / "t.csv")["items"]
    assert (table.rows, table.pooling_factor) == (501, 3.5)
    assert table.access_cdf[0] == pytest.approx((1 / 501, sizes[0] / (sizes.sum() + 7)), rel=1e-6)


def test_sketches(run, tmp_path):
    rng = np.random.default_rng(0)
    ids = drawn(rng, 5_000, 1.4, 50_000)
    frequent, distinct = datasketches.frequent_items_sketch(10), datasketches.hll_sketch(12)
    for number in ids.tolist():
        frequent.update(number)
        distinct.update(number)
    (tmp_path / "t.frequent").write_bytes(frequent.serialize(datasketches.PyLongsSerDe()))
    (tmp_path / "t.hll").write_bytes(distinct.serialize_compact())
    (tmp_path / "w.csv").write_text("name,dim,pooling_factor,rows\nt,16,2,5000\n")
    words = ("profile", tmp_path / "t.frequent", tmp_path / "t.hll", "--tables", tmp_path / "w.csv", "-q")
    done = run(*words, "-o", tmp_path / "t.csv")
    assert done.exit_code == 0, done.stderr
    curve = np.array(profiles(tmp_path / "t.csv")["t"].access_cdf)
    reads = np.sort(np.bincount(ids, minlength=5_000))[::-1]
    assert np.interp(0.02, *curve.T) == pytest.approx(reads[:100].sum() / len(ids), abs=0.02)
    (tmp_path / "t.hll").write_bytes(b"garbage")
    assert run(*words, "-o", tmp_path / "t.csv").exit_code == 3


def test_a_report_draws_the_curves(run, logs, tmp_path):
    done = run("profile", logs, "--dim", 64, "--batch", 4000, "--report", tmp_path / "r.html", "-q")
    assert done.exit_code == 0, done.stderr
    text = (tmp_path / "r.html").read_text()
    for words in ("Which share of the reads the hottest rows take", "How many ids samples have", "countries"):
        assert words in text


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        ((), 2, "name the file to write, as in -o tables.csv"),
        (("-o", "t.csv"), 2, "say how wide tables are, as in --dim 128"),
        (("-o", "t.csv", "--dim", 30), 2, "30 is not a multiple of 4"),
        (("-o", "t.json", "--dim", 32), 2, "must end in .csv, .parquet, .yaml"),
        (("-o", "t.csv", "--dim", 32, "--columns", "item"), 3, "did you mean 'items'"),
        (("-o", "t.csv", "--dim", 32, "--columns", "label,items", "--session", "user"), 3, "did you mean 'users'"),
        (("-o", "t.csv", "--dim", 32, "--sample", "0"), 2, "is not above 0 and at most 100%"),
        (
            ("-o", "t.csv", "--dim", 32, "--sample", "10%", "--engine", "duckdb"),
            2,
            "has no effect with --engine duckdb",
        ),
        (("-o", "t.csv", "--dim", 32, "--separator", "|"), 2, "has no effect with data of parquet"),
        (("-o", "t.csv", "--dim", 32, "--scheduler", "tcp://x:1"), 2, "has no effect without --engine dask"),
        (("-o", "t.csv", "--dim", 32, "--kind", "json"), 2, "parquet"),
        (("--sql", "oracle", "--columns", "a"), 2, "bigquery"),
        (("--sql", "spark"), 2, "name the columns of lists"),
        (("--sql", "spark", "--columns", "a", "-o", "t.csv"), 2, "has no effect with --sql"),
        (("--sql", "spark", "--columns", "a", "--batch", 8), 2, "has no effect with --sql"),
        (
            ("-o", "t.csv", "--tables", "w.csv"),
            3,
            "w.csv:2:1: 0.name: the data has no feature 'itemz'; did you mean 'items'",
        ),
        (("-o", "t.csv", "--tables", "w.csv", "--dim", 8), 2, "has no effect beside --tables"),
        (("-o", "t.csv", "--tables", "x.csv"), 3, "x.csv:2:10: 0.pooling_factor: is measured here; leave it out"),
        (("-o", "t.csv", "--tables", "y.csv"), 3, "y.csv:2:7: 0.dim"),
    ],
)
def test_mistakes(run, logs, tmp_path, monkeypatch, flags, code, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.csv").write_text("name,dim\nitemz,16\n")
    (tmp_path / "x.csv").write_text("name,dim,pooling_factor\nitems,16,3\n")
    (tmp_path / "y.csv").write_text("name,dim\nitems,-4\n")
    done = run("profile", logs, *flags)
    assert done.exit_code == code, done.stderr
    assert words in " ".join(done.stderr.split())
    assert not (tmp_path / "t.csv").exists()


def test_data_is_never_written_over(run, logs):
    done = run("profile", logs / "part-0.parquet", "--dim", 16, "-o", logs / "part-0.parquet")
    assert done.exit_code == 2
    assert "is an input of DATA, which would be overwritten" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    "text", ["feature,statistic,value,count\na,reads,x,1\n", "feature,statistic,value,count\na,sum,1,1\n",
             "feature,statistic,value,count\na,reads,1,1\n"]
)  # fmt: skip
def test_results_that_are_no_counts(run, tmp_path, text):
    (tmp_path / "c.csv").write_text(text)
    done = run("profile", tmp_path / "c.csv", "--dim", 16, "-o", tmp_path / "t.csv")
    assert done.exit_code == 3
    assert "c.csv" in done.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "x.csv: is empty"),
        (b"\nuser\n1\n", "x.csv:1:1: begins with an empty line"),
        ("user,item\n1,2\n".encode("utf-16"), "x.csv:1:1: is not UTF-8 text; save it as UTF-8"),
        (bytes(range(256)), "x.csv:1:1: is not UTF-8 text"),
    ],
)
def test_logs_without_a_header_that_can_be_read(run, tmp_path, content, said):
    """They are told what they are, instead of what columns their bytes would name."""
    (tmp_path / "x.csv").write_bytes(content)
    done = run("profile", tmp_path / "x.csv", "--dim", 16, "-o", tmp_path / "t.csv")
    assert done.exit_code == 3
    assert said in done.stderr


def test_an_interrupted_command_is_continued(logs, tmp_path):
    """Terminated between two tasks; the same command then ends with the bytes of an undisturbed one."""
    command = [
        sys.executable,
        "-m",
        "planner",
        "profile",
        str(logs),
        "--dim",
        "16",
        "--batch",
        "4000",
        "--workers",
        "1",
    ]
    script = (
        "import os, signal, sys\n"
        "from planner.profiling.engines import local\n"
        "real, calls = local.count_task, []\n"
        "def slow(*words):\n"
        "    calls.append(1)\n"
        "    if len(calls) == 7:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return real(*words)\n"
        "local.count_task = slow\n"
        "from planner.cli.app import main\n"
        "sys.argv[0] = 'planner'\n"
        "main()\n"
    )
    words = [*command[3:], "-o", str(tmp_path / "t.csv")]
    ended = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=False)
    assert ended.returncode == 128 + signal.SIGTERM, ended.stderr
    assert "run the same command again to go on" in ended.stderr
    assert not (tmp_path / "t.csv").exists()
    again = subprocess.run([*command, "-o", str(tmp_path / "t.csv")], capture_output=True, text=True, check=True)
    assert "going on where an earlier run stopped, at" in again.stderr
    subprocess.run([*command, "-o", str(tmp_path / "u.csv")], capture_output=True, check=True)
    assert (tmp_path / "t.csv").read_bytes() == (tmp_path / "u.csv").read_bytes()


def test_words_are_not_counted_by_duckdb(run, tmp_path):
    """It would take "07" for the number 7, where the other engines take it for a word."""
    parquet.write_table(pa.table({"f": [["07", "7"], ["x"]]}), tmp_path / "a.parquet")
    done = run("profile", tmp_path / "a.parquet", "--dim", 8, "--engine", "duckdb", "-o", tmp_path / "t.csv")
    assert done.exit_code == 3
    assert "holds words" in done.stderr
