"""`planner check PLAN` with limits: a gate of a pipeline."""

import csv
import io
import json

import pytest

from planner.cli.exits import ExitCode

ALL = ("--max-step", "1h", "--max-hbm", "100%", "--max-imbalance", "1000", "--max-gap", "100%")


@pytest.fixture
def figures(plan_file):
    """What the plan document says."""
    return json.loads(plan_file.read_text())


def test_a_plan_within_all_limits_passes(run, plan_file):
    """Each limit is printed with the figure, and another plan's placement beside them."""
    result = run("check", plan_file, *ALL, "--same-as", plan_file)
    assert result.exit_code == 0, result.stdout
    assert len(result.stdout.splitlines()) == 6
    assert result.stdout.count(": ok: ") == 5
    assert "step" in result.stdout
    assert "at most 3600.000 s" in result.stdout


def test_every_limit_that_is_passed_is_said_at_once(run, plan_file):
    """And the command ends with 6; the limits that hold are said, too."""
    result = run("check", plan_file, "--max-step", "1us", "--max-hbm", "0%", "--max-gap", "100%")
    assert result.exit_code == ExitCode.GATE_FAILED == 6
    assert result.stdout.count(": failed: ") == 2
    assert result.stdout.count(": ok: ") == 1


def test_figures_are_those_of_the_document(run, plan_file, figures):
    """To the last digit, in the unit of the limit; a limit that equals the figure holds, the next below does not."""
    shares = [rank["bytes"]["hbm"] / rank["capacity"]["hbm"] for rank in figures["ranks"]]
    step_s, gap = figures["objective"]["step_s"], figures["objective"]["gap"]
    result = run("check", plan_file, "--max-step", f"{step_s!r}s", "--max-hbm", max(shares), "--max-gap", gap,
                 "--format", "json")  # fmt: skip
    assert result.exit_code == 0, result.stdout
    (told,) = json.loads(result.stdout)
    assert told["ok"]
    assert {gate["name"]: gate["figure"] for gate in told["gates"]} == {
        "max_step": step_s, "max_hbm": max(shares), "max_gap": gap
    }  # fmt: skip
    result = run("check", plan_file, "--max-step", f"{step_s * (1 - 1e-12)!r}s")
    assert result.exit_code == 6
    assert repr(step_s) in result.stdout, "digits enough to tell the two apart"


def test_csv_has_a_line_for_each_gate(run, plan_file):
    """With figure and limit as numbers; Markdown has their words."""
    words = ("check", plan_file, "--max-step", "1us", "--max-gap", "100%", "--format")
    rows = list(csv.DictReader(io.StringIO(run(*words, "csv").stdout)))
    assert [(row["severity"], row["path"]) for row in rows] == [
        ("ok", ""),
        ("failed", "max_step"),
        ("passed", "max_gap"),
    ]
    assert float(rows[1]["limit"]) == 1e-6 < float(rows[1]["figure"])
    page = run(*words, "markdown")
    assert page.exit_code == 6
    assert "| max_step | failed | step " in page.stdout


@pytest.mark.parametrize(
    ("tables", "sharding", "imbalance"), [(1, "table_wise", 8.0), (8, "table_wise", 1.0), (1, "data_parallel", 1.0)]
)
def test_imbalance_is_slowest_over_mean(run, starter, tmp_path, tables, sharding, imbalance):
    """One table on one of eight ranks: 8; one on each, or on all: 1."""
    profiles = [{"name": f"t{i}", "rows": 1000, "dim": 64, "pooling_factor": 4} for i in range(tables)]
    workload = {"name": "few", "batch_per_rank": 512, "tables": profiles}
    (tmp_path / "w.yaml").write_text(json.dumps(workload))
    plan = tmp_path / "few.json"
    done = run("plan", "-t", starter / "topology.yaml", "-w", tmp_path / "w.yaml", "--nodes", 1, "--cost-model",
               "torchrec", "--shardings", sharding, "--effort", 0, "--gap", "50%", "-q", "-o", plan)  # fmt: skip
    assert done.exit_code == 0, done.stderr
    (told,) = json.loads(run("check", plan, "--max-imbalance", "1000", "--format", "json").stdout)
    assert told["gates"][0]["figure"] == pytest.approx(imbalance)
    refused = run("check", plan, "--max-step", "90ms")
    assert refused.exit_code == 3
    assert "minimises the rating of torchrec, which is no time" in refused.stdout


