"""`planner run`: what a training run of several stages takes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli import flags, streams
from planner.cli.exits import ExitCode
from planner.cli.interruption import interruption
from planner.cli.outputs import Outputs
from planner.cli.streams import Format

if TYPE_CHECKING:
    from planner.document.plan import Plan
    from planner.runs.results import RunGrid, RunResult


def run(
    run_: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A run file, or the name of a shipped one.",
            show_default=False,
            autocompletion=flags.completion("run"),
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the figures here: .json or .csv.")
    ] = None,
    page: flags.PageFlag = None,
    plans: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the plan of each stage here, as plan-N.json.")
    ] = None,
    output_format: flags.FormatFlag = Format.TABLE,
    quiet: flags.QuietFlag = False,
) -> None:
    """Estimate a training run: time, price, energy.

    A run is a list of stages, each of a batch, samples and nodes. Stages may
    grow from one another, try step lengths or take second-order passes, and
    may leave the number of nodes open. Every step is that of a plan; what
    moves between two plans is counted. Exits with 4 if there is no way to run
    it.

    \b
    Examples:
      planner run growing-batch --report page.html
      planner run run.yaml -o run.json --plans plans
      planner run run.yaml --format csv > stages.csv
    """
    outputs = _outputs(run_, output, page, plans)

    from planner.runs.axes import variants
    from planner.runs.inputs import RunInputs
    from planner.runs.run import read_run
    from planner.runs.running import costed, costed_variants

    streams.doing(f"reading the inputs of {run_}")
    with outputs.beside("RUN"):
        read, document = read_run(run_)
        inputs = variants(read, document) if read.axes else RunInputs(read, document)
    if read.axes:
        flags.expect_unused("with axes, which make several runs", plans=None if plans is None else str(plans))
    result: RunResult | RunGrid
    made: tuple[Plan, ...] = ()
    with streams.progress(quiet=quiet) as tell, interruption("with the best plans so far") as interrupted:
        if isinstance(inputs, RunInputs):
            found = costed(inputs, tell=tell, stop=interrupted)
            result, made, is_there = found.result, found.plans, found.result.takes is not None
        else:
            result = costed_variants(read, inputs, tell=tell, stop=interrupted)
            is_there = result.best is not None
    if output is not None:
        _write(result, output)
    if page is not None:
        _write_page(result, page)
    if plans is not None:
        _write_plans(made, plans)
    _print(result, output_format)
    interrupted.end()
    raise typer.Exit(ExitCode.DONE if is_there else ExitCode.INFEASIBLE)


def _outputs(run_: str, output: Path | None, page: Path | None, plans: Path | None) -> Outputs:
    """Refuse what cannot be written before the work is done."""
    if output is not None and output.suffix.lower() not in {".json", ".csv"}:
        raise typer.BadParameter(f"{output} is written as JSON or CSV; name it .json or .csv", param_hint="--output")
    if page is not None:
        flags.expect_extra("plotly", "report", "--report")
    return Outputs({"--output": output, "--report": page}, {"RUN": run_}, {"--plans": (plans, "plan-*.json")})


def _write(result: "RunResult | RunGrid", output: Path) -> None:
    from planner.document.files import write_file
    from planner.runs.results import write_result

    if output.suffix.lower() == ".json":
        write_result(result, output)
    else:
        import pandas as pd

        write_file(output, pd.DataFrame(_records(result)).to_csv(index=False, lineterminator="\n").encode())


def _records(result: "RunResult | RunGrid") -> list[dict[str, str | int | float | None]]:
    from planner.runs.results import RunGrid
    from planner.runs.summary import grid_records, records

    return grid_records(result) if isinstance(result, RunGrid) else records(result)


def _write_page(result: "RunResult | RunGrid", page: Path) -> None:
    from planner.document.files import write_file
    from planner.reports.pages import to_html
    from planner.runs.page import run_page

    write_file(page, to_html(run_page(result)).encode())


def _write_plans(made: "tuple[Plan, ...]", folder: Path) -> None:
    from planner.document.files import make_folder
    from planner.document.plan import write_plan

    make_folder(folder)
    for number, plan in enumerate(made, start=1):
        write_plan(plan, folder / f"plan-{number}.json")


def _print(result: "RunResult | RunGrid", output_format: Format) -> None:
    from planner.runs import summary
    from planner.runs.results import RunGrid

    if output_format is Format.JSON:
        streams.print_json(result.to_json())
    elif output_format is Format.CSV:
        streams.write_csv(_records(result))
    elif isinstance(result, RunGrid):
        summary.render_grid(result, streams.console(output=output_format))
    else:
        summary.render(result, streams.console(output=output_format))
