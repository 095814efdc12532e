"""Distributed Shampoo: what its state takes, what a step computes, and how its blocks are dealt to ranks.

Weights are cut into blocks of at most so many numbers along each dimension. A block of r x c keeps two sums of products
of its gradients, r x r and c x c, and the inverse root of each, and the state of a diagonal method whose step length it
takes (grafting). Each step adds to the sums and multiplies by the roots, which are taken anew every so many steps. (Shi
et al., arXiv:2309.06497; facebookresearch/optimizers, whose merging of small dimensions, `use_merge_dims`, is not
counted: matrices stay matrices.)
"""

import heapq
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cost_models.collective_calls import CollectiveCall, Members
from cost_models.shards import Floats
from cost_models.workload.formats import wire_bytes
from cost_models.workload.models import Workload
from cost_models.workload.optimizers import Shampoo

Shape = tuple[int, ...]
STATE_BYTES = 4.0
"""A number of its state where no other format is asked for: fp32 (`precision_config`)."""
SUM_PASSES = 3
"""Passes of the square matrices of a block through memory in a step: sums read and written, roots read."""


def blocks_of(shape: Shape, block: int) -> tuple[Shape, ...]:
    """The blocks of weights of a shape: whole ones, and what is left along each dimension."""
    sides = ([min(block, size - start) for start in range(0, size, block)] for size in shape)
    return tuple(itertools.product(*sides))


def state_bytes(block: Shape, setup: Shampoo, number_bytes: float = STATE_BYTES) -> float:
    """State of a block: sums and roots, 2 (r² + c²) numbers, and what grafting and momentum keep for each weight."""
    return number_bytes * (2 * sum(size**2 for size in block) + setup.arrays * math.prod(block))


def block_products(block: Shape) -> tuple[tuple[int, int, int], ...]:
    """Products [m, k] by [k, n] of each step on a block of one or two dimensions, as (m, n, k): the two sums G Gᵀ and
    Gᵀ G, and the gradient by both roots, 2 r c (r + c) FLOPs each."""
    rows, columns = block if len(block) == 2 else (*block, 1)
    products = ((rows, rows, columns), (rows, columns, rows), (columns, columns, rows), (rows, columns, columns))
    return products[: 2 * len(block)]


def root_seconds(block: Shape, of_column_s: float, of_cube_s: float) -> float:
    """Seconds of a step that takes the roots, beyond that: of an n x n matrix n `of_column_s` and n^3 `of_cube_s`."""
    return sum(of_column_s * size + of_cube_s * size**3 for size in block)


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
    """The optimizer of some weights, in one of its groups of G ranks."""

    shapes: tuple[Shape, ...]
    setup: Shampoo
    number_bytes: float = STATE_BYTES
    """Of a number of the state."""

    @classmethod
    def of(cls, workload: Workload) -> "ShampooStep | None":
        """That of a workload's dense part; None where another optimizer trains it, or nothing does."""
        setup = workload.trained_by_shampoo
        if setup is None:
            return None
        shapes = itertools.chain.from_iterable(layer.weight_shapes for layer in workload.layers)
        return cls(tuple(shapes), setup, workload.dense.state_number_bytes)

    @cached_property
    def blocks(self) -> tuple[Shape, ...]:
        """All blocks of all weights: B."""
        return tuple(itertools.chain.from_iterable(blocks_of(shape, self.setup.block) for shape in self.shapes))

    @cached_property
    def rank_of_block(self) -> tuple[int, ...]:
        """Blocks are dealt by their numbers of weights, as the optimizer does unless told otherwise."""
        return dealt([math.prod(block) for block in self.blocks], self.setup.group)

    @property
    def state_bytes(self) -> float:
        """Of all blocks."""
        return sum(state_bytes(block, self.setup, self.number_bytes) for block in self.blocks)

    @property
    def rank_state_bytes(self) -> float:
        """Of the rank that has most; no less than the largest block's."""
        own = self.of_ranks(state_bytes(block, self.setup, self.number_bytes) for block in self.blocks)
        return float(own.max(initial=0.0))

    @cached_property
    def rank_weights(self) -> Floats:
        """[G] weights whose blocks each rank has."""
        return self.of_ranks(math.prod(block) for block in self.blocks)

    @property
    def sent_bytes(self) -> float:
        """Of a number that a rank has computed, on the way to the others; 0 where there are none."""
        return wire_bytes(self.setup.exchange) if self.setup.group > 1 else 0.0

    @property
    def gathered_bytes(self) -> float:
        """What ranks have of all updates after they sent each other theirs, padded to those of the rank that has most;
        it is kept from step to step (`DDPDistributor`)."""
        return float(self.rank_weights.max(initial=0.0)) * self.setup.group * self.sent_bytes

    @property
    def gather(self) -> CollectiveCall | None:
        """What ranks send each other in every step; None where one rank has it all."""
        if self.setup.group == 1:
            return None
        return CollectiveCall("all_gather", "update", self.gathered_bytes, Members(self.setup.group))

    def of_ranks(self, of_blocks: Iterable[float]) -> Floats:
        """[G] what each rank has of something that blocks have [B]."""
        amounts = np.fromiter(of_blocks, dtype=np.float64, count=len(self.blocks))
        return np.asarray(np.bincount(self.rank_of_block, weights=amounts, minlength=self.setup.group), dtype=float)
