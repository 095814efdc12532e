"""Every help page: complete, within 80 columns, with an example, as it was last reviewed."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from planner.cli.app import app

GOLDEN = Path(__file__).parents[1] / "golden" / "help"
"""Other versions of typer lay the same help out differently."""


def command_paths(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        yield from command_paths(inner, (*path, name))


PATHS = list(command_paths(typer.main.get_command(app)))
every_page = pytest.mark.parametrize("path", PATHS, ids=lambda path: " ".join(("planner", *path)))


def test_every_command_of_the_contract_is_there():
    """The commands that scripts rely on exist."""
    assert {"plan", "check", "verify", "explain", "diff", "memory", "catalog", "schema", "init", "doctor"} <= {
        path[0] for path in PATHS if path
    }


@every_page
def test_help_fits_and_shows_an_example(run, path):
    """Help is at most 80 columns wide and has a worked example that begins with the command itself."""
    page = run(*path, "--help")
    assert page.exit_code == 0
    assert page.stderr == ""
    assert max(map(len, page.stdout.splitlines())) <= 80
    assert page.stdout.replace("\n", "").isprintable()
    assert " ".join(("  planner", *path)) in page.stdout.partition("Example")[2]


@every_page
def test_help_is_as_reviewed(run, path):
    """Help changes only on purpose: run with UPDATE_GOLDEN=1, then look at the diff."""
    golden = GOLDEN / f"{'-'.join(('planner', *path))}.txt"
    page = "\n".join(line.rstrip() for line in run(*path, "--help").stdout.splitlines()) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(page, encoding="utf-8")
    # the words alone: how a page is wrapped and indented is the business of typer's version
    assert page.split() == golden.read_text(encoding="utf-8").split()


def test_no_help_page_is_left_over():
    """Every golden page belongs to a command."""
    assert {file.stem for file in GOLDEN.glob("planner*.txt")} == {"-".join(("planner", *path)) for path in PATHS}
