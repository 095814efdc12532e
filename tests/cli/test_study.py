"""`planner study` and `planner cache`: answers in every format, resumption, mistakes, interruption."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from planner.cli.exits import ExitCode
from planner.planning import integer_solution
from planner.studies.results import read_results

STUDY = """
name: small
description: Two sizes, two batches
topology: topology.yaml
workload: workload.yaml
axes:
  topology.nodes.0.count: [1, 2]
  workload.global_batch: [4096, 8192]
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def study(run, starter: Path, cache: Path) -> Callable[..., object]:
    """`study(text, *flags)`: run a study beside the starter's files, in one process."""

    def run_study(text: str, *words: object) -> object:
        (starter / "study.yaml").write_text(text)
        return run("study", starter / "study.yaml", "--workers", 1, *words)

    return run_study


def test_findings_and_points_are_shown(study) -> None:
    """Within 80 columns; progress on stderr."""
    result = study(STUDY)
    assert result.exit_code == 0, result.stderr
    assert "small: Two sizes, two batches" in result.stdout
    assert "4 points: 4 planned" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "4 of 4 points, in" in result.stderr


@pytest.mark.parametrize("columns", ["40", "60", "80"])
def test_the_table_says_which_point_each_line_is(study, monkeypatch, columns) -> None:
    """Axes are there on any console, and every figure is whole."""
    monkeypatch.setenv("COLUMNS", columns)
    text = STUDY.replace("global_batch: [4096, 8192]", "global_batch: [4096]")
    names = "".join(f"- {{name: a scenario of a rather long name {n}, set: {{workload.name: m{n}}}}}\n" for n in "ab")
    result = study(f"{text}scenarios:\n{names}search: {{effort: 0}}\n")
    assert result.exit_code == 0, result.stderr
    table = result.stdout.partition("\nAt the best point")[2].partition("\n\n")[2]
    assert {"scenario", "nodes", "samples/s"} <= set(table.split())
    assert "…" not in table
    assert max(map(len, table.splitlines())) <= int(columns)


def test_a_second_run_computes_nothing(study, run, starter: Path) -> None:
    """And prints the same; `planner cache` tells what is kept, and removes it."""
    first, second = study(STUDY, "--format", "csv"), study(STUDY, "--format", "csv")
    assert "4 of them from the cache" in second.stderr
    assert first.stdout == second.stdout
    (row,) = json.loads(run("cache", "info", "--format", "json").stdout)
    assert row["points"] == 4
    assert "removed 4 points" in run("cache", "clear").stderr
    assert "cache" not in study(STUDY, "--no-cache").stderr
    (row,) = json.loads(run("cache", "info", "--format", "json").stdout)
    assert row["points"] == 0


def test_results_plans_and_page_are_written(study, run, starter: Path, tmp_path: Path) -> None:
    """The file holds what CSV prints; each plan verifies; the page is one file."""
    words = ("-o", tmp_path / "r.parquet", "--plans", tmp_path / "plans", "--report", tmp_path / "r.html")
    printed = list(csv.DictReader(io.StringIO(study(STUDY, *words, "--format", "csv", "-q").stdout)))
    found = read_results(tmp_path / "r.parquet")
    assert [float(row["step_s"]) for row in printed] == [row["step_s"] for row in found.rows]
    assert {path.name for path in (tmp_path / "plans").iterdir()} == {f"point-{number}.json" for number in range(4)}
    assert run("verify", tmp_path / "plans" / "point-3.json").exit_code == 0
    assert "<html" in (tmp_path / "r.html").read_text()
    assert json.loads(study(STUDY, "--format", "json", "-q").stdout)["kind"] == "study_results"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (("nodes.0.count", "nodes.0.cuont"), "study.yaml:7:3: axes.topology.nodes.0.cuont: there is no 'cuont' at"),
        (("axes:", "axis:"), "unknown key; did you mean 'axes'?"),
        (("[4096, 8192]", "[]"), "the grid is empty"),
        (("workload.yaml", "wrokload.yaml"), "'wrokload.yaml': there is no such file"),
        (("axes:", "constraints: {step_s: {min: 2s, max: 1s}}\naxes:"), "nothing can keep both"),
    ],
)
def test_mistakes_exit_with_3(study, changed: tuple[str, str], said: str) -> None:
    """Before anything is computed."""
    result = study(STUDY.replace(*changed))
    assert result.exit_code == ExitCode.INVALID_INPUT
    assert said in " ".join(result.stderr.split())


def test_a_grid_of_millions_asks_first(study) -> None:
    """And says how long it would take."""
    many, some = "{first: 1024, last: 101023, step: 1}", "{first: 1, last: 20, step: 1}"
    result = study(STUDY.replace("[4096, 8192]", many).replace("[1, 2]", some) + "search: {effort: 0}\n")
    assert result.exit_code == ExitCode.WRONG_COMMAND_LINE
    said = " ".join(result.stderr.replace("│", " ").split())
    assert "the grid has 2,000,000 points" in said
    assert "would take about" in said
    assert "--yes" in said


def test_a_damaged_record_is_computed_again(study, cache: Path) -> None:
    """With a warning, and the results are those of the first run."""
    first = study(STUDY, "--format", "json")
    path = sorted(cache.glob("shardplan/points/*/*.json"))[0]
    data = json.loads(path.read_text())
    data["answer"]["record"]["step_s"] /= 10
    path.write_text(json.dumps(data))
    again = study(STUDY, "--format", "json")
    assert again.stdout == first.stdout
    assert f"warning: {path}: is damaged" in again.stderr
    assert "3 of them from the cache" in again.stderr


