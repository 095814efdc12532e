"""`planner explain`, in all formats, for plans and for what has none."""

import csv
import io
import json

import pandas as pd
import pytest
from typer.testing import CliRunner

from planner.cli.app import app
from planner.cli.exits import ExitCode


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """A plan of the starter with scarce HBM."""
    directory = tmp_path_factory.mktemp("planned")
    path, words = directory / "plan.json", ["--set", "topology.nodes.0.accelerators.hbm.capacity=4GB"]
    made = [
        CliRunner().invoke(app, command)
        for command in (
            ["init", str(directory / "starter")],
            [
                "plan",
                "-t",
                str(directory / "starter" / "topology.yaml"),
                *words,
                "--effort",
                "0",
                "--gap",
                "20%",
                "-q",
                "-o",
                str(path),
            ],
        )
    ]
    assert [result.exit_code for result in made] == [0, 0]
    return path


def test_a_plan_is_explained_within_80_columns(run, planned):
    """Every stage with what it waits for, and the memory that is scarce."""
    shown = run("explain", planned)
    assert shown.exit_code == 0
    assert max(map(len, shown.stdout.splitlines())) <= 80
    document = json.loads(planned.read_text())
    for stage in document["stages"]:
        assert stage["name"] in shown.stdout
    scarce = {price["tier"].upper() for price in document["proof"]["memory_multipliers"]}
    assert scarce
    for tier in scarce:
        assert f"{tier} is scarce" in shown.stdout


def test_a_table_is_explained_within_80_columns(run, planned):
    """Its place, what stages pay for it, this plan's option and others."""
    shown = run("explain", planned, "--table", "user_id")
    assert shown.exit_code == 0
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert "this plan" in shown.stdout
    assert "lookup_forward" in shown.stdout
    table = next(table for table in json.loads(planned.read_text())["tables"] if table["name"] == "user_id")
    assert f"{table['sharding']} in {table['tier']}" in shown.stdout


def test_a_table_of_a_group_of_the_policy_is_explained_with_the_others(run, tmp_path):
    """Which tables are held with it, or apart from it, and where the policy says so; of other tables nothing."""
    rules, path = tmp_path / "rules.yaml", tmp_path / "plan.json"
    rules.write_text("colocate: [[cat_1, cat_2]]\nseparate: [{tables: [cat_2, cat_3, cat_4]}]\n")
    assert (
        run(
            "plan", "-t", "dgx-h100", "-w", "dlrm-v1", "-p", rules, "--effort", 0, "--gap", "50%", "-q", "-o", path
        ).exit_code
        == 0
    )
    shown = {name: run("explain", path, "--table", name).stdout for name in ("cat_1", "cat_2", "cat_5")}
    held = "Held on one rank with cat_2, as colocate.0 of the policy says."
    assert [held in text for text in shown.values()] == [True, False, False]
    apart = "On no rank with cat_3, cat_4, as separate.0 of the policy says."
    assert [apart in text for text in shown.values()] == [False, True, False]
    assert "policy: separate, no two on one rank (separate.0)" in shown["cat_2"]


def test_layers_of_the_dense_part_are_explained_within_80_columns(run, planned):
    """Each with what it takes, and all; what matches nothing is refused with a name that does."""
    shown = run("explain", planned, "--layer", "*")
    assert shown.exit_code == 0
    assert max(map(len, shown.stdout.splitlines())) <= 80
    for name in ("bottom_mlp.0", "bottom_mlp", "interaction", "top_mlp", "all"):
        assert any(line.split()[:1] == [name] for line in shown.stdout.splitlines())
    layers = json.loads(run("explain", planned, "--layer", "top_mlp*", "--format", "json").stdout)
    assert [layer["width"] for layer in layers] == [1024, 1024, 512, 256, 1]
    refused = run("explain", planned, "--layer", "botom_mlp")
    assert refused.exit_code == 2
    assert "did you mean 'bottom_mlp'?" in " ".join(refused.stderr.split())


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_of_a_profile_alone_is_explained(run, starter, tmp_path, suffix):
    """Without a dense part a stage takes no time, of which tables have no share."""
    tables = starter / "tables.csv"
    if suffix == "parquet":
        pd.read_csv(tables).to_parquet(tables.with_suffix(".parquet"))
        tables = tables.with_suffix(".parquet")
    path = tmp_path / "plan.json"
    flags = ("-w", tables, "--global-batch", "65536", "--effort", "0", "--gap", "50%", "-q", "-o", path)
    assert run("plan", "-t", "zionex-16", *flags).exit_code == 0
    assert any(stage["seconds"] == 0 for stage in json.loads(path.read_text())["stages"])
    for name in ("user_id", "country"):
        shown = run("explain", path, "--table", name)
        assert shown.exit_code == 0, shown.stderr
        assert "lookup_forward" in shown.stdout
    assert run("explain", path).exit_code == 0


