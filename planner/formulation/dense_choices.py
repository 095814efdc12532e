"""Which strategies of the dense part a policy allows: the candidates that a plan is sought for."""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from cost_models.activations import kept_elements
from cost_models.dense_sharding import dense_bytes, expect_shardable, is_shardable, sharding_of
from cost_models.workload.dense_sharding import (
    REPLICATED,
    STRATEGY_WORDS,
    DenseSharding,
    DenseStrategyWord,
    LayerCut,
    LayerSharding,
    ShardedOver,
)
from cost_models.workload.models import Workload
from topologies.cluster import Topology
from topologies.documents import Record
from topologies.errors import InputError
from topologies.flops import LATER

AUTO: Literal["auto"] = "auto"


class DenseChoices(Record):
    """How ranks may hold the dense part: in one way, or in whichever makes the step shortest."""

    strategy: DenseStrategyWord | Literal["auto"] = AUTO
    """One strategy, or any (auto)."""
    over: Annotated[ShardedOver | None, LATER] = None
    """The ranks that share what is sharded. Unset: all of them (world); of auto, all of them or those of each node."""
    layers: Annotated[tuple[LayerSharding, ...], Field(exclude_if=lambda layers: not layers)] = ()
    """Layers that are held otherwise, under each of the strategies; of rules that match the same layer the first
    holds."""
    by: Annotated[Literal["layer", "whole"], Field(exclude_if=lambda by: by == "layer")] = "layer"
    """Of auto: whether each layer may have a strategy of its own, or all have the same (whole)."""

    cuts: Annotated[tuple[LayerCut, ...] | None, Field(exclude_if=lambda cuts: cuts is None)] = None
    """Of auto by layer: in which ways layers may be cut over the ranks of a node; none where it is empty. Unset: in
    all."""

    @model_validator(mode="after")
    def _over_what_is_sharded(self) -> Self:
        if self.strategy == REPLICATED.strategy and self.over is not None:
            raise ValueError("replicate shards nothing; leave over out")
        if self.cuts is not None and (self.strategy != AUTO or self.by != "layer"):
            raise ValueError("cuts limits what auto chooses layer by layer; leave it out")
        if self.strategy != AUTO and self.by != "layer":
            raise ValueError(f"by says what auto chooses, and {self.strategy} is chosen; leave by out")
        return self

    @property
    def settled(self) -> DenseSharding | None:
        """The only strategy; None where several are open."""
        return None if self.strategy == AUTO else self._of(self.strategy, self.over or "world")

    def listed(self) -> tuple[DenseSharding, ...]:
        """Every strategy that is allowed, whether or not it can be had on a cluster; replicated first."""
        if self.settled is not None:
            return (self.settled,)
        over: tuple[ShardedOver, ...] = ("world", "node") if self.over is None else (self.over,)
        sharded = [self._of(word, ranks) for word in STRATEGY_WORDS[1:] for ranks in over]
        return (self._of(REPLICATED.strategy, "world"), *sharded)

    def allows(self, sharding: DenseSharding) -> bool:
        """Whether ranks may hold the dense part so."""
        if sharding in self.listed():
            return True
        is_by_layer = self.settled is None and self.by == "layer"
        more = sharding.layers[len(self.layers) :]
        return (
            is_by_layer
            and sharding.layers[: len(self.layers)] == self.layers
            and sharding.model_copy(update={"layers": self.layers}) in self.listed()
            and all(self.over in (None, rule.over) or rule.cut or rule.strategy == REPLICATED.strategy for rule in more)
            and all(self.cuts is None or rule.cut is None or rule.cut in self.cuts for rule in more)
        )

    def _of(self, word: DenseStrategyWord, over: ShardedOver) -> DenseSharding:
        return DenseSharding(strategy=word, over=over, layers=self.layers)


