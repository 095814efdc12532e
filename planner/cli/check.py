"""`planner check`: is a file what the planner can read, and is it plausible."""

import difflib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from planner.cli import flags, gates, streams
from planner.cli.exits import ExitCode
from planner.cli.streams import Format
from topologies.sentences import counted

if TYPE_CHECKING:
    from planner.document.plan import Plan
    from planner.verification.gates import Gate, Limits
    from topologies.errors import Fault

CHECKED_POINTS = 1_000
"""Points of a study up to which all of them are checked."""
READ = ("file", "line", "path", "severity", "message")
"""What people read of a message."""
Inspection = tuple[str, tuple["Fault", ...]]
"""A summary of a valid file, and what looks wrong in it all the same."""


@dataclass(frozen=True)
class Finding:
    """What is to say about one file."""

    file: str
    kind: str | None
    summary: str = ""
    faults: tuple["Fault", ...] = ()
    warnings: tuple["Fault", ...] = ()
    gates: tuple["Gate", ...] = ()
    """How a plan keeps to each limit that is given."""
    is_unsound: bool = False
    """Whether the faults are those of a plan that was changed after it was written."""

    @property
    def exit_code(self) -> ExitCode:
        """What the command ends with where this is all it found."""
        if self.faults and not self.is_unsound:
            return ExitCode.INVALID_INPUT
        return ExitCode.DONE if all(gate.passed for gate in self.gates) and not self.faults else ExitCode.GATE_FAILED


def check(
    files: flags.CheckedArgument,
    max_step: gates.MaxStepFlag = None,
    max_hbm: gates.MaxHbmFlag = None,
    max_imbalance: gates.MaxImbalanceFlag = None,
    max_gap: gates.MaxGapFlag = None,
    same_as: gates.SameAsFlag = None,
    output_format: flags.FormatFlag = Format.TABLE,
) -> None:
    """Check that files are valid and their numbers plausible.

    Detects whether a file is a topology, a workload, a table profile, a
    policy, a plan, a study, a run or a price sheet. Prints every error with
    its position and a remedy, and warns of numbers that no known device
    has. Exits with 3 if there is any error; warnings do not count.

    With limits, which are for plans alone, prints each figure, recomputed
    from the plan's shards, beside its limit, and exits with 6 if any is
    not kept. The lower bound is the one stated: `planner verify` proves it.

    \b
    Examples:
      planner check topology.yaml workload.yaml
      planner check plan.json --max-step 90ms --max-hbm 90% --max-gap 2%
      planner check plan.json --same-as deployed.json
    """
    limits = gates.limits(max_step, max_hbm, max_imbalance, max_gap, same_as)
    findings = [finding for file in files for finding in inspect(file, limits)]
    if output_format is Format.TABLE:
        for finding in findings:
            streams.write_text("\n".join(_lines(finding)))
    elif output_format is Format.JSON:
        streams.write_json([_document(finding) for finding in findings])
    else:
        records = [record for finding in findings for record in _records(finding)]
        shown = records if output_format is Format.CSV else [{key: each[key] for key in READ} for each in records]
        streams.write_records(shown, output_format)
    codes = {finding.exit_code for finding in findings}
    for code in (ExitCode.INVALID_INPUT, ExitCode.GATE_FAILED):
        if code in codes:
            raise typer.Exit(code)


def inspect(file: str, limits: "Limits | None" = None) -> list[Finding]:
    """Everything there is to say about a file or catalog name (which may be a topology and a workload), and how a plan
    keeps to the limits."""
    from topologies.errors import InputError

    try:
        kinds = [_kind_of_file(Path(file))] if Path(file).is_file() else _kinds_of_name(file)
    except InputError as error:
        return [Finding(file, None, faults=error.faults)]
    return [_inspect(file, kind) if limits is None else _judge(file, kind, limits) for kind in kinds]


def _judge(file: str, kind: str, limits: "Limits") -> Finding:
    """What limits find of a plan; any other file is refused."""
    from planner.document.plan import read_plan
    from planner.errors import UnsoundPlanError
    from planner.verification.gates import gates_of
    from topologies.errors import InputError

    if kind != "plan":
        message = f"{file} is no plan but a {kind}, which has no such figure"
        raise typer.BadParameter(message, param_hint=gates.first_flag(limits))
    try:
        plan = read_plan(Path(file))
        return Finding(file, kind, _plan_in_words(plan), gates=tuple(gates_of(plan, limits, file)))
    except InputError as error:
        return Finding(file, kind, faults=error.faults, is_unsound=isinstance(error, UnsoundPlanError))


