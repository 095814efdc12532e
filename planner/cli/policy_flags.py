"""The flags that say what a plan may use, and the policy that they make with a file."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from planner.cli import flags
from planner.cli.values import expect_once, numbers, word, words

if TYPE_CHECKING:
    from topologies.documents import Document


@dataclass(frozen=True)
class PolicyFlags:
    """A policy file, and the flags beside it."""

    policy: flags.PolicyFlag = None
    tiers: flags.TiersFlag = None
    shardings: flags.ShardingsFlag = None
    stash: flags.StashFlag = None
    optimizer_state: flags.OptimizerStateFlag = None
    runtime: flags.RuntimeFlag = None
    exchange: flags.ExchangeFlag = None
    max_shards: flags.MaxShardsFlag = None
    column_multiple: flags.ColumnMultipleFlag = None
    pin: flags.PinFlag = None
    forbid: flags.ForbidFlag = None
    reserve: flags.ReserveFlag = None
    replicas: flags.ReplicasFlag = None
    sync_every: flags.SyncEveryFlag = None
    dense: flags.DenseFlag = None
    checkpointing: flags.CheckpointingFlag = None
    robust: flags.RobustFlag = None
    goals: flags.GoalsFlag = None

    @property
    def say_anything(self) -> bool:
        """Whether a file or any of the flags is given."""
        return any(vars(self).values())

    def document(self) -> "Document":
        """The policy of the file, narrowed by the flags; --runtime, --exchange, --reserve, --replicas, --sync-every,
        --dense, --checkpointing, --robust and --goals take the place of what it says."""
        from typing import get_args

        from planner.formulation.checkpoint_choices import CheckpointingChoice
        from planner.formulation.policy import policy_document
        from planner.formulation.runtimes import Runtime

        document = policy_document(self.policy)
        self._narrow(document)
        _set_word(document, "runtime", self.runtime, get_args(Runtime))
        _set_word(document, "exchange", self.exchange, ("flat", "sptt", "auto"))
        expect_once("--reserve", [text.partition("=")[0].strip() for text in self.reserve or ()])
        for text in self.reserve or ():
            _reserve(document, text)
        _set_replicas(document, self.replicas or (), self.sync_every)
        _set_dense(document, self.dense)
        _set_word(document, "checkpointing", self.checkpointing, get_args(CheckpointingChoice))
        _set_robust(document, self.robust)
        _set_goals(document, self.goals)
        return document

    def _narrow(self, document: "Document") -> None:
        """Add the limits of the flags to those of the file."""
        from cost_models.shards import PLACEMENT_TIERS, SHARDINGS, STATE_PLACES
        from planner.formulation.policy import narrow
        from planner.formulation.stash_words import AUTO, TIER_OF_WAY

        for key, text, known in (
            ("tiers", self.tiers, PLACEMENT_TIERS),
            ("shardings", self.shardings, SHARDINGS),
            ("stash", self.stash, (*TIER_OF_WAY, AUTO)),
            ("optimizer_state", self.optimizer_state, STATE_PLACES),
        ):
            flag = f"--{key.replace('_', '-')}"
            chosen = words(flag, text, known)
            if chosen is not None:
                narrow(document, key, list(chosen), f"{flag} {text}")
        for key, number in (("max_shards", self.max_shards), ("column_multiple", self.column_multiple)):
            if number is not None:
                narrow(document, key, number, f"--{key.replace('_', '-')} {number}")
        for text in self.pin or ():
            match, equals, ranks = text.rpartition("=")
            if not (match and equals):
                message = f"{text!r} is not GLOB=RANKS; write for example 'user_*=0-7'"
                raise typer.BadParameter(message, param_hint="--pin")
            narrow(document, "ranks", ranks, f"--pin {text}", match)
        for text in self.forbid or ():
            _forbid(document, text)


def _set_word(document: "Document", key: str, text: str | None, known: Sequence[str]) -> None:
    """One of the words that a key of a policy may be."""
    from planner.formulation.policy import replace

    if text is not None:
        replace(document, (key,), word(f"--{key}", text, known), f"--{key} {text}")


def _reserve(document: "Document", text: str) -> None:
    """`hbm=10%`: so much of a tier is kept free."""
    from cost_models.shards import MEMORY_TIERS
    from planner.formulation.policy import replace

    tier, equals, size = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text!r} is not TIER=SIZE; write for example hbm=10%", param_hint="--reserve")
    replace(document, ("reserve", word("--reserve", tier, MEMORY_TIERS)), size, f"--reserve {text}")


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
            flags.expect_unused("without --replicas", sync_every=sync_every)
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
    if not (ranks or refused):
        message = f"{text!r} names no ranks or tiers; write for example 'user_*=0-3,ssd_cached'"
        raise typer.BadParameter(message, param_hint="--forbid")
    for key, value in (("forbid_ranks", ranks), ("forbid_tiers", list(refused or ()))):
        if value:
            narrow(document, key, value, f"--forbid {text}", match or None)
