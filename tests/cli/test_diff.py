"""`planner diff`: stages, tiers and tables, for people, programs and pull requests."""

import csv
import io
import json

import pytest
from typer.testing import CliRunner

from planner.cli.app import app


@pytest.fixture(scope="module")
def later(starter_files, tmp_path_factory):
    """A plan of the starter with half of its tables' rows below HBM."""
    path = tmp_path_factory.mktemp("later") / "later.json"
    words = ["plan", "-t", starter_files / "topology.yaml", "--nodes", 2, "--effort", 0, "--gap", "50%", "-q"]
    words += ["--tiers", "ddr", "-o", path]
    assert CliRunner().invoke(app, [str(word) for word in words]).exit_code == 0
    return path


@pytest.fixture
def pair(plan_file, later):
    """Plans of one workload: in HBM, and with half of its tables' rows below it."""
    return plan_file, later


def test_stages_add_up_to_the_step(run, pair):
    """Each stage of both plans with its seconds, and what it adds; a plan beside itself changes nothing."""
    told = json.loads(run("diff", *pair, "--format", "json").stdout)
    documents = [json.loads(file.read_text()) for file in pair]
    for side, document in zip(("before", "after"), documents, strict=True):
        stated = {stage["name"]: stage["seconds"] for stage in document["stages"]}
        assert {each["stage"]: each[side] for each in told["stages"] if each[side] is not None} == stated
        assert told["step"][side] == document["objective"]["step_s"]
    assert sum(each["change"] for each in told["stages"]) == pytest.approx(told["step"]["change"])
    text = run("diff", *pair).stdout
    assert all(each["stage"] in text for each in [*told["stages"], told["step"]])
    same = json.loads(run("diff", pair[0], pair[0], "--format", "json").stdout)
    assert not any(each["change"] for each in [*same["stages"], same["step"]])
    assert (same["tables"], same["tiers"], same["moved_bytes"]) == ([], [], 0)


def test_tables_that_change_their_tier_are_named(run, pair):
    """By the tiers they leave and come to; the text has their number."""
    told = json.loads(run("diff", *pair, "--format", "json").stdout)
    tiers = [{table["name"]: table["tier"] for table in json.loads(file.read_text())["tables"]} for file in pair]
    changed = {(tiers[0][name], tiers[1][name], name) for name in tiers[0] if tiers[0][name] != tiers[1][name]}
    assert changed
    assert {(each["before"], each["after"], name) for each in told["tiers"] for name in each["tables"]} == changed
    assert "tier before" in run("diff", *pair).stdout


def test_markdown_is_a_comment_of_its_own(run, pair):
    """What is said beside the tables is in it, as a reader of a pull request sees no stderr."""
    result = run("diff", *pair, "--format", "markdown")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert "tables differ; " in result.stdout
    assert "| stage | before | after | change |  |\n| :-- | --: |" in result.stdout
    assert run("diff", *pair, "--format", "markdown", "--exit-code").exit_code == 7


def test_markdown_lists_the_tables_that_move_most(run, starter, tmp_path, monkeypatch):
    """And says how many more there are; CSV has all."""
    tables = [{"name": f"t{i}", "rows": 1000 + i, "dim": 64, "pooling_factor": 4} for i in range(60)]
    (tmp_path / "w.yaml").write_text(json.dumps({"name": "many", "batch_per_rank": 512, "tables": tables}))
    monkeypatch.chdir(tmp_path)
    for sharding in ("table_wise", "row_wise"):
        words = ["-t", starter / "topology.yaml", "-w", "w.yaml", "--nodes", 1, "--effort", 0, "--gap", "50%", "-q"]
        assert run("plan", *words, "--shardings", sharding, "-o", f"{sharding}.json").exit_code == 0
    pair = ("table_wise.json", "row_wise.json")
    page = run("diff", *pair, "--format", "markdown").stdout
    rows = list(csv.DictReader(io.StringIO(run("diff", *pair, "--format", "csv").stdout)))
    assert len(rows) == 60
    assert run("diff", pair[0], pair[0], "--format", "csv").stdout == ",".join(rows[0]) + "\n"
    assert page.count("| table_wise in hbm") == 50
    assert "10 more tables move less" in page
    least = sorted(rows, key=lambda row: int(row["moved_bytes"]))[0]["table"]
    assert f"| {least} |" not in page


def test_a_rating_is_no_time(run, starter, plan_file, tmp_path):
    """Plans of different units are shown side by side, and not subtracted in words."""
    rated = tmp_path / "rated.json"
    words = ["-t", starter / "topology.yaml", "--nodes", 2, "--effort", 0, "--gap", "50%", "--cost-model", "hugectr"]
    assert run("plan", *words, "-o", rated).exit_code == 0
    told = json.loads(run("diff", plan_file, rated, "--format", "json").stdout)
    assert told["unit"] == {"before": "s", "after": ""}
    assert "%" not in run("diff", plan_file, rated).stdout