def _inspect(file: str, kind: str) -> Finding:
    from topologies.errors import InputError

    try:
        summary, warnings = INSPECTIONS[kind](file)
    except InputError as error:
        return Finding(file, kind, faults=error.faults)
    return Finding(file, kind, summary, warnings=warnings)


def _inspect_topology(file: str) -> Inspection:
    from cost_models import coefficient_checks
    from topologies.checks import warnings
    from topologies.loading import read_topology, validated

    document = read_topology(file)
    topology = validated(document)
    summary = f"{counted(topology.node_count, 'node')}, {counted(topology.world_size, 'rank')}"
    return summary, tuple(sorted([*warnings(topology, document), *coefficient_checks.warnings(topology, document)]))


def _inspect_workload(file: str) -> Inspection:
    return _workload_summary(file, None)


def _inspect_tables(file: str) -> Inspection:
    return _workload_summary(file, 1)  # any batch will do: a profile has none of its own


def _workload_summary(file: str, global_batch: int | None) -> Inspection:
    from cost_models.workload.loading import load_workload
    from planner.cli.figures import weight_bytes
    from topologies.units import format_bytes

    workload = load_workload(file, global_batch=global_batch)
    return f"{counted(len(workload.tables), 'table')}, {format_bytes(weight_bytes(workload))} of weights", ()


def _inspect_policy(file: str) -> Inspection:
    from planner.formulation.policy import load_policy

    policy = load_policy(file)
    groups = len(policy.colocate) + len(policy.separate)
    summary = f"{counted(len(policy.tables), 'rule')} for tables, {counted(groups, 'group')}, runtime {policy.runtime}"
    return summary, ()


