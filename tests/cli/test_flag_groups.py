"""Groups of flags: a command with one reads as one without, and is given the group as a value."""

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from planner.cli.flag_groups import grouped


@dataclass(frozen=True)
class Sizes:
    """Two flags."""

    most: Annotated[int, typer.Option(help="No more.")]
    names: Annotated[list[str] | None, typer.Option("--name", help="These.")] = None


heard: list[tuple[str, Sizes, bool]] = []


@grouped
def with_group(*, file: Annotated[str, typer.Argument()], sizes: Sizes, quiet: bool = False) -> None:
    """Count."""
    heard.append((file, sizes, quiet))


def without_group(
    file: Annotated[str, typer.Argument()],
    most: Annotated[int, typer.Option(help="No more.")],
    names: Annotated[list[str] | None, typer.Option("--name", help="These.")] = None,
    quiet: bool = False,
) -> None:
    """Count."""


def answer(command, *words):
    app = typer.Typer(rich_markup_mode=None)
    app.command("count")(command)
    return CliRunner().invoke(app, words)


def test_help_is_that_of_the_flags_one_by_one():
    """In their order, with their defaults."""
    assert answer(with_group, "--help").stdout == answer(without_group, "--help").stdout


def test_the_command_is_given_the_group():
    """With what was said, and with the defaults of the rest; a flag that must be given is asked for."""
    assert answer(with_group, "f", "--most", "3", "--name", "a", "--name", "b").exit_code == 0
    assert answer(with_group, "f", "--most", "4", "--quiet").exit_code == 0
    assert heard == [("f", Sizes(3, ["a", "b"]), False), ("f", Sizes(4), True)]
    assert "--most" in answer(with_group, "f").output
