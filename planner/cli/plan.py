"""`planner plan`: the main job."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from planner.cli import completions, flags, inputs, streams, values
from planner.cli.exits import ExitCode
from planner.cli.flag_groups import grouped
from planner.cli.inputs import InputChanges
from planner.cli.interruption import interruption
from planner.cli.outputs import Outputs
from planner.cli.policy_flags import PolicyFlags
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


class SearchOptions(TypedDict):
    """What the flags of the search say, in the words of `planner.plan`."""

    time_limit_s: float | None
    effort: int | None
    gap: float
    seed: int
    seeds: int
    workers: int | None
    solver: "Solver"


class FollowingOptions(TypedDict):
    """What the flags of a plan that is followed say, in the words of `planner.plan`."""

    previous: Path | None
    max_move_bytes: int | None
    pay_back_steps: int | None
    lost_nodes: tuple[int, ...]


@dataclass(frozen=True)
class SearchFlags:
    """How long is searched, and how."""

    time_limit: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Search this long, as in 30s. Unset: 60s, or with --effort no limit."),
    ] = None
    effort: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="Passes of local search. Unset: 1, or all that --time-limit allows.",
        ),
    ] = None
    gap: Annotated[str, typer.Option(metavar="SHARE", help="Stop this close to the proven bound.")] = "1%"
    seed: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            help="Seed: same inputs and seed, same plan, unless a time limit ends the search.",
        ),
    ] = 0
    seeds: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="Search side by side from so many seeds, --seed and those after it; take the best plan found.",
        ),
    ] = 1
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            rich_help_panel="Search",
            help="With --seeds: processes; the plan is the same, unless a time limit ends the search. Unset: as many as"
            " there are cores.",
        ),
    ] = None
    solver: Annotated[
        str,
        typer.Option(
            metavar="WORD",
            help="auto: search, then an integer programme if it is small and the gap is above --gap; ilp: if it has at"
            " most 20,000 variables, else refused; search: none.",
            autocompletion=completions.of_words(completions.solvers),
        ),
    ] = "auto"

    def options(self) -> SearchOptions:
        """The values of the flags."""
        if self.seeds == 1:
            flags.expect_unused("without --seeds", workers=self.workers)
        return {
            "time_limit_s": None if self.time_limit is None else values.seconds("--time-limit", self.time_limit),
            "effort": self.effort,
            "gap": values.tolerance("--gap", self.gap),
            "seed": self.seed,
            "seeds": self.seeds,
            "workers": self.workers,
            "solver": values.solver(self.solver),
        }


@dataclass(frozen=True)
class FollowingFlags:
    """The plan that is followed, and what may move."""

    from_: Annotated[
        Path | None,
        typer.Option("--from", metavar="PLAN", help="Re-plan from this plan and move little. Prints what moves."),
    ] = None
    max_move: Annotated[
        str | None,
        typer.Option(metavar="BYTES", help="With --from: the most that may move between ranks, as in 500GB."),
    ] = None
    pay_back: Annotated[
        int | None,
        typer.Option(
            metavar="STEPS",
            min=1,
            help="With --from: moves must pay for themselves within this many steps. Unset: 10000, or no limit"
            " with --max-move.",
        ),
    ] = None
    lost_nodes: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="With --from: nodes of that plan that are gone, as in 3,7.")
    ] = None

    def options(self, cost_model: str, quantity: str) -> FollowingOptions:
        """The values of the flags; those that a cost model, or a plan that follows none, makes nothing of are
        refused."""
        if self.from_ is None:
            moves = {"max_move": self.max_move, "pay_back": self.pay_back, "lost_nodes": self.lost_nodes}
            flags.expect_unused("without --from", **moves)
        if quantity != "step":
            ratings = f"on the ratings of --cost-model {cost_model}, which are not times"
            flags.expect_unused(ratings, pay_back=self.pay_back)
        return {
            "previous": self.from_,
            "max_move_bytes": None if self.max_move is None else values.byte_count("--max-move", self.max_move),
            "pay_back_steps": self.pay_back,
            "lost_nodes": () if self.lost_nodes is None else values.numbers("--lost-nodes", self.lost_nodes),
        }


@dataclass(frozen=True)
class OutputFlags:
    """What is written, and where."""

    write_model: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.mps",
            help="Also write the integer programme, for a solver of your own; planner import reads its solution.",
        ),
    ] = None
    simulate: Annotated[bool, typer.Option(help="Also simulate the plan's step.")] = True
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the plan document here.")
    ] = None
    output_format: flags.FormatFlag = Format.TABLE
    quiet: flags.QuietFlag = False


@grouped
def plan(
    *,
    topology: flags.TopologyFlag,
    workload: flags.WorkloadFlag = None,
    changes: InputChanges,
    cost_model: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            help="Minimise the step (physical), or the rating of torchrec or hugectr.",
            autocompletion=completions.of_words(completions.cost_models),
        ),
    ] = "physical",
    rules: PolicyFlags,
    search: SearchFlags,
    following: FollowingFlags,
    to: OutputFlags,
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
    given = {"--topology": topology, "--workload": workload, "--policy": rules.policy, "--from": following.from_}
    outputs = Outputs({"--output": to.output, "--write-model": to.write_model}, given)
    objective, quantity, unit = _objective(cost_model)
    policy = rules.document()
    said = policy.data if isinstance(policy.data, dict) else {}
    searched, followed = search.options(), following.options(objective, quantity)
    _expect_programme(to.write_model, is_robust=bool(said.get("robust")), follows=following.from_ is not None)
    if following.from_ is not None and searched["solver"] == "ilp":
        flags.expect_unused("with --from, which only searches", solver="ilp")
    if following.from_ is not None and searched["seeds"] > 1:
        flags.expect_unused("with --from, which begins with that plan", seeds=searched["seeds"])
    streams.doing("reading the inputs")

    from planner.cli.allocator import tune_memory

    tune_memory()
    cluster, model = inputs.load_inputs(topology, workload, changes, outputs)
    if not to.quiet:
        inputs.say_doubts(cluster)

    from planner.planning import planning as api

    with streams.progress(quiet=to.quiet, limit=_limit(searched)) as report, interruption() as interrupted:
        planned = api.plan(
            cluster,
            model,
            cost_model=objective,
            policy=policy,
            progress=report and progress_lines(report, unit),
            stop=interrupted,
            simulate=to.simulate,
            **searched,
            **followed,
        )
    if following.from_ is not None and said.get("replicas") is None and planned.replicas is not None and not to.quiet:
        words = f"groups of ranks as in {following.from_}: {planned.replicas.words}"
        streams.say(f"{words}; --replicas or a policy says otherwise")
    _write(planned, to.output, to.output_format)
    if to.write_model is not None:
        _write_programme(planned, to.write_model)
    if not to.quiet:
        streams.say(f"planned in {time.perf_counter() - began:.1f} s")
    interrupted.end()
    raise typer.Exit(STATUS_EXITS[planned.status])


def _limit(searched: SearchOptions) -> str:
    """Until when the search goes on at most."""
    if searched["time_limit_s"] is not None:
        return f"at most {searched['time_limit_s']:g} s"
    from planner.planning.planning import DEFAULT_TIME_LIMIT_S

    effort = searched["effort"]
    return f"at most {DEFAULT_TIME_LIMIT_S:g} s" if effort is None else f"effort {effort}"


def _expect_programme(file: Path | None, *, is_robust: bool, follows: bool) -> None:
    """Refuse other formats of programmes, and programmes of plans that have none."""
    if file is None:
        return
    if file.suffix != ".mps":
        raise typer.BadParameter(f"{file} is written as MPS; name it .mps", param_hint="--write-model")
    if follows:
        flags.expect_unused("with --from: the programme knows no moves", write_model=str(file))
    if is_robust:
        flags.expect_unused("of a robust plan: the programme is of the profiles' means", write_model=str(file))


def _objective(cost_model: str) -> tuple[str, str, str]:
    """The cost model that a flag names, what it measures and in which unit."""
    from cost_models.registry import COST_MODELS

    name = values.word("--cost-model", cost_model, tuple(COST_MODELS))
    return name, COST_MODELS[name].quantity, COST_MODELS[name].unit


def _write_programme(planned: "Plan", file: Path) -> None:
    """The integer programme of a plan, as MPS."""
    from planner.planning.programme_file import write_programme

    streams.doing("writing the integer programme")
    size = write_programme(planned, file)
    streams.say(f"{file}: {size:,} variables; planner import SOLUTION --from mps-solution takes it back")


def _write(planned: "Plan", output: Path | None, output_format: Format) -> None:
    """The plan document as a file, where that is wanted, and the plan on stdout."""
    from planner.document.plan import write_plan
    from planner.reports import frames, plan_summary
    from planner.reports.words import drift_words

    if output is not None:
        write_plan(planned, output)
    if output_format is Format.JSON:
        streams.print_json(planned.to_json())
    elif output_format is Format.CSV:
        streams.write_frame(frames.shard_frame(planned))
    else:
        plan_summary.render(planned, streams.console(output=output_format))
    if not output_format.is_text:
        drifted = drift_words(planned)
        for warning in (*planned.provenance.warnings, *(() if drifted is None else (drifted,))):
            streams.say(f"planner: warning: {warning}")
    if planned.infeasibility is not None and not output_format.is_text:
        streams.say(f"There is no plan: {planned.infeasibility.summary}.")
