"""`planner export`: a plan as the file of the runtime that executes it."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from planner.cli import flags, streams, values
from planner.cli.outputs import Outputs
from topologies.sentences import counted

FORMATS = ("torchrec", "torchrec-reshard", "torchrec-constraints", "hugectr", "torcheasyrec", "remap")
WITH_MODULES = ("torchrec", "torchrec-reshard", "torcheasyrec")
DEVICES = ("cuda", "cpu")
SHOWN = 5
"""Warnings of single tables."""
NAMES: tuple[Literal["name", "index"], ...] = ("name", "index")


def export(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan document.", show_default=False)],
    to: Annotated[
        str, typer.Option("--to", metavar="FORMAT", help=f"One of {', '.join(FORMATS)}.", show_default=False)
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write here. Unset: to stdout. remap: a folder."),
    ] = None,
    module: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[GLOB=]PATH",
            help="Where the tables sit in the model, as in sparse.ebc or 'user_*=user.ebc'. Unset: its root.",
        ),
    ] = None,
    previous: Annotated[
        Path | None,
        typer.Option("--from", metavar="PLAN", help="torchrec-reshard: the plan that the trainer runs."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="torchrec: of the placements, cuda (default) or cpu.")
    ] = None,
    names: Annotated[
        str | None,
        typer.Option(metavar="WORD", help="hugectr: tables by their name (default) or their index in the workload."),
    ] = None,
    counts: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR|FILE",
            help="remap: how often each id was read; a folder of .npy or .parquet files per table, or one .parquet.",
        ),
    ] = None,
) -> None:
    """Write a plan as the file of the runtime that executes it.

    What the runtime cannot execute correctly is refused, each table with the
    reason; plan with --runtime torchrec or hugectr to have nothing of it.
    torcheasyrec also writes the variables of its environment, to FILE.env.
    torchrec-reshard holds the tables that change from the plan in use; what
    cannot move is refused. Trainers call
    planner.integrations.torchrec_runtime.reshard with both plans: TorchRec's
    own reshard alone may leave features in their old order.
    remap numbers the rows of tables in ddr_split by how often they are read,
    for whoever loads data, and writes the plan that names these files.

    \b
    Examples:
      planner export plan.json --to torchrec -o torchrec_plan.json
      planner export new.json --to torchrec-reshard --from old.json -o delta.json
      planner export plan.json --to hugectr --names index -o sharding.json
      planner export plan.json --to remap --counts counts/ -o remap/
    """
    kind = values.word("--to", to, FORMATS)
    _expect_flags_of(kind, module=module, device=device, names=names, output=output, counts=counts, previous=previous)
    if kind == "remap" and output is not None and counts is not None:
        Outputs({}, {"PLAN": plan, "--counts": counts}, {"--output": (output, "*")})
        _export_remap(plan, counts, output)
        return
    beside = output.with_name(f"{output.name}.env") if output and kind == "torcheasyrec" else None
    Outputs({"--output": output, "FILE.env of --output": beside}, {"PLAN": plan, "--from": previous})
    where = values.word("--device", device or DEVICES[0], DEVICES)
    called = values.word("--names", names or NAMES[0], NAMES)

    from planner.document.files import write_file
    from planner.document.planned import planned_inputs
    from planner.exporters import hugectr, torchrec, torchrec_qcomms, torchrec_reshard
    from planner.verification.loading import load_plan

    document, source, modules = load_plan(plan), str(plan), module or ()
    if kind == "torchrec":
        found = torchrec.torchrec_plan(document, modules=modules, compute_device=where, source=source)
    elif kind == "torchrec-reshard":
        assert previous is not None
        found = torchrec_reshard.torchrec_reshard(
            load_plan(previous), document, modules=modules, compute_device=where, sources=(str(previous), source)
        )
    elif kind == "torchrec-constraints":
        found = torchrec.torchrec_constraints(document, source=source)
    elif kind == "torcheasyrec":
        found = torchrec.easyrec_plan(document, modules=modules, source=source)
    else:
        found = hugectr.hugectr_sharding(document, names=called, source=source)
    quantized = torchrec_qcomms.qcomms(planned_inputs(document)[1]) if kind != "hugectr" else None
    if quantized is not None:
        config = torchrec_qcomms.qcomms_words(quantized)
        streams.say(f"The step assumes quantized exchanges: sharders need {config}; sharders_of(plan) makes them")
    if kind == "torchrec-reshard":
        streams.say(
            "In the trainer call planner.integrations.torchrec_runtime.reshard with both plans:"
            " DistributedModelParallel.reshard alone may leave features in their old order"
        )
    if output is None:
        streams.write_json(found)
        return
    write_file(output, f"{json.dumps(found, indent=1)}\n".encode())
    count = len(document.tables) if previous is None else sum(map(len, found["plan"].values()))
    streams.say(f"{output}: {counted(count, 'table')} for {kind}")
    if beside is not None:
        environment = torchrec.easyrec_environment(document, source=source)
        write_file(beside, "".join(f"export {name}={value}\n" for name, value in environment.items()).encode())
        streams.say(f"{beside}: source it before torchrun")


def _export_remap(plan: Path, counts: Path, folder: Path) -> None:
    """Write the files, and show what the counts say of the plan."""
    from planner.exporters import remap
    from planner.importers.counts import CountSource
    from planner.verification.loading import load_plan

    source = CountSource(counts)
    found = remap.write_remaps(load_plan(plan), source, folder, source=str(plan))
    shares = dict.fromkeys(("hot_share", "planned"), "{:.1%}".format)
    remapped = counted(len(found), "table")
    streams.write_records(remap.records(found), streams.Format.TABLE, formats=shares)
    streams.say(f"{folder / remap.PLAN}: {remapped} remapped, {folder / remap.MANIFEST} lists their files")
    if unused := len(source.names) - len(found):
        streams.say(f"{counts}: {unused} of its tables are not split by the plan and stay as they are")
    off = [one for one in found if one.is_off]
    for one in off[:SHOWN]:
        streams.say(
            f"warning: {one.name}: its hot rows take {one.hot_share:.1%} of the reads, its access curve promised"
            f" {one.planned_hot_share:.1%}"
        )
    if off:
        streams.say(
            f"warning: {len(off)} of {remapped}: off by more than {remap.TOLERANCE:.0%} of the reads;"
            " give them the curve that was counted (access_cdf) and plan anew"
        )


def _expect_flags_of(
    kind: str,
    *,
    module: list[str] | None,
    device: str | None,
    names: str | None,
    output: Path | None,
    counts: Path | None,
    previous: Path | None,
) -> None:
    """Refuse flags that the format has no use for, and demand those that it needs."""
    if kind not in WITH_MODULES:
        flags.expect_unused(f"with --to {kind}", module=module)
    if kind != "hugectr":
        flags.expect_unused(f"with --to {kind}", names=names)
    if kind not in ("torchrec", "torchrec-reshard"):
        flags.expect_unused(f"with --to {kind}", device=device)
    if kind != "torchrec-reshard":
        flags.expect_unused(f"with --to {kind}", _from=previous)
    elif previous is None:
        raise typer.BadParameter("is needed: the plan that the trainer runs", param_hint="--from")
    if kind != "remap":
        flags.expect_unused(f"with --to {kind}", counts=counts)
    elif counts is None:
        raise typer.BadParameter("is needed: rows are numbered by it", param_hint="--counts")
    if kind == "torcheasyrec" and not module:
        raise typer.BadParameter("is needed: it stands in TorchEasyRec's plan file", param_hint="--module")
    if kind in ("torcheasyrec", "remap") and output is None:
        raise typer.BadParameter("is needed: more than one file is written", param_hint="--output")
