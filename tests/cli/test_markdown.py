"""`--format markdown`: tables of GitHub's Markdown from every command that prints some."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.reports import markdown
from planner.reports.tables import TextGrid

COMMANDS = {
    "plan": ["plan", "-t", "topology.yaml", "--nodes", 2, "--effort", 0, "--gap", "50%", "-q"],
    "explain": ["explain", "plan.json"],
    "compare": ["compare", "plan.json", "plan.json"],
    "memory": ["memory", "plan.json"],
    "simulate": ["simulate", "plan.json"],
    "catalog": ["catalog", "list", "workloads"],
    "coefficients": ["catalog", "coefficients", "h100-sxm"],
    "check": ["check", "plan.json"],
    "diff": ["diff", "plan.json", "plan.json"],
}
"""One of each way to write a table."""


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_commands_write_markdown(run, starter, plan_file, monkeypatch, words):
    """Every line of a table has as many cells as its rule, and an empty line stands before its head."""
    (starter / "plan.json").write_bytes(plan_file.read_bytes())
    monkeypatch.chdir(starter)
    result = run(*words, "--format", "markdown")
    assert result.exit_code == 0, result.stderr
    lines = ["", *result.stdout.splitlines()]
    rules = [number for number, line in enumerate(lines) if re.fullmatch(r"\|( (:--|--:) \|)+", line)]
    assert rules
    for rule in rules:
        assert lines[rule - 2] == ""
        for line in lines[rule - 1 :]:
            if not line.startswith("|"):
                break
            assert line.count("|") - line.count("\\|") == lines[rule].count("|")


def test_names_are_no_markup(run, starter, tmp_path, monkeypatch):
    """A table's name with markup of every kind is one cell of one line."""
    name = "a|b`c`<img src=x> *d* [e](http://f) _g_"
    tables = [{"name": name, "rows": 1000, "dim": 64, "pooling_factor": 4}]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.yaml").write_text(json.dumps({"name": "# m", "batch_per_rank": 512, "tables": tables}))
    words = [
        "-t",
        starter / "topology.yaml",
        "-w",
        "w.yaml",
        "--nodes",
        1,
        "--effort",
        0,
        "--gap",
        "50%",
        "-q",
        "-o",
        "plan.json",
    ]
    assert run("plan", *words).exit_code == 0
    page = run("explain", "plan.json", "--format", "markdown").stdout
    assert r"| a\|b\`c\`\<img src=x\> \*d\* \[e\](http://f) \_g\_ |" in page
    assert page.startswith("\\# m on ")


@given(st.lists(st.text(alphabet=st.characters(codec="utf-8"), max_size=12), min_size=1, max_size=4))
def test_a_table_keeps_its_shape(cells):
    """Whatever its cells hold: three lines, with as many bars that are not escaped as there are columns, and one."""
    grid = TextGrid(*((cell, "left") for cell in cells))
    grid.add_row(*cells)
    empty, *lines, last = markdown.table(grid).split("\n")
    assert (empty, last, len(lines)) == ("", "", 3)
    for line in lines:
        assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) == len(cells) + 1


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("table_row_wise in hbm", "table_row_wise in hbm"),
        ("_a_ b", r"\_a\_ b"),
        ("# a\n  - b\n1. c\n1.5 ms", "\\# a\n\\- b\n1\\. c\n1.5 ms"),
        ("+10% bandwidth", r"\+10% bandwidth"),
    ],
)
def test_text_is_shown_as_it_is(words, shown):
    """Escapes stand where markup could begin, and nowhere else."""
    assert markdown.text(words) == shown
