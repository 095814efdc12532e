"""`planner import`: another planner's plan, its description of a cluster, or a trainer's of its tables, as ours."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli import completions, flags, inputs, streams, values
from planner.cli.exits import ExitCode
from planner.cli.flag_groups import grouped
from planner.cli.inputs import InputChanges
from planner.cli.outputs import Outputs
from planner.cli.panels import INPUTS
from planner.cli.policy_flags import PolicyFlags
from planner.cli.streams import Format
from topologies.sentences import counted

if TYPE_CHECKING:
    from cost_models.workload.models import Workload
    from planner.document.plan import Plan
    from planner.importers.adoption import AdoptedTable, AdoptionInputs
    from planner.importers.stated_workload import StatedWorkload
    from topologies.cluster import Topology

WORKLOADS = {
    "tbe-config": "FBGEMM's report",
    "torcheasyrec-config": "A pipeline configuration",
    "hugectr-config": "A HugeCTR model",
}
"""Formats that state tables, and what such a file is called."""
FORMATS = ("torchrec", "torchrec-pickle", "torcheasyrec", "hugectr", "mps-solution", "torchrec-topology", *WORKLOADS)
PLANNED_WITH = {"hugectr": "hugectr"}
"""The cost model where none is given; `physical` for the rest."""


@dataclass(frozen=True)
class PlannedInputs:
    """What another planner's plan is of."""

    topology: flags.OptionalTopologyFlag = None
    workload: flags.PlannedWorkloadFlag = None


@dataclass(frozen=True)
class ImportFlags:
    """How a file is read, and what is made of it."""

    cost_model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="physical, torchrec or hugectr. Unset: the plan's, in files of planner export; else physical,"
            " or hugectr for --from hugectr.",
        ),
    ] = None
    effort: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Passes of our own search, for a higher bound. Unset: 0."),
    ] = None
    policy: Annotated[
        Path | None,
        typer.Option(
            "--policy", "-p", metavar="FILE", help="mps-solution: the policy that the programme was made with (YAML)."
        ),
    ] = None
    simulate: Annotated[bool, typer.Option(help="Also simulate the plan's step.")] = True
    trust_pickle: Annotated[
        bool, typer.Option("--trust-pickle", help="Read a pickle, which runs the code that it contains.")
    ] = False
    like: Annotated[
        str | None,
        typer.Option(
            metavar="TOPOLOGY", help="torchrec-topology: supplies what TorchRec does not state. Unset: dgx-a100-80."
        ),
    ] = None

    def expect_used(self, kind: str, of: PlannedInputs, changes: InputChanges) -> None:
        """Raise BadParameter for flags that the format of the file makes nothing of."""
        reason = f"with --from {kind}"
        if kind != "torchrec-pickle":
            flags.expect_unused(reason, trust_pickle=self.trust_pickle or None)
        elif not self.trust_pickle:
            message = "a pickle runs the code that it contains; add --trust-pickle if you trust its author"
            raise typer.BadParameter(message)
        if kind != "mps-solution":
            flags.expect_unused(reason, policy=self.policy)
        if kind != "torchrec-topology":
            flags.expect_unused(reason, like=self.like)
        of_plans = {**vars(of), "nodes": changes.nodes, "set_": changes.set_}
        of_plans |= {"cost_model": self.cost_model, "effort": self.effort}
        if kind == "torchrec-topology":
            flags.expect_unused(reason, **of_plans, global_batch=changes.global_batch)
        if kind in ("torchrec-topology", *WORKLOADS):
            flags.expect_unused(reason, **of_plans, no_simulate=None if self.simulate else True)


@grouped
def import_(
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The other tool's file.", show_default=False)],
    from_: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="FORMAT",
            help=f"One of {', '.join(FORMATS)}.",
            show_default=False,
            rich_help_panel=INPUTS,
            autocompletion=completions.of_words(lambda: FORMATS),
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write the plan, topology or workload here.", show_default=False
        ),
    ],
    of: PlannedInputs,
    changes: InputChanges,
    given: ImportFlags,
) -> None:
    """Import plans, clusters and models of other tools.

    Of a plan of another planner, writes a plan document with the plan's step and its gap to the bound of
    our own search; verify, simulate, explain, diff and plan --from accept
    it. Violations, such as too little memory, are printed, and the exit
    code is 6. mps-solution reads what a solver made of planner plan
    --write-model (lines of name and value; with the --policy of that plan).
    torchrec-topology reads the arguments of a TorchRec Topology
    (JSON) and writes a topology file.

    tbe-config (JSON reports of FBGEMM's TBEs: a file, or a folder of them),
    torcheasyrec-config (pipeline.config) and hugectr-config (JSON of a model)
    write a workload file, with what they do not say as comments.

    \b
    Examples:
      planner import sharding_plan.json --from torchrec -t dgx-a100-80 \\
        -w dlrm-dcnv2 -o plan.json
      planner import topology.json --from torchrec-topology -o cluster.yaml
      planner import reports/ --from tbe-config -o workload.yaml
    """
    kind = values.word("--from", from_, FORMATS)
    files = {"--topology": of.topology, "--workload": of.workload, "--like": given.like, "--policy": given.policy}
    outputs = Outputs({"--output": output}, {"FILE": file, **files})
    given.expect_used(kind, of, changes)
    if kind == "torchrec-topology":
        _import_topology(file, given.like, outputs, output)
    elif kind in WORKLOADS:
        _import_workload(kind, file, changes.global_batch, outputs, output)
    else:
        if of.topology is None or of.workload is None:
            raise typer.BadParameter("is needed: the plan is for these inputs", param_hint="--topology and --workload")
        streams.doing("reading the inputs")
        _import_plan(kind, file, given, inputs.load_inputs(of.topology, of.workload, changes, outputs), output)


