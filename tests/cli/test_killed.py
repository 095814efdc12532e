"""Commands that are killed, or asked to end, at a random moment: what they write is whole or absent."""

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from planner.verification.loading import load_plan

PROGRAM = "from planner.cli.app import main; main()"
COMMANDS = {
    "plan": ("plan", "-t", "dgx-a100-80", "-w", "dlrm-dcnv2", "-o", "out.json"),
    "export": ("export", "plan.json", "--to", "torchrec", "-o", "out.json"),
    "report": ("report", "plan.json", "-o", "out.html"),
    "study": ("study", "study.yaml", "--no-cache", "--workers", "1", "-o", "out.json"),
}
STUDY = "name: s\ntopology: dgx-a100-80\nworkload: dlrm-dcnv2\naxes: {topology.nodes.0.count: [1, 2]}\n"
LONGEST_S = 3.0
"""The latest moment of a signal; most commands have ended by then on an idle machine."""


def _ended(folder: Path, words: tuple[str, ...], number: signal.Signals | None, after_s: float) -> int:
    """The exit code of a command that gets a signal."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", PROGRAM, *words], cwd=folder, **quiet) as process:
        try:
            return process.wait(after_s if number is not None else None)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
            return process.wait(60)


@pytest.mark.parametrize("count", [2, pytest.param(16, marks=pytest.mark.slow)])
def test_outputs_are_whole_or_absent(tmp_path: Path, count: int) -> None:
    """A file that is whole, or none; after SIGTERM no temporary one."""
    chance = random.Random(count)
    (tmp_path / "study.yaml").write_text(STUDY)
    assert _ended(tmp_path, (*COMMANDS["plan"][:-1], "plan.json"), None, 0) == 0
    for turn in range(count):
        command = list(COMMANDS)[turn % len(COMMANDS)]
        output = tmp_path / COMMANDS[command][-1]
        number = chance.choice((signal.SIGKILL, signal.SIGTERM))
        code = _ended(tmp_path, COMMANDS[command], number, chance.uniform(0.05, LONGEST_S))
        assert code in (0, 143, -signal.SIGTERM, -signal.SIGKILL, 5), (command, number)
        if output.exists():
            text = output.read_text()
            assert text.rstrip().endswith("</html>") if output.suffix == ".html" else json.loads(text)
            if command == "plan":
                load_plan(output)
        else:
            assert code != 0
        hidden = [path for path in tmp_path.iterdir() if path.name.startswith(".")]
        assert not hidden or number == signal.SIGKILL
        for path in (output, *hidden):
            path.unlink(missing_ok=True)
