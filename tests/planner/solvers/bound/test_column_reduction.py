"""Reduced problems: without idle columns and tiers, or with some options alone, placements take what they took."""

import numpy as np
import pytest

from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.solvers.bound.column_reduction import reduce_columns, with_options
from tests.oracles.instances import tiny_instance
from tests.oracles.placements import random_placements

SEEDS = range(120)


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    return [each.problem for each in map(tiny_instance, SEEDS) if len(each.options.table)]


def test_idle_columns_do_not_count(problems: list[Problem]) -> None:
    """A slim problem has the same step and the same overflow for every placement."""
    slimmer = 0
    for problem in problems:
        slim = reduce_columns(problem).problem
        slimmer += slim.fixed.shape[2] < problem.fixed.shape[2]
        for placement in random_placements(problem):
            whole, less = load_state(problem, placement), load_state(slim, placement)
            assert less.stage_seconds() == pytest.approx(whole.stage_seconds(), rel=1e-12)
            assert less.overflow_bytes() == pytest.approx(whole.overflow_bytes(), rel=1e-12)
    assert slimmer > 10


def test_a_problem_of_some_options_has_the_same_plans_of_these(problems: list[Problem]) -> None:
    """Placements of kept options have the same step and overflow inside, come back unchanged; others are not held."""
    left_out = 0
    for problem in problems:
        placements = random_placements(problem)
        kept = np.zeros(len(problem.option_table), dtype=bool)
        kept[problem.block_option[placements[0].item_block]] = True
        slim = with_options(problem, kept)
        assert slim.holds(placements[0])
        inside = slim.inside(placements[0])
        whole, less = load_state(problem, placements[0]), load_state(slim.problem, inside)
        assert less.step_s() == pytest.approx(whole.step_s(), rel=1e-12)
        assert less.overflow_bytes() == pytest.approx(whole.overflow_bytes(), abs=1e-3)
        back = slim.outside(inside)
        assert np.array_equal(back.item_block, placements[0].item_block)
        assert np.array_equal(back.item_place, placements[0].item_place)
        for other in placements[1:]:
            held = bool(kept[problem.block_option[other.item_block]].all())
            assert slim.holds(other) == held
            left_out += not held
    assert left_out > 10
