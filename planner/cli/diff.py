"""`planner diff`: in what two plans differ."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli import flags, streams, values
from planner.cli.exits import ExitCode
from planner.cli.streams import Format

MOST = 50
"""Tables in a comment: those of services have at most 65,536 characters."""


def diff(
    before: Annotated[Path, typer.Argument(metavar="A", help="A plan document.", show_default=False)],
    after: Annotated[Path, typer.Argument(metavar="B", help="A later plan document.", show_default=False)],
    lost_nodes: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Nodes of the first plan that are gone, as in 3,7.")
    ] = None,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 7 if the plans differ.")] = False,
    output_format: flags.FormatFlag = Format.TABLE,
) -> None:
    """Show how two plans differ.

    Seconds per stage and of the step, tables that change their tier, and a
    line for each table that differs in sharding, tier or ranks, with the
    bytes that move between ranks from the first plan to the second. Plans
    for different groups of ranks are compared on all ranks.
    Warns of tables that change between data_parallel and another sharding:
    checkpoints do not resume across that change. With --format markdown as
    a comment of a pull request: the tables into which most bytes move, 50
    at most. CSV holds the tables alone.

    \b
    Examples:
      planner diff monday.json tuesday.json
      planner diff old.json new.json --format markdown > comment.md
    """
    from planner.document.plan_differences import plan_difference
    from planner.document.table_differences import COLUMNS
    from planner.reports import difference as report
    from planner.verification.loading import load_plan

    gone = () if lost_nodes is None else values.numbers("--lost-nodes", lost_nodes)
    difference = plan_difference(load_plan(before), load_plan(after), str(before), gone)
    talk = [report.headline(difference), *report.notes(difference)]
    if output_format is Format.JSON:
        streams.write_json(report.as_document(difference, str(before), str(after)))
    elif output_format is Format.CSV:
        streams.write_records(difference.tables, output_format, columns=COLUMNS)
    elif output_format is Format.MARKDOWN:
        console = streams.console(output=output_format)
        console.print("\n\n".join(talk))
        report.render(difference, console, MOST)
    else:
        report.render(difference, streams.console())
    if output_format is not Format.MARKDOWN:
        streams.say("\n".join(talk))
    if difference.tables and exit_code:
        raise typer.Exit(ExitCode.PLANS_DIFFER)
