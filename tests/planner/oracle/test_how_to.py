"""The page on searching a model: its search runs, and its file of candidates is one."""

import re
from pathlib import Path

import pytest

from cost_models.workload.loading import load_workload
from planner.oracle.candidates import candidates_of
from planner.oracle.changes import read_changes

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "search-a-model.md").read_text(encoding="utf-8")


def test_the_search_finds_models_within_the_budget(capsys: pytest.CaptureFixture[str]):
    """With fewer candidates than on the page: each line is a model that keeps to the budget."""
    search = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
    names: dict[str, object] = {}
    exec(search.replace("range(2000)", "range(60)"), names)
    found = capsys.readouterr().out.splitlines()
    assert found
    assert all(float(line.split(", ")[1].split()[0]) <= names["budget_s"] * 1e3 + 1e-3 for line in found)


def test_the_file_of_candidates_is_one(tmp_path: Path):
    """The example of the page changes what its table says."""
    (tmp_path / "candidates.csv").write_text(re.findall(r"```\n(name,.*?)```", PAGE, re.DOTALL)[0])
    found = candidates_of(load_workload("criteo-kaggle"), *_columns(tmp_path / "candidates.csv"))
    narrow, fewer, hashed, lean = (found.workload(number) for number in range(4))
    assert {table.dim for table in narrow.tables} == {8}
    assert fewer.tables[2].rows == 500_000
    assert str(hashed.tables[3].compressor) == "hash:4"
    assert len(lean.tables) == 25
    assert lean.dense.top_mlp == (256, 1)


def _columns(path: Path):
    columns, place = read_changes(path)
    return columns, str(path), place
