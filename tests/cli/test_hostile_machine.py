"""A machine that fails, and names that somebody chose to do harm: whole files or none, clear errors, text as text."""

import errno
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.cli.kills import PROGRAM

OUTPUTS = {
    "export": ("export", "plan.json", "--to", "torchrec", "-o", "out.json"),
    "report": ("report", "plan.json", "-o", "out.html"),
    "simulate": ("simulate", "plan.json", "--trace", "out"),
}
NAMES = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "../../../outside",
    "/tmp/absolute-name",
    "=1+1",
    "@SUM(A1)",
    "[bold red]markup[/bold red]",
    "a|b`c",
    "${HOME}; rm -rf x",
]


@contextmanager
def full_disk(most_bytes: int) -> Iterator[None]:
    """No file of this process grows beyond so many bytes."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("command", OUTPUTS)
def test_a_full_disk_leaves_the_old_file(run, plan_file, tmp_path, monkeypatch, command):
    """The error names the file; what was there is as it was, and no temporary file is left."""
    monkeypatch.chdir(tmp_path)
    old = tmp_path / OUTPUTS[command][-1]
    if old.suffix:
        old.write_text("old")
    before = files(tmp_path)
    with full_disk(1000):
        result = run(*OUTPUTS[command])
    assert result.exit_code not in (0, 1), result.output
    assert "out" in result.stderr
    assert "cannot be written" in result.stderr
    assert files(tmp_path) == before


@pytest.mark.parametrize("command", OUTPUTS)
def test_a_place_that_is_read_only_is_named(run, plan_file, tmp_path, monkeypatch, command):
    """As on a file system without write access, also for root."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.chdir(tmp_path)
    before = files(tmp_path)
    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    result = run(*OUTPUTS[command])
    assert result.exit_code not in (0, 1), result.output
    assert "cannot be written: Read-only file system" in result.stderr
    assert files(tmp_path) == before


@pytest.mark.slow
def test_two_runs_share_a_folder_and_a_cache(tmp_path):
    """Two studies at the same time, with one cache and one output, and a third that finds all there: one table."""
    study = "name: s\ntopology: dgx-a100-80\nworkload: nv-tiny\naxes: {topology.nodes.0.count: [1, 2]}\n"
    (tmp_path / "study.yaml").write_text(study + "search: {effort: 0}\n")
    words = [sys.executable, "-c", PROGRAM, "study", "study.yaml", "-q", "--format", "csv"]
    where = {"cwd": tmp_path, "env": {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}}
    both = [subprocess.Popen([*words, "-o", name], stdout=subprocess.PIPE, **where) for name in ("out.csv", "out.csv")]
    tables = [process.communicate(timeout=300)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    tables.append(subprocess.run(words, stdout=subprocess.PIPE, check=True, timeout=300, **where).stdout)
    assert len(set(tables)) == 1
    assert len(tables[0].splitlines()) == 3
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.fixture
def named(run, tmp_path, monkeypatch) -> Path:
    """A plan of tables with such names, in a folder of its own."""
    folder = tmp_path / "a" / "b" / "c"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    tables = [{"name": name, "rows": 1000 * (n + 1), "dim": 16, "pooling_factor": 2} for n, name in enumerate(NAMES)]
    (folder / "w.yaml").write_text(yaml.safe_dump({"name": NAMES[0], "global_batch": 1024, "tables": tables}))
    result = run("plan", "-t", "dgx-a100-80", "-w", "w.yaml", "--effort", 0, "--gap", "50%", "-q", "-o", "plan.json")
    assert result.exit_code == 0, result.output
    assert "[bold red]markup[/bold red]" in run("explain", "plan.json", "--table", NAMES[6]).stdout
    return tmp_path


def test_names_are_text_wherever_they_are_shown(run, named):
    """No name is markup of a page or a terminal, a path, or a formula of a spreadsheet."""
    outside = set(Path("/tmp").iterdir())
    for words in (
        ("report", "plan.json", "-o", "out.html"),
        ("export", "plan.json", "--to", "torchrec", "-o", "out.json"),
        ("simulate", "plan.json", "--trace", "traces"),
        ("diff", "plan.json", "plan.json", "--format", "markdown"),
    ):
        result = run(*words)
        assert result.exit_code == 0, (words, result.output)
        assert "\x1b" not in result.output
    page = Path("out.html").read_text()
    assert NAMES[0] not in page
    assert "<img src=x" not in page
    table = run(
        "plan",
        "-t",
        "dgx-a100-80",
        "-w",
        "w.yaml",
        "--effort",
        0,
        "--gap",
        "50%",
        "-q",
        "--format",
        "csv",
        "-o",
        "p.json",
    )
    cells = [cell.strip('"') for line in table.stdout.splitlines() for cell in line.split(",")]
    assert not [cell for cell in cells if cell.startswith(("=", "@"))]
    assert "absolute-name" not in {path.name for path in {*Path("/tmp").iterdir()} - outside}
    assert {path.name for path in named.iterdir()} == {"a"}


def test_no_result_depends_on_the_clock_of_the_day():
    """A clock that is set meanwhile changes nothing: durations are those of a clock that cannot be set, and no
    document has a date of its own."""
    root = Path(__file__).parents[2]
    found = [
        f"{path.relative_to(root)}: {words}"
        for package in ("planner", "cost_models", "topologies")
        for path in sorted((root / package).rglob("*.py"))
        for words in ("time.time(", "datetime.now", "datetime.today", "date.today", "utcnow")
        if words in path.read_text()
    ]
    assert found == []
