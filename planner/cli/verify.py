"""`planner verify`: does a plan document say the truth."""

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli import flags, inputs, streams, values
from planner.cli.exits import ExitCode
from planner.cli.flag_groups import grouped
from planner.cli.inputs import InputChanges
from planner.cli.policy_flags import PolicyFlags
from planner.cli.streams import Format
from topologies.sentences import counted

if TYPE_CHECKING:
    from cost_models.workload.models import Workload
    from planner.document.plan import Plan
    from planner.formulation.policy import Policy
    from topologies.documents import Record

SHOWN_DIFFERENCES = 5


@grouped
def verify(
    *,
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan document.", show_default=False)],
    topology: flags.OptionalTopologyFlag = None,
    workload: flags.PlannedWorkloadFlag = None,
    changes: InputChanges,
    policy: PolicyFlags,
    from_: Annotated[
        Path | None,
        typer.Option("--from", metavar="PLAN", help="The plan that this one was re-planned from: checks what moved."),
    ] = None,
    output_format: flags.FormatFlag = Format.TABLE,
) -> None:
    """Recompute a plan from its inputs and compare.

    Checks that every table is covered exactly once, capacities hold, stage
    times and the step are right, the bound is proven and not above the
    objective, and remap files are as written; for a plan without placement,
    the reason. With --topology, --workload or --policy also that the plan
    was made for these inputs (repeat the policy flags given to plan); with
    --from also what moved. Prints violations and exits with 6 if there are
    any, and names the fields that it takes as stated.

    \b
    Examples:
      planner verify plan.json
      planner verify plan.json -t zionex-16 -w dlrm-dcnv2 --policy policy.yaml
    """
    from planner.cli.allocator import tune_memory
    from planner.document.plan import read_plan
    from planner.document.planned import planned_inputs
    from planner.formulation.policy import Policy
    from planner.formulation.software import priced_as_run
    from planner.verification.loading import load_plan
    from planner.verification.unchecked import INPUTS, in_words, unchecked
    from planner.verification.verify import verify as violations_of
    from topologies.documents import validate

    of = values.split_overrides(changes.set_ or ())
    if topology is None:
        flags.expect_unused("without --topology", nodes=changes.nodes, set_=of["topology"])
    if workload is None:
        flags.expect_unused("without --workload", global_batch=changes.global_batch, set_=of["workload"])
    tune_memory()
    streams.doing(f"reading {plan.name}")
    document = read_plan(plan)
    cluster, model = inputs.load_given(topology, workload, changes)
    allowed = _as_planned(validate(policy.document(), Policy), document) if policy.say_anything else None
    if model is not None:
        model = _with_strategy_of(document, priced_as_run(model, allowed or document.provenance.policy))
    former = None if from_ is None else load_plan(from_)
    streams.doing(f"recomputing {plan.name}")
    violations = violations_of(document, former, plan.parent)
    planned = (*planned_inputs(document), document.provenance.policy)
    pairs = zip(INPUTS, planned, (cluster, model, allowed), strict=True)
    given = [(kind, made_for, asked) for kind, made_for, asked in pairs if asked is not None]
    violations += [text for kind, made_for, asked in given for text in other_input(kind, made_for, asked)]
    answered = [kind for kind, _, _ in given]
    stated = unchecked(document, given=answered, has_former=former is not None, has_folder=True)
    if output_format is Format.JSON:
        fields = [unchecked_field._asdict() for unchecked_field in stated]
        streams.write_json({"kind": "verification", "violations": violations, "unchecked": fields})
    else:
        records: list[streams.Record] = [{"violation": text} for text in violations]
        streams.write_records(records, output_format, columns=("violation",))
    if violations:
        streams.say(f"{plan}: {counted(len(violations), 'violation')}")
        raise typer.Exit(ExitCode.GATE_FAILED)
    streams.say(f"{plan}: everything holds; as stated, not recomputed: {in_words(stated)}")


def _with_strategy_of(document: "Plan", workload: "Workload") -> "Workload":
    """The workload with the strategy and the checkpointing of the dense part that were found, where the policy leaves
    them open."""
    from cost_models.workload.dense_sharding import DenseSharding
    from planner.document.dense import TrainedDense
    from planner.document.planned import planned_inputs
    from planner.formulation.checkpoint_choices import checkpointed_as_found
    from planner.formulation.dense_choices import with_sharding

    policy, found = document.provenance.policy, TrainedDense.stated_by(planned_inputs(document)[1])
    workload = checkpointed_as_found(workload, policy.checkpointing, found.checkpointing)
    if policy.dense is None or policy.dense.settled is not None or workload.dense.sharding is not None:
        return workload
    return with_sharding(workload, DenseSharding(strategy=found.strategy, over=found.over, layers=found.layers))


def _as_planned(policy: "Policy", document: "Plan") -> "Policy":
    """The policy with the shardings that its runtime has of its own, unless the plan is from before there were any; and
    without strategies of the dense part that it leaves open and the workload states."""
    from planner.document.planned import planned_inputs, planned_topology
    from planner.formulation.dense_choices import is_left_to_workload
    from planner.formulation.policy import offered

    origin = document.provenance
    own = offered(policy, planned_topology(document), origin.cost_model)
    if origin.policy.dense is None and is_left_to_workload(own.dense, planned_inputs(document)[1]):
        own = own.model_copy(update={"dense": None})
    return own if set(own.shardings) <= set(origin.policy.shardings) else policy


def other_input(kind: str, planned: "Record", given: "Record") -> list[str]:
    """In which fields the input that a plan was made for is not the given one; the first few."""
    from planner.document.differences import differences

    differing = differences(planned.model_dump(mode="json"), given.model_dump(mode="json"))
    return [
        f"made for another {kind}: {path or 'all of it'} was {_in_words(was)} and is {_in_words(now)}"
        for path, was, now in itertools.islice(differing, SHOWN_DIFFERENCES)
    ]


def _in_words(value: object) -> str:
    """A value of a document; what it leaves unset is left out."""
    return "unset" if value is None else repr(_without_unset(value))


def _without_unset(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_unset(each) for key, each in value.items() if each is not None}
    return [_without_unset(each) for each in value] if isinstance(value, list) else value
