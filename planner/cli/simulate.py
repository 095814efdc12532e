"""`planner simulate`: training steps of a plan, event by event."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli import flags, streams, values
from planner.cli.flag_groups import grouped
from planner.cli.outputs import Outputs
from planner.cli.streams import Format
from topologies.sentences import counted

if TYPE_CHECKING:
    from cost_models.simulator.conditions import Conditions
    from cost_models.simulator.network import Instance
    from cost_models.simulator.simulation import Simulation


class AllToAlls(StrEnum):
    """How all-to-alls stand in Chakra traces."""

    PAIRS = "pairs"
    COLLECTIVES = "collectives"


STEPS = 20
"""Steps to simulate where something varies and no number is given."""


@dataclass(frozen=True)
class ConditionFlags:
    """What varies from step to step, and what is slow or lost."""

    pooling: Annotated[
        bool,
        typer.Option(help="Draw the number of ids of each step from the tables' pooling_std."),
    ] = True
    jitter: Annotated[
        str, typer.Option(metavar="SHARE", help="Variation of every rank's device time from step to step, as in 5%.")
    ] = "0%"
    slow_rank: Annotated[
        list[str] | None,
        typer.Option(metavar="RANK=FACTOR", help="A straggler: with 3=1.5 rank 3 takes 1.5 times as long."),
    ] = None
    slow_link: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SORT:N=SHARE",
            help="Remaining bandwidth of a link: nic:4=50%, link:7=25% (scale-up port); also host_link, pcie, ddr,"
            " ssd, scm, remote.",
        ),
    ] = None
    lost_card: Annotated[
        str | None,
        typer.Option(metavar="A,B,...", help="Failed scale-out NICs, by number; their ranks use another one."),
    ] = None
    data_loading: Annotated[
        bool, typer.Option("--data-loading", help="Also wait for training data on the front-end network.")
    ] = False
    draw_rows: Annotated[
        bool,
        typer.Option(
            "--draw-rows", help="Draw each batch's ids and count rows and cache misses, instead of their expectation."
        ),
    ] = False
    inverse_roots: Annotated[
        bool,
        typer.Option(
            "--inverse-roots",
            help="Compute Shampoo's inverse roots in every step, instead of their mean share of a step.",
        ),
    ] = False
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seed: same plan and seed, same steps.")] = 0

    def read(self) -> "Conditions":
        """The conditions that the flags state."""
        from cost_models.simulator.conditions import Conditions

        values.expect_once("--slow-rank", [f"rank {values.path_of(text)}" for text in self.slow_rank or ()])
        values.expect_once("--slow-link", [values.path_of(text) for text in self.slow_link or ()])
        return Conditions(
            pooling=self.pooling,
            jitter=values.share("--jitter", self.jitter),
            slow_ranks=dict(_slow_rank(text) for text in self.slow_rank or ()),
            slow_links=dict(_slow_link(text) for text in self.slow_link or ()),
            lost_cards=() if self.lost_card is None else values.numbers("--lost-card", self.lost_card),
            data_loading=self.data_loading,
            draws_rows=self.draw_rows,
            with_roots=self.inverse_roots,
            seed=self.seed,
        )


@grouped
def simulate(
    *,
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan document.", show_default=False)],
    steps: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help=f"Steps to simulate. Unset: {STEPS} where they differ, else 1."),
    ] = None,
    conditions: ConditionFlags,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write the timeline here: one Kineto trace per rank, for Perfetto and HTA."),
    ] = None,
    ranks: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="With --trace: only these ranks. Unset: a sample.")
    ] = None,
    chakra: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Write Chakra traces of all ranks and a network for ASTRA-sim here; a new folder."
        ),
    ] = None,
    all_to_all: Annotated[
        AllToAlls | None,
        typer.Option(
            metavar="HOW",
            help="With --chakra: pairs (messages, each of its size) or collectives (all as the largest). Unset: pairs"
            " up to 16 ranks.",
            show_default=False,
        ),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw one step of the critical rank (.png, .svg).")
    ] = None,
    output_format: flags.FormatFlag = Format.TABLE,
) -> None:
    """Simulate training steps of a plan, event by event.

    Simulates the streams, queues and links of every rank and shares no
    formula with the estimate. Prints the step, its critical path, how busy
    ranks, links and tiers are, and what each adverse condition costs.

    \b
    Examples:
      planner simulate plan.json
      planner simulate plan.json --jitter 3% --slow-rank 5=1.3 --lost-card 0
      planner simulate plan.json --trace traces --picture step.png
      planner simulate plan.json --chakra for-astra-sim
    """
    if trace is None:
        flags.expect_unused("without --trace", ranks=ranks)
    if chakra is None:
        flags.expect_unused("without --chakra", all_to_all=all_to_all)
    folders = {"--trace": (trace, "rank_*.json.gz"), "--chakra": (chakra, "*")}
    Outputs({"--picture": picture}, {"PLAN": plan}, folders)
    _expect_apart(trace, chakra, picture)
    from planner.reports import simulation as report
    from planner.reports.timeline import picture as draw
    from planner.reports.timeline import write_timeline
    from planner.verification import simulation
    from planner.verification.loading import load_plan

    adverse = conditions.read()
    streams.doing(f"reading {plan.name}")
    document = load_plan(plan)
    if document.objective is None:
        raise typer.BadParameter("the plan places nothing", param_hint="PLAN")
    try:
        outcome = simulation.simulate_conditions(document, steps, adverse, default_steps=STEPS, progress=streams.doing)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="the steps and conditions") from None
    chosen = None if ranks is None else values.numbers("--ranks", ranks)
    if trace is not None:
        streams.doing(f"writing traces to {trace.name}")
        files = write_timeline(outcome.simulation, trace, chosen)
        streams.say(f"wrote {counted(len(files), 'trace')} to {trace}; open one in https://ui.perfetto.dev")
    if chakra is not None:
        _write_chakra(outcome.simulation, chakra, all_to_all)
    if picture is not None:
        streams.doing(f"drawing {picture.name}")
        draw(outcome.simulation, picture)
    if output_format is Format.JSON:
        streams.write_json(report.as_document(document, outcome))
    elif output_format is Format.CSV:
        streams.write_records(report.critical_path_records(outcome), output_format)
    else:
        report.render(document, outcome, streams.console(output=output_format))


def _expect_apart(trace: Path | None, chakra: Path | None, picture: Path | None) -> None:
    """Refuse a folder for Chakra traces that holds anything, or would."""
    if chakra is None:
        return
    from planner.exporters.chakra import expect_empty
    from topologies.sources import behind_links

    expect_empty(chakra)
    for flag, other in (("--trace", trace), ("--picture", picture and picture.parent)):
        if other is not None and behind_links(other) == behind_links(chakra):
            raise typer.BadParameter(f"{chakra} is also the folder of {flag}; name two", param_hint="--chakra")


def _write_chakra(simulation: "Simulation", directory: Path, all_to_all: AllToAlls | None) -> None:
    from planner.exporters.chakra import write_chakra

    streams.doing(f"writing Chakra traces to {directory.name}")
    files = write_chakra(simulation, directory, all_to_all.value if all_to_all else None)
    streams.say(f"wrote {counted(len(files), 'Chakra trace')} to {directory}, and a network and a system for ASTRA-sim")


def _slow_rank(text: str) -> tuple[int, float]:
    rank, _, factor = text.partition("=")
    try:
        slow = int(rank), float(factor.removesuffix("x"))
    except ValueError:
        slow = -1, 0.0
    if slow[0] < 0 or not 0 < slow[1] < float("inf"):
        raise typer.BadParameter(f"{text!r} is not RANK=FACTOR, as in 3=1.5", param_hint="--slow-rank")
    return slow


def _slow_link(text: str) -> "tuple[Instance, float]":
    from cost_models.resources import Resource

    link, _, share = text.partition("=")
    sort, _, number = link.partition(":")
    if not number.isdecimal():
        raise typer.BadParameter(f"{text!r} is not SORT:N=SHARE, as in nic:4=50%", param_hint="--slow-link")
    left = values.share("--slow-link", share)
    if left <= 0:
        raise typer.BadParameter(
            f"{text!r} leaves nothing: the exchange would never end; for a card use --lost-card",
            param_hint="--slow-link",
        )
    try:
        return (Resource.parse(sort), int(number)), left
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--slow-link") from None
