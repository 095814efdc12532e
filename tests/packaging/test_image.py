"""The Dockerfile step by step in an empty folder, without Docker: what its stages copy is enough to plan."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if line and not line.startswith("#")]
UNCOMPILED = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | {
    "PIP_NO_COMPILE": "0"  # as a variable, 0 stands for --no-compile: modules are compiled where they are used
}
OF_THE_IMAGE = ("useradd",)
"""Commands that change the users of the image alone."""


class Stage:
    """The folder that a stage of the image has as its root, and an environment in the place of the image's Python, into
    which the pip of this one installs."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root
        self.entry: list[str] = []
        binaries = root / "environment" / "bin"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", root / "environment"], check=True)
        pip = f"exec '{sys.executable}' -m pip --python '{binaries}/python'"
        (binaries / "pip").write_text(f'#!/bin/sh\n{pip} "$@"\n')
        (binaries / "pip").chmod(0o755)

    def place(self, path: str) -> Path:
        """Where a path of the image is."""
        return self.root / path.removeprefix("/") if path.startswith("/") else self.folder / path

    def run(self, command: str) -> str:
        """A shell line in the stage's folder, its paths below the stage's root; what it prints."""
        path = f"{self.root / 'environment' / 'bin'}:{os.environ['PATH']}"
        command = re.sub(r"(?<![\w./])/(?=\w)", f"{self.root}/", command)
        return subprocess.run(
            ["sh", "-c", command], cwd=self.folder, env={**UNCOMPILED, "PATH": path}, check=True, text=True,
            stdout=subprocess.PIPE,
        ).stdout  # fmt: skip


def copy(source: Path, target: Path) -> None:
    """As COPY does: a folder's content, or a file."""
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target.mkdir(exist_ok=True) if target.suffix == "" else None
        shutil.copy(source, target)


def built(target: str, folder: Path) -> Stage:
    """The stages of the Dockerfile up to `target`."""
    stages: dict[str, Stage] = {}
    stage = None
    for line in LINES:
        instruction, _, rest = line.partition(" ")
        words = shlex.split(rest)
        if instruction == "FROM":
            if target in stages:
                break
            base, _, name = words
            stage = stages[name] = stages[base] if base in stages else Stage(folder / name)
            continue
        assert stage is not None
        if instruction == "WORKDIR":
            stage.folder = stage.place(rest)
            stage.folder.mkdir(parents=True, exist_ok=True)
        elif instruction == "COPY":
            *sources, place = [word for word in words if not word.startswith("--")]
            other = [word.removeprefix("--from=") for word in words if word.startswith("--from=")]
            for source in sources:
                copy(stages[other[0]].place(source) if other else ROOT / source, stage.place(place))
        elif instruction == "RUN" and words[0] not in OF_THE_IMAGE:
            stage.run(rest)
        elif instruction == "ENTRYPOINT":
            stage.entry = json.loads(rest)
        else:
            assert instruction in ("RUN", "USER", "CMD")
    return stages[target]


@pytest.mark.slow(seconds=25)
def test_what_the_stages_copy_is_enough(tmp_path):
    """The image plans from its catalog, draws a report once it has the extras, and holds no source beside its wheel."""
    image = built("extras", tmp_path)
    entry = shlex.join(image.entry)
    image.run(f"{entry} plan -t zionex-16 -w dlrm-dcnv2 --effort 0 -q -o plan.json")
    assert "ok: step" in image.run(f"{entry} check plan.json --max-step 90ms")
    image.run(f"{entry} report plan.json -o report.html")
    assert sorted(path.name for path in image.root.iterdir()) == ["environment", "locks", "plans", "wheels"]


def test_stages_are_core_and_extras():
    """Both run as a user without rights, start with the planner, and copy nothing that is not in the source."""
    assert [line.split()[-1] for line in LINES if line.startswith("FROM")] == ["build", "core", "extras"]
    assert [line for line in LINES if line.startswith("USER")][-1] == "USER planner"
    copied = [shlex.split(line)[1:-1] for line in LINES if line.startswith("COPY") and "--from" not in line]
    assert all((ROOT / name).exists() for names in copied for name in names)
