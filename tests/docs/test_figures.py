"""Figures of the documentation, made anew by what the page says gives them; of long tables some rows."""

import re
import shlex
import textwrap
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import hugectr_nodes, memory_tiers, model_f, mtrains, neo, option_space
from cost_models.workload.loading import load_workload
from planner import run_study
from planner.capacity.sizing import size
from planner.cli.app import app
from planner.cli.exits import ExitCode
from planner.studies.runners import Serial
from tests.docs.pages import ROOT, blocks_of
from topologies.loading import load_topology


def page_of(name: str) -> Path:
    """The file of a page."""
    return ROOT / "docs" / f"{name}.md"


def text_of(page: str) -> str:
    """A page of the documentation."""
    return page_of(page).read_text(encoding="utf-8")


def rows_of(page: str, header: str, table: int = 0) -> dict[str, list[str]]:
    """The rows of a table by their first cell; `table`: which of those with this header."""
    lines = text_of(page).split(f"{header}\n")[table + 1].splitlines()[1:]
    end = next(number for number, line in enumerate([*lines, ""]) if not line.startswith("|"))
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[:end]]
    return {first: others for first, *others in cells}


def assert_shown(shown: str, *values: float) -> None:
    """The numbers of a text are these, with as many digits as it has."""
    numbers = re.findall(r"\d[\d,]*(?:\.\d+)?", shown)
    decimals = [len(number.partition(".")[2]) for number in numbers]
    assert numbers == [f"{value:,.{places}f}" for value, places in zip(values, decimals, strict=True)], shown


def flat(page: str) -> str:
    """A page without its line breaks."""
    return " ".join(text_of(page).split())


