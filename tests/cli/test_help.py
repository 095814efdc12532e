"""Every help page: complete, within 80 columns, with an example, as it was last reviewed."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from planner.cli.app import app
from planner.cli.panels import PANELS

GOLDEN = Path(__file__).parents[1] / "golden" / "help"
"""Other versions of typer lay the same help out differently."""


def command_paths(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        yield from command_paths(inner, (*path, name))


def flags_of(path: tuple[str, ...]) -> int:
    """The number of flags of a command, --help among them; of a group 0."""
    command: Any = typer.main.get_command(app)
    for name in path:
        command = command.commands[name]
    flags = [each for each in command.params if each.param_type_name == "option"]
    return 0 if hasattr(command, "commands") else len(flags) + 1


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


@pytest.mark.parametrize("path", [path for path in PATHS if flags_of(path) > 12], ids=" ".join)
def test_many_flags_are_in_panels(run, path):
    """More than a dozen flags are listed by what they are for, each of them once, and none without a panel."""
    page = run(*path, "--help").stdout
    assert "\nOptions:" not in page
    assert sum(f"\n{panel}:\n" in page for panel in PANELS) >= 3
    arguments = page.partition("\nArguments:")[2].partition("\n\n")[0]
    assert "\n  -" not in arguments
    listed = page[min(place for panel in PANELS if (place := page.find(f"\n{panel}:\n")) >= 0) :]
    assert len(re.findall(r"^  -", listed, re.MULTILINE)) == flags_of(path)


def test_no_help_page_is_left_over():
    """Every golden page belongs to a command."""
    assert {file.stem for file in GOLDEN.glob("planner*.txt")} == {"-".join(("planner", *path)) for path in PATHS}