def _inspect_study(file: str) -> Inspection:
    from planner.studies.execution import Execution
    from planner.studies.grid import Grid
    from planner.studies.study import read_study
    from planner.studies.table import measured_steps

    grid = Grid(*read_study(file))
    measured_steps(grid)
    every = range(len(grid)) if len(grid) <= CHECKED_POINTS else (0, len(grid) // 2, len(grid) - 1)
    Execution(grid, [grid.point(number) for number in every])
    return f"{counted(len(grid), 'point')}, {counted(len(grid.axes), 'field')} varied", ()


def _inspect_run(file: str) -> Inspection:
    from planner.runs.axes import variants
    from planner.runs.inputs import RunInputs
    from planner.runs.run import read_run

    run, document = read_run(file)
    if run.axes:
        return f"{counted(len(variants(run, document)), 'run')}, {counted(len(run.axes), 'field')} varied", ()
    RunInputs(run, document)
    return counted(len(run.stages), "stage"), ()


def _inspect_prices(file: str) -> Inspection:
    from planner.capacity.prices import load_prices

    sheet = load_prices(file)
    return f"{counted(len(sheet.rates), 'rate')} of {sheet.date}", ()


def _inspect_plan(file: str) -> Inspection:
    from planner.document.plan import read_plan

    return f"{_plan_in_words(read_plan(Path(file)))}; see `planner verify`", ()


def _plan_in_words(plan: "Plan") -> str:
    return f"{plan.status}, {counted(len(plan.tables), 'table')} on {counted(len(plan.ranks), 'rank')}"


INSPECTIONS: dict[str, Callable[[str], Inspection]] = {
    "topology": _inspect_topology,
    "workload": _inspect_workload,
    "table profile": _inspect_tables,
    "policy": _inspect_policy,
    "plan": _inspect_plan,
    "study": _inspect_study,
    "run": _inspect_run,
    "price sheet": _inspect_prices,
}


def _kinds_of_name(name: str) -> list[str]:
    from cost_models.workload.synthetic import PREFIX
    from topologies.errors import InputError
    from topologies.shelf import what_is_missing

    if name.partition(":")[0] == PREFIX:
        return ["workload"]
    if kinds := [kind for kind in flags.SHELVES if name in flags.catalog_names(kind)]:
        return kinds
    raise InputError.at(name, what_is_missing(name, "a catalog name", flags.catalog_names(*flags.SHELVES)))


def _kind_of_file(path: Path, chain: tuple[Path, ...] = ()) -> str:
    """The kind of a file, by its suffix or the keys at its top; `chain` holds the files based on it."""
    from cost_models.workload.dialects import is_table_set
    from cost_models.workload.profiles import DELIMITERS, PARQUET
    from topologies.errors import InputError

    if path.suffix.lower() in (*DELIMITERS, *PARQUET):
        return "table profile"
    data = _read(path)
    if isinstance(data, list) or is_table_set(data):
        return "table profile"
    if isinstance(data, dict):
        if data.get("kind") in ("plan", "policy", "study"):
            return str(data["kind"])
        if "stages" in data and data.get("kind", "run") == "run":
            return "run"
        if data.keys() & {"axes", "scenarios", "zips"}:
            return "study"
        if data.keys() & {"accelerators", "currency"} and "nodes" not in data:
            return "price sheet"
        if set(data) == {"tables"}:
            return "table profile"
        changes = data.get("set")
        paths = [str(path).partition(".")[0] for path in changes] if isinstance(changes, dict) else []
        if kind := _nearest_kind([*paths, *(str(key) for key in data)]) or _kind_of_base(data.get("base"), path, chain):
            return kind
    known = "a topology has the key nodes, a workload and a table profile have tables, a study has axes or scenarios, a"
    known += " run has stages, a price sheet has accelerators, a plan has kind: plan, and a policy has kind: policy"
    raise InputError.at(str(path), f"is not a known kind of file: {known}")


def _read(path: Path) -> object:
    """The plain data of a YAML or JSON file; JSON by its own parser, as plans can be long."""
    from topologies.documents import read_yaml
    from topologies.errors import InputError

    if path.suffix.lower() == ".json":
        try:
            return json.loads(path.read_bytes())
        except RecursionError:
            raise InputError.at(str(path), "is nested too deeply") from None
        except ValueError:
            pass  # what is wrong, and where, is said below
    return read_yaml(path).data


def _kind_of_base(base: object, path: Path, chain: tuple[Path, ...]) -> str | None:
    """The kind of what a document that says little itself is based on; of an unknown base, a topology."""
    if not isinstance(base, str) or not base:
        return None
    beside = path.parent / base
    chain = (*chain, path.resolve())
    if beside.is_file() and beside.resolve() not in chain:
        kind = _kind_of_file(beside, chain)
        return "workload" if kind == "table profile" else kind
    known = [kind for kind in flags.SHELVES if base in flags.catalog_names(kind)]
    return "workload" if known == ["workload"] or base.startswith("synthetic:") else "topology"


def _nearest_kind(keys: list[str]) -> str | None:
    """The kind of document to which most of `keys` belong; a misspelt key belongs to the nearest one, and one of both
    kinds to none."""
    from cost_models.workload.models import Workload
    from topologies.cluster import Topology

    cluster, model = set(Topology.model_fields), set(Workload.model_fields)
    kinds = dict.fromkeys(cluster - model, "topology") | dict.fromkeys(model - cluster, "workload")
    own = [key for key in keys if key not in cluster & model]
    nearest = [match for key in own for match in difflib.get_close_matches(key, kinds, n=1)]
    votes = Counter(kinds[name] for name in nearest)
    return votes.most_common(1)[0][0] if votes else None


def _lines(finding: Finding) -> list[str]:
    """The finding as text: one line per fault or `ok`, then those of gates, then the warnings."""
    if finding.faults:
        return [str(fault) for fault in finding.faults]
    warnings = [str(replace(warning, message=f"warning: {warning.message}")) for warning in finding.warnings]
    valid = f"{finding.file}: ok ({finding.kind}: {finding.summary})"
    return [valid, *(f"{finding.file}: {gates.line(gate)}" for gate in finding.gates), *warnings]


def _document(finding: Finding) -> dict[str, object]:
    return {
        "file": finding.file,
        "kind": finding.kind,
        "ok": finding.exit_code is ExitCode.DONE,
        "summary": finding.summary,
        "faults": [asdict(fault) for fault in finding.faults],
        "warnings": [asdict(warning) for warning in finding.warnings],
        "gates": [gates.document(gate) for gate in finding.gates],
    }


def _records(finding: Finding) -> list[streams.Record]:
    """One record per message; line and column are 0 where there is no position, figure and limit are those of gates."""
    from topologies.errors import Fault

    verdict = Fault(finding.file, 0, 0, "", finding.summary)
    messages = [("fault", fault) for fault in finding.faults] or [("ok", verdict)]
    messages += [("warning", warning) for warning in finding.warnings]
    records: list[streams.Record] = [
        {"file": finding.file, "severity": severity, **asdict(fault), "figure": None, "limit": None}
        for severity, fault in messages
    ]
    return records + [gates.record(finding.file, gate) for gate in finding.gates]
