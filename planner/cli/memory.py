"""`planner memory`: who takes which bytes where."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli import flags, inputs, streams
from planner.cli.flag_groups import grouped
from planner.cli.inputs import InputChanges
from planner.cli.policy_flags import PolicyFlags
from planner.cli.streams import Format

if TYPE_CHECKING:
    from planner.document.plan import Plan


@grouped
def memory(
    *,
    plan: Annotated[Path | None, typer.Argument(metavar="PLAN", help="A plan document.", show_default=False)] = None,
    topology: flags.OptionalTopologyFlag = None,
    workload: flags.WorkloadFlag = None,
    changes: InputChanges,
    policy: Annotated[
        Path | None, typer.Option("--policy", "-p", metavar="FILE", help="What the plan may use (YAML).")
    ] = None,
    reserve: flags.ReserveFlag = None,
    course: Annotated[
        bool, typer.Option("--course", help="Show each rank's HBM over the course of a step of the plan.")
    ] = False,
    output_format: flags.FormatFlag = Format.TABLE,
) -> None:
    """Break down the bytes in each memory tier.

    Weights, optimizer state, caches, ids and outputs in flight, dense part
    and reserve: for a plan, or for a whole workload beside a cluster's
    capacity. --course: when what is in HBM, and at which moment it is
    fullest.

    \b
    Examples:
      planner memory plan.json
      planner memory plan.json --course
      planner memory --topology zionex-16 --workload dlrm-dcnv2
    """
    if (plan is None) == (topology is None):
        raise typer.BadParameter("give either a plan document or --topology and --workload")
    if plan is None and course:
        raise typer.BadParameter("--course is of a plan document: before a plan no rank holds anything")

    from planner.formulation.dense_choices import expect_one_strategy
    from planner.formulation.policy import Policy
    from planner.reports import memory as report
    from planner.reports import words
    from planner.verification.loading import load_plan
    from topologies.documents import validate

    if plan is not None:
        flags.expect_unused(
            "on a plan document, which carries its inputs",
            workload=workload,
            **vars(changes),
            policy=policy,
            reserve=reserve,
        )
        document = load_plan(plan)
        if course:
            _show_course(document, output_format)
            return
        records, warning = report.of_plan(document), words.crowded(document)
    else:
        assert topology is not None
        cluster, model = inputs.load_inputs(topology, workload, changes)
        rules = validate(PolicyFlags(policy, reserve=reserve).document(), Policy)
        rules.expect_nominal("memory is that")
        rules.expect_stated_tables("memory is that")
        expect_one_strategy(rules.dense, "memory is that")
        rules.expect_no_goals("memory is that of any plan")
        records, warning = report.of_inputs(cluster, model, rules), None
    if output_format.is_text:
        report.render(records, streams.console(output=output_format))
    else:
        streams.write_records(records, output_format)
    if warning is not None:
        streams.say(warning)


def _show_course(document: "Plan", output_format: Format) -> None:
    """Print the HBM of the ranks over a step."""
    from planner.reports import memory_course as report

    course = report.course_of_plan(document)
    if output_format.is_text:
        report.render(course, streams.console(output=output_format))
    else:
        streams.write_records(report.records(course), output_format)
