"""The wheel holds what the planner needs at run time, and nothing else."""

import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("planner", "cost_models", "topologies")
OLDEST_SETUPTOOLS = 77


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of a copy of this checkout, so that files of older builds stay out."""
    source = tmp_path_factory.mktemp("source")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests", source / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "cli.py"):
        shutil.copy(ROOT / name, source)
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "--wheel-dir", target, source]
    if _setuptools_is_new():
        command.append("--no-build-isolation")
    subprocess.run(command, check=True, timeout=600)
    (file,) = target.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        yield archive


def _setuptools_is_new():
    """Whether the build needs nothing from elsewhere."""
    try:
        return int(metadata.version("setuptools").split(".")[0]) >= OLDEST_SETUPTOOLS
    except metadata.PackageNotFoundError:
        return False


def test_every_data_file_is_in_the_wheel(wheel):
    """Catalogs, coefficients and starters are found by an installed planner as by a checkout."""
    shipped = {
        file.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for file in (ROOT / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert shipped <= set(wheel.namelist())
    assert any(name.startswith("topologies/catalog/") for name in shipped)
    assert any(name.startswith("cost_models/workload/catalog/") for name in shipped)
    assert "planner/cli/starters/tables.csv" in shipped


def test_nothing_else_is_in_the_wheel(wheel):
    """No launcher at the top, where wheels of others would overwrite it, and no tests."""
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)


def test_commands_and_licence(wheel):
    """Two commands start the same program; the licence goes along."""
    (info,) = {name.partition("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    commands = wheel.read(f"{info}/entry_points.txt").decode()
    assert "planner = planner.cli.app:main" in commands
    assert "shardplan = planner.cli.app:main" in commands
    assert any(name.endswith("LICENSE") for name in wheel.namelist())
    assert "License-Expression: Apache-2.0" in wheel.read(f"{info}/METADATA").decode()
