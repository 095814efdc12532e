"""The strategies of a dense layer: how its work, its weights and their state are cut over ranks, what each rank holds
of it, and which collectives it calls.

Work is cut over runs of consecutive ranks, inside a node first; weights, gradients and optimizer state that several
ranks have are replicated, or sharded by one of ZeRO's stages (Rajbhandari et al., arXiv:1910.02054), over all of them
or over those of a node alone (HYBRID_SHARD of PyTorch's FSDP). Every rank computes as many FLOPs under each strategy.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from cost_models.collective_calls import CollectiveCall, Members
from cost_models.tensor_layouts import Layout, Placed
from cost_models.workload.dense_part import COMPUTE_DTYPE_BYTES, Dense
from cost_models.workload.formats import wire_bytes, written_bytes
from topologies.errors import InputError

Cut = Literal["samples", "tokens", "columns", "rows", "heads", "inner", "width"]
Stage = Literal[0, 1, 2, 3]
SHARDED: tuple[Stage, ...] = (1, 2, 3)
ONE_PRODUCT: tuple[Cut, ...] = ("samples", "tokens", "columns", "rows")
"""Cuts of a layer that is one matrix product."""


@dataclass(frozen=True)
class CutRow:
    """What cutting a layer's work one way means."""

    reads: Layout
    writes: Layout
    cuts_weights: bool
    words: str


CUTS: dict[Cut, CutRow] = {
    "samples": CutRow("samples", "samples", False, "data parallel"),
    "tokens": CutRow("tokens", "tokens", False, "sequence parallel"),
    "columns": CutRow("replicated", "columns", True, "tensor parallel by columns"),
    "rows": CutRow("columns", "partial", True, "tensor parallel by rows"),
    "heads": CutRow("replicated", "partial", True, "tensor parallel by heads"),
    "inner": CutRow("samples", "samples", True, "tensor parallel by inner columns"),
    "width": CutRow("samples", "samples", True, "tensor parallel by columns of cross layers"),
}
"""Columns and rows of the weights, and both of attention's projections with its heads (Megatron-LM, arXiv:1909.08053);
tokens of each sample (arXiv:2205.05198). Cross layers add to what they read in each rank's own samples, and exchange
their products inside (see `shared_work`)."""


@dataclass(frozen=True)
class ShardingRow:
    """What a stage of ZeRO shards over the ranks that have the same weights."""

    weights: bool
    gradients: bool
    state: bool
    words: str


STAGES: dict[Stage, ShardingRow] = {
    0: ShardingRow(False, False, False, "replicated"),
    1: ShardingRow(False, False, True, "ZeRO-1"),
    2: ShardingRow(False, True, True, "ZeRO-2"),
    3: ShardingRow(True, True, True, "FSDP"),
}
"""Stages P_os, P_os+g and P_os+g+p of arXiv:1910.02054, section 5; the third is FULL_SHARD of PyTorch's FSDP."""


@dataclass(frozen=True)
class DenseStrategy:
    """One way to run a layer on a world of ranks."""

    cut: Cut = "samples"
    cut_ranks: int = 1
    """Consecutive ranks that share the work of their samples; 1 where each has its own."""
    stage: Stage = 0
    shard_ranks: int = 1
    """Ranks that share what the stage shards: the consecutive ones of a node, or all that have the same weights."""

    def __post_init__(self) -> None:
        if (self.cut == "samples") != (self.cut_ranks == 1):
            raise ValueError(
                f"a layer cut by {self.cut} over {self.cut_ranks} ranks is none: samples are each rank's own"
            )
        if (self.stage == 0) != (self.shard_ranks == 1):
            raise ValueError(f"{STAGES[self.stage].words} over {self.shard_ranks} ranks shards nothing, or over nobody")

    @property
    def words(self) -> str:
        """`tensor parallel by columns over 8 ranks, FSDP over 16`."""
        cut = CUTS[self.cut].words + f" over {self.cut_ranks} ranks" * (self.cut_ranks > 1)
        return f"{cut}, {STAGES[self.stage].words}" + f" over {self.shard_ranks}" * (self.shard_ranks > 1)

    @property
    def reads(self) -> Placed:
        """How it wants its inputs; see `layout_calls`."""
        return Placed(CUTS[self.cut].reads, self.cut_ranks)

    @property
    def writes(self) -> Placed:
        """How its outputs are there."""
        return Placed(CUTS[self.cut].writes, self.cut_ranks)

    @property
    def weight_parts(self) -> int:
        """Into how many parts its work cuts the weights."""
        return self.cut_ranks if CUTS[self.cut].cuts_weights else 1

    def copies(self, world_size: int) -> int:
        """Ranks that have the same part of the weights."""
        return world_size // self.weight_parts


@dataclass(frozen=True)
class TrainedLayer:
    """A layer as strategies see it: numbers of its weights and, for one sample, of its tensors."""

    parameters: float
    """Those of a bias are taken to be cut with its matrix."""
    input_elements: float
    output_elements: float
    kept_elements: float = 0.0
    """Numbers beside its inputs that are there from the forward to the backward pass."""
    shared_elements: float = 0.0
    """Numbers that tokens need of all tokens of their sample: keys and values of attention."""


