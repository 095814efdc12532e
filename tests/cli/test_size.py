"""`planner size`: answers in every format, exit codes, wrong flags."""

import csv
import io
import json

import pytest

from planner.cli.exits import ExitCode


@pytest.fixture
def size(run, starter):
    """`size(*flags)`: size the starter's cluster."""
    return lambda *words: run("size", "-t", starter / "topology.yaml", "--max-nodes", 4, *words)


def test_the_answer_is_shown_with_what_decided(size):
    """Within 80 columns, progress on stderr; the same figures in JSON and CSV."""
    result = size("--fits")
    assert result.exit_code == 0, result.stderr
    assert "The smallest cluster whose memory suffices" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "all tiers: 1 node" in result.stderr
    data = json.loads(size("--fits", "--format", "json", "-q").stdout)
    answer = data["sizes"][0]["answer"]
    assert answer["verdict"] == "smallest"
    assert answer["simulated_samples_per_s"] > 0
    assert f"{answer['samples_per_s']:,.0f}" in result.stdout
    rows = list(csv.DictReader(io.StringIO(size("--fits", "--format", "csv").stdout)))
    (first,) = [row for row in rows if row["allowed"] == "all tiers" and row["verdict"] == "smallest"]
    assert int(first["nodes"]) == answer["nodes"]
    assert float(first["samples_per_s"]) == answer["samples_per_s"]


def test_a_target_out_of_reach_exits_with_4(size):
    """With the reason for each size."""
    result = size("--target-qps", 1e12, "--no-each-tier")
    assert result.exit_code == ExitCode.INFEASIBLE
    assert "none up to 4" in result.stdout
    assert "no step is shorter than" in result.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give either --target-qps or --fits"),
        (["--fits", "--target-qps", "5"], "give either --target-qps or --fits"),
        (["--target-qps", "-1"], "must be above 0"),
        (["--target-qps", "nan"], "must be above 0"),
    ],
)
def test_wrong_flags_are_refused(size, words, said):
    """Before anything is computed."""
    result = size(*words)
    assert result.exit_code == ExitCode.WRONG_COMMAND_LINE
    assert said in " ".join(result.stderr.split())


def test_an_unknown_group_is_an_input_error(size):
    """With its name."""
    result = size("--fits", "--group", "nosuch")
    assert result.exit_code == ExitCode.INVALID_INPUT
    assert "'nosuch' is not a node group" in result.stderr
