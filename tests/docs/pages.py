"""The fenced blocks of the documentation, how they are run, and what a comment above one says of it.

`<!-- not run: WHY -->` says why nobody runs a block, `<!-- run by: FILE -->` which test does, with more than that it
ends well; `<!-- file: NAME -->` makes it a file of the page. All others are run as they stand, and end well, or with
the code of `<!-- exits: CODE -->`.
"""

import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from typer.testing import CliRunner

from planner.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = tuple(sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]))
RUN = ("sh", "bash", "python")
"""The languages of what is run."""
NOT_RUN = {
    "pip": "needs a network",
    "gh": "needs a network",
    "docker": "needs Docker; tests/packaging tries its steps without",
    "torchrun": "a trainer of the reader",
    "source": "sets variables for a trainer of the reader",
    "--from-model": "needs torchrec; tests/torchrec_package builds models",
    "torchrec-pickle": "needs torchrec; tests/torchrec_package reads pickles",
    "calibrate": "needs the machine that is calibrated; tests/cli/test_calibrate.py has measurements",
    "--runner dask": "needs a cluster of processes; tests/planner/studies starts one",
    "export PLANNER_COEFFICIENTS": "sets a variable of the reader's shell",
    "--pictures": "needs a browser; tests/browser has one",
    "size -t zionex-16 -w model-f": "a minute of search; benchmarks/mtrains.py has its figures",
    "size -t dgx-a100-80 -t dgx-h100": "half a minute; tests/docs/test_figures.py has what it prints",
    "size -t zionex-16 -w dlrm-dcnv2 --max-step": "half a minute; the one with --target-qps is run",
    "study zionex-scaling": "minutes of search; tests/planner/studies/test_shipped.py has the shipped studies",
    "study mlperf-generations": "minutes of search; tests/planner/studies/test_shipped.py has the shipped studies",
    "study mine.yaml": "minutes of search; it is a shipped study",
}
"""Words of commands that are left out, and why."""
_BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>not run|run by|file|exits): (?P<words>.+?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    line: int
    language: str
    text: str
    mark: str | None
    words: str

    @property
    def is_run(self) -> bool:
        """Whether the test of its page runs it."""
        return self.language in RUN and self.mark in (None, "exits")


def name_of(page: Path) -> str:
    """The name of a page, as of a test of it."""
    return str(page.relative_to(ROOT).with_suffix("")).removeprefix("docs/")


def blocks_of(page: Path) -> list[Block]:
    """Those of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            text.count("\n", 0, found.start()) + 1,
            found["language"],
            found["text"],
            found["mark"],
            found["words"] or "",
        )
        for found in _BLOCK.finditer(text)
    ]


def lines_of(block: Block) -> Iterator[list[str]]:
    """The words of every command of a block, one after the other."""
    for line in block.text.replace("\\\n", " ").splitlines():
        if any(re.search(rf"(?<![\w-]){re.escape(words)}(?![\w-])", line) for words in NOT_RUN):
            continue
        for part in re.split(r"\s&&\s", line):
            if words := shlex.split(part, comments=True):
                yield words


def run_command(words: list[str], code: int = 0) -> None:
    """A command, in this process, which is to end with a code; `>` writes what it prints to a file."""
    words, target = (words[:-2], words[-1]) if ">" in words else (words, None)
    name, *rest = [
        each for word in words for each in (sorted(map(str, Path().glob(word))) if "/*." in word else [word])
    ]
    if name == "planner":
        done = CliRunner().invoke(app, rest, prog_name="planner")
        assert done.exit_code == code, (words, done.stderr, done.exception)
        printed = done.stdout
    elif name in ("printf", "echo"):
        printed = rest[0].encode().decode("unicode_escape")
    else:
        assert name == "cp", words
        printed = str(shutil.copy(*rest))
    if target is not None:
        Path(target).write_text(printed)


def run_page(page: Path) -> None:
    """The commands and snippets of a page, beside its files."""
    names = {"__name__": "__main__"}
    for block in blocks_of(page):
        if block.mark == "file":
            Path(block.words).write_text(block.text)
    for block in blocks_of(page):
        if not block.is_run:
            continue
        if block.language == "python":
            exec(compile(block.text, f"{page}:{block.line}", "exec"), names)
            continue
        for words in lines_of(block):
            run_command(words, int(block.words or 0))
