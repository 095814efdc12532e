"""`planner plan`: the main job."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli import completions, flags, inputs, streams, values
from planner.cli.exits import ExitCode
from planner.cli.interruption import interruption
from planner.cli.outputs import Outputs
from planner.cli.search_progress import progress_lines
from planner.cli.streams import Format

if TYPE_CHECKING:
    from planner.document.plan import Plan
    from planner.planning.integer_solution import Solver

STATUS_EXITS = {
    "optimal": ExitCode.DONE,
    "feasible": ExitCode.DONE,
    "infeasible": ExitCode.INFEASIBLE,
    "timeout": ExitCode.NO_PLAN_IN_TIME,
}


def plan(
    topology: flags.TopologyFlag,
    workload: flags.WorkloadFlag = None,
    nodes: flags.NodesFlag = None,
    global_batch: flags.GlobalBatchFlag = None,
    set_: flags.SetFlag = None,
    cost_model: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            help="Minimise the step (physical), or the rating of torchrec or hugectr.",
            autocompletion=completions.of_words(completions.cost_models),
        ),
    ] = "physical",
    policy: flags.PolicyFlag = None,
    tiers: flags.TiersFlag = None,
    shardings: flags.ShardingsFlag = None,
    stash: flags.StashFlag = None,
    optimizer_state: flags.OptimizerStateFlag = None,
    runtime: flags.RuntimeFlag = None,
    exchange: flags.ExchangeFlag = None,
    max_shards: flags.MaxShardsFlag = None,
    column_multiple: flags.ColumnMultipleFlag = None,
    pin: flags.PinFlag = None,
    forbid: flags.ForbidFlag = None,
    reserve: flags.ReserveFlag = None,
    replicas: flags.ReplicasFlag = None,
    sync_every: flags.SyncEveryFlag = None,
    dense: flags.DenseFlag = None,
    checkpointing: flags.CheckpointingFlag = None,
    robust: flags.RobustFlag = None,
    goals: flags.GoalsFlag = None,
    time_limit: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Search this long, as in 30s. Unset: 60s, or with --effort no limit."),
    ] = None,
    effort: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="Passes of local search. Unset: 1, or all that --time-limit allows.",
        ),
    ] = None,
    gap: Annotated[str, typer.Option(metavar="SHARE", help="Stop this close to the proven bound.")] = "1%",
    seed: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            help="Seed: same inputs and seed, same plan, unless a time limit ends the search.",
        ),
    ] = 0,
    solver: Annotated[
        str,
        typer.Option(
            metavar="WORD",
            help="auto: search, then an integer programme if it is small and the gap is above --gap; ilp: if it has at"
            " most 20,000 variables, else refused; search: none.",
            autocompletion=completions.of_words(completions.solvers),
        ),
    ] = "auto",
    write_model: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.mps",
            help="Also write the integer programme, for a solver of your own; planner import reads its solution.",
        ),
    ] = None,
    from_: Annotated[
        Path | None,
        typer.Option("--from", metavar="PLAN", help="Re-plan from this plan and move little. Prints what moves."),
    ] = None,
    max_move: Annotated[
        str | None,
        typer.Option(metavar="BYTES", help="With --from: the most that may move between ranks, as in 500GB."),
    ] = None,
    pay_back: Annotated[
        int | None,
        typer.Option(
            metavar="STEPS",
            min=1,
            help="With --from: moves must pay for themselves within this many steps. Unset: 10000, or no limit"
            " with --max-move.",
        ),
    ] = None,
    lost_nodes: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="With --from: nodes of that plan that are gone, as in 3,7.")
    ] = None,
    simulate: Annotated[bool, typer.Option(help="Also simulate the plan's step.")] = True,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the plan document here.")
    ] = None,
    output_format: flags.FormatFlag = Format.TABLE,
    quiet: flags.QuietFlag = False,
) -> None:
    """Place every table of a workload on a cluster.

    Prints the estimated step time, the proven lower bound, the gap between
    them, what limits each stage, and the bytes per memory tier.

    \b
    Example:
      planner plan --topology zionex-16 --workload dlrm-dcnv2 -o plan.json

    \b
    What if: half the nodes, a bigger batch, half precision.
      planner plan -t zionex-16 -w dlrm-dcnv2 --nodes 8 \\
        --global-batch 131072 --set workload.embedding.dtype=fp16

    \b
    Only what TorchRec executes, one table on one node's ranks.
      planner plan -t zionex-16 -w dlrm-dcnv2 --runtime torchrec \\
        --pin cat_0=0-7

    \b
    The smallest 95th percentile over steps that vary.
      planner plan -t zionex-16 -w dlrm-dcnv2 --robust p95

    \b
    Re-plan: the same on 8 nodes, moving little.
      planner plan -t zionex-16 -w dlrm-dcnv2 --nodes 8 --from plan.json \\
        --max-move 50GB
    """
    began = time.perf_counter()
    if from_ is None:
        flags.expect_unused("without --from", max_move=max_move, pay_back=pay_back, lost_nodes=lost_nodes)
    given = {"--topology": topology, "--workload": workload, "--policy": policy, "--from": from_}
    outputs = Outputs({"--output": output, "--write-model": write_model}, given)
    _expect_mps(write_model, from_)
    objective, quantity, unit = _objective(cost_model)
    rules = inputs.policy(
        policy,
        tiers=tiers,
        shardings=shardings,
        stash=stash,
        optimizer_state=optimizer_state,
        runtime=runtime,
        exchange=exchange,
        max_shards=max_shards,
        column_multiple=column_multiple,
        pin=pin,
        forbid=forbid,
        reserve=reserve,
        replicas=replicas,
        sync_every=sync_every,
        dense=dense,
        checkpointing=checkpointing,
        robust=robust,
        goals=goals,
    )
    says_replicas = isinstance(rules.data, dict) and rules.data.get("replicas") is not None
    if write_model is not None and isinstance(rules.data, dict) and rules.data.get("robust"):
        flags.expect_unused("of a robust plan: the programme is of the profiles' means", write_model=str(write_model))
    time_limit_s = None if time_limit is None else values.seconds("--time-limit", time_limit)
    wanted_gap = values.share("--gap", gap)
    max_move_bytes = None if max_move is None else values.byte_count("--max-move", max_move)
    gone = () if lost_nodes is None else values.numbers("--lost-nodes", lost_nodes)
    if quantity != "step":
        flags.expect_unused(f"on the ratings of --cost-model {objective}, which are not times", pay_back=pay_back)
    chosen_solver = _solver(solver, from_)
    streams.doing("reading the inputs")
    cluster, model = inputs.load_inputs(
        topology, workload, nodes=nodes, global_batch=global_batch, overrides=set_, outputs=outputs
    )

    from planner.planning import planning as api

    with streams.progress(quiet=quiet, limit=_limit(time_limit_s, effort)) as report, interruption() as interrupted:
        planned = api.plan(
            cluster,
            model,
            cost_model=objective,
            policy=rules,
            time_limit_s=time_limit_s,
            effort=effort,
            gap=wanted_gap,
            seed=seed,
            progress=report and progress_lines(report, unit),
            stop=interrupted,
            previous=from_,
            max_move_bytes=max_move_bytes,
            pay_back_steps=pay_back,
            lost_nodes=gone,
            simulate=simulate,
            solver=chosen_solver,
        )
    if from_ is not None and not says_replicas and planned.replicas is not None and not quiet:
        streams.say(f"groups of ranks as in {from_}: {planned.replicas.words}; --replicas or a policy says otherwise")
    _write(planned, output, output_format)
    if write_model is not None:
        from planner.planning.programme_file import write_programme

        streams.doing("writing the integer programme")
        size = write_programme(planned, write_model)
        streams.say(f"{write_model}: {size:,} variables; planner import SOLUTION --from mps-solution takes it back")
    if not quiet:
        streams.say(f"planned in {time.perf_counter() - began:.1f} s")
    interrupted.end()
    raise typer.Exit(STATUS_EXITS[planned.status])


def _limit(time_limit_s: float | None, effort: int | None) -> str:
    """Until when the search goes on at most."""
    if time_limit_s is not None:
        return f"at most {time_limit_s:g} s"
    from planner.planning.planning import DEFAULT_TIME_LIMIT_S

    return f"at most {DEFAULT_TIME_LIMIT_S:g} s" if effort is None else f"effort {effort}"


def _expect_mps(file: Path | None, former: Path | None) -> None:
    """Refuse other formats of programmes, and programmes of plans that follow others."""
    if file is None:
        return
    if file.suffix != ".mps":
        raise typer.BadParameter(f"{file} is written as MPS; name it .mps", param_hint="--write-model")
    if former is not None:
        flags.expect_unused("with --from: the programme knows no moves", write_model=str(file))


def _solver(word: str, former: Path | None) -> "Solver":
    """What is to follow the search."""
    solver = values.solver(word)
    if former is not None and solver == "ilp":
        flags.expect_unused("with --from, which only searches", solver=solver)
    return solver


def _objective(cost_model: str) -> tuple[str, str, str]:
    """The cost model that a flag names, what it measures and in which unit."""
    from cost_models.registry import COST_MODELS

    name = values.word("--cost-model", cost_model, tuple(COST_MODELS))
    return name, COST_MODELS[name].quantity, COST_MODELS[name].unit


def _write(planned: "Plan", output: Path | None, output_format: Format) -> None:
    """The plan document as a file, where that is wanted, and the plan on stdout."""
    from planner.document.plan import write_plan
    from planner.reports import frames, plan_summary

    if output is not None:
        write_plan(planned, output)
    if output_format is Format.JSON:
        streams.print_json(planned.to_json())
    elif output_format is Format.CSV:
        streams.write_frame(frames.shard_frame(planned))
    else:
        plan_summary.render(planned, streams.console(output=output_format))
    if not output_format.is_text:
        for warning in planned.provenance.warnings:
            streams.say(f"planner: warning: {warning}")
    if planned.infeasibility is not None and not output_format.is_text:
        streams.say(f"There is no plan: {planned.infeasibility.summary}.")
