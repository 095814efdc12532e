"""The fluid bound: options priced at any multipliers, and what they use of each region."""

from dataclasses import replace

import numpy as np
import pytest

from planner.certificates.multipliers import Multipliers
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from tests.oracles.instances import tiny_instance


def test_prices_of_nothing_cost_nothing() -> None:
    """Without any price the bound is what the base and the constants alone prove, never more than the best bound."""
    problem = tiny_instance(0).problem
    fluid = Fluid(problem)
    nothing = Multipliers(np.zeros_like(fluid.instances), np.zeros_like(fluid.capacity))
    value, _ = fluid.bound(nothing)
    assert value == pytest.approx(problem.stage_constants.sum())
    assert value <= solve_relaxation(fluid).bound_s


def test_a_table_without_options_costs_infinitely_much() -> None:
    """Wherever it stands among the others."""
    problem = tiny_instance(6).problem
    fluid = Fluid(problem)
    multipliers = Multipliers(np.zeros_like(fluid.instances), np.zeros_like(fluid.capacity))
    for missing in range(problem.tables):
        shifted = problem.option_table + (problem.option_table >= missing)
        rows = np.insert(problem.table_rows, missing, 1)
        sets = np.zeros_like(rows)
        cheapest, choices = Fluid(replace(problem, option_table=shifted, table_rows=rows, table_rank_set=sets)).price(
            multipliers
        )
        assert np.isinf(cheapest[missing])
        others = np.arange(len(rows)) != missing
        before, picks_before = fluid.price(multipliers)
        assert cheapest[others] == pytest.approx(before)
        assert (choices[others] == picks_before).all()


def random_prices(fluid: Fluid, random: np.random.Generator) -> Multipliers:
    """Any prices at all: what they are worth does not matter to a sum."""
    return Multipliers(random.random(fluid.instances.shape), random.random(fluid.capacity.shape) * 1e-9)


def test_values_and_usage_of_a_pick_agree() -> None:
    """A pick is worth what its blocks use, priced: for fixed options, and for free ones in fractions."""
    for seed in range(40):
        problem = tiny_instance(seed).problem
        fluid = Fluid(problem)
        multipliers = random_prices(fluid, np.random.default_rng(seed))
        values = fluid.choice_values(multipliers)
        named = np.flatnonzero(np.isfinite(values))
        base = (fluid.usage(multipliers, named[:0])[0] * multipliers.weight).sum()
        for choice in named.tolist():
            seconds, size = fluid.usage(multipliers, np.array([choice]))
            worth = (seconds * multipliers.weight).sum() - base + (size * multipliers.byte).sum()
            assert worth == pytest.approx(values[choice], rel=1e-9), (seed, choice)


def test_blocks_that_are_not_usable_are_not_picked() -> None:
    """Free options are picked by another width; fixed ones fall away whole."""
    for seed in range(40):
        problem = tiny_instance(seed).problem
        fluid, random = Fluid(problem), np.random.default_rng(seed)
        multipliers = random_prices(fluid, random)
        usable = random.random(len(problem.block_option)) < 0.6
        cheapest, choices = fluid.price(multipliers, usable)
        everything = fluid.choice_values(multipliers)
        for table in range(problem.tables):
            own = range(*problem.table_block_start[table : table + 2])
            fixed = [b for b in own if not problem.block_is_splittable[b]]
            broken = {int(problem.block_option[b]) for b in fixed if not usable[b]}
            left = [b for b in own if usable[b] and int(problem.block_option[b]) not in broken]
            assert cheapest[table] == min((everything[b] for b in left), default=np.inf)
            if np.isfinite(cheapest[table]):
                assert choices[table] in left
