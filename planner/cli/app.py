"""The command `planner`: its commands in the order of a first visit, `--version`, and `main`.

Help must appear at once: nothing here, nor in a command's module, imports more than typer at the top.
"""

import gc
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from planner._version import VERSION
from planner.cli import (
    activity,
    cache,
    calibrate,
    catalog,
    check,
    compare,
    cost,
    diff,
    doctor,
    explain,
    export,
    import_,
    init,
    memory,
    plan,
    profile,
    report,
    run,
    schema,
    simulate,
    size,
    streams,
    study,
    topology,
    verify,
)
from planner.cli.exits import asked_for, end_that_was_asked, guarded
from planner.cli.group import CommandGroup
from planner.cli.interruption import end_when_terminated
from planner.cli.panels import PanelledCommand

NEW_OBJECTS = 50_000
"""Objects that are made before garbage is collected, instead of 700: most objects of a command, those of modules and
documents, stay, and each collection looks at them again."""


@dataclass(frozen=True)
class Manner:
    """How a command talks, as its words say before they are read."""

    as_json: bool
    is_quiet: bool
    command: str
    left_empty: str | None
    """The first flag whose value is an empty word, or what stands for an argument."""


def _left_empty(words: Sequence[str]) -> str | None:
    """What an empty word among those of a command line stands for: taken for a path, it would be this folder."""
    for before, word in itertools.pairwise(("", *words)):
        if not word:
            return before if before.startswith("-") else "an argument"
        if word.startswith("--") and word.endswith("=") and word.count("=") == 1:
            return word.removesuffix("=")
    return None


class PlannerCommands(CommandGroup):
    """The group of all commands, run inside the boundary that turns exceptions into exit codes."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words before the command; whether its errors are to be JSON is known before it is read."""
        as_json = "--format=json" in args or ("--format", "json") in itertools.pairwise(args)
        is_quiet = not {"-q", "--quiet"}.isdisjoint(args)
        ctx.obj = Manner(as_json, is_quiet, command=" ".join(args[:1]), left_empty=_left_empty(args))
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        manner: Manner = ctx.obj

        def run() -> Any:
            if manner.left_empty is not None:
                message = "is empty, as an unset variable of a script leaves it; give a value, or leave it out"
                raise typer.BadParameter(message, param_hint=manner.left_empty)
            with activity.shown(manner.command, streams.activity_console(quiet=manner.is_quiet)):
                return super(PlannerCommands, self).invoke(ctx)

        return guarded(run, as_json=manner.as_json)


app = typer.Typer(
    cls=PlannerCommands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"planner {VERSION}")
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Plan the embedding tables of a recommendation model on a cluster.

    Decides for every table how it is sharded, on which accelerators and in
    which memory tier, so that the training step is as short as possible.

    \b
    Example:
      planner plan --topology zionex-16 --workload dlrm-dcnv2 -o plan.json
    """


app.command(cls=PanelledCommand)(plan.plan)
app.command()(check.check)
app.command(cls=PanelledCommand)(verify.verify)
app.command(cls=PanelledCommand)(simulate.simulate)
app.command()(explain.explain)
app.command()(diff.diff)
app.command()(compare.compare)
app.command()(export.export)
app.command("import", cls=PanelledCommand)(import_.import_)
app.command(cls=PanelledCommand)(profile.profile)
app.command()(memory.memory)
app.command(cls=PanelledCommand)(size.size)
app.command(cls=PanelledCommand)(cost.cost)
app.command()(study.study)
app.command()(run.run)
app.command()(report.report)
app.add_typer(topology.app, name="topology")
app.add_typer(catalog.app, name="catalog")
app.add_typer(cache.app, name="cache")
app.command()(calibrate.calibrate)
app.command()(schema.schema)
app.command()(init.init)
app.command()(doctor.doctor)


def main() -> None:
    """The installed commands `planner` and `shardplan`, and `cli.py` of a checkout."""
    streams.ready()
    end_when_terminated()
    gc.set_threshold(NEW_OBJECTS)
    try:
        app()
    except (KeyboardInterrupt, Exception) as error:  # while commands are put together, before one of them is guarded
        asked = asked_for(error)
        if asked is None:
            raise
        code, words = end_that_was_asked(asked)
        streams.say(words)
        raise SystemExit(code) from None
