"""Distributed Shampoo: what its state takes, what a step computes, and how its blocks are dealt to ranks.

Weights are cut into blocks of at most so many numbers along each dimension. A block of r x c keeps two sums of products
of its gradients, r x r and c x c, and the inverse root of each, and the state of a diagonal method whose step length it
takes (grafting). Each step adds to the sums and multiplies by the roots, which are taken anew every so many steps. (Shi
et al., arXiv:2309.06497; facebookresearch/optimizers.)
"""

import heapq
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from cost_models.collective_calls import CollectiveCall, Members

Shape = tuple[int, ...]
STATE_BYTES = 4
"""All state is fp32."""
ROOT_FLOPS = 25.0
"""FLOPs of the inverse root of an n x n matrix over n^3, by an eigendecomposition: assumed, to be calibrated."""


@dataclass(frozen=True)
class Shampoo:
    """How the optimizer is set up."""

    block: int = 1024
    """The most numbers along a dimension of a block (`max_preconditioner_dim`)."""
    every: int = 1
    """Steps from one computation of the roots to the next (`precondition_frequency`)."""
    group_ranks: int = 1
    """Consecutive ranks among which blocks are dealt (`num_trainers_per_group`)."""
    sent_bytes: float = 4.0
    """Bytes of a number of what a rank has computed, on the way to the others (`communication_dtype`)."""
    grafted_numbers: int = 1
    """What the grafted method keeps for each weight: Adagrad, RMSprop and Adam 1, SGD none."""
    momentum_numbers: int = 0
    """What is kept beside it: 1 with momentum, 1 with a filtered gradient."""

    def __post_init__(self) -> None:
        if min(self.block, self.every, self.group_ranks) < 1:
            raise ValueError("block, every and group_ranks are 1 at least")


def blocks_of(shape: Shape, block: int) -> tuple[Shape, ...]:
    """The blocks of weights of a shape: whole ones, and what is left along each dimension. Small dimensions of tensors
    are to be merged before."""
    sides = ([min(block, size - start) for start in range(0, size, block)] for size in shape)
    return tuple(itertools.product(*sides))


def state_bytes(block: Shape, shampoo: Shampoo) -> int:
    """State of a block: sums and roots, 2 (r² + c²) numbers, and what grafting and momentum keep for each weight."""
    for_each = shampoo.grafted_numbers + shampoo.momentum_numbers
    return STATE_BYTES * (2 * sum(size**2 for size in block) + for_each * math.prod(block))


def step_flops(block: Shape) -> float:
    """FLOPs of each step on a block: sums and the preconditioned gradient, 2 r c (r + c) each."""
    return 4.0 * math.prod(block) * sum(block)


def root_flops(block: Shape) -> float:
    """FLOPs of a step that takes the roots, beyond that."""
    return ROOT_FLOPS * sum(size**3 for size in block)


def dealt(costs: Sequence[float], ranks: int) -> tuple[int, ...]:
    """The rank of each block: the costliest first, each to the rank that has least (Graham, SIAM J. Appl. Math. 17,
    1969); the first of equals."""
    loads = [(0.0, rank) for rank in range(ranks)]
    rank_of = [0] * len(costs)
    for number in sorted(range(len(costs)), key=lambda each: -costs[each]):
        load, rank = heapq.heappop(loads)
        rank_of[number] = rank
        heapq.heappush(loads, (load + costs[number], rank))
    return tuple(rank_of)


@dataclass(frozen=True)
class ShampooStep:
    """The optimizer of some weights, in one of its groups."""

    shapes: tuple[Shape, ...]
    shampoo: Shampoo

    @cached_property
    def blocks(self) -> tuple[Shape, ...]:
        """All blocks of all weights."""
        return tuple(itertools.chain.from_iterable(blocks_of(shape, self.shampoo.block) for shape in self.shapes))

    @cached_property
    def rank_of_block(self) -> tuple[int, ...]:
        """Blocks are dealt by their numbers of weights, as the optimizer does unless told otherwise."""
        return dealt([math.prod(block) for block in self.blocks], self.shampoo.group_ranks)

    @property
    def state_bytes(self) -> int:
        """Of all blocks."""
        return sum(state_bytes(block, self.shampoo) for block in self.blocks)

    @property
    def rank_state_bytes(self) -> int:
        """Of the rank that has most."""
        return int(self._most(state_bytes(block, self.shampoo) for block in self.blocks))

    @property
    def mean_flops(self) -> float:
        """FLOPs of a step on the rank that has most, in the mean of all steps."""
        return self._most(step_flops(block) + root_flops(block) / self.shampoo.every for block in self.blocks)

    @property
    def worst_flops(self) -> float:
        """The same in a step that takes the roots."""
        return self._most(step_flops(block) + root_flops(block) for block in self.blocks)

    @property
    def gather(self) -> CollectiveCall | None:
        """What ranks send each other in every step, padded to what the largest one has; None where one has it all."""
        if self.shampoo.group_ranks == 1:
            return None
        padded = self._most(math.prod(block) for block in self.blocks) * self.shampoo.group_ranks
        return CollectiveCall(
            "all_gather", "update", padded * self.shampoo.sent_bytes, Members(self.shampoo.group_ranks)
        )

    def _most(self, of_blocks: Iterable[float]) -> float:
        """The sum of what blocks have on the rank that has most of it."""
        loads = [0.0] * self.shampoo.group_ranks
        for rank, amount in zip(self.rank_of_block, of_blocks, strict=True):
            loads[rank] += amount
        return max(loads)
