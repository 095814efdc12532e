"""`planner doctor` says whether this machine can plan."""

import json
from importlib import metadata

from planner.cli import doctor


def test_a_working_machine_passes(run):
    """Where the tests run, the planner runs: exit 0, every dependency with its version, a plan is found."""
    result = run("doctor", "--format", "json")
    assert result.exit_code == 0, result.stdout
    values = {record["subject"]: record["value"] for record in json.loads(result.stdout)}
    assert values["ortools"] == metadata.version("ortools")
    assert values["networkx"] == metadata.version("networkx")
    assert "a step of" in values["a small plan"]
    assert {"python", "platform", "cores", "memory", "terminal", "torch (optional)"} <= set(values)
    assert "pytest" not in values


def test_a_missing_dependency_is_a_problem(run, monkeypatch):
    """It is named on stderr, and the exit code is 1."""
    monkeypatch.setattr(doctor.metadata, "requires", lambda _name: ["no-such-thing>=1", "x; extra == 'test'"])
    result = run("doctor")
    assert result.exit_code == 1
    assert "no-such-thing" in result.stderr
    assert "missing; this planner needs no-such-thing>=1" in result.stdout


def test_a_checkout_that_is_not_installed_is_no_bug(run, monkeypatch):
    """It says so, and looks at the rest."""

    def unknown(name: str) -> list[str]:
        raise doctor.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.metadata, "requires", unknown)
    result = run("doctor")
    assert result.exit_code == 0, result.stdout
    assert "a checkout that is not installed" in " ".join(result.stdout.split())
