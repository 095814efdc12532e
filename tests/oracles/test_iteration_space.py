"""Iteration spaces of layers: what a rank computes, holds and adds up, against points assigned to ranks one by one."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracles.iteration_space import IterationSpace, Tensor, cuts_of, missing_elements

PRODUCT = IterationSpace(
    {"m": 4, "n": 6, "k": 2},
    {"x": Tensor("input", ("m", "k")), "w": Tensor("weight", ("k", "n")), "y": Tensor("output", ("m", "n"))},
    flops_per_output=5.0,
)
BATCHED = IterationSpace(
    {"b": 2, "m": 4, "n": 2, "k": 6},
    {
        "q": Tensor("input", ("b", "m", "k")),
        "kv": Tensor("input", ("b", "k", "n")),
        "o": Tensor("output", ("b", "m", "n")),
    },
)


def ranks_of_points(space: IterationSpace, cut: tuple[int, ...]) -> dict[tuple[int, ...], set[tuple[int, ...]]]:
    """The points of each rank, which is named by its part of every dimension."""
    points: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for point in itertools.product(*(range(size) for size in space.sizes.values())):
        rank = tuple(at * parts // size for at, parts, size in zip(point, cut, space.sizes.values(), strict=True))
        points.setdefault(rank, set()).add(point)
    return points


@pytest.mark.parametrize("space", [PRODUCT, BATCHED])
def test_a_rank_computes_holds_and_adds_up_what_its_points_say(space: IterationSpace) -> None:
    """For every cut over up to 8 ranks: points, numbers of each tensor, and ranks that have the same numbers."""
    cuts, names = space.cuts(8), list(space.sizes)
    for number, cut in enumerate(cuts.tolist()):
        points = ranks_of_points(space, tuple(cut))
        first = points[(0,) * len(names)]
        assert space.local_points(cuts)[number] == len(first)
        for name, tensor in space.tensors.items():
            axes = [names.index(each) for each in tensor.dimensions]
            numbers = {rank: {tuple(point[a] for a in axes) for point in own} for rank, own in points.items()}
            own = numbers[(0,) * len(names)]
            assert space.local_elements(name, cuts)[number] == len(own)
            assert space.addend_ranks(name, cuts)[number] == sum(bool(own & each) for each in numbers.values())


def test_flops_are_those_of_points_and_of_outputs() -> None:
    """Two for each multiplication and addition, and what follows them."""
    cuts = np.array([[1, 1, 1], [2, 3, 1], [1, 1, 2]])
    assert PRODUCT.local_flops(cuts).tolist() == [2 * 48 + 5 * 24, 2 * 8 + 5 * 4, 2 * 24 + 5 * 24]
    assert PRODUCT.contracted == ("k",)
    assert PRODUCT.lacked("w") == ("m",)


@given(st.lists(st.integers(1, 24), min_size=1, max_size=3), st.integers(1, 12), st.integers(1, 5))
def test_cuts_are_all_that_divide_evenly(sizes: list[int], ranks: int, smallest: int) -> None:
    """Of all numbers of parts: products within the ranks, equal parts, none below the smallest unless it is whole."""
    every = itertools.product(*(range(1, ranks + 1) for _ in sizes))
    allowed = [
        cut
        for cut in every
        if np.prod(cut) <= ranks
        and all(
            size % parts == 0 and (parts == 1 or size / parts >= smallest)
            for size, parts in zip(sizes, cut, strict=True)
        )
    ]
    assert cuts_of(tuple(sizes), ranks, smallest).tolist() == [list(cut) for cut in allowed]


def test_whole_dimensions_are_not_cut() -> None:
    """Whatever the number of ranks."""
    assert set(map(tuple, PRODUCT.cuts(8, whole=("m", "k")).tolist())) == {(1, 1, 1), (1, 2, 1), (1, 3, 1), (1, 6, 1)}


def test_what_is_missing_is_the_difference_of_aligned_parts() -> None:
    """A tensor of 4 x 6: nothing where the cuts are the same, the half that is elsewhere, all where more ranks read."""
    held = np.array([[1, 1], [2, 1], [1, 2], [4, 1]])
    needed = np.array([[1, 1], [2, 1], [1, 2]])
    assert missing_elements((4, 6), held, needed).tolist() == [
        [0, 12, 12],  # the reader's second rank holds nothing
        [24 - 12, 0, 12 - 6],
        [24 - 12, 12 - 6, 0],
        [24 - 6, 12 - 6, 12 - 3],
    ]


@pytest.mark.parametrize(
    ("sizes", "tensors", "message"),
    [
        ({"m": 2}, {"x": Tensor("input", ("m",))}, "a layer has one output; this one has 0"),
        ({"m": 0}, {"y": Tensor("output", ("m",))}, "dimension m has 0 points"),
        ({"m": 2}, {"y": Tensor("output", ("n",))}, "tensor y has dimensions"),
        ({"m": 2}, {"y": Tensor("output", ("m", "m"))}, "take each once, of m"),
    ],
)
def test_spaces_that_are_none_are_refused(sizes: dict, tensors: dict, message: str) -> None:
    """By the name of what is wrong."""
    with pytest.raises(ValueError, match=message):
        IterationSpace(sizes, tensors)


def test_questions_that_make_no_sense_are_refused() -> None:
    """Unknown dimensions, and no ranks."""
    with pytest.raises(ValueError, match="there is no dimension z; those are m, n, k"):
        PRODUCT.cuts(2, whole=("z",))
    with pytest.raises(ValueError, match="over one rank at least, not over 0"):
        PRODUCT.cuts(0)
