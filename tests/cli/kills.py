"""`python -m tests.cli.kills [COUNT] [SEED] [LONGEST_S]`: commands that are killed, or asked to end, at random moments.

Every command that reads or writes files has its turn; what it writes must be whole or absent, and what it read must
stay as it was. Prints one line for each command, and fails at the first fault.
"""

import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from planner.verification.loading import load_plan

PROGRAM = "from planner.cli.app import main; main()"
MODEL = ("-t", "dgx-a100-80", "-w", "dlrm-dcnv2")
COMMANDS: dict[str, tuple[str, ...]] = {
    "plan": ("plan", *MODEL, "-o", "out.json"),
    "export": ("export", "plan.json", "--to", "torchrec", "-o", "out.json"),
    "report": ("report", "plan.json", "-o", "out.html"),
    "study": ("study", "study.yaml", "--no-cache", "--workers", "1", "-o", "out.json"),
    "study-cached": ("study", "study.yaml", "--workers", "2", "-o", "out.json"),
    "run": ("run", "run.yaml", "-o", "out.json"),
    "replan": ("plan", *MODEL, "--from", "plan.json", "-o", "out.json"),
    "simulate": ("simulate", "plan.json", "--trace", "out"),
    "import": ("import", "export.json", *MODEL, "--from", "torchrec", "-o", "out.json"),
    "profile": ("profile", "log.csv", "--separator", "|", "--dim", "64", "--columns", "user,items", "-o", "out.yaml"),
    "init": ("init", "out"),
    "size": ("size", *MODEL, "--fits", "--max-nodes", "2"),
    "compare": ("compare", "plan.json", "plan.json"),
    "diff": ("diff", "plan.json", "plan.json"),
    "memory": ("memory", "plan.json"),
    "cost": ("cost", "plan.json", "--changes", "changes.csv"),
    "cache": ("cache", "info"),
    "verify": ("verify", "plan.json"),
    "check": ("check", "plan.json", "--max-step", "1s"),
    "explain": ("explain", "plan.json"),
    "catalog": ("catalog", "list"),
    "schema": ("schema", "plan"),
    "doctor": ("doctor",),
}
"""With the file that it writes last, where it writes one."""
INPUTS = {
    "study.yaml": "name: s\ntopology: dgx-a100-80\nworkload: dlrm-dcnv2\naxes: {topology.nodes.0.count: [1, 2]}\n",
    "run.yaml": "name: r\ntopology: dgx-a100-80\nworkload: dlrm-dcnv2\nsearch: {effort: 0, gap: 50%}\n"
    "stages: [{name: a, global_batch: 65536, samples: 6553600}]\n",
    "changes.csv": "name,cat_0.dim\none,64\ntwo,32\n",
    "log.csv": "user,items\n" + "".join(f"{n % 97},{n % 7}|{n % 5}\n" for n in range(5000)),
}
ENDED = (0, 143, -signal.SIGTERM, -signal.SIGKILL)
FOUND_LATE = 5
"""A plan that is asked to end keeps what it has, and says so."""


def ended(folder: Path, words: tuple[str, ...], number: signal.Signals | None = None, after_s: float = 0.0) -> int:
    """The exit code of a command that gets a signal after some seconds; without one, when it ends."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", PROGRAM, *words], cwd=folder, **quiet) as process:
        try:
            return process.wait(after_s if number is not None else None)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
            return process.wait(120)


def prepare(folder: Path) -> None:
    """The files that the commands read."""
    for name, text in INPUTS.items():
        (folder / name).write_text(text)
    assert ended(folder, ("plan", *MODEL, "--effort", "0", "--gap", "50%", "-o", "plan.json")) == 0
    assert ended(folder, ("export", "plan.json", "--to", "torchrec", "-o", "export.json")) == 0


def is_whole(output: Path) -> bool:
    """Whether an output is one that a command has finished."""
    if output.is_dir():
        return all(path.stat().st_size for path in output.iterdir() if not path.name.startswith("."))
    text = output.read_text()
    if output.suffix == ".html":
        return text.rstrip().endswith("</html>")
    return bool(json.loads(text)) if output.suffix == ".json" else text.endswith("\n")


def kill(folder: Path, command: str, chance: random.Random, longest_s: float) -> int:
    """Kill one command; what is not whole, changed or left behind fails. Its exit code."""
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    output = folder / COMMANDS[command][-1] if COMMANDS[command][-1].startswith("out") else None
    number = chance.choice((signal.SIGKILL, signal.SIGTERM))
    code = ended(folder, COMMANDS[command], number, chance.uniform(0.05, longest_s))
    assert code in (*ENDED, FOUND_LATE), (command, number, code)
    if output is not None and output.exists():
        assert is_whole(output), (command, number)
        if command in ("plan", "replan"):
            load_plan(output)
    elif output is not None:
        assert code != 0, (command, number)
    new = [path for path in folder.iterdir() if path.name not in before]
    assert {name: (folder / name).read_bytes() for name in before} == before, (command, number)
    assert number == signal.SIGKILL or all(path == output for path in new), (command, new)
    for path in new:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return code


def main(count: int = 200, seed: int = 0, longest_s: float = 3.0) -> None:
    """Kill so many commands, each in its turn."""
    chance, codes = random.Random(seed), {command: Counter[int]() for command in COMMANDS}
    with tempfile.TemporaryDirectory() as name:
        prepare(Path(name))
        for turn in range(count):
            command = list(COMMANDS)[turn % len(COMMANDS)]
            codes[command][kill(Path(name), command, chance, longest_s)] += 1
    for command, found in codes.items():
        print(f"{command}: {dict(found)}")
    print(f"{count} commands killed or asked to end: outputs whole or absent, inputs as they were")


if __name__ == "__main__":
    numbers = [float(word) for word in sys.argv[1:]]
    main(*map(int, numbers[:2]), *numbers[2:])
