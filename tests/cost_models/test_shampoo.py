"""Distributed Shampoo: state and FLOPs of blocks written out, dealing against all ways, the published overhead."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models.shampoo import Shampoo, ShampooStep, blocks_of, dealt, root_flops, state_bytes, step_flops

SHAPES = st.lists(
    st.one_of(st.tuples(st.integers(1, 40), st.integers(1, 40)), st.tuples(st.integers(1, 40))), min_size=1
)


@pytest.mark.parametrize(
    ("block", "count", "sums_and_roots"),
    [(128, 64, 64 * 4 * 2 * (128**2 + 128**2)), (1024, 1, 16_777_216), (8192, 1, 16_777_216)],
)
def test_state_of_a_square_matrix(block: int, count: int, sums_and_roots: int) -> None:
    """1,024 x 1,024 in fp32, grafted on Adagrad, which keeps 4,194,304 bytes."""
    step = ShampooStep(((1024, 1024),), Shampoo(block=block))
    assert len(step.blocks) == count
    assert step.state_bytes == sums_and_roots + 4_194_304


@given(SHAPES, st.integers(1, 16), st.integers(0, 1), st.integers(0, 2))
def test_blocks_cover_the_weights_and_keep_what_is_written_out(
    shapes: list[tuple[int, ...]], block: int, grafted: int, momentum: int
) -> None:
    """Every weight is in one block, none is longer than allowed; for each of its sides two square matrices."""
    shampoo = Shampoo(block=block, grafted_numbers=grafted, momentum_numbers=momentum)
    step = ShampooStep(tuple(shapes), shampoo)
    assert sum(math.prod(each) for each in step.blocks) == sum(math.prod(shape) for shape in shapes)
    assert max(max(each) for each in step.blocks) <= block
    expected = 0
    for shape in shapes:
        starts = [range(0, size, block) for size in shape]
        for corner in itertools.product(*starts):
            sides = [len(range(start, min(start + block, size))) for start, size in zip(corner, shape, strict=True)]
            expected += sum(2 * 4 * side * side for side in sides) + 4 * math.prod(sides) * (grafted + momentum)
    assert step.state_bytes == expected


def test_a_step_multiplies_four_times() -> None:
    """G G', G' G, L G and (L G) R of a 6 x 4 block, counted by the shapes of the products, and both roots."""
    products = [(6, 4, 6), (4, 6, 4), (6, 6, 4), (6, 4, 4)]
    assert step_flops((6, 4)) == sum(2 * m * k * n for m, k, n in products)
    assert root_flops((6, 4)) == 25 * (6**3 + 4**3)
    step = ShampooStep(((6, 4),), Shampoo(every=10))
    assert step.mean_flops == step_flops((6, 4)) + root_flops((6, 4)) / 10
    assert step.worst_flops == step_flops((6, 4)) + root_flops((6, 4))


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
    step = ShampooStep(((8, 24),), Shampoo(block=8, group_ranks=2, sent_bytes=2))
    assert step.rank_state_bytes == 2 * state_bytes((8, 8), step.shampoo)
    assert step.gather is not None
    assert (step.gather.operation, step.gather.phase, step.gather.buffer_bytes) == (
        "all_gather",
        "update",
        2 * 2 * 64 * 2,
    )
    assert ShampooStep(((8, 24),), Shampoo(block=8)).gather is None


def resnet50() -> list[tuple[int, ...]]:
    """Its convolutions as matrices of filters and of what each reads, and the last layer."""
    shapes: list[tuple[int, ...]] = [(64, 3 * 49)]
    width = 64
    for planes, count in ((64, 3), (128, 4), (256, 6), (512, 3)):
        shapes.append((planes * 4, width))
        for _ in range(count):
            shapes += [(planes, width), (planes, planes * 9), (planes * 4, planes)]
            width = planes * 4
    return [*shapes, (1000, 2048)]


def test_on_resnet_50_it_adds_less_than_a_tenth() -> None:
    """Published: at most 10 % a step with roots every 50 steps. Here its FLOPs on one of 8 ranks beside those of 128
    samples, 4.09 10^9 multiply-accumulates each."""
    shapes = resnet50()
    assert sum(math.prod(shape) for shape in shapes) == 25_502_912  # 25.557 million with norms and the last bias
    step = ShampooStep(tuple(shapes), Shampoo(block=2048, every=50, group_ranks=8))
    assert step.mean_flops <= 0.1 * (6 * 4.09e9 * 128)
    assert step.worst_flops > step.mean_flops


def test_what_is_no_setting_is_refused() -> None:
    """Blocks of nothing."""
    with pytest.raises(ValueError, match="are 1 at least"):
        Shampoo(block=0)
    assert blocks_of((5,), 3) == ((3,), (2,))
