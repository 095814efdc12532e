"""`planner study`: a plan for every point of a grid, and what they say together."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli import flags, streams, values
from planner.cli.exits import ExitCode
from planner.cli.flag_groups import grouped
from planner.cli.interruption import interruption
from planner.cli.outputs import Outputs
from planner.cli.streams import Format
from topologies.sentences import counted

if TYPE_CHECKING:
    from planner.studies.execution import Done
    from planner.studies.grid import Grid
    from planner.studies.results import StudyResults
    from planner.studies.runners import Runner
    from planner.studies.store import Store

MANY = 2_000
"""Points above which `--yes` is asked for."""
KEPT = "with the points so far"
SAVE_EVERY_S = 10.0
"""How often the results so far are written, beside the place of all of them."""


class RunnerName(StrEnum):
    """Where points are computed."""

    LOCAL = "local"
    DASK = "dask"


@dataclass(frozen=True)
class StudyOutputs:
    """What is written, beside what is printed."""

    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the table here: .parquet, .csv or .json."),
    ] = None
    page: flags.PageFlag = None
    plans: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the plan of each point here, as point-N.json.")
    ] = None

    def places(self, study_: str) -> Outputs:
        """Those that can be written and are no input, or BadParameter."""
        from planner.studies.results import SUFFIXES

        if self.page is not None:
            flags.expect_extra("plotly", "report", "--report")
        files = {
            "--output": self.output,
            "--output (points so far)": None if self.output is None else partial(self.output),
            "--report": self.page,
        }
        outputs = Outputs(files, {"STUDY": study_}, {"--plans": (self.plans, "point-*.json")})
        if self.output is not None and self.output.suffix.lower() not in SUFFIXES:
            raise typer.BadParameter(f"{self.output} must end in {', '.join(SUFFIXES)}", param_hint="--output")
        return outputs

    def write(self, results: "StudyResults") -> None:
        """Write the table of all points, in place of those so far, and the page."""
        from planner.studies.results import write_results

        if self.output is not None:
            write_results(results, self.output)
            partial(self.output).unlink(missing_ok=True)
        if self.page is not None:
            _write_page(results, self.page)


@dataclass(frozen=True)
class ExecutionFlags:
    """How the points are computed."""

    runner: Annotated[RunnerName, typer.Option(help="Processes on this machine, or a Dask cluster.")] = RunnerName.LOCAL
    workers: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Processes. Unset: as many as there are cores.")
    ] = None
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="With --runner dask: tcp://HOST:PORT. Unset: a cluster on this machine."),
    ] = None
    cache: Annotated[bool, typer.Option(help="Reuse points from the cache, and add new ones.")] = True
    solver: Annotated[
        str | None,
        typer.Option(
            metavar="WORD",
            help="What follows each point's search, instead of what the study says: auto, ilp: the integer programme,"
            " as in planner plan; search: none.",
            show_default=False,
        ),
    ] = None
    yes: Annotated[bool, typer.Option("--yes", help=f"Allow more than {MANY:,} points.")] = False

    def expect_used(self) -> None:
        """Raise BadParameter for flags that the runner makes nothing of."""
        if self.runner is not RunnerName.DASK:
            flags.expect_unused("without --runner dask", scheduler=self.scheduler)
        elif self.scheduler is not None:
            flags.expect_unused("beside --scheduler, whose cluster has its own", workers=self.workers)

    def where(self, points: int) -> "Runner":
        """What computes so many points."""
        from planner.processes import usable_cores
        from planner.studies.runners import Processes, Serial

        if self.runner is RunnerName.DASK:
            flags.expect_extra("distributed", "dask", "--runner dask")
            from planner.studies.dask_runner import Cluster

            return Cluster(self.scheduler, self.workers)
        count = min(self.workers or usable_cores(), points)
        return Serial() if count == 1 else Processes(count)


@grouped
def study(
    *,
    study_: Annotated[
        str,
        typer.Argument(
            metavar="STUDY",
            help="A study file, or the name of a shipped one.",
            show_default=False,
            autocompletion=flags.completion("study"),
        ),
    ],
    to: StudyOutputs,
    how: ExecutionFlags,
    output_format: flags.FormatFlag = Format.TABLE,
    quiet: flags.QuietFlag = False,
) -> None:
    """Plan every point of a what-if study.

    A study varies fields of the cluster, the model and the policy; each
    point is planned, bounded and simulated. Prints the findings and the
    best points. Computed points are kept, so an interrupted study resumes
    where it stopped.

    \b
    Examples:
      planner study zionex-scaling -o results.parquet --report page.html
      planner study study.yaml --format csv > points.csv
      planner study study.yaml --runner dask --scheduler tcp://head:8786
    """
    began = time.monotonic()
    how.expect_used()
    chosen_solver = None if how.solver is None else values.solver(how.solver)
    outputs = to.places(study_)

    from planner.studies.execution import Execution
    from planner.studies.grid import Grid
    from planner.studies.study import read_study
    from planner.studies.table import measured_steps, results

    streams.doing(f"reading the inputs of {study_}")
    with outputs.beside("STUDY"):
        asked, document = read_study(study_)
        grid = Grid(asked if chosen_solver is None else asked.with_solver(chosen_solver), document)
        if len(grid) > MANY and not how.yes:
            _refuse_many(grid, how.workers)
        measured_steps(grid)
        execution = Execution(grid, grid, keeps_plans=to.plans is not None)
    with how.where(len(execution)) as where, interruption(KEPT) as stopped:
        done = _computed(grid, execution.run(where, _store(how), stopped), len(execution), to, quiet=quiet)
    streams.doing("summing up")
    study_results = results(grid, done)
    to.write(study_results)
    _print(study_results, output_format)
    if not quiet:
        reused = sum(completed.from_store for completed in done)
        again = f", {reused:,} of them from the cache" if reused else ""
        streams.say(f"{len(done):,} of {counted(len(execution), 'point')}{again}, in {time.monotonic() - began:.1f} s")
    stopped.end()
    raise typer.Exit(ExitCode.DONE if study_results.frame["meets"].any() else ExitCode.INFEASIBLE)


def _store(how: ExecutionFlags) -> "Store | None":
    """The cache of points, where it is wanted."""
    from planner.studies.store import Store

    return Store(warn=streams.say) if how.cache else None


def _computed(grid: "Grid", points: Iterator["Done"], total: int, to: StudyOutputs, *, quiet: bool) -> list["Done"]:
    """The points, each with its plan written as it comes, and now and then the table of those so far."""
    from planner.studies.results import write_results
    from planner.studies.table import results

    if to.plans is not None:
        to.plans.mkdir(parents=True, exist_ok=True)
    done: list[Done] = []
    began, saves = time.monotonic(), 0
    for completed in _followed(points, total, quiet=quiet):
        done.append(completed)
        if to.plans is not None and completed.answer.plan is not None:
            _write_plan(to.plans, completed)
        if to.output is not None and time.monotonic() - began > SAVE_EVERY_S * (saves + 1):
            write_results(results(grid, done), partial(to.output))
            saves += 1
    return done


def partial(output: Path) -> Path:
    """Where the results so far are, `results.partial.csv`: under the name of the results there is nothing less."""
    return output.with_name(f"{output.stem}.partial{output.suffix}")


def _followed(points: Iterator["Done"], total: int, *, quiet: bool) -> Iterator["Done"]:
    """The points as they come, with a bar."""
    failed = 0
    with streams.bar(total, quiet=quiet) as advance:
        for number, completed in enumerate(points, start=1):
            failed += completed.answer.record["status"] == "error"
            advance(number, failed)
            yield completed


def _print(study_results: "StudyResults", output_format: Format) -> None:
    from planner.reports import study as report
    from planner.studies.results import as_document

    if output_format is Format.JSON:
        streams.write_json(as_document(study_results))
    elif output_format is Format.CSV:
        streams.write_frame(study_results.frame)
    else:
        report.render(study_results, streams.console(output=output_format))


def _refuse_many(grid: "Grid", workers: int | None) -> None:
    """Say what a large grid would take, by some of its points."""
    from planner.processes import usable_cores
    from planner.studies.execution import Execution

    size = len(grid)
    some = dict.fromkeys((0, size // 2, size - 1))
    streams.say(f"a grid of {size:,} points; timing {len(some)} of them")
    began = time.perf_counter()
    count = sum(1 for _ in Execution(grid, [grid.point(number) for number in some]).timed())
    each_s = (time.perf_counter() - began) / max(count, 1)
    cores = workers or usable_cores()
    takes = _duration(each_s * size / cores)
    message = f"would take about {takes} on {cores} cores; give --yes to compute it, or take fewer values"
    raise typer.BadParameter(f"the grid has {size:,} points, which {message}", param_hint="STUDY")


def _duration(seconds: float) -> str:
    for name, size in (("years", 365 * 86400), ("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.0f} {name}"
    return f"{seconds:,.0f} seconds"


def _write_page(results: "StudyResults", page: Path) -> None:
    from planner.document.files import write_file
    from planner.reports.pages import study_page, to_html

    write_file(page, to_html(study_page(results), results.name).encode())


def _write_plan(directory: Path, completed: "Done") -> None:
    from planner.document.files import write_file

    assert completed.answer.plan is not None
    write_file(directory / f"point-{completed.point.number}.json", completed.answer.plan.encode())