def _import_plan(kind: str, file: Path, given: ImportFlags, planned: "tuple[Topology, Workload]", output: Path) -> None:
    """Another planner's plan, with its gap to our own bound."""
    from cost_models.registry import COST_MODELS
    from planner.document.files import faults_located
    from planner.formulation.policy import Policy, offered
    from planner.importers.adoption import AdoptionInputs, adopted
    from topologies.documents import validate

    costs = values.word("--cost-model", given.cost_model or _cost_model_of(kind, file), tuple(COST_MODELS))
    cluster, model = planned
    rules = Policy(runtime="hugectr" if kind == "hugectr" else "torchrec")
    if kind == "mps-solution":
        rules = validate(PolicyFlags(given.policy).document(), Policy)
    adopting = AdoptionInputs(cluster, model, costs, offered(rules, cluster, costs))
    with faults_located(file):
        tables, adopting = _read(kind, file, adopting)
    streams.doing(f"computing the bound and simulating the plan of {file.name}")
    plan = adopted(tables, adopting, kind, str(file), effort=given.effort or 0, simulate=given.simulate)
    _finish(plan, adopting, output)


def _cost_model_of(kind: str, file: Path) -> str:
    """The cost model where none is given: that of the plan that we exported, or what the format is planned with."""
    from planner.document.files import faults_located, read_json
    from planner.importers.hugectr import planned_with

    with faults_located(file):
        of_export = planned_with(read_json(file), str(file)) if kind == "hugectr" else None
    return of_export or PLANNED_WITH.get(kind, "physical")


def _read(kind: str, file: Path, inputs: "AdoptionInputs") -> "tuple[list[AdoptedTable], AdoptionInputs]":
    """The placement of a file; where TorchRec uses key-value tables (SSD), the policy allows them, too."""
    from dataclasses import replace

    from planner.document.files import read_json
    from planner.formulation.policy import Policy
    from planner.importers import hugectr, torchrec

    source = str(file)
    if kind == "mps-solution":
        from planner.importers.mps_solution import solution_tables

        return solution_tables(file, inputs), inputs
    if kind == "hugectr":
        sharding = read_json(file)
        tables = hugectr.hugectr_tables(sharding, inputs, source)
        for text in hugectr.differences(sharding, inputs, tables):
            streams.say(f"{source}: {text}")
        return tables, inputs
    document = torchrec.unpickled(file) if kind == "torchrec-pickle" else read_json(file)
    parameters = torchrec.parameters_of(document, source)
    adopted_tables = torchrec.torchrec_tables(parameters, inputs, source)
    inputs = torchrec.with_settings(parameters, inputs, source)
    if any(table.tier == "ssd_cached" for table in adopted_tables):
        inputs = replace(inputs, policy=Policy())
    return adopted_tables, inputs


def _finish(plan: "Plan", inputs: "AdoptionInputs", output: Path) -> None:
    """Write and show the plan, and what does not hold."""
    from planner.document.plan import write_plan
    from planner.reports import plan_summary
    from planner.verification.verify import verify_limits

    write_plan(plan, output)
    plan_summary.render(plan, streams.console())
    violations = verify_limits(plan, inputs.model)
    if violations:
        streams.write_records([{"violation": text} for text in violations], Format.TABLE)
        streams.say(f"{output}: written with {counted(len(violations), 'violation')}")
        raise typer.Exit(ExitCode.GATE_FAILED)


def _import_topology(file: Path, like: str | None, outputs: Outputs, output: Path) -> None:
    import yaml

    from planner.document.files import faults_located, read_json, write_file
    from planner.importers.torchrec_topology import LIKE, LIKE_OF_CPUS, topology_of
    from topologies.loading import load_topology

    arguments = read_json(file)
    usual = LIKE_OF_CPUS if arguments.get("compute_device") == "cpu" else LIKE
    with outputs.beside("--like"):
        model = load_topology(like or usual)
    with faults_located(file):
        cluster = topology_of(arguments, model, output.stem, str(file))
    text = yaml.safe_dump(cluster.model_dump(mode="json", exclude_defaults=True), sort_keys=False)
    write_file(output, text.encode())
    streams.say(f"{output}: {cluster.description}")


def _import_workload(kind: str, file: Path, global_batch: int | None, outputs: Outputs, output: Path) -> None:
    from dataclasses import replace

    from planner.cli.workload_files import workload_text
    from planner.document.files import write_file
    from topologies.errors import InputError

    with outputs.beside("FILE"):
        stated = _stated(kind, file)
    if global_batch is not None:
        stated = replace(stated, batch={"global_batch": global_batch})
    if not stated.batch:
        raise InputError.at(str(file), "says no batch: there is no solver.batchsize; give --global-batch")
    text = workload_text(stated.document(output.stem, str(file)), WORKLOADS[kind], stated.unsaid)
    write_file(output, text.encode())
    for warning in stated.warnings:
        streams.say(f"warning: {warning}")
    streams.say(f"{output}: {counted(len(stated.tables), 'table')}")


def _stated(kind: str, file: Path) -> "StatedWorkload":
    """What a trainer's file says of a workload."""
    from planner.document.files import faults_located, read_json

    if kind == "tbe-config":
        from planner.importers.tbe_config import read_tbe_reports

        return read_tbe_reports(file)
    if kind == "torcheasyrec-config":
        from planner.importers.torcheasyrec_config import read_torcheasyrec

        return read_torcheasyrec(file)
    from planner.importers.hugectr_config import hugectr_workload

    model = read_json(file)
    with faults_located(file):
        return hugectr_workload(model, str(file))
