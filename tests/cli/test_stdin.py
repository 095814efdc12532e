"""`-` in the place of a topology or a workload: standard input."""

import pytest
from typer.testing import CliRunner

from planner.cli.app import app


@pytest.fixture
def fed(starter, monkeypatch):
    """`fed(file, ...)`: the command with a file of the starter, or a text, as its standard input."""
    monkeypatch.chdir(starter)
    return lambda text, *words: CliRunner().invoke(app, list(words), input=text, prog_name="planner")


def test_a_topology_is_read(run, fed, starter):
    """The same figures as from the file, and the workload of the folder beside it, where it is named."""
    text = (starter / "topology.yaml").read_text()
    read = fed(text, "memory", "-t", "-", "-w", "workload.yaml", "--format", "csv")
    assert read.exit_code == 0, read.stderr
    assert read.stdout == run("memory", "-t", "topology.yaml", "-w", "workload.yaml", "--format", "csv").stdout


def test_a_workload_is_read(run, fed, starter):
    """Files that it names are relative to the folder of the command."""
    text = (starter / "workload.yaml").read_text()
    read = fed(text, "memory", "-t", "topology.yaml", "-w", "-", "--format", "csv")
    assert read.exit_code == 0, read.stderr
    assert read.stdout == run("memory", "-t", "topology.yaml", "-w", "workload.yaml", "--format", "csv").stdout


def test_faults_have_their_place(fed, starter):
    """With line and column of what was read."""
    text = (starter / "topology.yaml").read_text()
    line = 1 + [each.startswith("nodes:") for each in text.splitlines()].index(True)
    wrong = fed(text.replace("nodes:", "nodez:", 1), "memory", "-t", "-", "-w", "workload.yaml")
    assert wrong.exit_code == 3
    assert f"standard input:{line}:1: nodez: unknown key" in wrong.stderr


def test_it_is_read_once(fed, starter):
    """As both inputs it is refused before anything is read."""
    twice = fed((starter / "topology.yaml").read_text(), "memory", "-t", "-", "-w", "-")
    assert twice.exit_code == 2
    assert "standard input holds one of the two" in " ".join(twice.stderr.split())
