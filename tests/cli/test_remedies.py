"""The flags that `planner plan` advises where nothing fits."""

import json
import shlex

import pytest

from planner.cli.exits import ExitCode

CASES = {
    "hbm alone": ["--set", "topology.nodes.0.accelerators.hbm.capacity=1GB", "--tiers", "hbm"],
    "few bytes everywhere": [
        "--set=topology.nodes.0.accelerators.hbm.capacity=2GB",
        "--set=topology.nodes.0.host.ddr.capacity=8GB",
        "--tiers=hbm,ddr",
    ],
    "whole tables alone": [
        "--set=topology.nodes.0.accelerators.hbm.capacity=30GB",
        "--tiers=hbm",
        "--shardings=table_wise",
    ],
}


QUICK = "whole tables alone"


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(words, id=name, marks=() if name == QUICK else pytest.mark.slow(seconds=10))
        for name, words in CASES.items()
    ],
)
def test_every_advised_flag_leads_to_a_plan(run, starter, tmp_path, words):
    """Pasted behind the command that found nothing, each remedy gives a plan that verifies."""
    command = ["plan", "-t", starter / "topology.yaml", *words, "-q", "-o", tmp_path / "none.json"]
    shown = run(*command)
    assert shown.exit_code == ExitCode.INFEASIBLE
    assert max(map(len, shown.stdout.splitlines())) <= 80
    document = json.loads((tmp_path / "none.json").read_text())
    helpful = [remedy for remedy in document["infeasibility"]["remedies"] if remedy["flags"]]
    assert len(helpful) >= 2
    for remedy in helpful:
        assert remedy["flags"] in shown.stdout
        assert " ".join(remedy["words"].split()) in " ".join(shown.stdout.split())
        plan = tmp_path / "plan.json"
        again = run(*command[:-1], plan, *shlex.split(remedy["flags"]), "--gap", "100%", "--effort", "0")
        assert again.exit_code == 0, (remedy, again.stdout, again.stderr)
        assert run("verify", plan).exit_code == 0


def test_pieces_that_do_not_pack_exit_with_4(run, starter):
    """Everything was tried, and the largest pieces are named."""
    words = ["--set", "topology.nodes.0.accelerators.hbm.capacity=15.4GB", "--shardings", "table_wise", "--nodes", "1"]
    small = ["--set", "topology.nodes.0.accelerators.count=2", "--set", "topology.nodes.0.links.scale_out.count=2"]
    tables = ["--set", "workload.tables.user_id.rows=15000000", "--set", "workload.tables.item_id.rows=15000000"]
    more = ["--set", "workload.tables.item_history.rows=15000000", "--tiers", "hbm"]
    result = run("plan", "-t", starter / "topology.yaml", *words, *small, *tables, *more, "-q")
    assert result.exit_code == ExitCode.INFEASIBLE == 4, result.stdout
    assert "every way to place their pieces was tried" in " ".join(result.stdout.split())
    assert "item_history" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_two_counts_of_nodes_are_one_too_many(run, starter):
    """`--nodes` beside `--set topology.nodes.0.count` would be ignored, so it is refused."""
    result = run("plan", "-t", starter / "topology.yaml", "--nodes", "3", "--set", "topology.nodes.0.count=2")
    assert result.exit_code == ExitCode.WRONG_COMMAND_LINE
    assert "has no effect beside --set topology.nodes.0.count=2" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--global-batch", "64", "--set", "workload.global_batch=128"],
            "no effect beside --set workload.global_batch",
        ),
        (["--reserve", "hbm=1%", "--reserve", "hbm=5%"], "--reserve: hbm is given twice"),
    ],
)
def test_of_two_values_neither_is_passed_over(run, starter, words, said):
    """Which one is meant, only the user knows."""
    result = run("plan", "-t", starter / "topology.yaml", "--effort", 0, "--gap", "50%", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in " ".join(result.stderr.split())
