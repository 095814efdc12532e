"""`planner compare`: plans side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli import flags, streams
from planner.cli.streams import Format

if TYPE_CHECKING:
    from planner.document.plan import Plan


def compare(
    plans: Annotated[list[Path], typer.Argument(metavar="PLAN...", help="Plan documents.", show_default=False)],
    prices: flags.PricesFlag = None,
    output_format: flags.FormatFlag = Format.TABLE,
) -> None:
    """Compare plans of any clusters and workloads side by side.

    Step, bound, gap, throughput, simulated step, stages, memory, tables,
    price and energy; ratios are relative to the first plan. A price or
    power that neither a price sheet nor the topology states is unknown.
    `planner diff` lists the tables that two plans of one workload place
    differently.

    \b
    Examples:
      planner compare 8-nodes.json 16-nodes.json
      planner compare a100.json h100.json --prices example-2025-01
    """
    if len(plans) < 2:
        raise typer.BadParameter("name at least two plan documents", param_hint="PLAN...")
    from planner.capacity.prices import load_prices, notes
    from planner.document.planned import planned_inputs
    from planner.reports import comparison as report

    plans_by_name = load_plans(plans)
    sheet = None if prices is None else load_prices(prices)
    records = report.compare(plans_by_name, sheet)
    if output_format is Format.JSON:
        streams.write_json(report.as_document(records))
    elif output_format is Format.CSV:
        streams.write_csv(records)
    else:
        unknown = dict.fromkeys(
            note for plan in plans_by_name.values() for note in notes(planned_inputs(plan)[0], sheet)
        )
        report.render(records, [f"\n{note}" for note in unknown], streams.console(output=output_format))


def load_plans(files: list[Path]) -> "dict[str, Plan]":
    """The plans by what they are called. Raises the errors of all files at once."""
    from planner.errors import UnsoundPlanError
    from planner.verification.loading import load_plan
    from topologies.errors import InputError

    plans: dict[str, Plan] = {}
    errors: list[InputError] = []
    for name, file in zip(_names(files), files, strict=True):
        try:
            plans[name] = load_plan(file)
        except InputError as error:
            errors.append(error)
    if errors:
        kind = UnsoundPlanError if all(isinstance(error, UnsoundPlanError) for error in errors) else InputError
        raise kind(fault for error in errors for fault in error.faults)
    return plans


def _names(files: list[Path]) -> list[str]:
    """What the plans are called: the names of their files without the ending, or all of their paths if these repeat."""
    stems = [file.stem for file in files]
    if len(set(stems)) == len(stems):
        return stems
    paths = [str(file) for file in files]
    return [path if paths.count(path) == 1 else f"{path} ({number})" for number, path in enumerate(paths, start=1)]
