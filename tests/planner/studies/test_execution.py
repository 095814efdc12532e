"""Runs of a study: the same results whoever computes them, nothing twice, a death takes nothing with it."""

import contextlib
import itertools
import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from planner.planning import integer_solution
from planner.studies import execution, point, runners
from planner.studies.execution import Done
from planner.studies.grid import Grid
from planner.studies.point import Answer, Job, answer
from planner.studies.results import StudyResults, as_document, read_results, write_results
from planner.studies.runners import Processes, Serial
from planner.studies.store import Store
from planner.studies.table import results

NODES = "topology.nodes.0.count"
NIC = "topology.nodes.0.links.scale_out.bandwidth"
AXES = {NODES: [1, 2], NIC: ["100Gb/s", "120Gb/s"]}
UNPLAYED = {"simulate": False}
RunGrid = Callable[..., list[Done]]


def test_processes_find_what_one_process_finds(grid: Callable[..., Grid], run_grid: RunGrid, tmp_path: Path) -> None:
    """To the last byte, in every file format."""
    points = grid(axes=AXES)
    with Processes(2) as pool:
        spread = results(points, run_grid(points, pool))
    alone = results(points, run_grid(points, Serial()))
    for suffix in (".parquet", ".csv", ".json"):
        files = [tmp_path / f"{name}{suffix}" for name in ("spread", "alone")]
        for found, file in zip((spread, alone), files, strict=True):
            write_results(found, file)
        assert files[0].read_bytes() == files[1].read_bytes()
    assert (alone.frame["status"] == "feasible").all()


def test_a_stopped_study_goes_on_where_it_was(grid: Callable[..., Grid], run_grid: RunGrid, tmp_path: Path) -> None:
    """And ends as one that was not stopped; what was computed is not computed again."""
    points, store = grid(axes=AXES, search=UNPLAYED), Store(tmp_path / "cache")
    looks = itertools.count()
    seen = list(execution.Execution(points, points).run(Serial(), store, lambda: next(looks) >= 2))
    assert 2 <= len(seen) < len(points)
    counted = _Counting()
    again = run_grid(points, counted, store)
    assert counted.jobs == len(points) - len(seen)
    assert sum(one.from_store for one in again) == len(seen)
    whole = results(points, run_grid(points, Serial()))
    assert as_document(results(points, again)) == as_document(whole)
    assert store.usage().answers == len(points)
    assert store.clear().answers == len(points)
    assert store.usage().answers == 0


class _Counting(Serial):
    """A runner that counts its jobs."""

    jobs = 0

    def submit(self, number: int, job: Job) -> None:
        self.jobs += 1
        super().submit(number, job)


def test_a_broken_cache_file_is_computed_again(grid: Callable[..., Grid], run_grid: RunGrid, tmp_path: Path) -> None:
    """As if it were not there."""
    points, store = grid(axes={NODES: [1]}), Store(tmp_path)
    run_grid(points, Serial(), store)
    (file,) = tmp_path.glob("points/*/*.json")
    file.write_text("{")
    (one,) = run_grid(points, Serial(), store)
    assert not one.from_store
    assert one.answer.record["status"] == "feasible"


