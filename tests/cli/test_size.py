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
        ([], "give either --target-qps and --max-step, or --fits"),
        (["--fits", "--target-qps", "5"], "give either --target-qps and --max-step, or --fits"),
        (["--target-qps", "-1"], "must be above 0"),
        (["--target-qps", "nan"], "must be above 0"),
        (["--fits", "--max-step", "5ms"], "give either --target-qps and --max-step, or --fits"),
        (["--max-step", "0s"], "must be above 0"),
        (["--max-step", "5"], "has no unit; write for example 30s"),
        (["--fits", "--max-price", "500"], "has no unit; write for example 500USD/h"),
        (["--fits", "--max-price", "-1USD/h"], "is below 0"),
        (["--fits", "--max-power", "5USD/h"], "is not in watt; write for example 300kW"),
        (["--fits", "--try", "workload.embedding.dtype"], "is not PATH=VALUE"),
        (["--fits", "--try", "wrkload.embedding.dtype=fp16"], "did you mean 'workload'"),
        (["--fits", "--try", "workload.global_batch=8", "--try", "workload.global_batch=8"], "is given twice"),
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


TRIES = ("--try", "workload.embedding.dtype=fp16", "--try", "topology.nodes.0.accelerators.count=1")


@pytest.fixture
def prices(tmp_path, run):
    """A sheet that prices the starter's accelerators."""
    found = json.loads(run("catalog", "show", "dgx-a100-80", "--format", "json").stdout)
    device = found["nodes"][0]["accelerators"]["device"]
    sheet = tmp_path / "prices.yaml"
    rates = {"starter": device, "price": "2USD/h", "power": "500W"}
    sheet.write_text(
        "name: test\ndate: 2026-01-01\nsource: made up\n"
        f"accelerators: {{{rates['starter']}: {{price: {rates['price']}, power: {rates['power']}}}}}\n"
    )
    return sheet