def with_sharding(workload: Workload, sharding: DenseSharding) -> Workload:
    """The workload whose dense part is held so."""
    stated = sharding if sharding.is_sharded else None
    return workload.model_copy(update={"dense": workload.dense.model_copy(update={"sharding": stated})})


def with_settled_sharding(workload: Workload, choices: DenseChoices | None) -> Workload:
    """The workload with the only strategy of the policy; as it is where that has none, or several.

    Raises InputError for a workload that states another.
    """
    if choices is None:
        return workload
    _expect_allowed(workload, choices)
    return workload if choices.settled is None else with_sharding(workload, choices.settled)


def candidates(
    choices: DenseChoices | None, topology: Topology, workload: Workload, cost_model: str
) -> tuple[Workload, ...]:
    """The workload with each strategy that it can be trained with on a cluster, replicated first; of two that hold the
    same, one. A workload that states a strategy has that one. Raises InputError for a strategy that it cannot have."""
    settled = sharding_of(workload)
    if choices is None or choices.settled is not None or workload.dense.sharding is not None:
        if settled.is_sharded:
            expect_shardable(topology, workload)
        return (workload,)
    if choices.layers:
        expect_shardable(topology, with_sharding(workload, choices.listed()[0]))
    found = []
    for each in (with_sharding(workload, sharding) for sharding in choices.listed()):
        if choices.over is None and sharding_of(each).over == "node" and topology.node_count == 1:
            continue
        if not sharding_of(each).is_sharded or is_shardable(topology, each):
            found.append(each)
    return tuple(found) if cost_model == "physical" else (workload,)


def is_left_to_workload(choices: DenseChoices | None, workload: Workload) -> bool:
    """Whether a policy leaves open what a workload states."""
    return choices is not None and choices.settled is None and workload.dense.sharding is not None


def leanest(topology: Topology, found: Sequence[Workload]) -> int:
    """Which of some `candidates` leaves most memory to the tables; the first of equals."""

    def taken(number: int) -> float:
        kept = kept_elements(found[number]) * found[number].dense.activation_bytes
        samples = found[number].batch(topology.world_size) / topology.world_size
        return dense_bytes(topology, found[number]) + kept * samples

    return min(range(len(found)), key=taken)


def is_leanest(choices: DenseChoices | None, topology: Topology, workload: Workload, cost_model: str) -> bool:
    """Whether no strategy that the policy leaves open would leave the tables of a workload more memory than its own."""
    if choices is None or choices.settled is not None:
        return True
    found = candidates(choices, topology, with_sharding(workload, REPLICATED), cost_model)
    return sharding_of(found[leanest(topology, found)]) == sharding_of(workload)


def expect_one_strategy(choices: DenseChoices | None, what: str) -> None:
    """Raise InputError for a policy that leaves the strategy open to `what`, of one alone."""
    if choices is not None and choices.settled is None:
        message = f"auto is for plans, and {what} of one strategy; give replicate, zero1, zero2 or fsdp"
        raise InputError.at("policy", message, path="dense.strategy")


def expect_settled(choices: DenseChoices | None, workload: Workload, cost_model: str) -> None:
    """Raise InputError for a dense part that is not held as a policy says, and for a sharded one in a rating."""
    if sharding_of(workload).is_sharded and cost_model != "physical":
        message = f"{sharding_of(workload).words}: {cost_model} rates tables alone; use the cost model physical"
        raise InputError.at("dense", message, path="strategy")
    if choices is None:
        return
    _expect_allowed(workload, choices)
    if choices.settled not in (None, sharding_of(workload)):
        raise InputError.at("dense", f"{choices.settled.words} is not applied here; state it in the workload")


def _expect_allowed(workload: Workload, choices: DenseChoices) -> None:
    stated = workload.dense.sharding
    if stated is not None and not choices.allows(stated):
        message = f"the workload states {stated.words} (dense.sharding), which the policy does not allow; leave one out"
        raise InputError.at("dense", message, path="strategy")
