"""The command line, run in this process."""

import shutil
from collections.abc import Callable
from functools import cache
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


@pytest.fixture(scope="session")
def starter_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory as `planner init` leaves it, made once; to be copied."""
    directory = tmp_path_factory.mktemp("starter") / "starter"
    assert CliRunner().invoke(app, ["init", str(directory)]).exit_code == 0
    return directory


@pytest.fixture(scope="session")
def plan_of_nodes(starter_files: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """`plan_of_nodes(2)`: a quick plan of the starter on so many nodes, made once; to be copied."""
    folder = tmp_path_factory.mktemp("plans")

    @cache
    def planned(nodes: int) -> Path:
        words = ["plan", "-t", starter_files / "topology.yaml", "--nodes", nodes, "--effort", 0, "--gap", "50%", "-q"]
        path = folder / f"{nodes}.json"
        assert CliRunner().invoke(app, [str(word) for word in [*words, "-o", path]]).exit_code == 0
        return path

    return planned


@pytest.fixture
def plan_file(plan_of_nodes: Callable[[int], Path], tmp_path: Path) -> Path:
    """A small plan of the starter."""
    return Path(shutil.copy(plan_of_nodes(2), tmp_path / "plan.json"))


@pytest.fixture
def starter(starter_files: Path, tmp_path: Path) -> Path:
    """A directory as `planner init` leaves it."""
    return Path(shutil.copytree(starter_files, tmp_path / "starter"))