def test_answers_of_an_older_version_are_recognised_and_computed_again(
    grid: Callable[..., Grid], run_grid: RunGrid, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key of an answer has a hash over the code that found it: no other code reads it, nor the plan beside it."""
    points, store = grid(axes={NODES: [1, 2]}), Store(tmp_path)
    with monkeypatch.context() as older:
        older.setattr(point, "code_digest", lambda: "that of an older version")
        run_grid(points, Serial(), store)
        assert all(done.from_store for done in run_grid(points, Serial(), store))
    for file in tmp_path.glob("points/*/*.json"):  # in words that are no longer read
        file.write_text(file.read_text().replace("step_s", "seconds"))
    counted = _Counting()
    assert not any(done.from_store for done in run_grid(points, counted, store))
    assert counted.jobs == len(points)
    assert store.usage().answers == 2 * len(points)


def test_a_neighbours_plan_is_taken_only_where_it_is_as_good(grid: Callable[..., Grid], run_grid: RunGrid) -> None:
    """Each point's gap is that of a search, and a little more at most; and its figures are those of its own rates."""
    axes = {NODES: [2], NIC: {"first": "100Gb/s", "last": "300Gb/s", "points": 3}}
    together = run_grid(points := grid(axes=axes, search=UNPLAYED), Serial())
    assert any(one.answer.start is not None and one.answer.start.links for one in together)
    for one in sorted(together, key=lambda one: one.point.number):
        (alone,) = run_grid(_Only(points, one.point.number), Serial())
        near, own = one.answer.record, alone.answer.record
        assert near["gap"] <= own["gap"] + 0.02
        assert near["step_s"] >= own["lower_bound_s"] * (1 - 1e-9)
        assert near["lower_bound_s"] <= own["step_s"]


class _Only(Grid):
    """One point of a grid."""

    def __init__(self, whole: Grid, number: int) -> None:
        super().__init__(whole.study, whole.document)
        self._number = number

    def __iter__(self):
        yield self.point(self._number)


def test_a_failing_point_is_a_row_with_its_error(grid: Callable[..., Grid], run_grid: RunGrid, monkeypatch) -> None:
    """And not the end of the others; a bug is not kept in the cache."""
    real = runners.answer

    def failing(job: Job) -> Answer:
        return real(job if job.topology.node_count == 1 else replace(job, search=None))  # type: ignore[arg-type]

    monkeypatch.setattr(runners, "answer", failing)
    points = grid(axes={NODES: [1, 2]})
    found = results(points, run_grid(points, Serial()))
    assert list(found.frame["status"]) == ["feasible", "error"]
    assert "AttributeError" in found.frame["reason"][1]
    assert not found.frame["meets"][1]


def killing(job: Job) -> Answer:
    """Stands for a job that takes all memory, whose process is gone each time; and for one whose process somebody kills
    in the middle of it, once."""
    if job.topology.node_count == 2:
        os._exit(9)
    if job.topology.node_count == 3:
        answer(job)
        with contextlib.suppress(FileExistsError):
            Path(os.environ["KILLED_ONCE"]).touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
    return answer(job)


def test_processes_that_are_killed_take_no_answer_with_them(
    grid: Callable[..., Grid], run_grid: RunGrid, monkeypatch, tmp_path: Path
) -> None:
    """A job that kills its process is tried again, then given up; one that was killed has the answer that it has
    otherwise, as have all others."""
    points = grid(axes={NODES: [1, 2, 3, 4]}, search=UNPLAYED)
    undisturbed = {one.point.number: one.answer.record for one in run_grid(points, Serial())}
    monkeypatch.setenv("KILLED_ONCE", str(tmp_path / "killed"))
    monkeypatch.setattr(runners, "answer", killing)
    with Processes(2) as pool:
        every = run_grid(points, pool)
    assert (tmp_path / "killed").exists()
    assert {one.point.number: one.answer.record for one in every if one.point.number != 1} == {
        number: record for number, record in undisturbed.items() if number != 1
    }
    found = results(points, every)
    assert list(found.frame["status"]) == ["feasible", "error", "feasible", "feasible"]
    assert "died 2 times" in found.frame["reason"][1]


def test_python_and_the_command_line_agree(study_file: Callable[..., Path], tmp_path: Path, monkeypatch) -> None:
    """The same table, and the same sentences."""
    from typer.testing import CliRunner

    from planner import run_study
    from planner.cli.app import app

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = study_file(axes={NODES: [1, 2]})
    words = ["study", str(file), "--workers", "1", "--format", "json", "-q", "--no-cache"]
    printed = json.loads(CliRunner().invoke(app, words).stdout)
    assert as_document(run_study(file, runner=Serial())) == printed


def test_results_read_back_are_the_same(computed: Callable[..., StudyResults], tmp_path: Path) -> None:
    """From Parquet and JSON."""
    found = computed(axes={NODES: [1, 2], "policy.tiers": [["hbm"], ["hbm", "ddr"]]})
    for name in ("r.parquet", "r.json"):
        write_results(found, tmp_path / name)
        again = read_results(tmp_path / name)
        assert again.rows == found.rows
        assert (again.axes, again.findings, again.pareto) == (found.axes, found.findings, found.pareto)


def test_plans_are_kept_where_asked_for(grid: Callable[..., Grid], tmp_path: Path) -> None:
    """Documents that verify, also from the cache."""
    from planner.document.plan import read_plan
    from planner.verification.verify import verify

    points, store = grid(axes={NODES: [1]}), Store(tmp_path)
    for _ in range(2):
        (one,) = execution.Execution(points, points, keeps_plans=True).run(Serial(), store)
        assert one.answer.plan is not None
        (tmp_path / "plan.json").write_text(one.answer.plan)
        assert verify(read_plan(tmp_path / "plan.json")) == []
    assert one.from_store


def test_the_integer_programme_follows_each_search_where_asked(
    computed: Callable[..., StudyResults], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A better plan than the search's; a point whose programme is too large says so."""
    axes = {NODES: [1], "policy.tiers": [["hbm"]], "policy.shardings": [["table_wise", "column_wise"]]}
    steps = {}
    for solver in ("search", "ilp"):
        (found,) = computed(axes=axes, search={"solver": solver, "gap": 0.2}).rows
        steps[solver] = found["step_s"]
    assert steps["ilp"] < steps["search"]
    monkeypatch.setitem(integer_solution.MOST_VARIABLES, "ilp", 10)
    (refused,) = computed(axes=axes, search={"solver": "ilp"}).rows
    assert refused["status"] == "error"
    assert "ilp takes at most 10 variables" in refused["reason"]


def test_what_does_not_fit_is_a_row_with_its_reason(computed: Callable[..., StudyResults]) -> None:
    """And says that memory is the limit."""
    found = computed(axes={"topology.nodes.0.accelerators.hbm.capacity": ["1MB", "80GB"], "policy.tiers": [["hbm"]]})
    first, second = found.rows
    assert (first["status"], first["limit"], first["meets"]) == ("infeasible", "memory", False)
    assert first["step_s"] is None
    assert first["reason"]
    assert second["meets"]


@pytest.mark.parametrize("workers", [1, 3])
def test_the_pool_ends_with_nothing_left(workers: int) -> None:
    """A runner that computed nothing closes too."""
    with Processes(workers) as pool:
        assert pool.completed() == {}