@dataclass(frozen=True)
class NumberBytes:
    """Bytes of one number."""

    updated: float
    """Of the weight that the optimizer updates."""
    computed: float
    """Of the weight in matrix products: that one, or a copy in their format; of activations, too."""
    gradient: float
    sent_gradient: float
    """On the way to other ranks."""
    state: float
    """All that the optimizer keeps for a weight."""

    @property
    def copied(self) -> float:
        """Bytes of a weight's copy beside the weight that is updated; 0 where there is none."""
        return self.computed if self.computed < self.updated else 0.0

    @property
    def update_bytes(self) -> float:
        """Bytes that an update reads and writes for a weight: itself and its state twice, its gradient, its copy."""
        return 2 * (self.updated + self.state) + self.gradient + self.copied

    @classmethod
    def of(cls, dense: Dense) -> "NumberBytes":
        """Those of a dense part's formats."""
        if dense.optimizer == "shampoo":
            message = "keeps blocks of whole matrices, which strategies that cut weights would cut; choose another one"
            raise InputError.at("dense.optimizer", f"shampoo {message}")
        return cls(
            updated=wire_bytes(dense.master_weights or "fp32"),
            computed=COMPUTE_DTYPE_BYTES[dense.dtype],
            gradient=written_bytes(dense.gradient_format),
            sent_gradient=wire_bytes(dense.gradient_format),
            state=dense.state_bytes,
        )


@dataclass(frozen=True)
class HeldBytes:
    """What one rank holds of a layer."""

    weights: float
    gradients: float
    state: float
    activations: float
    """Kept from the forward to the backward pass."""
    gathered: float
    """Whole weights and gradients that are there only while the layer works: of the largest layer, or of two where the
    next one is gathered ahead, and not of all."""

    @property
    def kept(self) -> float:
        """All that adds up over layers."""
        return self.weights + self.gradients + self.state + self.activations


def strategies(world_size: int, inside: int, cuts: Sequence[Cut] = ONE_PRODUCT) -> tuple[DenseStrategy, ...]:
    """All strategies of a layer on a world whose nodes, or scale-up domains, have `inside` ranks; the simplest first:
    replicated, sharded inside, sharded over all, then the same of work that is cut inside.

    `cuts` are those that the layer allows: only layers of a history have tokens, only matrix products columns and rows.
    Its samples are always each rank's own in the first ones.
    """
    found = [DenseStrategy()]
    for shards, stage in itertools.product(sorted({inside, world_size} - {1}), SHARDED):
        found.append(DenseStrategy("samples", 1, stage, shards))
    for cut in [each for each in cuts if each != "samples"] if inside > 1 else ():
        whole = DenseStrategy(cut, inside)
        found.append(whole)
        copies = whole.copies(world_size)
        found += [DenseStrategy(cut, inside, stage, copies) for stage in SHARDED if copies > 1]
    return tuple(found)


def held_bytes(
    strategy: DenseStrategy, layer: TrainedLayer, numbers: NumberBytes, samples_per_rank: float
) -> HeldBytes:
    """What one rank holds of a layer that is trained.

    Of copies for the matrix products stages 1 and 2 keep whole ones beside the sharded weights that are updated; where
    there are none, the weights themselves are whole. The third keeps no copy (FSDP2 casts what it gathers).
    """
    row, parts = STAGES[strategy.stage], strategy.weight_parts
    of_part = layer.parameters / parts
    sharded = of_part / strategy.shard_ranks
    if row.weights:
        weights = sharded * numbers.updated
    elif row.state and numbers.copied:
        weights = sharded * numbers.updated + of_part * numbers.copied
    else:
        weights = of_part * (numbers.updated + numbers.copied)
    inputs = layer.input_elements * (strategy.cut_ranks if strategy.reads.layout == "replicated" else 1)
    shared = layer.shared_elements * (strategy.cut_ranks if strategy.cut == "tokens" else 0)
    return HeldBytes(
        weights=weights,
        gradients=(sharded if row.gradients else of_part) * numbers.gradient,
        state=(sharded if row.state else of_part) * numbers.state,
        activations=(inputs + layer.kept_elements + shared) * numbers.computed * samples_per_rank,
        gathered=of_part * (row.weights * numbers.computed + row.gradients * numbers.gradient),
    )


def layer_calls(
    strategy: DenseStrategy, layer: TrainedLayer, numbers: NumberBytes, samples_per_rank: float, world_size: int
) -> Iterator[CollectiveCall]:
    """The collectives of one training step of a layer; those between layers are `layout_calls`.

    Replicated gradients are all-reduced. Sharded ones are reduce-scattered and, where shards are those of a node,
    all-reduced among the nodes; whole weights are gathered after the update, or before each pass that needs them.
    """
    of_part, copies = layer.parameters / strategy.weight_parts, strategy.copies(world_size)
    sent, whole = of_part * numbers.sent_gradient, of_part * numbers.computed
    if strategy.shard_ranks > copies or copies % strategy.shard_ranks:
        raise ValueError(f"{copies} ranks have the same weights; {strategy.shard_ranks} of them do not divide these")
    if strategy.cut == "tokens" and layer.shared_elements:
        shared = layer.shared_elements * samples_per_rank * strategy.cut_ranks * numbers.computed
        yield CollectiveCall("all_gather", "forward", shared, Members(strategy.cut_ranks))
        yield CollectiveCall("reduce_scatter", "backward", shared, Members(strategy.cut_ranks))
    if not layer.parameters or copies == 1:
        return
    everyone = Members(copies, are_peers=strategy.weight_parts > 1)
    if strategy.stage == 0:
        yield CollectiveCall("all_reduce", "backward", sent, everyone)
        return
    shards = everyone if strategy.shard_ranks == copies else Members(strategy.shard_ranks)
    if STAGES[strategy.stage].weights:
        yield CollectiveCall("all_gather", "forward", whole, shards)
        yield CollectiveCall("all_gather", "backward", whole, shards)
    yield CollectiveCall("reduce_scatter", "backward", sent, shards)
    if shards != everyone:
        others = Members(copies // strategy.shard_ranks, are_peers=True)
        yield CollectiveCall("all_reduce", "backward", sent / strategy.shard_ranks, others)
    if not STAGES[strategy.stage].weights:
        yield CollectiveCall("all_gather", "update", whole, shards)
