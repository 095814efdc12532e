"""`planner size`: how many nodes a workload needs, and of which cluster."""

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli import flags, inputs, streams, values
from planner.cli.exits import ExitCode
from planner.cli.inputs import InputChanges
from planner.cli.interruption import interruption
from planner.cli.policy_flags import PolicyFlags
from planner.cli.search_progress import size_lines
from planner.cli.streams import Format

if TYPE_CHECKING:
    from cost_models.workload.models import Workload
    from planner.capacity.clusters import Case, ClusterChoice, ClusterQuestion
    from topologies.cluster import Topology
    from topologies.errors import Fault

MAX_NODES = 128


class By(StrEnum):
    """What comes first."""

    SIZE = "size"
    PRICE = "price"


def size(
    topology: flags.TopologiesFlag,
    workload: flags.WorkloadFlag = None,
    try_: Annotated[
        list[str] | None,
        typer.Option(
            "--try",
            metavar="PATH=VALUE[;...]",
            help="Also size with these fields changed, as in workload.embedding.dtype=fp16. May be repeated.",
        ),
    ] = None,
    target_qps: Annotated[
        str | None, typer.Option("--target-qps", metavar="RATE", help="Samples per second to reach, as in 2e6 or 2M.")
    ] = None,
    max_step: Annotated[str | None, typer.Option(metavar="TIME", help="The longest step to reach, as in 20ms.")] = None,
    fits: Annotated[bool, typer.Option("--fits", help="Only ask that the tables fit.")] = False,
    prices: flags.PricesFlag = None,
    max_price: Annotated[
        str | None, typer.Option(metavar="PRICE", help="Reject what costs more, as in 500USD/h.")
    ] = None,
    max_power: Annotated[str | None, typer.Option(metavar="POWER", help="Reject what draws more, as in 300kW.")] = None,
    by: Annotated[By, typer.Option(help="Fewest ranks first, or lowest price per hour.")] = By.SIZE,
    max_nodes: Annotated[int, typer.Option(metavar="N", min=1, help="No more nodes than this.")] = MAX_NODES,
    group: Annotated[
        str | None, typer.Option(metavar="NAME", help="The node group to size, where there are several.")
    ] = None,
    each_tier: Annotated[
        bool | None,
        typer.Option(
            "--each-tier/--no-each-tier",
            help="Also size without each memory below HBM, and without all of them. Unset: for a single case.",
            show_default=False,
        ),
    ] = None,
    global_batch: flags.GlobalBatchFlag = None,
    set_: flags.SetFlag = None,
    policy: flags.PolicyFlag = None,
    tiers: flags.TiersFlag = None,
    shardings: flags.ShardingsFlag = None,
    runtime: flags.RuntimeFlag = None,
    exchange: flags.ExchangeFlag = None,
    reserve: flags.ReserveFlag = None,
    effort: Annotated[
        int, typer.Option(metavar="N", min=0, help="Passes of local search where a short search does not decide.")
    ] = 1,
    gap: Annotated[str, typer.Option(metavar="SHARE", help="Stop the answer's search this close to its bound.")] = "1%",
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seed: same inputs and seed, same answer.")] = 0,
    solver: Annotated[
        str,
        typer.Option(
            metavar="WORD",
            help="What follows the longest search where that decides nothing, and the answer's search: auto, ilp: the"
            " integer programme, as in planner plan; search: none.",
        ),
    ] = "search",
    output_format: flags.FormatFlag = Format.TABLE,
    quiet: flags.QuietFlag = False,
) -> None:
    """Find the fewest nodes for a throughput, or to hold the tables.

    Bisects over the number of nodes of each cluster, unchanged and with
    each --try; a single case also without each memory below HBM. A plan
    accepts a size; the proven bound or a proof of too little memory rejects
    it. The table says where only a search without proof decided. Exits with
    4 if no size up to --max-nodes is enough.

    \b
    Examples:
      planner size -t zionex-16 -w dlrm-dcnv2 --target-qps 2e7
      planner size -t zionex-16 -w model-f --fits --max-nodes 512
      planner size -t dgx-a100-80 -t dgx-h100 -w rm2 --fits --max-power 60kW
      planner size -t a.yaml -t b.yaml -w w.yaml --fits --prices p.yaml --by price
    """
    question = _question(target_qps, max_step, max_price, max_power, fits=fits, by=by, max_nodes=max_nodes)
    rules = PolicyFlags(
        policy, tiers=tiers, shardings=shardings, runtime=runtime, exchange=exchange, reserve=reserve
    ).document()
    wanted_gap, chosen_solver = values.tolerance("--gap", gap), values.solver(solver)
    streams.doing("reading the inputs")
    cases = _cases(topology, workload, try_ or (), group=group, global_batch=global_batch, overrides=set_ or ())

    from planner.capacity.clusters import size_all
    from planner.capacity.prices import load_prices

    sheet = None if prices is None else load_prices(prices)
    with streams.progress(quiet=quiet, limit=f"at most {max_nodes:,} nodes") as tell, interruption() as interrupted:
        sized = size_all(
            cases,
            question,
            policy=rules,
            prices=sheet,
            each_tier=len(cases) == 1 if each_tier is None else each_tier,
            effort=effort,
            gap=wanted_gap,
            seed=seed,
            solver=chosen_solver,
            progress=tell and size_lines(tell),
            stop=interrupted,
        )
    _print(sized, output_format)
    interrupted.end()
    raise typer.Exit(ExitCode.DONE if any(choice.does for choice in sized) else ExitCode.INFEASIBLE)


