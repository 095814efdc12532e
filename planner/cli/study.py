"""`planner study`: a plan for every point of a grid, and what they say together."""

import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli import flags, streams, values
from planner.cli.exits import ExitCode
from planner.cli.interruption import interruption
from planner.cli.outputs import Outputs
from planner.cli.streams import Format
from topologies.sentences import counted

if TYPE_CHECKING:
    from planner.studies.execution import Done
    from planner.studies.grid import Grid
    from planner.studies.results import StudyResults
    from planner.studies.runners import Runner

MANY = 2_000
"""Points above which `--yes` is asked for."""
KEPT = "with the points so far"
SAVE_EVERY_S = 10.0
"""How often the results so far are written, beside the place of all of them."""


class RunnerName(StrEnum):
    """Where points are computed."""

    LOCAL = "local"
    DASK = "dask"


def study(
    study_: Annotated[
        str,
        typer.Argument(
            metavar="STUDY",
            help="A study file, or the name of a shipped one.",
            show_default=False,
            autocompletion=flags.completion("study"),
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the table here: .parquet, .csv or .json."),
    ] = None,
    page: flags.PageFlag = None,
    plans: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the plan of each point here, as point-N.json.")
    ] = None,
    runner: Annotated[
        RunnerName, typer.Option(help="Processes on this machine, or a Dask cluster.")
    ] = RunnerName.LOCAL,
    workers: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Processes. Unset: as many as there are cores.")
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="With --runner dask: tcp://HOST:PORT. Unset: a cluster on this machine."),
    ] = None,
    cache: Annotated[bool, typer.Option(help="Reuse points from the cache, and add new ones.")] = True,
    solver: Annotated[
        str | None,
        typer.Option(
            metavar="WORD",
            help="What follows each point's search, instead of what the study says: auto, ilp: the integer programme,"
            " as in planner plan; search: none.",
            show_default=False,
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help=f"Allow more than {MANY:,} points.")] = False,
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
    began, saves = time.monotonic(), 0
    if runner is not RunnerName.DASK:
        flags.expect_unused("without --runner dask", scheduler=scheduler)
    elif scheduler is not None:
        flags.expect_unused("beside --scheduler, whose cluster has its own", workers=workers)
    chosen_solver = None if solver is None else values.solver(solver)
    outputs = _outputs(study_, output, page, plans)

    from planner.studies.execution import Execution
    from planner.studies.grid import Grid
    from planner.studies.results import write_results
    from planner.studies.store import Store
    from planner.studies.study import read_study
    from planner.studies.table import measured_steps, results

    streams.doing(f"reading the inputs of {study_}")
    with outputs.beside("STUDY"):
        asked, document = read_study(study_)
        grid = Grid(asked if chosen_solver is None else asked.with_solver(chosen_solver), document)
        if len(grid) > MANY and not yes:
            _refuse_many(grid, workers)
        measured_steps(grid)
        execution = Execution(grid, grid, keeps_plans=plans is not None)
    if plans is not None:
        plans.mkdir(parents=True, exist_ok=True)
    done: list[Done] = []
    with _runner(runner, workers, scheduler, len(execution)) as where, interruption(KEPT) as stopped:
        for completed in _followed(
            execution.run(where, Store(warn=streams.say) if cache else None, stopped), len(execution), quiet=quiet
        ):
            done.append(completed)
            if plans is not None and completed.answer.plan is not None:
                _write_plan(plans, completed)
            if output is not None and time.monotonic() - began > SAVE_EVERY_S * (saves + 1):
                write_results(results(grid, done), partial(output))
                saves += 1
    streams.doing("summing up")
    study_results = results(grid, done)
    if output is not None:
        write_results(study_results, output)
        partial(output).unlink(missing_ok=True)
    if page is not None:
        _write_page(study_results, page)
    _print(study_results, output_format)
    if not quiet:
        reused = sum(completed.from_store for completed in done)
        again = f", {reused:,} of them from the cache" if reused else ""
        streams.say(f"{len(done):,} of {counted(len(execution), 'point')}{again}, in {time.monotonic() - began:.1f} s")
    stopped.end()
    raise typer.Exit(ExitCode.DONE if study_results.frame["meets"].any() else ExitCode.INFEASIBLE)


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


def _outputs(study_: str, output: Path | None, page: Path | None, plans: Path | None) -> Outputs:
    from planner.studies.results import SUFFIXES

    if page is not None:
        flags.expect_extra("plotly", "report", "--report")
    files = {
        "--output": output,
        "--output (points so far)": None if output is None else partial(output),
        "--report": page,
    }
    outputs = Outputs(files, {"STUDY": study_}, {"--plans": (plans, "point-*.json")})
    if output is not None and output.suffix.lower() not in SUFFIXES:
        raise typer.BadParameter(f"{output} must end in {', '.join(SUFFIXES)}", param_hint="--output")
    return outputs


def _refuse_many(grid: "Grid", workers: int | None) -> None:
    """Say what a large grid would take, by some of its points."""
    from planner.studies.execution import Execution
    from planner.studies.runners import usable_cores

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


def _runner(name: RunnerName, workers: int | None, scheduler: str | None, points: int) -> "Runner":
    from planner.studies.runners import Processes, Serial, usable_cores

    if name is RunnerName.DASK:
        flags.expect_extra("distributed", "dask", "--runner dask")
        from planner.studies.dask_runner import Cluster

        return Cluster(scheduler, workers)
    count = min(workers or usable_cores(), points)
    return Serial() if count == 1 else Processes(count)


def _write_page(results: "StudyResults", page: Path) -> None:
    from planner.document.files import write_file
    from planner.reports.pages import study_page, to_html

    write_file(page, to_html(study_page(results), results.name).encode())


def _write_plan(directory: Path, completed: "Done") -> None:
    from planner.document.files import write_file

    assert completed.answer.plan is not None
    write_file(directory / f"point-{completed.point.number}.json", completed.answer.plan.encode())
