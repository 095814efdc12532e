"""`planner cache`: what studies have computed before."""

import typer

from planner.cli import flags, streams
from planner.cli.group import CommandGroup
from planner.cli.streams import Format
from topologies.sentences import counted

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def cache() -> None:
    """Show or empty the cache of study points.

    A point that the same version has planned from the same inputs is not
    planned again.

    \b
    Example:
      planner cache info
    """


@app.command()
def info(output_format: flags.FormatFlag = Format.TABLE) -> None:
    """Show where the cache is and how much it holds.

    \b
    Example:
      planner cache info
    """
    from planner.studies.store import Store

    usage = Store().usage()
    record: streams.Record = {"directory": str(usage.directory), "points": usage.answers, "bytes": usage.bytes}
    streams.write_records([record], output_format)


@app.command()
def clear() -> None:
    """Empty the cache.

    \b
    Example:
      planner cache clear
    """
    from planner.studies.store import Store

    before = Store().clear()
    streams.say(f"removed {counted(before.answers, 'point')} from {before.directory}")