def _question(
    target_qps: str | None,
    max_step: str | None,
    max_price: str | None,
    max_power: str | None,
    *,
    fits: bool,
    by: By,
    max_nodes: int,
) -> "ClusterQuestion":
    """The target and the limits that the flags state."""
    if fits == (target_qps is not None or max_step is not None):
        raise typer.BadParameter("give either --target-qps and --max-step, or --fits", param_hint="--target-qps")
    samples_per_s = None if target_qps is None else values.rate("--target-qps", target_qps)
    max_step_s = None if max_step is None else values.seconds("--max-step", max_step)
    if max_step_s == 0:
        raise typer.BadParameter("must be above 0, as in 20ms", param_hint="--max-step")
    max_usd_per_hour = None if max_price is None else values.usd_per_hour("--max-price", max_price)
    max_kilowatts = None if max_power is None else values.kilowatts("--max-power", max_power)

    from planner.capacity.clusters import ClusterQuestion

    return ClusterQuestion(samples_per_s, max_step_s, max_usd_per_hour, max_kilowatts, by.value, max_nodes)


def _print(sized: "Sequence[ClusterChoice]", output_format: Format) -> None:
    from planner.reports import sizing as report

    if output_format is Format.JSON:
        streams.write_json(report.as_document(sized))
    elif output_format is not Format.TABLE:
        streams.write_records(report.records(sized), output_format)
        for note in dict.fromkeys(note for choice in sized for note in choice.sizing.notes):
            streams.say(f"planner: note: {note}")
    else:
        report.render(sized, streams.console())


def _cases(
    topologies: Sequence[str],
    workload: str | None,
    tries: Sequence[str],
    *,
    group: str | None,
    global_batch: int | None,
    overrides: Sequence[str],
) -> "list[Case]":
    """Each cluster as it is and with each try. Raises InputError with the faults of all.

    `group` goes to the clusters that have it, and is not needed for another one that has a single group.
    """
    from planner.capacity.clusters import Case
    from topologies.errors import InputError

    for flag, words in (("--topology", topologies), ("--try", tries)):
        if twice := sorted({word for word in words if words.count(word) > 1}):
            raise typer.BadParameter(f"{twice[0]!r} is given twice", param_hint=flag)
    changes = {text: [part.strip() for part in text.split(";")] for text in tries}
    for parts in changes.values():
        values.split_overrides(parts, "--try")
    source = workload or inputs.default_workload(topologies[0])
    loaded: dict[tuple[str, str], tuple[Topology, Workload]] = {}
    faults: list[Fault] = []
    for name in topologies:
        for text, parts in {"": [], **changes}.items():
            try:
                loaded[name, text] = inputs.load_inputs(
                    name, source, InputChanges(global_batch=global_batch, set_=[*overrides, *parts])
                )
            except InputError as error:
                faults += [_of_try(fault, parts) if text else fault for fault in error.faults]
    if faults:
        raise InputError(dict.fromkeys(faults))
    named = {name: loaded[name, ""][0].name for name in topologies}
    labels = named if len(set(named.values())) == len(named) else {name: name for name in topologies}
    is_known = any(group == each.name for cluster, _ in loaded.values() for each in cluster.nodes)
    cases = []
    for (name, text), (cluster, model) in loaded.items():
        has_it = any(group == each.name for each in cluster.nodes)
        own = None if is_known and not has_it and len(cluster.nodes) == 1 else group
        cases.append(Case(f"{labels[name]} ({text})" if text else labels[name], cluster, model, own))
    return cases


def _of_try(fault: "Fault", parts: Sequence[str]) -> "Fault":
    """A fault that names the flag which the override came by."""
    is_own = fault.source in {f"--set {part}" for part in parts}
    return replace(fault, source=fault.source.replace("--set", "--try", 1)) if is_own else fault
