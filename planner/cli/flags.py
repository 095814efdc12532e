"""Flags that several commands share, with their completion, and the reading of their values.

Completion runs at every press of the tab key, so it looks at file names only.
"""

import re
import textwrap
from collections.abc import Callable, Sequence
from importlib import resources, util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from planner.cli.outputs import Outputs
from planner.cli.streams import Format
from topologies.errors import MissingPackageError

if TYPE_CHECKING:
    from cost_models.workload.models import Workload
    from topologies.cluster import Topology
    from topologies.documents import Document

Word = TypeVar("Word", bound=str)

SHELVES = {
    "topology": resources.files("topologies") / "catalog",
    "workload": resources.files("cost_models") / "workload" / "catalog",
    "study": resources.files("planner") / "studies" / "catalog",
    "price sheet": resources.files("planner") / "capacity" / "price_sheets",
}
"""The kinds of the catalog, and where their files are."""
PLANNED_FROM = ("topology", "workload")
"""Those that `--set` reaches into."""


def catalog_names(*kinds: str) -> list[str]:
    """The catalog names of `kinds`, from the names of the shipped files."""
    files = (file for kind in kinds for file in SHELVES[kind].iterdir())
    return sorted({Path(file.name).stem for file in files if file.name.endswith(".yaml")})


