"""How the ranks of a job hold the dense part, or each of its layers: what a workload, or a policy, says of it."""

import fnmatch
from dataclasses import dataclass
from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from cost_models.workload.table_names import Globs
from topologies.documents import Record
from topologies.errors import ConflictError
from topologies.flops import LATER

DenseStrategyWord = Literal["replicate", "zero1", "zero2", "fsdp"]
STRATEGY_WORDS: tuple[DenseStrategyWord, ...] = get_args(DenseStrategyWord)
"""As DistributedDataParallel has it; ZeRO's stages 1 and 2 (arXiv:1910.02054), which shard optimizer state, and
gradients too; its stage 3, which shards weights as well (PyTorch's FSDP)."""
ShardedOver = Literal["node", "world"]
LayerCut = Literal["columns", "rows", "heads", "inner", "width", "tokens"]
"""What the ranks of a node share of a layer: columns or rows of a linear layer's weights, heads of an attention with
the columns and rows of its projections, the inner columns of low-rank cross layers, the columns of full ones, or the
tokens of each sample."""
WEIGHT_CUTS: tuple[LayerCut, ...] = ("columns", "rows", "heads", "inner", "width")
"""Those of which each rank has a part of the weights."""
Passed = Literal["keys_and_values", "queries", "all_to_all"]
"""What the ranks of a node that have parts of the tokens pass on to attend to all of them: keys and values, or queries,
around a ring (arXiv:2411.01783); or tokens for heads and back, all to all (DeepSpeed-Ulysses, arXiv:2309.14509)."""


@dataclass(frozen=True)
class Held:
    """How a layer is held."""

    strategy: DenseStrategyWord = "replicate"
    over: ShardedOver = "world"
    cut: LayerCut | None = None
    passes: Passed = "keys_and_values"
    """Of attention whose tokens are cut."""

    @property
    def cuts_weights(self) -> bool:
        """Whether each rank of a node has a part of the weights."""
        return self.cut in WEIGHT_CUTS

    @property
    def words(self) -> str:
        """`columns, fsdp over world`; `tokens passing queries, replicate`."""
        of_weights = f"{self.strategy} over {self.over}" if self.strategy != "replicate" else self.strategy
        passing = "" if self.passes == "keys_and_values" else f" passing {self.passes}"
        return of_weights if self.cut is None else f"{self.cut}{passing}, {of_weights}"


class LayerSharding(Record):
    """How some layers are held, instead of as the others."""

    match: Globs
    """Their names, or patterns of them."""
    cut: Annotated[LayerCut | None, LATER] = None
    """Whether the ranks of each node share the work of their samples: each has so many columns of a linear layer's
    outputs, rows of its inputs, heads of an attention, inner columns of low-rank cross layers or columns (width) of
    full ones (tensor parallel), or so many tokens of each sample (context parallel). Unset: each rank works for its own
    samples."""
    passes: Annotated[Passed | None, Field(exclude_if=lambda passes: passes is None)] = None
    """What goes around where attention's tokens are cut: keys_and_values or queries from rank to rank, or both swapped
    for heads (all_to_all). Unset: keys_and_values."""
    strategy: Annotated[DenseStrategyWord | None, LATER] = None
    """How the ranks that have the same weights hold these. Unset: as those of the other layers."""
    over: Annotated[ShardedOver | None, LATER] = None
    """The ranks that share what is sharded. Unset: those of the other layers where strategy is unset, too, else all; of
    a layer that is cut, all that have the same part of it."""

    def matches(self, name: str) -> bool:
        """Whether it is about a layer."""
        return any(name == pattern or fnmatch.fnmatchcase(name, pattern) for pattern in self.match)

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.cut is None and self.strategy is None:
            raise ConflictError("says nothing of these layers; give strategy, or cut", "match")
        if self.passes is not None and self.cut != "tokens":
            message = "is of attention whose tokens are cut; give cut: tokens, or leave it out"
            raise ConflictError(message, "passes", "cut")
        if self.over is not None and (self.cut is not None or self.strategy in (None, "replicate")):
            what = "a layer that is cut has its copies on other nodes" if self.cut else "nothing is said to be sharded"
            raise ConflictError(f"{what}; leave over out", "over", "cut", "strategy")
        return self


class DenseSharding(Record):
    """How the dense part is held: in one way, but for the layers that have their own."""

    strategy: DenseStrategyWord = "replicate"
    """replicate: all of it on each rank; zero1: optimizer state is sharded; zero2: gradients, too; fsdp: weights,
    too."""
    over: Annotated[ShardedOver, Field(exclude_if=lambda over: over == "world")] = "world"
    """The ranks that share what is sharded: all of them, or those of each node (HYBRID_SHARD of PyTorch's FSDP)."""
    layers: Annotated[tuple[LayerSharding, ...], Field(exclude_if=lambda layers: not layers)] = ()
    """Layers that are held otherwise; of rules that match the same layer the first holds."""

    @property
    def is_sharded(self) -> bool:
        """Whether anything is, or layers have rules of their own."""
        return self.strategy != "replicate" or bool(self.layers)

    @property
    def gathers_units(self) -> bool:
        """Whether whole weights are gathered before the passes of some layers."""
        return any(each.strategy == "fsdp" for each in self._ways)

    @property
    def gathers_after_update(self) -> bool:
        """Whether whole weights of some layers are gathered after their update."""
        return any(each.strategy in ("zero1", "zero2") for each in self._ways)

    @property
    def cuts(self) -> bool:
        """Whether ranks share the work of some layers."""
        return any(rule.cut for rule in self.layers)

    @property
    def words(self) -> str:
        """`fsdp over node; top.0 as columns, fsdp over world`."""
        return "; ".join(filter(None, (self.of_others.words, self.words_of_rules)))

    @property
    def words_of_rules(self) -> str:
        """Of the layers that have their own; empty where there are none."""
        return "; ".join(f"{', '.join(rule.match)} as {self._of_rule(rule).words}" for rule in self.layers)

    @property
    def of_others(self) -> Held:
        """How layers are held that no rule matches."""
        return Held(self.strategy, self.over)

    def of_layer(self, name: str) -> Held:
        """How a layer is held."""
        found = next((rule for rule in self.layers if rule.matches(name)), None)
        return self.of_others if found is None else self._of_rule(found)

    @property
    def _ways(self) -> tuple[Held, ...]:
        return (self.of_others, *map(self._of_rule, self.layers))

    def _of_rule(self, rule: LayerSharding) -> Held:
        if rule.cut is not None:
            return Held(rule.strategy or self.strategy, "world", rule.cut, rule.passes or "keys_and_values")
        if rule.strategy is None:
            return self.of_others
        return Held(rule.strategy, rule.over or "world")


REPLICATED = DenseSharding()
