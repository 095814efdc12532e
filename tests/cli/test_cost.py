"""`planner cost`: candidates of a file, in every format, and what is refused."""

import csv
import io
import json
from pathlib import Path

import pytest

from planner import read_plan


@pytest.fixture
def changes(tmp_path: Path, plan_file: Path) -> Path:
    table = read_plan(plan_file).tables[0].name
    path = tmp_path / "candidates.csv"
    path.write_text(f"name,{table}.rows,*.pooling_factor\nsame,,\nsmall,1000,\nlong,,40\n")
    return path


def test_every_candidate_has_a_row(run, plan_file, changes, tmp_path):
    """In the order of the file; with --exact the best have the step of a plan beside it, above their bound."""
    result = run(
        "cost", plan_file, "--changes", changes, "-o", tmp_path / "costs.csv", "--exact", 1, "--effort", 0, "-q"
    )
    assert result.exit_code == 0, result.output
    rows = list(csv.DictReader(io.StringIO((tmp_path / "costs.csv").read_text())))
    assert [row["name"] for row in rows] == ["same", "small", "long"]
    objective = read_plan(plan_file).objective
    assert float(rows[0]["lower_bound_s"]) <= objective.lower_bound_s
    assert float(rows[0]["estimate_s"]) == pytest.approx(objective.step_s, rel=1e-3)
    assert int(rows[1]["bytes"]) < int(rows[0]["bytes"])
    assert rows[0]["usd_per_billion_samples"] == ""
    planned = [row for row in rows if row["step_s"]]
    assert len(planned) == 1
    assert float(planned[0]["lower_bound_s"]) <= float(planned[0]["planned_bound_s"])


def test_the_formats_say_the_same(run, plan_file, changes):
    """Table, JSON and CSV have the candidates on stdout."""
    document = json.loads(run("cost", plan_file, "--changes", changes, "--format", "json").stdout)
    rows = list(csv.DictReader(io.StringIO(run("cost", plan_file, "--changes", changes, "--format", "csv").stdout)))
    assert [row["name"] for row in document] == [row["name"] for row in rows]
    assert float(rows[2]["estimate_s"]) == document[2]["estimate_s"]
    assert "long" in run("cost", plan_file, "--changes", changes).stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--effort", "2"], "without --exact"),
        (["--gap", "2%"], "without --exact"),
        (["-t", "zionex-16"], "beside a plan"),
    ],
)
def test_flags_without_effect_are_refused(run, plan_file, changes, words, message):
    result = run("cost", plan_file, "--changes", changes, *words)
    assert result.exit_code == 2
    assert message in result.output


def test_a_plan_or_inputs_are_needed(run, changes):
    result = run("cost", "--changes", changes)
    assert result.exit_code == 2
    assert "name a plan" in result.output
