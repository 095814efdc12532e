"""`--robust` and `--goals`: printed, written, verified, explained, told by `diff`, and refused by name."""

import json

import pytest

from planner.cli.exits import ExitCode

POLICY = """
kind: policy
tiers: [hbm]
robust: {quantile: p90, scenarios: 20, simulated: 2, pooling_drift: 30%, skew_drift: 0%}
"""


@pytest.fixture
def plan(run, tmp_path):
    """`plan(file, *flags)`: plan a few tables on one node and write the document."""
    inputs = ("-t", "dgx-h100", "-w", "synthetic:10@seed=1")
    return lambda file, *words: run("plan", *inputs, "-o", tmp_path / file, "--effort", 0, "--gap", "50%", "-q", *words)


def test_a_robust_plan_is_told_and_holds(run, plan, tmp_path):
    """Both plans, the price on the mean, what was assumed, and what the bound is about; the flag beats the file."""
    (tmp_path / "policy.yaml").write_text(POLICY)
    planned = plan("robust.json", "--policy", tmp_path / "policy.yaml", "--robust", "p95")
    assert planned.exit_code == 0, planned.stderr
    words = " ".join(planned.stdout.split())
    assert "the least p95 of 20 scenarios" in words
    assert "Assumed, as nobody stated it: robust.slow_rank" in words
    assert "no bound on p95 is proven" in words
    assert "2 of these" in words
    assert max(map(len, planned.stdout.splitlines())) <= 80
    checked = run("verify", tmp_path / "robust.json", "--policy", tmp_path / "policy.yaml", "--robust", "p95")
    assert (checked.exit_code, checked.stdout) == (0, "")
    assert "robust.*.nominal (the nominal plan is not in the document)" in checked.stderr
    assert "longest scenarios" in run("explain", tmp_path / "robust.json").stdout
    told = json.loads(run("explain", tmp_path / "robust.json", "--format", "json").stdout)
    assert told["robust"]["quantile"] == "p95"
    assert {stage["name"] for stage in told["longest_scenarios"]} >= {"lookup_forward", "dense"}
    assert "p95" in run("diff", tmp_path / "robust.json", tmp_path / "robust.json").stderr


def test_goals_are_told_and_hold(run, plan, tmp_path):
    """Best values, tolerances and what is left of them."""
    planned = plan("goals.json", "--goals", "step=2%,blocks=10%,fullest_rank")
    assert planned.exit_code == 0, planned.stderr
    assert "HBM of the fullest rank" in planned.stdout
    goals = json.loads((tmp_path / "goals.json").read_text())["goals"]
    assert [(goal["name"], goal["tolerance"]) for goal in goals] == [
        ("step", 0.02),
        ("blocks", 0.1),
        ("fullest_rank", 0.0),
    ]
    assert run("verify", tmp_path / "goals.json").exit_code == 0


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--robust", "95"], ExitCode.INVALID_INPUT, "write for example p95"),
        (["--goals", "blocks,step"], ExitCode.INVALID_INPUT, "must begin with step"),
        (["--goals", "step,moved_bytes"], ExitCode.INVALID_INPUT, "--from"),
        (["--goals", "step,blocks", "--robust", "p95"], ExitCode.INVALID_INPUT, "leave one of both out"),
        (["--robust", "p95", "--cost-model", "torchrec"], ExitCode.INVALID_INPUT, "leave robust out"),
        (["--robust", "p95", "--write-model", "x.mps"], ExitCode.WRONG_COMMAND_LINE, "--write-model"),
    ],
)
def test_what_cannot_be_is_refused(plan, words, code, message):
    """Before anything is searched, with the remedy."""
    refused = plan("none.json", *words)
    assert refused.exit_code == code
    assert message in " ".join(refused.stderr.split())


@pytest.mark.parametrize("key", ["robust: p95", "goals: [step, blocks]"])
def test_memory_knows_neither(run, starter, tmp_path, key):
    """A policy that asks for what a command does not pursue is refused by name."""
    (tmp_path / "policy.yaml").write_text(f"kind: policy\n{key}\n")
    refused = run("memory", "-t", starter / "topology.yaml", "--policy", tmp_path / "policy.yaml")
    assert refused.exit_code == ExitCode.INVALID_INPUT
    assert f"leave {key.partition(':')[0]} out" in " ".join(refused.stderr.split())
