"""The tutorial from nothing to a plan that trains: its own commands, files and trainer, with two processes."""

import ast
import re
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks_of, run_page
from tests.torchrec_package.test_how_to import run

PAGE = ROOT / "docs" / "tutorials" / "torchrec-from-nothing.md"


def test_two_processes_train_by_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss falls, and tables are on the ranks of the plan."""
    monkeypatch.chdir(tmp_path)
    run_page(PAGE)
    (trainer,) = (block.text for block in blocks_of(PAGE) if block.text.startswith("# train.py"))
    printed = run(trainer.replace('"torchrec_plan.json"', repr(str(tmp_path / "torchrec_plan.json"))), tmp_path)
    first, last = (float(loss) for loss in re.findall(r"loss ([\d.]+)", printed))
    assert last < 0.9 * first
    (found,) = re.findall(r"^\{.*\}$", printed, re.MULTILINE)
    held = ast.literal_eval(found)
    assert held.keys() == {"user", "item", "shop"}
    assert all(ranks for _, ranks in held.values())
