"""`planner run`: a training run on the command line, its files and its page."""

import json
from pathlib import Path

import pytest
import yaml

from planner.runs.results import read_result

TABLES = [{"name": f"t{i}", "rows": 200_000, "dim": 64, "pooling_factor": 4} for i in range(2)]


@pytest.fixture
def run_file(tmp_path: Path) -> Path:
    """Two stages on DGX A100, the second with a choice of nodes."""
    workload = {"name": "small", "global_batch": 8192, "tables": TABLES}
    dense = {"macs_per_sample": 10**6, "parameters": 10**6}
    (tmp_path / "small.yaml").write_text(yaml.safe_dump({**workload, "dense": dense}))
    stages = [
        {"name": "warm-up", "steps": 100, "nodes": 1},
        {
            "name": "main",
            "global_batch": 16384,
            "samples": 10**7,
            "nodes": [1, 2],
            "line_search": {"forward_passes": 2},
        },
    ]
    run = {"name": "two stages", "topology": "dgx-a100-80", "workload": "small.yaml", "policy": "hbm.yaml"}
    run["prices"] = "example-2025-01"
    (tmp_path / "hbm.yaml").write_text("tiers: hbm")
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump({**run, "stages": stages, "search": {"effort": 0, "gap": "50%"}}, sort_keys=False))
    return file


def test_a_run_is_printed_written_and_drawn(run, run_file, tmp_path):
    """Findings and stages within 80 columns, the same figures in JSON and CSV, a page, and plans that verify."""
    outputs = ("-o", tmp_path / "run.json", "--report", tmp_path / "run.html", "--plans", tmp_path / "plans")
    done = run("run", run_file, *outputs, "-q")
    assert done.exit_code == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "warm-up" in done.stdout
    result = read_result(tmp_path / "run.json")
    assert result.to_json() == (tmp_path / "run.json").read_text()
    assert [stage.name for stage in result.stages] == ["warm-up", "main"]
    page = (tmp_path / "run.html").read_text()
    for title in ("Schedule", "Where the time goes", "When to add nodes"):
        assert title in page
    assert run("verify", tmp_path / "plans" / "plan-1.json").exit_code == 0
    assert run("report", tmp_path / "run.json", "-o", tmp_path / "again.html", "-q").exit_code == 0
    as_json = run("run", run_file, "--format", "json", "-q")
    assert as_json.stdout == (tmp_path / "run.json").read_text()
    header, *rows = run("run", run_file, "--format", "csv", "-q").stdout.splitlines()
    assert "line_search_s" in header.split(",")
    assert len(rows) == 2


def test_axes_make_a_table_of_runs(run, run_file, tmp_path):
    """One row a run; plans are not kept."""
    data = yaml.safe_load(run_file.read_text()) | {"axes": {"stages.0.steps": [100, 200]}}
    run_file.write_text(yaml.safe_dump(data))
    done = run("run", run_file, "-o", tmp_path / "runs.csv", "--report", tmp_path / "runs.html", "-q")
    assert done.exit_code == 0, done.stderr
    assert "Best: stages.0.steps 100" in done.stdout
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 3
    assert json.loads(run("run", run_file, "--format", "json", "-q").stdout)["kind"] == "run_grid"
    assert run("run", run_file, "--plans", tmp_path / "plans").exit_code == 2


def test_limits_that_nothing_keeps_exit_with_4(run, run_file):
    """And the reason is printed."""
    data = yaml.safe_load(run_file.read_text()) | {"limits": {"seconds": "1ms"}}
    run_file.write_text(yaml.safe_dump(data))
    done = run("run", run_file, "-q")
    assert done.exit_code == 4
    assert "There is no way to run it" in done.stdout


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("samples: 10000000", "samples: 1e7.5", "stages.1.samples"),
        ("nodes: 1\n", "nodes: one\n", "stages.0.nodes"),
        ("steps: 100", "steps: 100\n  epochs: 3", "stages.0.epochs"),
    ],
)
def test_faults_of_a_run_are_located(run, run_file, old, new, words):
    """File, line, key."""
    text = run_file.read_text()
    assert old in text
    run_file.write_text(text.replace(old, new, 1))
    done = run("run", run_file, "-q")
    assert done.exit_code == 3
    assert f"{run_file}:" in done.stderr.replace("\n", "")
    assert words in done.stderr.replace("\n", "")


def test_a_file_of_the_run_is_not_overwritten(run, run_file):
    """Neither the run's own file nor one that it names."""
    workload = run_file.with_name("small.yaml")
    done = run("run", run_file, "--report", workload, "-q")
    assert done.exit_code == 2
    assert "is an input of RUN" in " ".join(done.stderr.split())


def test_schema_of_a_run(run):
    """It describes the keys of a stage."""
    schema = json.loads(run("schema", "run").stdout)
    assert schema["$defs"]["Stage"]["properties"]["nodes"]["description"]


@pytest.mark.slow
def test_the_shipped_run_is_that_of_the_page(run):
    """What the how-to page quotes is what the command prints."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "training-runs.md").read_text()
    (quoted,) = [block for block in page.split("```") if block.startswith("\nThe run takes")]
    printed = run("run", "growing-batch", "-q").stdout.splitlines()
    assert [line for line in quoted.strip().splitlines() if line not in printed] == []
