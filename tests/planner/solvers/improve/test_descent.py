"""Descent: what is left is a local optimum, as trying every move and swap shows."""

import functools
import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from cost_models.shards import RANK
from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.solvers.improve.descent import WORTH, descended
from planner.solvers.limits import SearchLimits
from planner.solvers.search import solve
from tests.oracles.instances import tiny_instance
from tests.oracles.placements import faults, random_placement

SEEDS = range(90)
ROUNDING_BYTES = 1e-3


def is_legal(problem: Problem, placement: Placement) -> bool:
    """Whether it is a placement, and fits."""
    return not faults(problem, placement) and load_state(problem, placement).overflow_bytes() <= ROUNDING_BYTES


def some(seed: int) -> tuple[Problem, Placement] | None:
    """A random placement that fits; None where the seed has none."""
    problem = tiny_instance(seed).problem
    if not len(problem.option_table) or len(np.unique(problem.option_table)) < problem.tables:
        return None
    if any(
        not problem.allowed[:, np.arange(*problem.table_block_start[t : t + 2])].any() for t in range(problem.tables)
    ):
        return None
    random = np.random.default_rng(seed)
    for _ in range(50):
        placement = random_placement(problem, random)
        if is_legal(problem, placement):
            return problem, placement
    return None


@functools.cache
def cases() -> list[tuple[int, Problem, Placement]]:
    return [(seed, *found) for seed in SEEDS if (found := some(seed)) is not None]


def neighbours(problem: Problem, placement: Placement) -> Iterator[Placement]:
    """All placements that differ by one block of a single rank elsewhere, or by two in each other's place."""
    block, place = placement.item_block, placement.item_place
    colocated = problem.option_colocated[problem.block_option[block]]
    single = np.flatnonzero(
        (problem.block_extent[block] == RANK) & ~problem.grouped[problem.table_of_block[block]] & ~colocated
    )
    for item, rank in itertools.product(single.tolist(), range(problem.world)):
        elsewhere = place.copy()
        elsewhere[item] = rank
        yield Placement(block, elsewhere)
    for first, second in itertools.combinations(single.tolist(), 2):
        exchanged = place.copy()
        exchanged[[first, second]] = place[[second, first]]
        yield Placement(block, exchanged)


def test_there_are_cases() -> None:
    """Some seeds have a placement that fits to begin with."""
    assert len(cases()) >= 25


def test_no_move_and_no_swap_makes_the_result_better() -> None:
    """From any placement; it is legal, and its step is the one that is told."""
    for seed, problem, placement in cases():
        local_optimum, step_s = descended(problem, placement)
        assert is_legal(problem, local_optimum)
        assert load_state(problem, local_optimum).step_s() == pytest.approx(step_s, rel=1e-12)
        assert step_s <= load_state(problem, placement).step_s() * (1 + 1e-12)
        for other in neighbours(problem, local_optimum):
            if is_legal(problem, other):
                assert load_state(problem, other).step_s() >= step_s * (1 - 2 * WORTH), seed


def test_results_of_the_search_are_local_optima() -> None:
    """With no more than one start and no pass."""
    for seed, problem, _ in cases()[:15]:
        outcome = solve(problem, SearchLimits(gap=0.0, effort=0))
        assert outcome.placement is not None
        assert outcome.step_s is not None
        for other in neighbours(problem, outcome.placement):
            if is_legal(problem, other):
                assert load_state(problem, other).step_s() >= outcome.step_s * (1 - 2e-6), seed
