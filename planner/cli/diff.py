"""`planner diff`: the tables that two plans place differently."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli import flags, streams, values
from planner.cli.exits import ExitCode
from planner.cli.streams import Format

SHOWN = 5
"""Tables in a warning."""


def diff(
    before: Annotated[Path, typer.Argument(metavar="A", help="A plan document.", show_default=False)],
    after: Annotated[Path, typer.Argument(metavar="B", help="A later plan document.", show_default=False)],
    lost_nodes: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Nodes of the first plan that are gone, as in 3,7.")
    ] = None,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 7 if the plans differ.")] = False,
    output_format: flags.FormatFlag = Format.TABLE,
) -> None:
    """Show which tables two plans place differently.

    One line for each table that differs in sharding, tier or ranks, with
    the bytes that move between ranks from the first plan to the second.
    Plans for different groups of ranks are compared on all ranks, with
    what each says of copies, step and stages.
    Warns of tables that change between data_parallel and another sharding:
    checkpoints do not resume across that change.

    \b
    Example:
      planner diff monday.json tuesday.json
    """
    from planner.document.table_differences import groups_of, restarted, stage_differences, table_differences
    from planner.reports.robustness import scenario_words
    from planner.verification.loading import load_plan
    from topologies.units import format_bytes

    gone = () if lost_nodes is None else values.numbers("--lost-nodes", lost_nodes)
    plans = load_plan(before), load_plan(after)
    records = table_differences(*plans, str(before), gone)
    streams.write_records(records, output_format, formats={"moved_bytes": format_bytes})
    moved = sum(float(record["moved_bytes"] or 0) for record in records)
    differ = "table differs" if len(records) == 1 else "tables differ"
    streams.say(
        f"{len(records):,} {differ}; {format_bytes(moved)} move" if records else "the plans place all tables alike"
    )
    if groups_of(plans[0]) != groups_of(plans[1]):
        streams.say(f"groups of ranks: {groups_of(plans[0])} before, {groups_of(plans[1])} after")
        streams.say("\n".join(stage_differences(*plans)))
    if words := scenario_words(*(plan.robust for plan in plans)):
        streams.say(words)
    was, now = ("replicate" if plan.dense is None else plan.dense.words for plan in plans)
    if was != now:
        streams.say(f"the dense part was {was} and is {now}: trainers wrap it in another way")
    if names := restarted(*plans):
        shown = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else "")
        streams.say(
            f"warning: {shown}: between data_parallel and sharded; TorchRec's checkpoints store these differently and"
            " do not resume across the change: load such tables by hand, or keep their sharding (policy: shardings)"
        )
    if records and exit_code:
        raise typer.Exit(ExitCode.PLANS_DIFFER)
