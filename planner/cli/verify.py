"""`planner verify`: does a plan document say the truth."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli import flags, streams
from planner.cli.exits import ExitCode
from planner.cli.streams import Format

if TYPE_CHECKING:
    from topologies.documents import Record

SHOWN_DIFFERENCES = 5


def verify(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan document.", show_default=False)],
    topology: flags.OptionalTopologyFlag = None,
    workload: flags.PlannedWorkloadFlag = None,
    nodes: flags.NodesFlag = None,
    global_batch: flags.GlobalBatchFlag = None,
    set_: flags.SetFlag = None,
    from_: Annotated[
        Path | None, typer.Option("--from", metavar="PLAN", help="The plan that this one follows: checks what moved.")
    ] = None,
    output_format: flags.FormatFlag = Format.TABLE,
) -> None:
    """Recompute a plan from its inputs and compare.

    Every table covered exactly once, capacities kept, stage times and their
    sum right, the bound not above the objective, files of remapped ids as
    they were written. With --topology or
    --workload also that the plan was made for these inputs; with --from also
    what moved. Prints what does not hold, and exits with 6 if there is any.

    \b
    Example:
      planner verify plan.json
    """
    from planner.document import read_plan
    from planner.planned import planned_inputs
    from planner.verification import verify as violations_of

    of = flags.split_overrides(set_ or ())
    if topology is None:
        flags.expect_unused("without --topology", nodes=nodes, set_=of["topology"])
    if workload is None:
        flags.expect_unused("without --workload", global_batch=global_batch, set_=of["workload"])
    document = read_plan(plan)
    cluster, model = flags.load_given(topology, workload, nodes=nodes, global_batch=global_batch, overrides=set_)
    former = None if from_ is None else read_plan(from_)
    violations = violations_of(document, former, plan.parent)
    planned_cluster, planned_model = planned_inputs(document)
    if cluster is not None:
        violations += other_input("topology", planned_cluster, cluster)
    if model is not None:
        violations += other_input("workload", planned_model, model)
    streams.write_records([{"violation": text} for text in violations], output_format)
    if violations:
        streams.say(f"{plan}: {len(violations)} {'violation' if len(violations) == 1 else 'violations'}")
        raise typer.Exit(ExitCode.GATE_FAILED)
    unchecked = ", but for what moved: give --from" if document.moves is not None and former is None else ""
    streams.say(f"{plan}: everything holds{unchecked}")


def other_input(kind: str, planned: "Record", given: "Record") -> list[str]:
    """In which fields the input that a plan was made for is not the given one; the first few."""
    found = differences(planned.model_dump(mode="json"), given.model_dump(mode="json"))
    return [
        f"made for another {kind}: {path or 'all of it'} was {was!r} and is {now!r}"
        for path, was, now in itertools.islice(found, SHOWN_DIFFERENCES)
    ]


def differences(was: object, now: object, path: str = "") -> Iterator[tuple[str, object, object]]:
    """Every leaf (path, was, now) in which two plain documents differ; None where one has no such leaf."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key in was | now:
            yield from differences(was.get(key), now.get(key), f"{path}.{key}".lstrip("."))
    elif isinstance(was, list) and isinstance(now, list):
        for index, (old, new) in enumerate(itertools.zip_longest(was, now)):
            yield from differences(old, new, f"{path}.{index}".lstrip("."))
    elif was != now:
        yield path, was, now
