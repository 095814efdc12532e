"""`planner cost`: what candidate models cost beside one that is planned."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from planner.cli import flags, inputs, streams, values
from planner.cli.inputs import InputChanges
from planner.cli.outputs import Outputs
from planner.cli.policy_flags import PolicyFlags
from planner.cli.streams import Format

if TYPE_CHECKING:
    from planner.document.plan import Plan
    from planner.oracle import Costs


class Tries(NamedTuple):
    """How hard is searched for a plan."""

    effort: int
    gap: float
    seed: int


SHOWN = 10
"""Candidates that are printed where all of them go into a file."""


def cost(
    changes: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="A CSV file with a candidate a line. Columns: name; TABLE.rows, TABLE.dim, TABLE.pooling_factor,"
            " TABLE.compressor, TABLE.present, of a table or of all that a pattern names; dense.bottom_mlp,"
            " dense.top_mlp as in 512|256|1. An empty cell changes nothing.",
            show_default=False,
        ),
    ],
    plan: Annotated[
        Path | None,
        typer.Argument(metavar="PLAN", help="The plan of the model that is changed.", show_default=False),
    ] = None,
    topology: flags.OptionalTopologyFlag = None,
    workload: flags.PlannedWorkloadFlag = None,
    policy: Annotated[
        Path | None, typer.Option("--policy", "-p", metavar="FILE", help="With -t: what plans may use (YAML).")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write all candidates as CSV.")
    ] = None,
    exact: Annotated[
        int, typer.Option(metavar="K", min=0, help="Plan the K candidates with the shortest estimate.")
    ] = 0,
    prices: flags.PricesFlag = None,
    effort: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Passes of local search of each plan. Unset: 1.")
    ] = None,
    gap: Annotated[
        str | None, typer.Option(metavar="SHARE", help="Stop each search this close to the proven bound. Unset: 0%.")
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", min=0, help="Seed of each search. Unset: 0.")] = None,
    output_format: flags.FormatFlag = Format.TABLE,
    quiet: flags.QuietFlag = False,
) -> None:
    """Bound and estimate thousands of variants of a planned model.

    For each candidate the bytes of its tables, a proven lower bound of its
    step, an estimate and a price, without a search: the bound prices every
    option of every table at the multipliers of the plan's proof, which is
    valid for any model (weak duality). No plan of a candidate is faster than
    its bound; a candidate whose tables find no room has no estimate.

    \b
    Examples:
      planner cost plan.json --changes candidates.csv -o costs.csv
      planner cost plan.json --changes candidates.csv --exact 3 --format csv
      planner cost -t zionex-16 -w dlrm-dcnv2 --changes candidates.csv
    """
    outputs = Outputs({"--output": output}, {"PLAN": plan, "--changes": changes, "--prices": _file(prices)})
    if plan is not None:
        flags.expect_unused("beside a plan", topology=topology, workload=workload, policy=policy)
        if not exact:
            flags.expect_unused("without --exact", effort=effort, gap=gap, seed=seed)
    from planner.capacity.prices import load_prices
    from planner.document import spreadsheets
    from planner.document.files import write_file
    from planner.oracle import Oracle
    from planner.oracle.changes import read_changes

    sheet = None if prices is None else load_prices(prices)
    tries = Tries(1 if effort is None else effort, 0.0 if gap is None else values.tolerance("--gap", gap), seed or 0)
    streams.doing("reading the inputs")
    base = _planned(topology, workload, policy, outputs, tries) if plan is None else plan
    oracle = Oracle(base, sheet)
    with outputs.beside("--changes"):
        columns, place = read_changes(changes)
    candidates = oracle.candidates(columns, str(changes), place)
    streams.doing(f"costing {len(candidates):,} candidates")
    costs = oracle.cost(candidates)
    if exact:
        with streams.progress(quiet=quiet) as tell:
            costs = oracle.exact(costs, exact, **tries._asdict(), progress=tell)
    records = costs.records()
    if output is not None:
        write_file(output, spreadsheets.of_records(records).encode())
    if output is None or output_format is not Format.TABLE:
        streams.write_records(records, output_format, formats=_formats())
        return
    _summarise(costs, output)


def _file(prices: str | None) -> str | None:
    """A price sheet that is a file, which no output may write over."""
    file = None if prices is None else prices.partition("@")[0]
    return file if file is not None and Path(file).is_file() else None


def _planned(topology: str | None, workload: str | None, policy: Path | None, outputs: Outputs, tries: Tries) -> "Plan":
    """A plan of the inputs that flags name, where none is given."""
    if topology is None:
        raise typer.BadParameter("name a plan, or the cluster and the model with -t and -w", param_hint="PLAN")
    cluster, model = inputs.load_inputs(topology, workload, InputChanges(), outputs)
    from planner.planning.planning import plan as planned

    streams.doing(f"planning {model.name}")
    return planned(cluster, model, policy=PolicyFlags(policy).document(), simulate=False, **tries._asdict())


def _summarise(costs: "Costs", output: Path) -> None:
    """Print the best of the candidates."""
    records, order = costs.records(), costs.order()[:SHOWN].tolist()
    streams.write_records([records[number] for number in order], Format.TABLE, formats=_formats())
    if len(order) < len(records):
        streams.say(f"The best {len(order)} of {len(records):,}; all are in {output}.")


def _formats() -> dict[str, Callable[[float], str]]:
    from topologies.units import format_bytes, format_seconds

    seconds = ("lower_bound_s", "estimate_s", "step_s", "planned_bound_s")
    return {
        "bytes": format_bytes,
        **dict.fromkeys(seconds, format_seconds),
        "samples_per_s": "{:,.0f}".format,
        "usd_per_billion_samples": "{:,.4g}".format,
    }
