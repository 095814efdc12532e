"""`planner report`: the results of a study or a run, a plan or several, as a page for a browser."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli import flags, streams
from planner.cli.outputs import Outputs
from topologies.sentences import counted

if TYPE_CHECKING:
    from planner.reports.pages import Page


class PictureFormat(StrEnum):
    """How pictures are written."""

    PNG = "png"
    SVG = "svg"


def report(
    results: Annotated[
        list[Path],
        typer.Argument(
            metavar="RESULTS...",
            help="Results of a study (.parquet or .json), or of a run, or a plan document; several plans are compared.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Write the page here.", show_default=False)
    ],
    pictures: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write each chart as an image here; needs Chrome.")
    ] = None,
    picture_format: Annotated[
        PictureFormat | None, typer.Option(metavar="png|svg", help="Format of these images. Unset: png.")
    ] = None,
    prices: flags.PricesFlag = None,
    quiet: flags.QuietFlag = False,
) -> None:
    """Write charts and tables as one HTML file.

    The page opens in any browser, without a network. For a study: findings,
    heat map of two axes, scaling, Pareto front, stages, memory, all points.
    For a run: its schedule, where the time goes, numbers of nodes.
    For a plan: stages, the simulated step over time, the cluster with its
    loads, load and memory of each rank, tables by bytes and time.
    For several plans: these side by side, and of two what differs.
    --prices is for several plans. Light or dark as the system is.
    Needs the extra report: pip install 'shardplan[report]'

    \b
    Examples:
      planner report results.parquet -o study.html
      planner report plan.json -o plan.html --pictures pictures
      planner report old.json new.json -o comparison.html
    """
    if pictures is None:
        flags.expect_unused("without --pictures", picture_format=picture_format)
    names = f"*.{(picture_format or PictureFormat.PNG).value}"
    if len(results) == 1:
        flags.expect_unused("with one file of results", prices=prices)
    inputs = {f"RESULTS {number}": file for number, file in enumerate(results, start=1)}
    Outputs({"--output": output}, inputs, {"--pictures": (pictures, names)})
    from planner.document.files import write_file
    from planner.reports.pages import to_html, write_pictures

    source = ", ".join(file.name for file in results)
    streams.doing(f"drawing {source}")
    page = _page(results[0]) if len(results) == 1 else _comparison(results, prices)
    write_file(output, to_html(page, source).encode())
    if not quiet:
        streams.say(f"wrote {output}; open it in a browser")
    if pictures is not None:
        streams.doing(f"writing pictures to {pictures.name}")
        files = write_pictures(page, pictures, (picture_format or PictureFormat.PNG).value)
        if not quiet:
            streams.say(f"wrote {counted(len(files), 'picture')} to {pictures}")


def _comparison(files: list[Path], prices: str | None) -> "Page":
    """The page of several plans."""
    from planner.capacity.prices import load_prices
    from planner.cli.compare import load_plans
    from planner.reports.pages import comparison_page

    plans = load_plans(files)
    return comparison_page(plans, None if prices is None else load_prices(prices))


def _page(results: Path) -> "Page":
    """The page of a file, by what the file holds."""
    from planner.document.files import read_json
    from planner.reports.pages import plan_page, study_page
    from planner.runs.page import run_page
    from planner.runs.results import is_result, read_result
    from planner.studies.results import read_results
    from planner.verification.loading import load_plan
    from topologies.errors import InputError

    if results.suffix.lower() == ".csv":
        raise InputError.at(str(results), "has only the points; give the .parquet or .json of `planner study`")
    if results.suffix.lower() == ".json":
        data = read_json(results)
        if data.get("kind") == "plan":
            return plan_page(load_plan(results))
        if is_result(data):
            return run_page(read_result(results))
    return study_page(read_results(results))
