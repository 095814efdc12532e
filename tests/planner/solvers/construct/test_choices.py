"""Choices of options come all, the cheapest first."""

import itertools

import numpy as np
import pytest

from planner.solvers.construct.choices import cheapest_first


@pytest.mark.parametrize("seed", range(20))
def test_every_choice_comes_once_and_in_order(seed: int) -> None:
    """As many as the product of the tables' options, none twice, by ascending sum."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 5, size=random.integers(1, 5))
    start = np.concatenate([[0], np.cumsum(sizes)])
    values = random.integers(0, 6, size=start[-1]) / 4
    choices = [tuple(choice.tolist()) for choice in cheapest_first(values, start)]
    assert len(set(choices)) == len(choices)
    assert set(choices) == set(itertools.product(*(range(a, b) for a, b in itertools.pairwise(start.tolist()))))
    totals = [values[list(choice)].sum() for choice in choices]
    assert totals == sorted(totals)


def test_options_that_fit_nowhere_are_left_out() -> None:
    """Infinite values do not occur; a table with nothing else leaves no choice at all."""
    start = np.array([0, 2, 4])
    assert [c.tolist() for c in cheapest_first(np.array([np.inf, 1.0, 3.0, 2.0]), start)] == [[1, 3], [1, 2]]
    assert list(cheapest_first(np.array([np.inf, np.inf, 3.0, 2.0]), start)) == []
    assert list(cheapest_first(np.array([1.0, 2.0]), np.array([0, 0, 2]))) == []