def completion(*kinds: str) -> Callable[[str], list[str]]:
    """What the tab key offers: the catalog names of `kinds` that begin as typed."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in catalog_names(*kinds) if name.startswith(incomplete)]

    return complete


def _input_flag(kind: str, help_text: str) -> Any:
    """`--topology` or `--workload`, with the completion of its catalog names."""
    return typer.Option(
        f"--{kind}", f"-{kind[0]}", metavar="FILE|NAME", help=help_text, autocompletion=completion(kind)
    )


_TOPOLOGY = _input_flag("topology", "The cluster: a YAML file or a catalog name.")
TopologyFlag = Annotated[str, _TOPOLOGY]
TopologiesFlag = Annotated[
    list[str], _input_flag("topology", "A cluster: a YAML file or a catalog name. May be repeated.")
]
OptionalTopologyFlag = Annotated[str | None, _TOPOLOGY]
WorkloadFlag = Annotated[
    str | None,
    _input_flag(
        "workload",
        "The model: YAML, CSV or Parquet file, catalog name or synthetic:N@seed=S."
        " Unset: workload.yaml beside the topology file.",
    ),
]
PlannedWorkloadFlag = Annotated[
    str | None, _input_flag("workload", "The model: YAML, CSV or Parquet file, or catalog name.")
]
NodesFlag = Annotated[
    int | None,
    typer.Option("--nodes", metavar="N", min=1, help="Scale the cluster to N equal nodes."),
]
GlobalBatchFlag = Annotated[
    int | None,
    typer.Option("--global-batch", metavar="N", min=1, help="Samples per step over all ranks."),
]
SetFlag = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Override a field, as in topology.nodes.0.count=4 or workload.embedding.dtype=fp16. May be repeated.",
    ),
]
PolicyFlag = Annotated[
    Path | None,
    typer.Option("--policy", "-p", metavar="FILE", help="What the plan may use, in YAML. The flags below narrow it."),
]
TiersFlag = Annotated[str | None, typer.Option(metavar="A,B,...", help="Only these tiers, as in hbm,ddr_cached.")]
ShardingsFlag = Annotated[
    str | None, typer.Option(metavar="A,B,...", help="Only these shardings, as in table_wise,row_wise.")
]
OptimizerStateFlag = Annotated[
    str | None, typer.Option(metavar="A,B,...", help="Optimizer state in these places only, as in with_table,ddr.")
]
RuntimeFlag = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Only what torchrec or hugectr executes correctly, priced with its overheads; any: no such limit.",
    ),
]
MaxShardsFlag = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Cut no table into more parts; replicas are one.")
]
ColumnMultipleFlag = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Cut columns at multiples of this only.")
]
PinFlag = Annotated[
    list[str] | None,
    typer.Option(metavar="GLOB=RANKS", help="Keep tables on these ranks, as in 'user_*=0-7'. May be repeated."),
]
ForbidFlag = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[GLOB=]WHAT",
        help="Keep tables off ranks and tiers, as in 0-3 or 'ad_*=8-15,ssd_cached'. May be repeated.",
    ),
]
ReserveFlag = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TIER=SIZE",
        help="Keep memory free beyond the topology's reserve, as in hbm=10% or ddr=64GiB. May be repeated.",
    ),
]


PricesFlag = Annotated[
    str | None,
    typer.Option(
        "--prices",
        metavar="FILE|NAME",
        help="A price sheet: a YAML file, or the shipped example-2025-01.",
        autocompletion=completion("price sheet"),
    ),
]
FormatFlag = Annotated[Format, typer.Option("--format", metavar="table|json|csv", help="How to write stdout.")]
QuietFlag = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]
CatalogNameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A name that `planner catalog list` shows.",
        autocompletion=completion("topology", "workload"),
    ),
]
CheckedArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE",
        help="YAML, CSV, Parquet or plan files, or catalog names.",
        show_default=False,
        autocompletion=completion("topology", "workload"),
    ),
]


def expect_unused(reason: str, **given: object) -> None:
    """Refuse flags that would change nothing, rather than ignore what the user asks for."""
    for name, value in given.items():
        if value is not None and value != []:
            flag = f"--{name.strip('_').replace('_', '-')}"
            raise typer.BadParameter(f"has no effect {reason}", param_hint=flag)


def expect_extra(module: str, extra: str, what: str) -> None:
    """Refuse what needs an optional package that is not there, with the command that installs it."""
    if util.find_spec(module) is None:
        raise MissingPackageError(f"{what} needs {module}", extra)


def default_workload(topology: str) -> str:
    """The workload of a command line that names none: `workload.yaml` beside the topology file.

    Raises InputError for a topology that there is not.
    """
    if topology not in catalog_names("topology"):
        from topologies.loading import TOPOLOGIES

        TOPOLOGIES.find(topology)
    beside = Path(topology).with_name("workload.yaml")
    if Path(topology).is_file() and beside.is_file():
        return str(beside)
    where = f"there is no {beside}" if Path(topology).is_file() else f"{topology} comes without one"
    offered = textwrap.fill(", ".join(catalog_names("workload")), 78, break_on_hyphens=False)
    raise typer.BadParameter(f"{where}; name a file or one of the catalog:\n{offered}", param_hint="--workload")


def load_inputs(
    topology: str,
    workload: str | None,
    *,
    nodes: int | None,
    global_batch: int | None,
    overrides: Sequence[str] | None,
    outputs: Outputs | None = None,
) -> tuple["Topology", "Workload"]:
    """The two inputs that the flags describe; none of their files may be one of `outputs`.

    Raises InputError with the faults of both.
    """
    source = workload or default_workload(topology)
    cluster, model = load_given(
        topology, source, nodes=nodes, global_batch=global_batch, overrides=overrides, outputs=outputs
    )
    assert cluster is not None
    assert model is not None
    return cluster, model


def load_given(
    topology: str | None,
    workload: str | None,
    *,
    nodes: int | None,
    global_batch: int | None,
    overrides: Sequence[str] | None,
    outputs: Outputs | None = None,
) -> tuple["Topology | None", "Workload | None"]:
    """`load_inputs` where each input may be left out."""
    from cost_models.workload.loading import load_workload
    from topologies.errors import Fault, InputError
    from topologies.loading import load_topology

    of = split_overrides(overrides or ())
    counts = [text for text in of["topology"] if re.match(r"nodes\.[^.=]+\.count\s*=", text)]
    if nodes is not None and counts:
        expect_unused(f"beside --set topology.{counts[-1]}; give one of them", nodes=nodes)
    cluster, model = None, None
    faults: list[Fault] = []
    outputs = outputs or Outputs({}, {})
    try:
        with outputs.beside("--topology"):
            cluster = load_topology(topology, nodes=nodes, overrides=of["topology"]) if topology else None
    except InputError as error:
        faults += error.faults
    try:
        with outputs.beside("--workload"):
            model = load_workload(workload, global_batch=global_batch, overrides=of["workload"]) if workload else None
    except InputError as error:
        faults += error.faults
    if faults:
        raise InputError(faults)
    return cluster, model


def policy(
    file: Path | None,
    *,
    tiers: str | None = None,
    shardings: str | None = None,
    optimizer_state: str | None = None,
    runtime: str | None = None,
    max_shards: int | None = None,
    column_multiple: int | None = None,
    pin: Sequence[str] | None = None,
    forbid: Sequence[str] | None = None,
    reserve: Sequence[str] | None = None,
) -> "Document":
    """The policy of a file, narrowed by flags; --runtime and --reserve take the place of what it says."""
    from typing import get_args

    from cost_models.shards import MEMORY_TIERS, PLACEMENT_TIERS, SHARDINGS, STATE_PLACES
    from planner.formulation.policy import Runtime, narrow, policy_document, replace

    document = policy_document(file)
    for key, text, known in (
        ("tiers", tiers, PLACEMENT_TIERS),
        ("shardings", shardings, SHARDINGS),
        ("optimizer_state", optimizer_state, STATE_PLACES),
    ):
        flag = f"--{key.replace('_', '-')}"
        chosen = words(flag, text, known)
        if chosen is not None:
            narrow(document, key, list(chosen), f"{flag} {text}")
    for key, number in (("max_shards", max_shards), ("column_multiple", column_multiple)):
        if number is not None:
            narrow(document, key, number, f"--{key.replace('_', '-')} {number}")
    for text in pin or ():
        match, equals, ranks = text.rpartition("=")
        if not (match and equals):
            raise typer.BadParameter(f"{text!r} is not GLOB=RANKS; write for example 'user_*=0-7'", param_hint="--pin")
        narrow(document, "ranks", ranks, f"--pin {text}", match)
    for text in forbid or ():
        _forbid(document, text)
    if runtime is not None:
        replace(document, ("runtime",), word("--runtime", runtime, get_args(Runtime)), f"--runtime {runtime}")
    for text in reserve or ():
        tier, equals, size = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r} is not TIER=SIZE; write for example hbm=10%", param_hint="--reserve")
        replace(document, ("reserve", word("--reserve", tier, MEMORY_TIERS)), size, f"--reserve {text}")
    return document


def _forbid(document: "Document", text: str) -> None:
    """`0-3`, `ad_*=8-15,ssd_cached`: what begins with a digit is a rank, the rest are tiers."""
    from cost_models.shards import PLACEMENT_TIERS
    from planner.formulation.policy import narrow

    match, _, what = text.rpartition("=")
    split = [word.strip() for word in what.split(",")]
    ranks = ",".join(word for word in split if word[:1].isdigit())
    tiers = ",".join(word for word in split if not word[:1].isdigit())
    refused = words("--forbid", tiers or None, PLACEMENT_TIERS)
    for key, value in (("forbid_ranks", ranks), ("forbid_tiers", list(refused or ()))):
        if value:
            narrow(document, key, value, f"--forbid {text}", match or None)


def split_overrides(overrides: Sequence[str], flag: str = "--set") -> dict[str, list[str]]:
    """`topology.a.b=1` and `workload.c=2` as `a.b=1` and `c=2` for the input they belong to."""
    split: dict[str, list[str]] = {kind: [] for kind in PLANNED_FROM}
    for text in overrides:
        path, equals, _ = text.partition("=")
        kind, dot, _ = path.partition(".")
        if not (equals and dot):
            raise typer.BadParameter(
                f"{text!r} is not PATH=VALUE; write for example topology.nodes.0.count=4", param_hint=flag
            )
        if kind not in split:
            from topologies.messages import did_you_mean

            raise typer.BadParameter(
                f"{path!r} must begin with topology. or workload.{did_you_mean(kind, split)}",
                param_hint=flag,
            )
        split[kind].append(text.removeprefix(f"{kind}."))
    return split


def seconds(flag: str, text: str) -> float:
    """The duration that a flag gives (`30s`, `2min`)."""
    return _at_least_0(flag, text, "second", "30s")


def usd_per_hour(flag: str, text: str) -> float:
    """The price that a flag gives (`500USD/h`)."""
    return _at_least_0(flag, text, "dollar / hour", "500USD/h")


def kilowatts(flag: str, text: str) -> float:
    """The power that a flag gives (`300kW`)."""
    return _at_least_0(flag, text, "watt", "300kW") / 1e3


def share(flag: str, text: str) -> float:
    """The share that a flag gives (`1%`, `0.01`)."""
    from topologies.units import parse_fraction

    try:
        return parse_fraction(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=flag) from None


def byte_count(flag: str, text: str) -> int:
    """The bytes that a flag gives (`500GB`, `40GiB`)."""
    return int(_at_least_0(flag, text, "byte", "500GB"))


def _at_least_0(flag: str, text: str, unit: str, example: str) -> float:
    from topologies.units import parse_quantity

    try:
        number = parse_quantity(text, unit, example)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=flag) from None
    if number < 0:
        raise typer.BadParameter(f"{text!r} is below 0; write for example {example}", param_hint=flag)
    return number


def numbers(flag: str, text: str) -> tuple[int, ...]:
    """The whole numbers of a comma-separated flag."""
    asked = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() for word in asked):
        raise typer.BadParameter(f"{text!r} is no list of node numbers; write for example 3,7", param_hint=flag)
    return tuple(map(int, asked))


def word(flag: str, text: str, known: Sequence[Word]) -> Word:
    """The one word of `known` that a flag gives."""
    found = words(flag, text, known)
    if found is None or len(found) != 1:
        raise typer.BadParameter(f"takes one of {', '.join(known)}", param_hint=flag)
    return found[0]


def words(flag: str, text: str | None, known: Sequence[Word]) -> tuple[Word, ...] | None:
    """The words of a comma-separated flag, in the order of `known`; None where the flag was not given."""
    if text is None:
        return None
    asked = [word.strip() for word in text.split(",")]
    for word in asked:
        if word not in known:
            from topologies.messages import did_you_mean

            raise typer.BadParameter(f"{word!r} is not known{did_you_mean(word, known)}", param_hint=flag)
    return tuple(word for word in known if word in asked)
