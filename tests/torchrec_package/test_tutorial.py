"""The tutorial from nothing to a plan that trains: its own commands, files, trainer and launcher; two processes."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, blocks_of, run_page

PAGE = ROOT / "docs" / "tutorials" / "torchrec-from-nothing.md"


def block(start: str) -> Block:
    """The one of the page that begins so."""
    (found,) = (each for each in blocks_of(PAGE) if each.text.startswith(start))
    return found


def test_two_processes_train_by_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's own line starts them; the loss falls, and tables are on the ranks of the plan."""
    monkeypatch.chdir(tmp_path)
    run_page(PAGE)
    Path("train.py").write_text(block("# train.py").text)
    found = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": found, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["sh", "-c", block("torchrun ").text], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    first, last = (float(loss) for loss in re.findall(r"loss ([\d.]+)", done.stdout))
    assert last < 0.9 * first
    (printed,) = re.findall(r"^\{.*\}$", done.stdout, re.MULTILINE)
    held = ast.literal_eval(printed)
    assert held.keys() == {"user", "item", "shop"}
    assert all(ranks for _, ranks in held.values())
