"""`planner size`: how many nodes a workload needs."""

from typing import Annotated

import typer

from planner.cli import flags, streams
from planner.cli.exits import ExitCode
from planner.cli.plan import interruption
from planner.cli.streams import Format

MAX_NODES = 128


def size(
    topology: flags.TopologyFlag,
    workload: flags.WorkloadFlag = None,
    target_qps: Annotated[
        float | None, typer.Option("--target-qps", metavar="N", help="Samples per second to reach, as in 2e6.")
    ] = None,
    fits: Annotated[bool, typer.Option("--fits", help="No target: that the tables fit is enough.")] = False,
    max_nodes: Annotated[int, typer.Option(metavar="N", min=1, help="No more nodes than this.")] = MAX_NODES,
    group: Annotated[
        str | None, typer.Option(metavar="NAME", help="The node group to size, where there are several.")
    ] = None,
    each_tier: Annotated[bool, typer.Option(help="Size without each memory below HBM, and without all, too.")] = True,
    global_batch: flags.GlobalBatchFlag = None,
    set_: flags.SetFlag = None,
    policy: flags.PolicyFlag = None,
    tiers: flags.TiersFlag = None,
    shardings: flags.ShardingsFlag = None,
    runtime: flags.RuntimeFlag = None,
    reserve: flags.ReserveFlag = None,
    effort: Annotated[
        int, typer.Option(metavar="N", min=0, help="Passes of local search where a short search decides nothing.")
    ] = 1,
    gap: Annotated[
        str, typer.Option(metavar="SHARE", help="How near to the bound the answer's plan is sought.")
    ] = "1%",
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Same inputs and seed, same answer.")] = 0,
    output_format: flags.FormatFlag = Format.TABLE,
    quiet: flags.QuietFlag = False,
) -> None:
    """Find the fewest nodes for a throughput or for the memory.

    Bisects over the nodes of the cluster: with all tiers, and without each
    memory below HBM. A size is rejected by the proven bound or for its memory,
    accepted by a plan; what neither decides, the table says so. Exits with 4 if
    no size up to --max-nodes does.

    \b
    Examples:
      planner size -t zionex-16 -w dlrm-dcnv2 --target-qps 2e7
      planner size -t zionex-16 -w model-f --fits --max-nodes 512
    """
    if (target_qps is None) == (not fits):
        raise typer.BadParameter("give either --target-qps or --fits", param_hint="--target-qps")
    if target_qps is not None and not 0 < target_qps < float("inf"):
        raise typer.BadParameter("must be above 0 and finite, as in 2e6", param_hint="--target-qps")
    rules = flags.policy(policy, tiers=tiers, shardings=shardings, runtime=runtime, reserve=reserve)
    wanted_gap = flags.share("--gap", gap)
    cluster, model = flags.load_inputs(topology, workload, nodes=None, global_batch=global_batch, overrides=set_)

    from planner.reports import sizing as report
    from planner.sizing import size as find_size

    with streams.progress(quiet=quiet) as tell, interruption() as interrupted:
        found = find_size(
            cluster,
            model,
            target_samples_per_s=target_qps,
            group=group,
            max_nodes=max_nodes,
            policy=rules,
            each_tier=each_tier,
            effort=effort,
            gap=wanted_gap,
            seed=seed,
            progress=tell,
            stop=interrupted,
        )
    if output_format is Format.JSON:
        streams.write_json(report.as_document(found, target_qps))
    elif output_format is Format.CSV:
        streams.write_csv(report.records(found))
    else:
        report.render(found, target_qps, max_nodes, streams.console())
    if interrupted():
        raise KeyboardInterrupt
    raise typer.Exit(ExitCode.DONE if found[0].answer is not None else ExitCode.INFEASIBLE)