def test_another_placement_is_no_same_plan(run, plan_file, plan_of_nodes, starter, tmp_path):
    """The number of tables that differ is said; a plan for other ranks differs, too."""
    other = tmp_path / "other.json"
    run(
        "plan",
        "-t",
        starter / "topology.yaml",
        "--nodes",
        2,
        "--shardings",
        "row_wise",
        "--effort",
        0,
        "--gap",
        "50%",
        "-o",
        other,
    )
    differing = len(json.loads(run("diff", other, plan_file, "--format", "json").stdout)["tables"])
    result = run("check", plan_file, "--same-as", other)
    assert result.exit_code == 6
    assert f"failed: {differing} table" in result.stdout
    assert run("check", plan_file, "--same-as", plan_of_nodes(3)).exit_code == 6


@pytest.mark.parametrize("limit", [("--max-step", "90ms"), ("--max-hbm", "90%"), ("--same-as", "plan.json")])
def test_limits_are_for_plans(run, starter, plan_file, monkeypatch, limit):
    """A file of another kind is named with its kind, and nothing passes."""
    monkeypatch.chdir(plan_file.parent)
    for file, kind in ((starter / "topology.yaml", "topology"), (starter / "tables.csv", "table profile")):
        result = run("check", plan_file, file, *limit)
        assert result.exit_code == ExitCode.WRONG_COMMAND_LINE
        assert f"{file} is no plan but a {kind}" in " ".join(result.stderr.split()).replace(" .", ".")
        assert limit[0] in result.stderr
        assert result.stdout == ""


@pytest.mark.parametrize(
    "limit",
    [("--max-step", "90"), ("--max-step", "-1s"), ("--max-hbm", "120%"), ("--max-imbalance", "nan"),
     ("--max-imbalance", "0.9"), ("--max-imbalance", "inf"), ("--max-gap", "2ms")],
)  # fmt: skip
def test_a_limit_that_is_none_is_refused(run, plan_file, limit):
    """By its flag: without a unit, below what can be, or no number."""
    result = run("check", plan_file, *limit)
    assert result.exit_code == 2
    assert limit[0] in result.stderr


def test_a_plan_that_was_changed_passes_no_gate(run, plan_file, figures):
    """Figures are recomputed: a document that states a shorter step, or emptier ranks, fails by name."""
    step_s = figures["objective"]["step_s"]
    plan_file.write_text(plan_file.read_text().replace(repr(step_s), repr(step_s / 2)))
    result = run("check", plan_file, "--max-step", "1h")
    assert result.exit_code == 6
    assert "its shards do not give what it states: objective: step_s" in result.stdout
    rank = figures["ranks"][0]
    rank["bytes"]["hbm"] //= 2
    plan_file.write_text(json.dumps(figures))
    assert "rank 0: takes" in run("check", plan_file, "--max-hbm", "100%").stdout
    figures["tables"].pop()
    plan_file.write_text(json.dumps(figures))
    result = run("check", plan_file, "--max-hbm", "100%")
    assert result.exit_code == 6
    assert "was changed" in result.stdout


def test_a_plan_that_places_nothing_keeps_to_no_limit(run, starter, tmp_path):
    """And none can be demanded to be placed like it."""
    nothing = tmp_path / "nothing.json"
    run("plan", "-t", starter / "topology.yaml", "--nodes", 1, "--reserve", "hbm=100%", "--tiers", "hbm", "-o", nothing)
    result = run("check", nothing, *ALL)
    assert result.exit_code == 6
    assert result.stdout.count("the plan is infeasible: it places no tables") == 4
    result = run("check", nothing, "--same-as", nothing)
    assert result.exit_code == 3
    assert "places no tables" in result.stdout


def test_faults_come_before_gates(run, plan_file, tmp_path):
    """A file that is no plan at all is an invalid input, whatever the gates of others say."""
    (tmp_path / "broken.json").write_text('{"kind": "plan"}')
    result = run("check", plan_file, tmp_path / "broken.json", "--max-step", "1us")
    assert result.exit_code == ExitCode.INVALID_INPUT
    assert "failed: step" in result.stdout
