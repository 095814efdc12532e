"""The command line, run in this process."""

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from planner.cli.app import app

Run = Callable[..., Result]


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """80 columns, and none of the variables that colour or widen the output."""
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "TERM_PROGRAM"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run() -> Run:
    """`run("check", "x.yaml")`: the command's stdout, stderr and exit code."""
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words], prog_name="planner")


@pytest.fixture
def starter(run: Run, tmp_path: Path) -> Path:
    """A directory as `planner init` leaves it."""
    directory = tmp_path / "starter"
    assert run("init", directory).exit_code == 0
    return directory
