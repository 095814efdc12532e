"""`python -m tests.mutation [COUNT] [SEED]`: a seeded sample of mutants of the modules of mutmut.toml, by mutmut.

Works in a copy of the checkout in `build/mutation`, which keeps what was decided: called again it goes on. Prints how
many mutants were killed, and which survived or are reached by no test; `mutmut show NAME` there shows one.
"""

import json
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
COPY = ROOT / "build" / "mutation"
KILLED, SURVIVED, NO_TESTS = "killed", "survived", "no tests"
NAMES = {0: SURVIVED, 33: NO_TESTS}
"""Of mutmut's exit codes; others are failures and timeouts, of which a test noticed the change."""


def copied() -> None:
    """The checkout as git knows it, with our settings for mutmut."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True).stdout
    for name in listed.split("\0")[:-1]:
        (COPY / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, COPY / name)
    settings = Path(__file__).with_name("mutmut.toml").read_text()
    (COPY / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text() + settings)


def codes() -> dict[str, int | None]:
    """What mutmut has found of each mutant; None of those that it has not run."""
    found: dict[str, int | None] = {}
    for file in sorted((COPY / "mutants").rglob("*.py.meta")):
        found |= json.loads(file.read_text())["exit_code_by_key"]
    return found


def main(count: int = 530, seed: int = 25) -> None:
    """Run the sample and print what became of it."""
    copied()
    run = ["mutmut", "run"]
    subprocess.run([*run, "no-such-mutant"], cwd=COPY, check=False)  # only makes the mutants
    sample = random.Random(seed).sample(sorted(codes()), count)
    subprocess.run([*run, *sample], cwd=COPY, check=True)
    found = codes()
    of = {name: NAMES.get(code, KILLED) for name in sample if (code := found[name]) is not None}
    for name, outcome in sorted(of.items()):
        if outcome != KILLED:
            print(f"{outcome}: {name}")
    print(f"{len(of)} of {len(found)} mutants: {dict(Counter(of.values()))}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
