"""`planner export`: a plan as the file of the runtime that executes it."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from planner.cli import flags, streams

FORMATS = ("torchrec", "torchrec-constraints", "hugectr", "torcheasyrec")
DEVICES = ("cuda", "cpu")
NAMES: tuple[Literal["name", "index"], ...] = ("name", "index")


def export(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan document.", show_default=False)],
    to: Annotated[
        str, typer.Option("--to", metavar="FORMAT", help=f"One of {', '.join(FORMATS)}.", show_default=False)
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write here. Unset: to stdout.")
    ] = None,
    module: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[GLOB=]PATH",
            help="Where the tables sit in the model, as in sparse.ebc or 'user_*=user.ebc'. Unset: its root.",
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="torchrec: of the placements, cuda (default) or cpu.")
    ] = None,
    names: Annotated[
        str | None,
        typer.Option(metavar="WORD", help="hugectr: tables by their name (default) or their index in the workload."),
    ] = None,
) -> None:
    """Write a plan as the file of the runtime that executes it.

    What the runtime cannot execute correctly is refused, each table with the
    reason; plan with --runtime torchrec or hugectr to have nothing of it.
    torcheasyrec also writes the variables of its environment, to FILE.env.

    \b
    Examples:
      planner export plan.json --to torchrec -o torchrec_plan.json
      planner export plan.json --to hugectr --names index -o sharding.json
    """
    kind = flags.word("--to", to, FORMATS)
    _expect_flags_of(kind, module=module, device=device, names=names, output=output)
    beside = output.with_name(f"{output.name}.env") if output and kind == "torcheasyrec" else None
    for file in (output, beside):
        if file is not None:
            flags.expect_place("--output", file)
    where = flags.word("--device", device or DEVICES[0], DEVICES)
    called = flags.word("--names", names or NAMES[0], NAMES)

    from planner.document import read_plan
    from planner.exporters import hugectr, torchrec
    from planner.files import write_file

    document, source, modules = read_plan(plan), str(plan), module or ()
    if kind == "torchrec":
        found = torchrec.torchrec_plan(document, modules=modules, compute_device=where, source=source)
    elif kind == "torchrec-constraints":
        found = torchrec.torchrec_constraints(document, source=source)
    elif kind == "torcheasyrec":
        found = torchrec.easyrec_plan(document, modules=modules, source=source)
    else:
        found = hugectr.hugectr_sharding(document, names=called, source=source)
    if output is None:
        streams.write_json(found)
        return
    write_file(output, f"{json.dumps(found, indent=1)}\n".encode())
    streams.say(f"{output}: {len(document.tables)} tables for {kind}")
    if beside is not None:
        values = torchrec.easyrec_environment(document, source=source)
        write_file(beside, "".join(f"export {name}={value}\n" for name, value in values.items()).encode())
        streams.say(f"{beside}: source it before torchrun")


def _expect_flags_of(
    kind: str, *, module: list[str] | None, device: str | None, names: str | None, output: Path | None
) -> None:
    """Refuse flags that the format has no use for, and demand those that it needs."""
    if kind not in ("torchrec", "torcheasyrec"):
        flags.expect_unused(f"with --to {kind}", module=module)
    if kind != "hugectr":
        flags.expect_unused(f"with --to {kind}", names=names)
    if kind != "torchrec":
        flags.expect_unused(f"with --to {kind}", device=device)
    if kind == "torcheasyrec" and not module:
        raise typer.BadParameter("is needed: it stands in TorchEasyRec's plan file", param_hint="--module")
    if kind == "torcheasyrec" and output is None:
        raise typer.BadParameter("is needed: two files are written", param_hint="--output")
