"""The Lagrangian bound: valid whatever the multipliers, and what the relaxation makes of them, too."""

import numpy as np
import pytest

from planner.certificates.lagrangian import cheapest_options, lagrangian_s, least_stage_s, least_step_of_block_s
from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.solvers.bound.fluid import Fluid
from tests.oracles.brute_force import optimum
from tests.oracles.instances import confined_instance, tiny_instance
from tests.oracles.placements import tiny_placement
from tests.properties.test_tiny_instances import random_prices


def _problems() -> list[Problem]:
    instances = [*map(tiny_instance, range(30)), *map(confined_instance, range(30))]
    return [each.problem for each in instances if len(each.options.table)]


def test_no_multipliers_prove_more_than_the_optimum() -> None:
    """Random weights over instances and tables and random prices of bytes, against the best of all plans."""
    random, compared = np.random.default_rng(1), 0
    for problem in _problems():
        best = optimum(problem)
        if best is None:
            continue
        usable, nothing = problem.allowed.any(axis=0), np.zeros(len(problem.stage_constants))
        for _ in range(5):
            multipliers = random_prices(problem, random, best.step_s)
            assert lagrangian_s(problem, multipliers, usable, nothing) <= best.step_s * (1 + 1e-12)
            compared += 1
    assert compared > 150


def test_the_relaxation_finds_the_same_value() -> None:
    """Its own sums over options, which the check of a proof does not use, agree."""
    random = np.random.default_rng(2)
    for problem in _problems():
        fluid, nothing = Fluid(problem), np.zeros(len(problem.stage_constants))
        usable = problem.allowed.any(axis=0)
        multipliers = random_prices(problem, random, 1e-3)
        cheapest, _ = fluid.price(multipliers, usable)
        found = cheapest_options(problem, multipliers, usable)
        assert found == pytest.approx(cheapest, rel=1e-9, abs=1e-15)
        if np.isfinite(found).all():
            value = lagrangian_s(problem, multipliers, usable, nothing)
            assert value == pytest.approx(fluid.bound(multipliers, usable)[0], rel=1e-8, abs=1e-12)


def test_no_plan_is_faster_than_its_stages_and_blocks_allow() -> None:
    """Legal random placements: every stage takes its least seconds, and the step what any of its blocks demands."""
    compared, random = 0, np.random.default_rng(3)
    for seed in range(80):
        placed = tiny_placement(seed)
        if placed is None:
            continue
        problem, placement = placed
        multipliers = random_prices(problem, random, 1e-3)
        state = load_state(problem, placement)
        seconds = state.stage_seconds() - problem.stage_constants
        assert (least_stage_s(problem, multipliers) <= seconds * (1 + 1e-12) + 1e-15).all()
        least = least_step_of_block_s(problem, multipliers)
        assert least[placement.item_block].max() <= state.step_s() * (1 + 1e-12)
        compared += 1
    assert compared >= 10