def test_machine_formats_hold_the_same(run, planned):
    """JSON with everything, CSV with a record for each contributor or option."""
    whole = json.loads(run("explain", planned, "--format", "json").stdout)
    document = json.loads(planned.read_text())
    assert [stage["name"] for stage in whole["stages"]] == [stage["name"] for stage in document["stages"]]
    assert whole["objective"] == document["objective"]
    records = list(csv.DictReader(io.StringIO(run("explain", planned, "--format", "csv").stdout)))
    assert len(records) == sum(len(stage["contributors"]) for stage in whole["stages"])
    table = json.loads(run("explain", planned, "--table", "user_id", "--format", "json").stdout)
    options = list(csv.DictReader(io.StringIO(run("explain", planned, "--table", "user_id", "--format", "csv").stdout)))
    assert len(options) == len(table["options"])
    assert [option["chosen"] for option in options].count("1") == 1


def test_a_rank_is_explained_within_80_columns(run, planned):
    """What it waits for, what it holds, and what is free of its memory; in all formats."""
    shown = run("explain", planned, "--rank", "3")
    assert shown.exit_code == 0, shown.stderr
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert shown.stdout.startswith("Rank 3 is on node 0")
    whole = json.loads(run("explain", planned, "--rank", "3", "--format", "json").stdout)
    document = json.loads(planned.read_text())
    assert [stage["slowest_s"] for stage in whole["stages"]] == [stage["seconds"] for stage in document["stages"]]
    records = list(csv.DictReader(io.StringIO(run("explain", planned, "--rank", "3", "--format", "csv").stdout)))
    assert [record["table"] for record in records] == [shard["table"] for shard in whole["shards"]]
    for stage in document["stages"]:
        if (rank := stage["critical_rank"]) is not None:
            of_rank = json.loads(run("explain", planned, "--rank", rank, "--format", "json").stdout)
            (own,) = (each for each in of_rank["stages"] if each["name"] == stage["name"])
            assert own["seconds"] == pytest.approx(stage["seconds"])
            break


def test_every_stage_is_explained_within_80_columns(run, planned):
    """With its resources and the sources of its coefficients; a hidden one by the stage in which it shows."""
    document = json.loads(planned.read_text())
    for name in [*(stage["name"] for stage in document["stages"]), "input_dist"]:
        shown = run("explain", planned, "--stage", name)
        assert shown.exit_code == 0, shown.stderr
        assert max(map(len, shown.stdout.splitlines())) <= 80
    assert shown.stdout.startswith("input_dist runs beside lookup_backward, which hides it")
    whole = json.loads(run("explain", planned, "--stage", "input_dist", "--format", "json").stdout)
    assert (whole["asked"], whole["name"]) == ("input_dist", "lookup_backward")
    assert "input_dist" in whole["hidden"]
    shown = run("explain", planned, "--stage", "lookup_backward", "--format", "csv").stdout
    records = list(csv.DictReader(io.StringIO(shown)))
    assert [record["resource"] for record in records] == [each["resource"] for each in whole["resources"]]
    overhead = run("explain", planned, "--stage", "overhead").stdout
    assert "step_overhead_s of torchrec: all of it" in overhead
    assert "mlcommons/training" in overhead


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--stage", "lookup_forwards"), "did you mean 'lookup_forward'?"),
        (("--stage", "dense", "--rank", "0"), "has no effect beside"),
        (("--rank", "16"), "the plan has no rank 16: it has ranks 0 to 15"),
        (("--rank", "-1"), "the plan has no rank -1"),
        (("--rank", "0", "--table", "user_id"), "has no effect beside --table"),
    ],
)
def test_an_unknown_rank_or_stage_is_refused(run, planned, words, said):
    """With those that there are; so are two questions at once."""
    result = run("explain", planned, *words)
    assert result.exit_code == ExitCode.WRONG_COMMAND_LINE
    assert said in " ".join(result.stderr.split())


def test_an_unknown_table_is_refused(run, planned):
    """With the nearest name."""
    result = run("explain", planned, "--table", "user_ids")
    assert result.exit_code == ExitCode.WRONG_COMMAND_LINE
    assert "did you mean 'user_id'?" in " ".join(result.stderr.split())


def test_a_document_without_a_plan_says_why(run, starter, tmp_path):
    """As `planner plan` did; in JSON and CSV the remedies are records."""
    words = ["--set", "topology.nodes.0.accelerators.hbm.capacity=1GB", "--tiers", "hbm", "-q"]
    path = tmp_path / "none.json"
    first = run("plan", "-t", starter / "topology.yaml", *words, "-o", path)
    assert first.exit_code == ExitCode.INFEASIBLE
    assert run("explain", path).stdout == first.stdout
    reason = json.loads(run("explain", path, "--format", "json").stdout)["reason"]
    records = list(csv.DictReader(io.StringIO(run("explain", path, "--format", "csv").stdout)))
    assert [record["flags"].removeprefix("'") or None for record in records] == [
        remedy["flags"] for remedy in reason["remedies"]
    ]
    assert run("explain", path, "--table", "user_id").exit_code == ExitCode.WRONG_COMMAND_LINE
