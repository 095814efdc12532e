"""`planner explain`: why a plan is as it is."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli import flags, streams
from planner.cli.streams import Format

if TYPE_CHECKING:
    from planner.document.plan import Plan
    from planner.document.replicas import OtherReplicas
    from planner.planning.tower_modules import TowerModules


def explain(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan document.", show_default=False)],
    table: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Explain this table instead of the plan as a whole.", show_default=False),
    ] = None,
    output_format: flags.FormatFlag = Format.TABLE,
) -> None:
    """Explain what limits a plan, or why a table is where it is.

    For the plan: the rank and resource that limit each stage, the tables
    that take most of it, each stage's share of the bound, and what more
    memory would be worth; for groups of ranks also the best plan that is
    found for one world, and with --exchange auto what modules in towers,
    which change the model, would save. For a table: its shards, its cost
    in each stage, and the cost of its other options at the dual
    multipliers of the bound.

    \b
    Examples:
      planner explain plan.json
      planner explain plan.json --table cat_20
    """
    from planner.diagnosis.explanation import Explainer
    from planner.reports import explanation as report
    from planner.reports import explanation_records as records
    from planner.reports import plan_summary
    from planner.verification.loading import load_plan

    streams.doing(f"reading {plan.name}")
    document = load_plan(plan)
    if document.objective is None:
        if table is not None:
            raise typer.BadParameter("the plan places nothing", param_hint="--table")
        reason = document.infeasibility or document.unplaced
        if output_format is Format.TABLE:
            plan_summary.render(document, streams.console())
        elif output_format is Format.JSON:
            streams.write_json({"status": document.status, "reason": reason and reason.model_dump(mode="json")})
        else:
            remedies = reason.remedies if reason is not None else ()
            streams.write_records([remedy.model_dump(mode="json") for remedy in remedies], output_format)
        return
    streams.doing(f"explaining {table or plan.name}")
    explainer = Explainer(document)
    if table is None:
        reasons = explainer.plan()
        others, modules = _other_groups(document), _tower_modules(document)
        if output_format is Format.JSON:
            streams.write_json(records.plan_document(document, reasons, others, modules))
        elif output_format is Format.CSV:
            streams.write_records(records.plan_records(reasons), output_format)
        else:
            report.render_plan(document, reasons, streams.console(), others, modules)
        return
    names = [planned.name for planned in document.tables]
    if table not in names:
        from topologies.messages import did_you_mean

        raise typer.BadParameter(f"the plan has no table {table!r}{did_you_mean(table, names)}", param_hint="--table")
    table_reasons = explainer.table(table)
    if output_format is Format.JSON:
        streams.write_json(records.table_document(table_reasons))
    elif output_format is Format.CSV:
        streams.write_records(records.table_records(table_reasons), output_format)
    else:
        report.render_table(document, table_reasons, streams.console())


def _other_groups(document: "Plan") -> "tuple[OtherReplicas, ...]":
    """Other choices of groups of ranks, one world among them."""
    if document.replicas is None:
        return ()
    from planner.planning.one_world import beside_one_world

    streams.doing("planning for one world")
    return beside_one_world(document)


def _tower_modules(document: "Plan") -> "TowerModules | None":
    """What modules in towers would be worth, where the exchange of vectors is open."""
    if document.provenance.policy.exchange != "auto":
        return None
    from planner.planning.tower_modules import with_tower_modules

    streams.doing("planning with modules in towers")
    return with_tower_modules(document)
