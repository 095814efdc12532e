"""The query that `planner profile --sql spark` prints, run by Spark itself on data of known counts."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from cost_models.workload.profiles import read_profiles

ROWS = {"items": 5_000, "user's": 2_000, "hist`ory": 300}
"""Ids are drawn below these; names hold what a dialect quotes."""
SAMPLES = 4_000


@pytest.fixture(scope="module")
def lists():
    """The lists of each feature; some are missing, some are empty, some ids are missing."""
    rng = np.random.default_rng(1)
    found = {}
    for name, rows in ROWS.items():
        weights = 1 / np.arange(1, rows + 1)
        lengths = rng.poisson(6, SAMPLES)
        ids = rng.choice(rows, lengths.sum(), p=weights / weights.sum()).tolist()
        ends = np.cumsum(lengths)
        found[name] = [
            None if number % 97 == 0 else [None if at % 53 == 0 else ids[at] for at in range(end - length, end)]
            for number, (length, end) in enumerate(zip(lengths.tolist(), ends.tolist(), strict=True))
        ]
    return found


@pytest.fixture(scope="module")
def logs(lists, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("spark") / "logs"
    folder.mkdir()
    columns = {name: pa.array(each, pa.list_(pa.int64())) for name, each in lists.items()}
    parquet.write_table(pa.table(columns), folder / "part-0.parquet", row_group_size=1_000)
    return folder


@pytest.fixture(scope="module")
def results(logs):
    """Spark's answer in the folders that it writes: Parquet and CSV, several files each."""
    query = planner("profile", "logs", "--sql", "spark", "--columns", ",".join(ROWS))
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    try:
        spark.read.parquet(str(logs)).createOrReplaceTempView("logs")
        counts = spark.sql(query)
        counts.write.parquet(str(logs.parent / "parquet"))
        counts.write.option("header", True).csv(str(logs.parent / "csv"))
        rows = [tuple(row) for row in counts.collect()]
    finally:
        spark.stop()
    return rows


def planner(*words: object) -> str:
    """What the command prints."""
    command = [sys.executable, "-m", "planner", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_spark_counts_what_is_there(lists, results):
    """Reads, lengths, the least and the largest id of each feature, by a count of our own."""
    truth = {}
    for name, each in lists.items():
        ids = [[i for i in sample or () if i is not None] for sample in each]
        reads = Counter(i for sample in ids for i in sample)
        truth |= {(name, "reads", n): count for n, count in Counter(reads.values()).items()}
        truth |= {(name, "length", n): count for n, count in Counter(map(len, ids)).items()}
        truth |= {(name, "least", min(reads)): 1, (name, "largest", max(reads)): 1}
    assert {(name, kind, value): count for name, kind, value, count in results} == truth


@pytest.mark.parametrize("folder", ["parquet", "csv"])
@pytest.mark.usefixtures("results")
def test_the_profile_is_that_of_the_logs(logs, folder):
    """Equal rows, ids of a sample and access curves; distinct ids of batches are not in the counts."""
    assert len(list((logs.parent / folder).glob("part-*"))) > 1
    found, direct = logs.parent / f"of-{folder}.csv", logs.parent / "direct.csv"
    planner("profile", logs.parent / folder, "--dim", 64, "-q", "-o", found)
    planner("profile", logs, "--batch", 1_000, "--dim", 64, "-q", "-o", direct)
    of_batches = ("unique_fraction", "unique_fraction_batch")
    assert list(read_profiles(found).data) == [
        {key: value for key, value in row.items() if key not in of_batches} for row in read_profiles(direct).data
    ]
