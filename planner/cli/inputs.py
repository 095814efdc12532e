"""What the flags name, read: clusters, workloads, policies."""

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from planner.cli.outputs import Outputs

if TYPE_CHECKING:
    from cost_models.workload.models import Workload
    from topologies.cluster import Topology
    from topologies.documents import Document
from planner.cli.flags import catalog_names, expect_unused
from planner.cli.values import numbers, split_overrides, word, words


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
    where = f"there is no {beside}" if Path(topology).is_file() else f"{topology} has none of its own"
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
    stash: str | None = None,
    optimizer_state: str | None = None,
    runtime: str | None = None,
    exchange: str | None = None,
    max_shards: int | None = None,
    column_multiple: int | None = None,
    pin: Sequence[str] | None = None,
    forbid: Sequence[str] | None = None,
    reserve: Sequence[str] | None = None,
    replicas: Sequence[str] | None = None,
    sync_every: int | None = None,
    dense: str | None = None,
    checkpointing: str | None = None,
    robust: str | None = None,
    goals: str | None = None,
) -> "Document":
    """The policy of a file, narrowed by flags; --runtime, --exchange, --reserve, --replicas, --sync-every, --dense,
    --checkpointing, --robust and --goals take the place of what it says."""
    from typing import get_args

    from cost_models.shards import MEMORY_TIERS, PLACEMENT_TIERS, SHARDINGS, STATE_PLACES
    from planner.formulation.policy import narrow, policy_document, replace
    from planner.formulation.runtimes import Runtime
    from planner.formulation.stash_words import AUTO, TIER_OF_WAY

    document = policy_document(file)
    for key, text, known in (
        ("tiers", tiers, PLACEMENT_TIERS),
        ("shardings", shardings, SHARDINGS),
        ("stash", stash, (*TIER_OF_WAY, AUTO)),
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
    if exchange is not None:
        chosen_exchange = word("--exchange", exchange, ("flat", "sptt", "auto"))
        replace(document, ("exchange",), chosen_exchange, f"--exchange {exchange}")
    for text in reserve or ():
        tier, equals, size = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r} is not TIER=SIZE; write for example hbm=10%", param_hint="--reserve")
        replace(document, ("reserve", word("--reserve", tier, MEMORY_TIERS)), size, f"--reserve {text}")
    _set_replicas(document, replicas or (), sync_every)
    _set_dense(document, dense)
    _set_checkpointing(document, checkpointing)
    _set_robust(document, robust)
    _set_goals(document, goals)
    return document


def _set_replicas(document: "Document", replicas: Sequence[str], sync_every: int | None) -> None:
    """How many copies of the tables there are, of which tables there are more, and how often they are averaged."""
    from planner.formulation.policy import replace

    former = document.data.get("replicas") if isinstance(document.data, dict) else None
    of_all = [text for text in replicas if "=" not in text]
    of_some = [text for text in replicas if "=" in text]
    if len(of_all) > 1:
        message = f"{' and '.join(of_all)} are of all tables; give one, with commas, and GLOB=M for some tables"
        raise typer.BadParameter(message, param_hint="--replicas")
    for text in of_all:
        factor = text if text == "auto" else list(numbers("--replicas", text, "copies, nor auto, nor GLOB=M"))
        if factor != "auto" and 0 in factor:
            raise typer.BadParameter(f"{text}: 1 copy is one world, and there are no fewer", param_hint="--replicas")
        replace(document, ("replicas", "factor"), factor, f"--replicas {text}")
    if of_some:
        replace(document, ("replicas", "rules"), list(map(_rule, of_some)), f"--replicas {' '.join(of_some)}")
        if not of_all and not (isinstance(former, dict) and former.get("factor")):
            replace(document, ("replicas", "factor"), 1, f"--replicas {' '.join(of_some)}")
    if sync_every is not None:
        if not (replicas or former):
            expect_unused("without --replicas", sync_every=sync_every)
        replace(document, ("replicas", "sync_every"), sync_every, f"--sync-every {sync_every}")


def _rule(text: str) -> dict[str, object]:
    """`user_*=4`: so many copies of the tables that match."""
    match, _, copies = text.rpartition("=")
    if not match or not (copies.isascii() and copies.isdigit()):
        message = f"{text!r} is not GLOB=COPIES; write for example 'user_*=4'"
        raise typer.BadParameter(message, param_hint="--replicas")
    return {"tables": match, "factor": int(copies)}


def _set_dense(document: "Document", text: str | None) -> None:
    """How ranks hold the dense part: `fsdp`, or `fsdp=node`, then rules (`top.0=columns`) and cuts that `auto` may
    choose; what a file says of layers stays, and comes after these."""
    from typing import get_args

    from cost_models.workload.dense_sharding import STRATEGY_WORDS, LayerCut, ShardedOver
    from planner.formulation.policy import replace

    if text is not None:
        whole, *of_layers = (each.strip() for each in text.split(","))
        strategy, equals, over = whole.partition("=")
        chosen: dict[str, object] = {"strategy": word("--dense", strategy, ("auto", *STRATEGY_WORDS))}
        if equals:
            chosen["over"] = word("--dense", over, get_args(ShardedOver))
        told = document.data.get("dense") if isinstance(document.data, dict) else None
        kept = ("layers", "by", "cuts") if strategy == "auto" else ("layers",)
        chosen |= {key: told[key] for key in kept if isinstance(told, dict) and key in told}
        rules = [_rule_of(each) for each in of_layers if "=" in each]
        if cuts := [word("--dense", each, get_args(LayerCut)) for each in of_layers if "=" not in each]:
            chosen["cuts"] = cuts
        if rules:
            stated = chosen.get("layers", [])
            chosen["layers"] = [*rules, *(stated if isinstance(stated, list) else [stated])]
        replace(document, ("dense",), chosen, f"--dense {text}")


def _rule_of(text: str) -> dict[str, str]:
    """`top.0=columns`, or `interests.*=tokens:queries`."""
    from typing import get_args

    from cost_models.workload.dense_sharding import LayerCut, Passed

    match, _, way = text.partition("=")
    cut, colon, passes = way.partition(":")
    rule = {"match": match, "cut": word("--dense", cut, get_args(LayerCut))}
    return rule | {"passes": word("--dense", passes, get_args(Passed))} if colon else rule


def _set_checkpointing(document: "Document", text: str | None) -> None:
    """Whether layers of the dense part are computed again."""
    from typing import get_args

    from planner.formulation.checkpoint_choices import CheckpointingChoice
    from planner.formulation.policy import replace

    if text is not None:
        chosen = word("--checkpointing", text, get_args(CheckpointingChoice))
        replace(document, ("checkpointing",), chosen, f"--checkpointing {text}")


def _set_robust(document: "Document", quantile: str | None) -> None:
    """The quantile that a plan is asked for, in the scenarios that the file describes."""
    from planner.formulation.policy import replace

    if quantile is not None:
        is_told_more = isinstance(document.data, dict) and isinstance(document.data.get("robust"), dict)
        replace(document, ("robust", "quantile") if is_told_more else ("robust",), quantile, f"--robust {quantile}")


def _set_goals(document: "Document", goals: str | None) -> None:
    """What plans are told apart by."""
    from planner.formulation.goal_words import goals_of_flag
    from planner.formulation.policy import replace

    if goals is not None:
        replace(document, ("goals",), goals_of_flag(goals), f"--goals {goals}")


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