def test_a_solver_is_asked_instead_of_the_studys(study, monkeypatch) -> None:
    """The flag's word stands: a programme that is too large is refused, point by point."""
    monkeypatch.setitem(integer_solution.MOST_VARIABLES, "ilp", 10)
    result = study(STUDY + "search: {solver: search}\n", "--solver", "ilp", "--format", "json", "-q")
    assert result.exit_code == ExitCode.INFEASIBLE
    assert result.stdout.count("ilp takes at most 10 variables") >= 4


def test_no_point_that_counts_exits_with_4(study) -> None:
    """With how near one comes."""
    result = study(STUDY + "constraints: {samples_per_s: {min: 1e12}}\n")
    assert result.exit_code == ExitCode.INFEASIBLE
    assert "No point keeps the constraints." in result.stdout
    assert "below the 1 T samples/s asked for" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--scheduler", "tcp://h:1"), "has no effect without --runner dask"),
        (("--solver", "cplex"), "'cplex' is not known"),
        (("-o", "results.txt"), "must end in .parquet, .csv, .json"),
        (("-o", "/nowhere/r.csv"), "there is no directory"),
    ],
)
def test_wrong_flags_are_refused(study, words: tuple[str, str], said: str) -> None:
    """Before anything is computed."""
    result = study(STUDY, *words)
    assert result.exit_code == ExitCode.WRONG_COMMAND_LINE
    assert said in " ".join(result.stderr.split())


def children(pid: int) -> list[int]:
    """Processes that a process has started, and theirs."""
    lines = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(own): int(parent) for own, parent in map(str.split, lines.splitlines())}
    found = [pid]
    for each in found:
        found += [own for own, parent in parents.items() if parent == each]
    return found[1:]


def is_alive(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.strip().startswith("Z")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_workers_die_with_their_parent(starter: Path, cache: Path, tmp_path: Path, number: signal.Signals) -> None:
    """However it dies; under the name of the results there is nothing that is not whole."""
    (starter / "study.yaml").write_text(STUDY.replace("[4096, 8192]", "{first: 1024, last: 65536, step: 512}"))
    command = [sys.executable, "-m", "planner", "study", str(starter / "study.yaml"), "-q"]
    process = subprocess.Popen([*command, "-o", str(tmp_path / "r.csv"), "--workers", "2"], start_new_session=True)
    end = time.monotonic() + 120
    while not list(cache.glob("shardplan/points/*/*.json")) and time.monotonic() < end:
        time.sleep(0.1)
    workers = children(process.pid)
    assert len(workers) >= 2
    process.send_signal(number)
    code = process.wait(timeout=60)
    while any(map(is_alive, workers)) and time.monotonic() < end:
        time.sleep(0.1)
    assert not any(map(is_alive, workers))
    if number == signal.SIGTERM:
        assert code == ExitCode.TERMINATED == 143
        assert 0 < len((tmp_path / "r.csv").read_text().splitlines()) - 1 < 252
    else:
        assert not (tmp_path / "r.csv").exists()


def test_points_so_far_are_not_called_results(study, starter: Path, tmp_path: Path, monkeypatch) -> None:
    """What is saved on the way has a name of its own, which is gone when the results are there."""
    from planner.cli import study as command
    from planner.studies import results

    saved = []

    def write(found: results.StudyResults, path: Path) -> None:
        saved.append((path.name, len(found.rows)))
        assert not (tmp_path / "r.csv").exists()
        written(found, path)

    written = results.write_results
    monkeypatch.setattr(command, "SAVE_EVERY_S", 0.0)
    monkeypatch.setattr(results, "write_results", write)
    assert study(STUDY, "-o", tmp_path / "r.csv").exit_code == 0
    assert saved == [*(("r.partial.csv", number) for number in (1, 2, 3, 4)), ("r.csv", 4)]
    assert not (tmp_path / "r.partial.csv").exists()


def test_ctrl_c_keeps_what_was_computed(starter: Path, cache: Path, tmp_path: Path) -> None:
    """Exit code 130, the points so far are written, and a second run takes them from the cache."""
    (starter / "study.yaml").write_text(STUDY.replace("[4096, 8192]", "{first: 1024, last: 65536, step: 512}"))
    command = [sys.executable, "-m", "planner", "study", str(starter / "study.yaml")]
    output = ("-o", str(tmp_path / "r.csv"), "--workers", "2")
    process = subprocess.Popen(
        [*command, *output], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    end = time.monotonic() + 120
    while not list(cache.glob("shardplan/points/*/*.json")) and time.monotonic() < end:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == ExitCode.INTERRUPTED, said
    assert "stopping with the points so far" in said
    written = len((tmp_path / "r.csv").read_text().splitlines()) - 1
    assert 0 < written < 252


@pytest.mark.parametrize(
    "name",
    [
        "zionex-scaling",
        "mlperf-generations",
        "batch-and-precision",
        "model-f-tiers",
        "growth",
        "one-world-or-groups",
        "compressors",
    ],
)
def test_shipped_studies_are_valid(run, name: str) -> None:
    """Every point of each has its inputs."""
    result = run("check", name)
    assert result.exit_code == 0, result.stdout
    assert "ok (study:" in result.stdout
