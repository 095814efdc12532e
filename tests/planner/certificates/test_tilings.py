"""Splittable options cut into whole blocks: as cheap as the best of all tilings."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.certificates.tilings import cheapest_tilings, option_tilings, tiling_widths
from tests.oracles.instances import tiny_instance


def partitions(units: int, widest: int) -> Iterator[list[int]]:
    """Every list of widths up to the widest that adds up to the units, the widest ones first."""
    if not units:
        yield []
    for width in range(min(units, widest), 0, -1):
        for rest in partitions(units - width, width):
            yield [width, *rest]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.one_of(st.integers(0, 50), st.just(None)), min_size=1, max_size=9))
def test_the_cheapest_tiling_is_the_best_of_all(costs: list[int | None]) -> None:
    """Of every number of units, and the widths that are named cost as much; infinite where none adds up."""
    values = np.array([[np.inf, *(np.inf if cost is None else float(cost) for cost in costs)]])
    best, width = cheapest_tilings(values)
    for units in range(1, len(costs) + 1):
        expected = min(sum(values[0, each] for each in widths) for widths in partitions(units, units))
        assert best[0, units] == expected
        if np.isfinite(expected):
            widths = tiling_widths(width[0], units)
            assert sum(widths) == units
            assert sum(values[0, each] for each in widths) == expected


@pytest.mark.parametrize("seed", range(30))
def test_tilings_of_options_take_their_own_blocks(seed: int) -> None:
    """Blocks that are counted add up to each option's units and cost; the widest of them is named."""
    problem, random = tiny_instance(seed).problem, np.random.default_rng(seed)
    values = np.append(random.random(len(problem.block_option)), np.inf)
    listed = []
    for tilings in option_tilings(problem):
        best, width = tilings.cheapest(values)
        for row, option in enumerate(tilings.options.tolist()):
            taken = np.zeros(len(problem.block_option))
            chosen = np.arange(len(tilings.options)) == row
            tilings.count(width, chosen, taken)
            blocks = np.flatnonzero(taken)
            assert (problem.block_option[blocks] == option).all()
            assert taken @ problem.block_units == problem.option_units[option]
            assert taken[blocks] @ values[blocks] == pytest.approx(best[row, -1])
            assert tilings.widest_blocks(width, chosen).tolist() == [blocks.max()]
            listed.append(option)
    assert sorted(listed) == np.flatnonzero(problem.option_units).tolist()
