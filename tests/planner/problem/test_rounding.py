"""By how much sums of doubles may differ: what the tolerances promise is true of numpy's sums."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.problem.rounding import COARSE_ROUNDING, FINE_ROUNDING, ROUNDING


@settings(max_examples=20, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), spread=st.floats(0, 6))
def test_sums_of_many_doubles_are_exact_within_the_rounding(seed: int, spread: float) -> None:
    """10^5 positive numbers of up to six orders of magnitude, added in a row and by numpy, against the exact sum."""
    numbers = 10 ** np.random.default_rng(seed).uniform(-spread, 0, 100_000)
    exact = math.fsum(numbers.tolist())
    for total in (float(numbers.sum()), float(np.cumsum(numbers)[-1]), sum(numbers.tolist())):
        assert abs(total - exact) <= ROUNDING * exact


@settings(max_examples=100, deadline=None, derandomize=True)
@given(numbers=st.lists(st.floats(1e-9, 1e3), min_size=2, max_size=64), random=st.randoms(use_true_random=False))
def test_a_few_numbers_in_another_order_differ_by_less(numbers: list[float], random: object) -> None:
    """Any order of up to 64 positive numbers gives the same sum within the finest tolerance."""
    shuffled = numbers.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert abs(sum(shuffled) - sum(numbers)) <= FINE_ROUNDING * sum(numbers)


def test_a_coarser_tolerance_covers_what_a_finer_one_rounded() -> None:
    """A bound that was rounded a hundred times by one is still within the next."""
    assert (1 - FINE_ROUNDING) ** 100 >= 1 - ROUNDING
    assert (1 - ROUNDING) ** 99 >= 1 - COARSE_ROUNDING
