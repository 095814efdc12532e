"""`planner size`: how many nodes a workload needs, and of which cluster."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from planner.cli import flags, inputs, streams, values
from planner.cli.exits import ExitCode
from planner.cli.flag_groups import grouped
from planner.cli.inputs import InputChanges
from planner.cli.interruption import interruption
from planner.cli.policy_flags import PolicyFlags
from planner.cli.search_progress import size_lines
from planner.cli.streams import Format

if TYPE_CHECKING:
    from cost_models.workload.models import Workload
    from planner.capacity.clusters import Case, ClusterChoice, ClusterQuestion
    from planner.planning.integer_solution import Solver
    from topologies.cluster import Topology
    from topologies.documents import Document
    from topologies.errors import Fault

MAX_NODES = 128


class SizeSearchOptions(TypedDict):
    """What the flags of the search say, in the words of `size_all`."""

    effort: int
    gap: float
    seed: int
    solver: "Solver"


class By(StrEnum):
    """What comes first."""

    SIZE = "size"
    PRICE = "price"


@dataclass(frozen=True)
class CaseFlags:
    """Clusters and a model, and what is changed of them in turn."""

    topology: flags.TopologiesFlag
    workload: flags.WorkloadFlag = None
    try_: Annotated[
        list[str] | None,
        typer.Option(
            "--try",
            metavar="PATH=VALUE[;...]",
            help="Also size with these fields changed, as in workload.embedding.dtype=fp16. May be repeated.",
        ),
    ] = None
    prices: flags.PricesFlag = None
    group: Annotated[
        str | None, typer.Option(metavar="NAME", help="The node group to size, where there are several.")
    ] = None
    global_batch: flags.GlobalBatchFlag = None
    set_: flags.SetFlag = None

    def cases(self) -> "list[Case]":
        """Each cluster as it is and with each try.

        `--group` goes to the clusters that have it, and is not needed for another one that has a single group.
        """
        from planner.capacity.clusters import Case

        for flag, words in (("--topology", self.topology), ("--try", self.try_ or ())):
            if twice := sorted({word for word in words if words.count(word) > 1}):
                raise typer.BadParameter(f"{twice[0]!r} is given twice", param_hint=flag)
        loaded = self._loaded()
        named = {name: loaded[name, ""][0].name for name in self.topology}
        labels = named if len(set(named.values())) == len(named) else {name: name for name in self.topology}
        is_known = any(self.group == each.name for cluster, _ in loaded.values() for each in cluster.nodes)
        cases = []
        for (name, text), (cluster, model) in loaded.items():
            has_it = any(self.group == each.name for each in cluster.nodes)
            own = None if is_known and not has_it and len(cluster.nodes) == 1 else self.group
            _expect_group(cluster, own)
            cases.append(Case(f"{labels[name]} ({text})" if text else labels[name], cluster, model, own))
        return cases

    def _loaded(self) -> "dict[tuple[str, str], tuple[Topology, Workload]]":
        """The inputs by cluster and try, "" where nothing is tried. Raises InputError with the faults of all."""
        from topologies.errors import InputError

        changes = {text: [part.strip() for part in text.split(";")] for text in self.try_ or ()}
        for parts in changes.values():
            values.split_overrides(parts, "--try")
        source = self.workload or inputs.default_workload(self.topology[0])
        loaded: dict[tuple[str, str], tuple[Topology, Workload]] = {}
        faults: list[Fault] = []
        for name in self.topology:
            for text, parts in {"": [], **changes}.items():
                tried = {values.path_of(part) for part in parts}
                batch = None if "workload.global_batch" in tried else self.global_batch
                changed = InputChanges(global_batch=batch, set_=[*(self.set_ or ()), *parts])
                try:
                    loaded[name, text] = inputs.load_inputs(name, source, changed)
                except InputError as error:
                    faults += [_of_try(fault, parts) if text else fault for fault in error.faults]
        if faults:
            raise InputError(dict.fromkeys(faults))
        return loaded


@dataclass(frozen=True)
class QuestionFlags:
    """The target, and what is rejected."""

    target_qps: Annotated[
        str | None, typer.Option("--target-qps", metavar="RATE", help="Samples per second to reach, as in 2e6 or 2M.")
    ] = None
    max_step: Annotated[str | None, typer.Option(metavar="TIME", help="The longest step to reach, as in 20ms.")] = None
    fits: Annotated[bool, typer.Option("--fits", help="Only ask that the tables fit.")] = False
    max_price: Annotated[str | None, typer.Option(metavar="PRICE", help="Reject what costs more, as in 500USD/h.")] = (
        None
    )
    max_power: Annotated[str | None, typer.Option(metavar="POWER", help="Reject what draws more, as in 300kW.")] = None
    by: Annotated[By, typer.Option(help="Fewest ranks first, or lowest price per hour.")] = By.SIZE
    max_nodes: Annotated[int, typer.Option(metavar="N", min=1, help="No more nodes than this.")] = MAX_NODES

    def question(self) -> "ClusterQuestion":
        """The values of the flags."""
        from planner.capacity.clusters import ClusterQuestion

        if self.fits == (self.target_qps is not None or self.max_step is not None):
            raise typer.BadParameter("give either --target-qps and --max-step, or --fits", param_hint="--target-qps")
        max_step_s = None if self.max_step is None else values.seconds("--max-step", self.max_step)
        if max_step_s == 0:
            raise typer.BadParameter("must be above 0, as in 20ms", param_hint="--max-step")
        return ClusterQuestion(
            None if self.target_qps is None else values.rate("--target-qps", self.target_qps),
            max_step_s,
            None if self.max_price is None else values.usd_per_hour("--max-price", self.max_price),
            None if self.max_power is None else values.kilowatts("--max-power", self.max_power),
            self.by.value,
            self.max_nodes,
        )


@dataclass(frozen=True)
class RuleFlags:
    """What plans of every size may use."""

    each_tier: Annotated[
        bool | None,
        typer.Option(
            "--each-tier/--no-each-tier",
            help="Also size without each memory below HBM, and without all of them. Unset: for a single case.",
            show_default=False,
        ),
    ] = None
    policy: flags.PolicyFlag = None
    tiers: flags.TiersFlag = None
    shardings: flags.ShardingsFlag = None
    runtime: flags.RuntimeFlag = None
    exchange: flags.ExchangeFlag = None
    reserve: flags.ReserveFlag = None

    def document(self) -> "Document":
        """The policy of the file, narrowed by the flags."""
        rules = {name: given for name, given in vars(self).items() if name != "each_tier"}
        return PolicyFlags(**rules).document()


@dataclass(frozen=True)
class SizeSearchFlags:
    """How long each size is searched, and how."""

    effort: Annotated[
        int, typer.Option(metavar="N", min=0, help="Passes of local search where a short search does not decide.")
    ] = 1
    gap: Annotated[str, typer.Option(metavar="SHARE", help="Stop the answer's search this close to its bound.")] = "1%"
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seed: same inputs and seed, same answer.")] = 0
    solver: Annotated[
        str,
        typer.Option(
            metavar="WORD",
            help="What follows the longest search where that decides nothing, and the answer's search: auto, ilp: the"
            " integer programme, as in planner plan; search: none.",
        ),
    ] = "search"

    def options(self) -> SizeSearchOptions:
        """The values of the flags."""
        gap, solver = values.tolerance("--gap", self.gap), values.solver(self.solver)
        return {"effort": self.effort, "gap": gap, "seed": self.seed, "solver": solver}


@grouped
def size(
    *,
    of: CaseFlags,
    asked: QuestionFlags,
    may_use: RuleFlags,
    search: SizeSearchFlags,
    output_format: flags.FormatFlag = Format.TABLE,
    quiet: flags.QuietFlag = False,
) -> None:
    """Find the fewest nodes for a throughput, or to hold the tables.

    Bisects over the number of nodes of each cluster, unchanged and with
    each --try; a single case also without each memory below HBM. A plan
    accepts a size; the proven bound or a proof of too little memory rejects
    it. The table says where only a search without proof decided. Exits with
    4 if no size up to --max-nodes is enough.

    \b
    Examples:
      planner size -t zionex-16 -w dlrm-dcnv2 --target-qps 2e7
      planner size -t zionex-16 -w model-f --fits --max-nodes 512
      planner size -t dgx-a100-80 -t dgx-h100 -w rm2 --fits --max-power 60kW
      planner size -t a.yaml -t b.yaml -w w.yaml --fits --prices p.yaml --by price
    """
    question, rules, searched = asked.question(), may_use.document(), search.options()
    streams.doing("reading the inputs")
    cases = of.cases()
    for cluster in () if quiet else {each.topology.fingerprint(): each.topology for each in cases}.values():
        inputs.say_doubts(cluster)

    from planner.capacity.clusters import size_all
    from planner.capacity.prices import load_prices

    sheet = None if of.prices is None else load_prices(of.prices)
    most = f"at most {asked.max_nodes:,} nodes"
    with streams.progress(quiet=quiet, limit=most) as tell, interruption() as interrupted:
        sized = size_all(
            cases,
            question,
            policy=rules,
            prices=sheet,
            each_tier=len(cases) == 1 if may_use.each_tier is None else may_use.each_tier,
            progress=tell and size_lines(tell),
            stop=interrupted,
            **searched,
        )
    _print(sized, output_format)
    interrupted.end()
    raise typer.Exit(ExitCode.DONE if any(choice.does for choice in sized) else ExitCode.INFEASIBLE)


def _print(sized: "Sequence[ClusterChoice]", output_format: Format) -> None:
    from planner.reports import sizing as report

    if output_format is Format.JSON:
        streams.write_json(report.as_document(sized))
    elif output_format is not Format.TABLE:
        streams.write_records(report.records(sized), output_format)
        for note in dict.fromkeys(note for choice in sized for note in choice.sizing.notes):
            streams.say(f"planner: note: {note}")
    else:
        report.render(sized, streams.console())


def _expect_group(cluster: "Topology", group: str | None) -> None:
    """Raise InputError, under the name of the flag, where `--group` does not say which nodes of a cluster are sized."""
    from planner.capacity.sizing import group_index
    from topologies.errors import InputError

    try:
        group_index(cluster, group)
    except InputError as error:
        raise InputError(replace(fault, source="--group") for fault in error.faults) from None


def _of_try(fault: "Fault", parts: Sequence[str]) -> "Fault":
    """A fault that names the flag which the override came by."""
    is_own = fault.source in {f"--set {part}" for part in parts}
    return replace(fault, source=fault.source.replace("--set", "--try", 1)) if is_own else fault