SHOWN = {
    "how-to/beyond-512-accelerators": "planner plan -t dgx-h100 --nodes 32 -w nv-jumbo",
    "how-to/robust-plans": "planner plan -t dgx-h100 -w dlrm-dcnv2 --policy robust.yaml",
    "how-to/size-a-cluster": "planner size -t dgx-a100-80 -t dgx-h100",
    "how-to/when-it-does-not-fit": "planner plan --topology zionex-16 --workload model-f --tiers hbm",
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
    assert done.exit_code in (ExitCode.DONE, ExitCode.INFEASIBLE), done.stderr
    printed = "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())
    assert all(part in printed for part in textwrap.dedent(block).split("…\n"))


@pytest.mark.slow(seconds=15)
@pytest.mark.parametrize("name", memory_tiers.WORKLOADS)
def test_models_larger_than_hbm(name: str) -> None:
    """Our steps, and those of other plans as multiples of them; in brackets, of the stages of rows."""
    header = "| | ours | with splits | size | lookup | size x lookup | one ratio, 0.2 |"
    shown = next(row for first, row in rows_of("explanation/caches", header).items() if first.startswith(name))
    _, (ours, *others) = memory_tiers.rows(load_workload(name), memory_tiers.cluster(16), 1, 0.0)
    assert_shown(shown[0], ours.step_s * 1e3, ours.lookup_s * 1e3)
    for cell, row in zip(shown[1:], others, strict=True):
        assert_shown(cell, row.step_s / ours.step_s, row.lookup_s / ours.lookup_s)


@pytest.mark.slow(seconds=15)
def test_model_f() -> None:
    """By how often rows repeat, and what host memory and overhead take."""
    rate = {row.case: (row.samples_per_s or 0.0) / 1e6 for row in model_f.rows()}
    text = flat("explanation/caches")
    assert f"make {rate['hbm + ddr_cached']:.1f} M samples per second" in text
    assert f"it is {rate['all tiers, power law 0.8']:.1f} M (under {model_f.skew_of_public_tables():.2f}" in text
    assert f"in HBM it would be {rate['everything in HBM']:.1f} M, without" in text
    assert f"of fixed overhead {rate['the same, no fixed overhead']:.1f} M." in text


@pytest.mark.slow(seconds=60)
def test_fewer_nodes_with_more_memories() -> None:
    """For the lowest throughput, on both pages that have it; and the fewest that hold all tables."""
    found = list(mtrains.rows(load_topology(mtrains.CLUSTER), load_workload(mtrains.MODEL), [1e5]))
    alone, ddr, scm, ssd = found
    header = "| samples/s | HBM | + DDR | + byte-addressable | + SSD |"
    cells = rows_of("how-to/size-a-cluster", header)["100,000"]
    for cell, row in zip(cells, found, strict=True):
        assert_shown(cell, *([row.nodes] if row is alone else [row.nodes, row.factor]))
    header = (
        "| samples/s | HBM | + DDR | + byte-addressable | against HBM | against HBM + DDR | + SSD | against HBM |"
        " against HBM + DDR |"
    )
    cells = rows_of("reference/published-figures", header)["100,000"]
    factors = [number for row in (scm, ssd) for number in (row.nodes, row.factor, row.factor_of_ddr)]
    for cell, number in zip(cells, [alone.nodes, ddr.nodes, *factors], strict=True):
        assert_shown(cell, number)
    (fits,) = size(load_topology("zionex-16"), load_workload("model-f"), max_nodes=4, each_tier=False)
    assert fits.answer is not None
    few, rate = fits.answer.nodes, (fits.answer.samples_per_s or 0.0) / 1e3
    words = f"{few} nodes with all tiers, {ddr.nodes} without SSD, {alone.nodes} with HBM alone."
    assert f"{words} Fitting says nothing about speed: the {few} nodes reach {rate:.0f} thousand" in flat(
        "how-to/size-a-cluster"
    )


@pytest.mark.slow(seconds=36)
def test_neos_models() -> None:
    """What `python -m benchmarks.neo --docs` writes."""
    text = neo.markdown(list(neo.rows())) + "\n" + neo.sharding_table(list(neo.by_shardings()))
    assert neo.BEGIN + text + neo.END in text_of("reference/published-figures")


OF_BOTH = "| nodes | HugeCTR's plan, settings of v3.0 | of v4.0 | ours | bound | gap |"
ALIKE = "| nodes of 4 GPUs | HugeCTR's plan | ours | bound | gap |"


@pytest.mark.slow(seconds=10)
@pytest.mark.parametrize(
    ("header", "table", "topology", "nodes", "batch"),
    [
        (OF_BOTH, 0, "dgx-h100", 1, None),
        (OF_BOTH, 0, "dgx-h100", 16, None),
        (OF_BOTH, 1, "dgx-h100", 8, 135_168),
        (ALIKE, 0, "gb200-nvl72", 18, None),
    ],
)
def test_steps_of_hugectrs_plans(header: str, table: int, topology: str, nodes: int, batch: int | None) -> None:
    """Beside ours and our bound."""
    *steps, gap = rows_of("how-to/hugectr", header, table)[str(nodes)]
    old, new = hugectr_nodes.pairs(topology, nodes, effort=1, batch=batch)
    assert header == OF_BOTH or old.theirs_s == new.theirs_s
    theirs = [old.theirs_s, new.theirs_s] if header == OF_BOTH else [new.theirs_s]
    for cell, seconds in zip(steps, [*theirs, new.ours_s, new.bound_s], strict=True):
        assert_shown(cell, seconds * 1e3)
    assert_shown(gap, (new.ours_s / new.bound_s - 1) * 100)


@pytest.mark.slow(seconds=30)
def test_a_budget_of_loss() -> None:
    """The step without loss, and the least one, with the loss that it has."""
    found = run_study("compressors", runner=Serial(), cache=False).frame
    first, best = found.iloc[0], found.loc[found["step_s"].idxmin()]
    steps = (
        f"from {first['step_s'] * 1e3:.1f} ms at no loss to {best['step_s'] * 1e3:.1f} ms at a loss of {best['loss']:g}"
    )
    assert steps in flat("how-to/compress-tables")


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
