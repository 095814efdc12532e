"""Taking tables out and putting them back: legal, within memory, never worse by its own measure, often better."""

import numpy as np
import pytest

from planner.problem import Placement, Problem, load_state
from planner.solvers.reinsert import reinsert_tables
from planner.solvers.smoothing import Smoothing
from tests.oracles.instances import tiny_instance
from tests.oracles.placements import faults, just_large_enough, random_placement

SQUARINGS = 5


def placed(seed: int) -> tuple[Problem, Placement] | None:
    """A tiny problem and a random placement that is legal and fits; None where some tables have none."""
    problem = tiny_instance(seed).problem
    for option in range(len(problem.option_table)):
        types = slice(*problem.block_start[option : option + 2])
        if not problem.allowed[:, types].all() or problem.option_tied[option]:
            return None
    placement = random_placement(problem, np.random.default_rng(seed), legal=True)
    return (problem, placement) if load_state(problem, placement).overflow_bytes() == 0 else None


CASES = [(seed, *found) for seed in range(160) if (found := placed(seed)) is not None]


def all_of(problem: Problem) -> np.ndarray:
    return np.ones(len(problem.block_option), dtype=bool)


def smoothed(problem: Problem, placement: Placement, around: Smoothing) -> float:
    return around.value(load_state(problem, placement).load)


def test_there_are_cases() -> None:
    """Enough random placements to say something."""
    assert len(CASES) >= 15


@pytest.mark.parametrize(("seed", "problem", "placement"), CASES, ids=[str(seed) for seed, *_ in CASES])
def test_one_table_is_never_put_back_worse(seed: int, problem: Problem, placement: Placement) -> None:
    """Every table stays whole, memory is kept, and the smoothed step does not rise."""
    around = Smoothing(problem, load_state(problem, placement), SQUARINGS, negligible=0.0)
    for table in range(problem.tables):
        found = reinsert_tables(problem, placement, SQUARINGS, np.array([table]), all_of(problem))
        assert faults(problem, found) == []
        assert load_state(problem, found).overflow_bytes() <= 1e-3
        assert smoothed(problem, found, around) <= smoothed(problem, placement, around) * (1 + 1e-9)


def test_random_placements_get_better() -> None:
    """Two rounds over all tables shorten the step of nearly every random placement, by 8 % or more on average."""
    ratios = []
    for seed, problem, placement in CASES:
        order = np.random.default_rng(seed).permutation(problem.tables)
        found = reinsert_tables(problem, placement, SQUARINGS, np.concatenate([order, order]), all_of(problem))
        ratios.append(load_state(problem, found).step_s() / load_state(problem, placement).step_s())
    assert np.mean(np.array(ratios) <= 1 + 1e-9) >= 0.9
    assert np.mean(ratios) <= 0.92


def test_full_memory_is_kept() -> None:
    """Where the pools are just large enough for the placement, nothing is put where it does not fit."""
    for seed, problem, placement in CASES:
        tight = just_large_enough(problem, placement)
        found = reinsert_tables(tight, placement, SQUARINGS, np.arange(problem.tables), all_of(tight))
        assert load_state(tight, found).overflow_bytes() <= 1e-3, seed


def test_only_usable_picks_are_taken() -> None:
    """A table for which nothing is worth pricing stays as it is."""
    for _, problem, placement in CASES:
        none = np.zeros(len(problem.block_option), dtype=bool)
        found = reinsert_tables(problem, placement, SQUARINGS, np.arange(problem.tables), none)
        assert sorted(zip(found.item_block, found.item_place, strict=True)) == sorted(
            zip(placement.item_block, placement.item_place, strict=True)
        )
