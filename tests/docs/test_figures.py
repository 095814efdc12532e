"""Figures of the documentation, made anew by what the page says gives them; of long tables some rows."""

import re
import shlex
import textwrap
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import hugectr_nodes, option_space
from planner.cli.app import app
from planner.cli.exits import ExitCode
from tests.docs.pages import ROOT, blocks_of


def page_of(name: str) -> Path:
    """The file of a page."""
    return ROOT / "docs" / f"{name}.md"


def text_of(page: str) -> str:
    """A page of the documentation."""
    return page_of(page).read_text(encoding="utf-8")


def rows_of(page: str, header: str) -> dict[str, list[str]]:
    """The rows of the first table with this header, by their first cell."""
    lines = text_of(page).split(f"{header}\n")[1].splitlines()[1:]
    end = next(number for number, line in enumerate([*lines, ""]) if not line.startswith("|"))
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:end]]
    return {first: others for first, *others in cells}


def assert_shown(shown: str, *values: float) -> None:
    """The numbers of a text are these, with as many digits as it has."""
    numbers = re.findall(r"\d[\d,]*(?:\.\d+)?", shown)
    decimals = [len(number.partition(".")[2]) for number in numbers]
    assert numbers == [f"{value:,.{places}f}" for value, places in zip(values, decimals, strict=True)], shown


SHOWN = {
    "how-to/robust-plans": "planner plan -t dgx-h100 -w dlrm-dcnv2 --policy robust.yaml",
    "how-to/size-a-cluster": "planner size -t dgx-a100-80 -t dgx-h100",
}
"""How commands begin of whose output a page shows some lines."""
FIRST = {"how-to/robust-plans": "    Robust:"}
"""How these lines begin, where they are not a block that has the command or follows it."""


@pytest.mark.slow(seconds=20)
@pytest.mark.parametrize("page", SHOWN)
def test_a_page_shows_what_is_printed(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Line by line."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    text = text_of(page).replace("\\\n", " ")
    command = next(line for line in text.splitlines() if line.removeprefix("$ ").startswith(SHOWN[page]))
    after = text.split(f"{command}\n")[1]
    if page in FIRST:
        block = re.split(r"\n\n(?! )", after[after.index(FIRST[page]) :])[0]
    else:
        block = after.split("```")[0 if command.startswith("$") else 2].strip("\n")
    for name in re.findall(r"--policy (\S+)", command):
        Path(name).write_text(next(each.text for each in blocks_of(page_of(page)) if each.language == "yaml"))
    done = CliRunner().invoke(app, shlex.split(command.removeprefix("$ "))[1:], prog_name="planner")
    assert done.exit_code == ExitCode.DONE, done.stderr
    printed = "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())
    assert textwrap.dedent(block) in printed


OF_BOTH = "| nodes | HugeCTR's plan, settings of v3.0 | of v4.0 | ours | bound | gap |"
ALIKE = "| nodes of 4 GPUs | HugeCTR's plan | ours | bound | gap |"


@pytest.mark.slow(seconds=10)
@pytest.mark.parametrize(("header", "topology", "nodes"), [(OF_BOTH, "dgx-h100", 16), (ALIKE, "gb200-nvl72", 18)])
def test_steps_of_hugectrs_plans(header: str, topology: str, nodes: int) -> None:
    """Beside ours and our bound."""
    *steps, gap = rows_of("how-to/hugectr", header)[str(nodes)]
    old, new = hugectr_nodes.pairs(topology, nodes, effort=1, batch=None)
    assert header == OF_BOTH or old.theirs_s == new.theirs_s
    theirs = [old.theirs_s, new.theirs_s] if header == OF_BOTH else [new.theirs_s]
    for cell, seconds in zip(steps, [*theirs, new.ours_s, new.bound_s], strict=True):
        assert_shown(cell, seconds * 1e3)
    assert_shown(gap, (new.ours_s / new.bound_s - 1) * 100)


@pytest.mark.slow(seconds=10)
def test_sets_of_cuts() -> None:
    """Block types, steps and bounds of every question."""
    lines = text_of("reference/option-space").split(
        "| question | cuts | block types | seconds | step, ms | bound, ms |\n"
    )[1]
    shown = [line.strip("|").split("|") for line in lines.split("\n\n")[0].splitlines()[1:]]
    for (_, cuts, block_types, _, *steps), row in zip(shown, option_space.of_blocks(), strict=True):
        assert cuts.strip() == row.space
        assert_shown(block_types, row.block_types)
        for cell, seconds in zip(steps, (row.step_s, row.bound_s), strict=True):
            assert_shown(cell, (seconds or 0.0) * 1e3)
