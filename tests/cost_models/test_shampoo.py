"""Distributed Shampoo: state and FLOPs of blocks written out, dealing against all ways, the published overhead."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models.shampoo import ShampooStep, block_products, blocks_of, dealt, root_seconds, state_bytes
from cost_models.workload.optimizers import Grafting, Shampoo

SHAPES = st.lists(
    st.one_of(st.tuples(st.integers(1, 40), st.integers(1, 40)), st.tuples(st.integers(1, 40))), min_size=1
)


@pytest.mark.parametrize(
    ("block", "count", "sums_and_roots"),
    [(128, 64, 64 * 4 * 2 * (128**2 + 128**2)), (1024, 1, 16_777_216), (8192, 1, 16_777_216)],
)
def test_state_of_a_square_matrix(block: int, count: int, sums_and_roots: int) -> None:
    """1,024 x 1,024 in fp32, grafted on Adagrad, which keeps 4,194,304 bytes."""
    step = ShampooStep(((1024, 1024),), Shampoo(block=block, grafting="adagrad"))
    assert len(step.blocks) == count
    assert step.state_bytes == step.rank_state_bytes == sums_and_roots + 4_194_304


@given(SHAPES, st.integers(1, 16), st.sampled_from(["none", "sgd", "adagrad", "rmsprop", "adam"]), st.booleans())
def test_blocks_cover_the_weights_and_keep_what_is_written_out(
    shapes: list[tuple[int, ...]], block: int, grafting: Grafting, momentum: bool
) -> None:
    """Every weight is in one block, none is longer than allowed; for each of its sides two square matrices."""
    step = ShampooStep(tuple(shapes), Shampoo(block=block, grafting=grafting, momentum=momentum, group=3))
    for_each = (grafting in ("adagrad", "rmsprop", "adam")) + momentum
    assert sum(math.prod(each) for each in step.blocks) == sum(math.prod(shape) for shape in shapes)
    assert max(max(each) for each in step.blocks) <= block
    expected = []
    for shape in shapes:
        starts = [range(0, size, block) for size in shape]
        for corner in itertools.product(*starts):
            sides = [len(range(start, min(start + block, size))) for start, size in zip(corner, shape, strict=True)]
            expected.append(sum(2 * 4 * side * side for side in sides) + 4 * math.prod(sides) * for_each)
    assert step.state_bytes == sum(expected)
    assert max(expected) <= step.rank_state_bytes <= step.state_bytes
    assert step.rank_state_bytes >= step.state_bytes / 3


def test_a_step_multiplies_four_times() -> None:
    """G G', G' G, L G and (L G) R of a 6 x 4 block, counted by the shapes of the products, and both roots."""
    products = [(6, 4, 6), (4, 6, 4), (6, 6, 4), (6, 4, 4)]
    flops = sum(2 * m * k * n for m, k, n in products)
    assert sum(2 * m * n * k for m, n, k in block_products((6, 4))) == flops == 4 * 6 * 4 * (6 + 4)
    assert block_products((7,)) == ((7, 7, 1), (7, 1, 7))  # g g' and L g
    assert root_seconds((6, 4), 2.0, 25.0) == 2 * (6 + 4) + 25 * (6**3 + 4**3)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.integers(1, 3))
def test_blocks_are_dealt_within_a_third_of_the_best_way(costs: list[int], ranks: int) -> None:
    """Graham's bound, against all ways; the largest block is the floor."""
    rank_of = np.array(dealt(costs, ranks))
    most = max(np.bincount(rank_of, weights=costs, minlength=ranks))
    every = itertools.product(range(ranks), repeat=len(costs))
    best = min(max(np.bincount(way, weights=costs, minlength=ranks)) for way in every)
    assert max(costs) <= best <= most <= best * (4 / 3 - 1 / (3 * ranks)) + 1e-9


def test_ranks_of_a_group_gather_what_they_computed() -> None:
    """Three blocks of 8 x 8 on two ranks in 2 bytes: two of them on one rank, and as much room for the other's."""
    step = ShampooStep(((8, 24),), Shampoo(block=8, group=2, exchange="bf16"))
    assert step.rank_state_bytes == 2 * state_bytes((8, 8), step.setup)
    assert step.gather is not None
    assert (step.gather.operation, step.gather.phase, step.gather.buffer_bytes) == (
        "all_gather",
        "update",
        2 * 2 * 64 * 2,
    )
    assert ShampooStep(((8, 24),), Shampoo(block=8)).gather is None


def test_blocks_of_a_vector_are_shorter_vectors() -> None:
    """The last one is what is left."""
    assert blocks_of((5,), 3) == ((3,), (2,))
