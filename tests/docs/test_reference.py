"""The reference that the site takes from the code: complete, and no page of the documentation says otherwise."""

import importlib.util
import re
from pathlib import Path

import pytest
import typer

import planner
from planner.cli.app import app
from planner.cli.exits import ExitCode
from planner.cli.schema import SchemaKind

DOCS = Path(__file__).parents[2] / "docs"
LINK = re.compile(r"^(?:-|\d+\.) \[[^]]+\]\(([^)#:]+\.md)\)", re.MULTILINE)


@pytest.fixture(scope="module")
def pages():
    """What makes the reference; the folder of the documentation is no package."""
    spec = importlib.util.spec_from_file_location("reference_pages", DOCS / "reference_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_command_and_flag_is_there(pages):
    """Of groups, too."""
    text = pages.commands()
    commands = typer.main.get_command(app).commands
    for name, command in commands.items():
        assert f"## `planner {name}`" in text
        for inner in getattr(command, "commands", {}):
            assert f"## `planner {name} {inner}`" in text
    assert all(
        option in text for parameter in commands["plan"].params for option in parameter.opts if option[:2] == "--"
    )


def test_every_kind_of_file_is_there_with_its_units(pages):
    """Each key once, with its type, default and meaning."""
    text = pages.fields()
    assert [f"## {kind.value}" in text for kind in SchemaKind] == [True] * len(SchemaKind)
    assert re.search(r"\| `bandwidth` \| a quantity in byte / second, as `[^`]+` \| required \|", text)
    assert "| `nodes` | list of [NodeGroup](#topology-nodegroup) | required without `base` |" in text


def test_every_coefficient_has_a_source(pages):
    """No row of the tables of coefficients ends with an empty cell."""
    rows = [row for row in pages.coefficient_tables().splitlines() if row.startswith("| `") and row.count(" | ") == 5]
    assert len(rows) > 150
    assert not [row for row in rows if re.search(r"\|\s*\|$", row)]


def test_every_public_name_is_there(pages):
    """With its docstring."""
    text = pages.python_api()
    assert all(f"## `{name}`" in text for name in planner.__all__ if name != "__version__")


def test_exit_codes_are_those_of_the_code(pages):
    """The table of the page on the command line, word by word."""
    page = (DOCS / "reference/command-line.md").read_text(encoding="utf-8")
    stated = re.findall(r"^\| (\d+) \| (.+) \|$", page, re.MULTILINE)
    assert stated == [(str(int(code)), pages.exit_codes()[code]) for code in ExitCode]


def test_every_page_is_in_an_index():
    """So that the site has it, and a reader of the checkout finds it."""
    indexes = [DOCS / "index.md", *DOCS.glob("*/index.md"), DOCS / "decisions/README.md"]
    linked = {(page.parent / to).resolve() for page in indexes for to in LINK.findall(page.read_text(encoding="utf-8"))}
    assert set(DOCS.rglob("*.md")) - {DOCS / "index.md"} == linked


def test_decisions_are_listed_once_each_in_the_order_of_their_numbers():
    """By the number that their file has."""
    page = (DOCS / "decisions/README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^(\d+)\. \[.+\]\((\d{4}-[^)]+\.md)\)$", page, re.MULTILINE)
    assert [file for _, file in listed] == sorted(file.name for file in (DOCS / "decisions").glob("[0-9]*.md"))
    assert [int(number) for number, _ in listed] == [int(file[:4]) for _, file in listed]
