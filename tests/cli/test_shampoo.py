"""A dense part that is trained with Distributed Shampoo, from its key in the workload to what commands show."""

import json

import pytest
from typer.testing import CliRunner

from planner.cli.app import app

SETUP = "{block: 256, grafting: adam, frequency: 20, group: 4, exchange: bf16}"


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """A plan of the starter on one node."""
    directory = tmp_path_factory.mktemp("planned")
    path, starter = directory / "plan.json", directory / "starter"
    stated = ("--set", "workload.dense.optimizer=shampoo", "--set", f"workload.dense.shampoo={SETUP}")
    asked = (
        "plan",
        "-t",
        starter / "topology.yaml",
        "--nodes",
        "1",
        *stated,
        "--effort",
        "0",
        "--gap",
        "50%",
        "-q",
        "-o",
        path,
    )
    for command in (("init", starter), asked):
        assert CliRunner().invoke(app, [str(word) for word in command]).exit_code == 0
    return path


def test_a_plan_says_the_mean_step_and_the_one_with_roots(run, planned):
    """As simulated, in `explain` and in its JSON; the setup is in the document, and `verify` finds all of it again."""
    document = json.loads(planned.read_text())
    assert document["provenance"]["workload"]["content"]["dense"]["shampoo"]["frequency"] == 20
    step_s = document["objective"]["step_s"]
    assert document["simulated"]["step_s"] == pytest.approx(step_s, rel=0.03)
    explained = json.loads(run("explain", planned, "--format", "json").stdout)
    late_s = explained["dense_update"]["step_with_roots_s"]
    roots = json.loads(run("simulate", planned, "--inverse-roots", "--no-pooling", "--format", "json").stdout)
    assert roots["step_s"] == pytest.approx(late_s, rel=0.03)
    assert late_s > step_s * 1.05
    shown = " ".join(run("explain", planned).stdout.split())
    assert f"Shampoo takes inverse roots every 20 steps: amortised {step_s * 1e3:.3f} ms; a step with roots" in shown
    assert "root_column_s of shampoo (measured)" in shown
    assert sum(part["seconds"] for part in explained["fixed_seconds"]) == pytest.approx(explained["fixed_s"])
    assert run("verify", planned).exit_code == 0


def test_layers_say_their_blocks_and_state(run, planned):
    """1,024 x 1,024 in blocks of 256, and its bias: 16 blocks and 4."""
    layers = json.loads(run("explain", planned, "--layer", "top_mlp.1", "--format", "json").stdout)
    assert layers[0]["blocks"] == 20
    of_matrix, of_bias = 16 * 4 * (2 * 2 * 256**2 + 256**2), 4 * 4 * (2 * 256**2 + 256)
    assert layers[0]["state_bytes"] == of_matrix + of_bias
    assert max(map(len, run("explain", planned, "--layer", "*").stdout.splitlines())) <= 80


def test_only_its_plans_have_steps_with_roots(run, plan_file):
    """Of others they are refused."""
    refused = run("simulate", plan_file, "--inverse-roots")
    assert refused.exit_code == 2
    assert "no step takes inverse roots" in " ".join(refused.stderr.split())
