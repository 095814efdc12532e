"""The smoothed step: powers of loads relative to their stage, so that a small change counts as in a norm."""

import numpy as np
import pytest

from planner.problem.load_state import load_state
from planner.solvers.improve.smoothing import Smoothing
from tests.oracles.placements import tiny_placements


@pytest.mark.parametrize("squarings", [3, 5])
def test_ranks_add_up_to_powers_of_their_loads(squarings: int) -> None:
    """By plain loops over columns and ranks: weight x (load / longest load of the stage)^K, floors counting alike."""
    for problem, placement in tiny_placements(60):
        state = load_state(problem, placement)
        smoothing = Smoothing(problem, state, squarings, negligible=0.0)
        seconds = state.stage_seconds() - problem.stage_constants
        seconds = np.maximum(seconds, max(1e-3 * seconds.sum(), 1e-15))
        expected = np.zeros(problem.world)
        for weight, floor, column in zip(smoothing.weight, smoothing.floor, smoothing.columns.tolist(), strict=True):
            longest = seconds[problem.stage_of_column[column]]
            for rank in range(problem.world):
                expected[rank] += weight * max(state.load[column, rank] / longest, floor) ** 2**squarings
        np.testing.assert_allclose(smoothing.fullness(state.load), expected, rtol=1e-9)


def test_growth_of_all_ranks_is_the_slope_of_the_value() -> None:
    """To first order, as a small difference shows, where no load is at a floor."""
    compared = 0
    for problem, placement in tiny_placements(60):
        state = load_state(problem, placement)
        smoothing = Smoothing(problem, state, 4, negligible=0.0)
        if smoothing.floor.any() or not len(smoothing.columns):
            continue
        seconds = np.random.default_rng(0).random(len(problem.stage_of_column)) * 1e-9 * state.step_s()
        more = smoothing.fullness(state.load + seconds[:, None]).sum() - smoothing.fullness(state.load).sum()
        assert smoothing.uniform_growth(seconds) == pytest.approx(more, rel=1e-3)
        compared += 1
    assert compared >= 5


def test_the_norm_nears_the_step() -> None:
    """With a high power what counts is the fullest: of two states that differ in the longest stage alone the one with
    the shorter step is worth less."""
    compared = 0
    for problem, placement in tiny_placements(60):
        state = load_state(problem, placement)
        smoothing = Smoothing(problem, state, 7, negligible=0.0)
        better = state.copy()
        peaks = state.load >= state.load.max(axis=1, keepdims=True) * (1 - 1e-12)
        better.load = np.where(peaks, 0.97 * state.load, state.load)
        if better.step_s() < state.step_s() and len(smoothing.columns):
            assert smoothing.fullness(better.load).sum() <= smoothing.fullness(state.load).sum()
            compared += 1
    assert compared >= 10


def test_loads_below_a_floor_count_alike() -> None:
    """A column whose stage lasts as long whatever is moved does not gain by less load."""
    for problem, placement in tiny_placements(60):
        state = load_state(problem, placement)
        smoothing = Smoothing(problem, state, 3, negligible=0.0)
        below = state.load.copy()
        longest = np.maximum(state.stage_seconds() - problem.stage_constants, 1e-15)[problem.stage_of_column]
        for floor, column in zip(smoothing.floor, smoothing.columns.tolist(), strict=True):
            below[column] = np.where(below[column] < 0.9 * floor * longest[column], 0.0, below[column])
        np.testing.assert_allclose(smoothing.fullness(below), smoothing.fullness(state.load), rtol=1e-12)
