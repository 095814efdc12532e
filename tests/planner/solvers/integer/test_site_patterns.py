"""Patterns in whole numbers: what is found holds every table, and nothing is missed that trying all finds."""

import itertools

import numpy as np
import pytest

from planner.solvers.integer.site_patterns import BlockTypes, site_counts


@pytest.mark.parametrize("seed", range(12))
def test_sites_hold_every_table_wherever_they_can(seed: int) -> None:
    """Two tables, each in one of two options of one type, three sites and four patterns."""
    random = np.random.default_rng(seed)
    types = BlockTypes(random.integers(1, 6, 4), np.arange(4), np.array([0, 0, 1, 1]))
    patterns = random.integers(0, 3, (4, 4))

    def suffices(held: np.ndarray, options: tuple[int, ...]) -> bool:
        return bool((held[list(options)] >= types.count[list(options)]).all())

    ways = [np.array(counts) @ patterns for counts in itertools.product(range(4), repeat=4) if sum(counts) <= 3]
    choices = list(itertools.product((0, 1), (2, 3)))
    can = any(suffices(held, options) for held in ways for options in choices)
    found = site_counts(3, types, patterns)
    assert (found is not None) == can
    if found is not None:
        assert found.sites.sum() <= 3
        assert types.table[found.options].tolist() == [0, 1]
        assert suffices(found.sites @ patterns, tuple(found.options.tolist()))
