"""Flags that several commands share, with their completion, and the reading of their values.

Completion runs at every press of the tab key, so it looks at file names only.
"""

from collections.abc import Callable
from importlib import resources, util
from pathlib import Path
from typing import Annotated, Any

import typer

from planner.cli import completions, values
from planner.cli.streams import Format
from topologies.errors import MissingPackageError
from topologies.instances import Instances

SHELVES = {
    "topology": resources.files("topologies") / "catalog",
    "workload": resources.files("cost_models") / "workload" / "catalog",
    "study": resources.files("planner") / "studies" / "catalog",
    "run": resources.files("planner") / "runs" / "catalog",
    "price sheet": resources.files("planner") / "capacity" / "price_sheets",
}
"""The kinds of the catalog, and where their files are."""
INSTANCES = Instances(Path(str(resources.files("topologies") / "instances.yaml")))
"""The instances of clouds, which are topologies by other names."""


def catalog_names(*kinds: str) -> list[str]:
    """The catalog names of `kinds`, from the names of the shipped files, and of topologies the instances of clouds."""
    files = (file for kind in kinds for file in SHELVES[kind].iterdir())
    instances = INSTANCES.names() if "topology" in kinds else ()
    return sorted({Path(file.name).stem for file in files if file.name.endswith(".yaml")} | set(instances))


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


_TOPOLOGY = _input_flag("topology", "The cluster: a YAML file, a catalog name, or - for stdin.")
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
    typer.Option("--global-batch", metavar="N", parser=values.samples, help="Samples per step over all ranks."),
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
    typer.Option("--policy", "-p", metavar="FILE", help="What the plan may use (YAML). The flags below narrow it."),
]
TiersFlag = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,...",
        help="Only these tiers, as in hbm,ddr_cached.",
        autocompletion=completions.of_lists(completions.tiers),
    ),
]
ShardingsFlag = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,...",
        help="Only these shardings, as in table_wise,row_wise.",
        autocompletion=completions.of_lists(completions.shardings),
    ),
]
StashFlag = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,...",
        help="Let tables in HBM move to host memory between the passes: weights, optimizer, all, none; auto: any of"
        " these.",
        autocompletion=completions.of_lists(completions.stash_ways),
    ),
]
OptimizerStateFlag = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,...",
        help="Keep optimizer state only here, as in with_table,ddr.",
        autocompletion=completions.of_lists(completions.state_places),
    ),
]
RuntimeFlag = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Use only what torchrec or hugectr executes correctly, with its overheads; any: no such limit.",
        autocompletion=completions.of_words(completions.runtimes),
    ),
]
ExchangeFlag = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="How vectors are exchanged: flat, sptt (in each host, then among peers), or auto: the faster.",
        autocompletion=completions.of_words(lambda: ("flat", "sptt", "auto")),
    ),
]
MaxShardsFlag = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Cut no table into more shards; replicas count as one.")
]
ColumnMultipleFlag = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Cut columns only at multiples of this.")
]
PinFlag = Annotated[
    list[str] | None,
    typer.Option(metavar="GLOB=RANKS", help="Pin tables to these ranks, as in 'user_*=0-7'. May be repeated."),
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
ReplicasFlag = Annotated[
    list[str] | None,
    typer.Option(
        metavar="M,...|auto|GLOB=M",
        help="Copies of all tables, each over a group of ranks (2D sparse parallelism): a number, several to choose"
        " from, or all that divide the cluster. More copies of some tables as in 'user_*=4'. May be repeated.",
    ),
]
RobustFlag = Annotated[
    str | None,
    typer.Option(
        metavar="pNN",
        help="Minimise this quantile of the step over scenarios, as in p95: pooling and skew drift, one rank is slow."
        " The policy's key robust says how much.",
    ),
]
GoalsFlag = Annotated[
    str | None,
    typer.Option(
        metavar="A,B=SHARE,...",
        help="Order of preference among plans, each with the share of its best value that may be given up for those"
        " after it: step, crowded_ranks, blocks, fullest_rank, moved_bytes. Unset: step=0.1% first.",
        autocompletion=completions.of_lists(completions.goals),
    ),
]
SyncEveryFlag = Annotated[
    int | None,
    typer.Option(metavar="STEPS", min=1, help="With --replicas: average the copies after so many steps. Unset: 1."),
]
DenseFlag = Annotated[
    str | None,
    typer.Option(
        metavar="WORD[=node][,…]",
        help="How ranks hold the dense part: replicate, zero1, zero2, fsdp, or auto for the shortest step; =node shares"
        " shards among the ranks of each node. Then rules for layers that a node's ranks share (top.0=columns), or cuts"
        " that auto may choose (heads). Unset: as the workload says.",
        autocompletion=completions.of_words(completions.dense_strategies),
    ),
]
CheckpointingFlag = Annotated[
    str | None,
    typer.Option(
        metavar="WORD",
        help="Checkpoint activations of the dense part: none, full (recompute all in the backward pass), or"
        " auto for the shorter step. Unset: as the workload says.",
    ),
]
PricesFlag = Annotated[
    str | None,
    typer.Option(
        "--prices",
        metavar="FILE|NAME[@KEY=…]",
        help="A price sheet: a YAML file, or the shipped example-2025-01; @tariff=spot,region=NAME chooses in it.",
        autocompletion=completion("price sheet"),
    ),
]
PageFlag = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE", help="Write a page with charts here: HTML, for any browser."),
]
FormatFlag = Annotated[
    Format, typer.Option("--format", metavar="WORD", help="Write stdout as table, json, csv or markdown.")
]
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


def expect_one(**given: object) -> None:
    """Refuse flags of which each says what the whole answer is about, where there are two."""
    names = [f"--{name}" for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise typer.BadParameter(f"has no effect beside {names[0]}", param_hint=names[1])


def expect_extra(module: str, extra: str, what: str) -> None:
    """Refuse what needs an optional package that is not there, with the command that installs it."""
    if util.find_spec(module) is None:
        raise MissingPackageError(f"{what} needs {module}", extra)
