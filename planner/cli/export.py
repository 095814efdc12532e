"""`planner export`: a plan as the file of the runtime that executes it."""

import json
from pathlib import Path
from typing import Annotated

import typer

from planner.cli import completions, flags, streams, values
from planner.cli.outputs import Outputs
from planner.exporters.formats import FORMATS, Exported, ExportFormat, ExportRequest, Names, users_of
from topologies.sentences import counted

DEVICES = ("cuda", "cpu")
NAMES: tuple[Names, ...] = ("name", "index")


def export(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan document.", show_default=False)],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="; ".join(f"{name}: {row.summary}" for name, row in FORMATS.items()) + ".",
            show_default=False,
            autocompletion=completions.of_words(lambda: FORMATS),
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE|DIR", help="Write here. Unset: to stdout."),
    ] = None,
    module: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[GLOB=]PATH",
            help=f"{users_of('module')}: where the tables sit in the model, as in sparse.ebc or 'user_*=user.ebc'."
            " Unset: its root.",
        ),
    ] = None,
    previous: Annotated[
        Path | None,
        typer.Option("--from", metavar="PLAN", help=f"{users_of('from')}: the plan that the trainer runs."),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=f"{users_of('device')}: device of the placements, cuda (default) or cpu."),
    ] = None,
    names: Annotated[
        str | None,
        typer.Option(
            metavar="WORD", help=f"{users_of('names')}: tables by name (default) or by index in the workload."
        ),
    ] = None,
    counts: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR|FILE",
            help=f"{users_of('counts')}: how often each id was read; a folder of .npy or .parquet files per table, or"
            " one .parquet.",
        ),
    ] = None,
) -> None:
    """Write a plan as the file of the runtime that executes it.

    What the runtime cannot execute correctly is refused, each table with the
    reason; plan with --runtime torchrec or hugectr to avoid such tables.

    \b
    Examples:
      planner export plan.json --to torchrec -o torchrec_plan.json
      planner export new.json --to torchrec-reshard --from old.json -o delta.json
      planner export plan.json --to hugectr --names index -o sharding.json
      planner export plan.json --to remap --counts counts/ -o remap/
    """
    kind = values.word("--to", to, tuple(FORMATS))
    row = FORMATS[kind]
    settings = {"module": module, "from": previous, "device": device, "names": names, "counts": counts}
    _expect_settings(kind, row, {**settings, "output": output})
    companion = output.with_name(f"{output.name}{row.companion}") if output and row.companion else None
    inputs = {"PLAN": plan, "--from": previous, "--counts": counts}
    if row.is_folder:
        Outputs({}, inputs, {"--output": (output, "*")})
    else:
        Outputs({"--output": output, f"FILE{row.companion} of --output": companion}, inputs)
    target = values.word("--device", device or DEVICES[0], DEVICES)
    called = values.word("--names", names or NAMES[0], NAMES)

    from planner.verification.loading import load_plan

    request = ExportRequest(
        load_plan(plan),
        str(plan),
        modules=module or (),
        previous=None if previous is None else load_plan(previous),
        previous_source=str(previous),
        device=target,
        names=called,
        counts=counts,
        output=output,
    )
    _write(row.export(request), kind, output, companion)


def _expect_settings(kind: str, row: ExportFormat, given: dict[str, object]) -> None:
    """Refuse flags that the format has no use for, and demand those that it needs."""
    for setting, value in given.items():
        if setting != "output" and setting not in row.uses:
            flags.expect_unused(f"with --to {kind}", **{setting: value})
    for setting, reason in row.needs.items():
        if not given[setting]:
            raise typer.BadParameter(f"is needed: {reason}", param_hint=f"--{setting}")


def _write(exported: Exported, kind: str, output: Path | None, companion: Path | None) -> None:
    """Write the files that the exporter has not written itself, and say what is to be said of them."""
    from planner.document.files import write_file

    for note in exported.notes:
        streams.say(note)
    if exported.document is not None and output is None:
        streams.write_json(exported.document)
    elif exported.document is not None and output is not None:
        write_file(output, f"{json.dumps(exported.document, indent=1)}\n".encode())
        what = counted(exported.tables, "table") if exported.tables else "the dense part"
        streams.say(f"{output}: {what} for {kind}")
    if companion is not None:
        write_file(companion, exported.companion.encode())
        streams.say(f"{companion}: {FORMATS[kind].companion_use}")
    if exported.records:
        shares = dict.fromkeys(exported.shares, "{:.1%}".format)
        streams.write_records([dict(record) for record in exported.records], streams.Format.TABLE, formats=shares)
    for sentence in exported.report:
        streams.say(sentence)
