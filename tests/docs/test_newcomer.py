"""A newcomer's first day as a shell script: a cluster and tables of their own, each command, each format, mistakes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from planner.cli.app import app

SCRIPT = Path(__file__).with_name("newcomer.sh")
NEEDS_MORE = {"calibrate", "profile", "report"}
"""Commands that need logs, the machine's time or an extra; tests of their own have them."""


def test_the_script_has_every_command() -> None:
    """And every format that stdout has."""
    text = SCRIPT.read_text(encoding="utf-8")
    commands = {
        str(each.name or each.callback.__name__.strip("_")) for each in app.registered_commands if each.callback
    }
    commands |= {str(each.name) for each in app.registered_groups}
    assert len(commands) > 20
    missing = {name for name in commands if f"planner {name} " not in text and f"planner {name}\n" not in text}
    assert missing == NEEDS_MORE
    assert "for format in table json csv markdown" in text


@pytest.mark.slow(seconds=110)
def test_every_step_ends_as_it_should(tmp_path: Path) -> None:
    """With its exit code and its words, and without a traceback."""
    shim = tmp_path / "bin" / "planner"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m planner "$@"\n')
    shim.chmod(0o755)
    folder = tmp_path / "day"
    folder.mkdir()
    root = str(SCRIPT.parents[2])
    environment = os.environ | {
        "PATH": f"{shim.parent}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "COLUMNS": "80",
    }
    done = subprocess.run(["sh", SCRIPT], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    last = done.stdout.splitlines()[-1]
    assert done.returncode == 0, (last, done.stderr[-5000:])
    assert last.endswith("steps, 0 wrong")
    assert int(last.split()[0]) >= 60
