"""`planner explain`: why a plan is as it is."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli import completions, flags, streams
from planner.cli.flag_groups import grouped
from planner.cli.streams import Format

if TYPE_CHECKING:
    from planner.diagnosis.explanation import Explainer
    from planner.document.plan import Plan
    from planner.document.replicas import OtherReplicas
    from planner.planning.tower_modules import TowerModules


@dataclass(frozen=True)
class Subject:
    """What is explained in place of the plan as a whole."""

    table: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Explain this table instead of the plan as a whole.",
            show_default=False,
            autocompletion=completions.tables_of_plan,
        ),
    ] = None
    layer: Annotated[
        str | None,
        typer.Option(
            metavar="PATTERN",
            help="Explain these layers of the dense part, as in --layer '*', instead of the plan.",
            show_default=False,
        ),
    ] = None
    rank: Annotated[
        int | None,
        typer.Option(
            metavar="R",
            help="Explain this rank: what it waits for, what it holds, what is free.",
            show_default=False,
        ),
    ] = None
    stage: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Explain this stage: what it asks of each resource, and where its seconds come from.",
            show_default=False,
            autocompletion=completions.stages_of_plan,
        ),
    ] = None


@grouped
def explain(
    *,
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan document.", show_default=False)],
    about: Subject,
    output_format: flags.FormatFlag = Format.TABLE,
) -> None:
    """Explain what limits a plan, or why a table is where it is.

    For the plan: the rank and resource that limit each stage, the tables
    that take most of it, each stage's share of the bound, and what more
    memory would be worth; with --replicas also the best plan that is found
    without copies, and with --exchange auto what tower modules, which change
    the model, would save. For a table: its shards, its cost
    in each stage, the cost of its other options at the dual multipliers
    of the bound, and what forbids all others: the rule of the policy,
    the runtime, the memory. For layers of the dense part: FLOPs,
    parameters, activations and seconds of each. For a rank: its seconds
    beside the slowest rank's in each stage, its shards, and its memory by
    purpose with what is free of it. For a stage: its seconds on each
    resource, what hides behind it, and its coefficients with their sources.

    \b
    Examples:
      planner explain plan.json
      planner explain plan.json --table cat_20
      planner explain plan.json --layer '*'
      planner explain plan.json --rank 3
      planner explain plan.json --stage dense
    """
    from planner.diagnosis.explanation import Explainer
    from planner.verification.loading import load_plan

    flags.expect_one(**vars(about))
    streams.doing(f"reading {plan.name}")
    document = load_plan(plan)
    if about.layer is not None:
        _explain_layers(document, about.layer, output_format)
        return
    if document.objective is None:
        _explain_nothing(document, about, output_format)
        return
    streams.doing(f"explaining {about.table or plan.name}")
    explainer = Explainer(document)
    if about.rank is not None:
        _explain_rank(explainer, about.rank, output_format)
    elif about.stage is not None:
        _explain_stage(explainer, about.stage, output_format)
    elif about.table is not None:
        _explain_table(document, explainer, about.table, output_format)
    else:
        _explain_plan(document, explainer, output_format)


def _explain_nothing(document: "Plan", about: Subject, output_format: Format) -> None:
    """Why there is no plan, and what would make one."""
    from planner.reports import plan_summary

    for name, given in vars(about).items():
        if given is not None:
            raise typer.BadParameter("the plan places nothing", param_hint=f"--{name}")
    reason = document.infeasibility or document.unplaced
    if output_format.is_text:
        plan_summary.render(document, streams.console(output=output_format))
    elif output_format is Format.JSON:
        streams.write_json({"status": document.status, "reason": reason and reason.model_dump(mode="json")})
    else:
        remedies = reason.remedies if reason is not None else ()
        streams.write_records([remedy.model_dump(mode="json") for remedy in remedies], output_format)


def _explain_plan(document: "Plan", explainer: "Explainer", output_format: Format) -> None:
    """What limits the plan as a whole."""
    from planner.reports import explanation as report
    from planner.reports import explanation_records as records

    reasons = explainer.plan()
    others, modules = _other_groups(document), _tower_modules(document)
    if output_format is Format.JSON:
        streams.write_json(records.plan_document(document, reasons, others, modules))
    elif output_format is Format.CSV:
        streams.write_records(records.plan_records(reasons), output_format)
    else:
        report.render_plan(document, reasons, streams.console(output=output_format), others, modules)


def _explain_table(document: "Plan", explainer: "Explainer", table: str, output_format: Format) -> None:
    """Why one table is where it is."""
    from planner.reports import explanation as report
    from planner.reports import explanation_records as records

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
        report.render_table(document, table_reasons, streams.console(output=output_format))


def _explain_rank(explainer: "Explainer", rank: int, output_format: Format) -> None:
    """What one rank does and holds."""
    from planner.reports import rank as report

    count = len(explainer.model.kind_of_rank)
    if not 0 <= rank < count:
        there = f"ranks 0 to {count - 1}" if count > 1 else "rank 0 only"
        there += "" if explainer.model.replicas is None else " in each of its groups"
        raise typer.BadParameter(f"the plan has no rank {rank}: it has {there}", param_hint="--rank")
    reasons = explainer.rank(rank)
    if output_format is Format.JSON:
        streams.write_json(report.document(reasons))
    elif output_format is Format.CSV:
        streams.write_records(report.records(reasons), output_format)
    else:
        report.render(reasons, streams.console(output=output_format))


def _explain_stage(explainer: "Explainer", stage: str, output_format: Format) -> None:
    """What one stage is made of; of a hidden one, the stage in which it shows."""
    from planner.reports import stage as report
    from topologies.messages import did_you_mean

    model = explainer.model
    shows_in = model.hidden.get(stage, stage)
    if shows_in not in model.stages:
        names = [*model.stages, *model.hidden]
        message = f"the plan has no stage {stage!r}{did_you_mean(stage, names)}"
        raise typer.BadParameter(message, param_hint="--stage")
    detail = explainer.stage(shows_in)
    if output_format is Format.JSON:
        streams.write_json(report.document(detail, stage))
    elif output_format is Format.CSV:
        streams.write_records(report.records(detail), output_format)
    else:
        report.render(detail, streams.console(output=output_format), stage)


def _explain_layers(document: "Plan", pattern: str, output_format: Format) -> None:
    """Layer by layer, what the dense part takes."""
    from cost_models.step import StepModel
    from planner.diagnosis.dense_layers import layer_reasons
    from planner.document.planned import planned_model
    from planner.reports import dense_layers as report
    from topologies.messages import did_you_mean

    model = planned_model(document)
    if not isinstance(model, StepModel):
        message = f"the cost model {model.name} knows no layers; plan with --cost-model physical"
        raise typer.BadParameter(message, param_hint="--layer")
    if not (names := [each.name for each in model.workload.layers]):
        message = "the workload says nothing of layers, or gives their totals alone"
        raise typer.BadParameter(message, param_hint="--layer")
    if not (reasons := layer_reasons(model, pattern)):
        message = f"no layer is called {pattern!r}{did_you_mean(pattern, names)}"
        raise typer.BadParameter(message, param_hint="--layer")
    if output_format.is_text:
        report.render(reasons, streams.console(output=output_format))
    else:
        streams.write_records(report.records(reasons), output_format)


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
