"""What a better placement may hold, against an enumeration of all placements of tiny problems."""

import numpy as np
import pytest

from planner.problem.integrality import integrality_floors
from planner.problem.load_state import load_state
from planner.solvers.bound.fixing import Narrowed, may_be_faster
from planner.solvers.bound.fluid import Fluid
from planner.solvers.integer.solving import SolverLimits, solved
from planner.solvers.limits import Clock, SearchLimits
from planner.solvers.lower_bound import relaxed_optimum
from tests.oracles.brute_force import optimum
from tests.oracles.instances import Instance, confined_instance, tiny_instance


def instances(last: int) -> list[Instance]:
    some = [make(seed) for make in (tiny_instance, confined_instance) for seed in range(last)]
    return [each for each in some if len(each.options.table)]


def expect_optimum_kept(instance: Instance) -> tuple[int, int]:
    """The programme of what is left has the optimum; with less than it as the limit, none. How many blocks are left
    just above the optimum, and how many there are."""
    problem = instance.problem
    best = optimum(problem)
    if best is None:
        return 0, 0
    fluid = Fluid(problem, integrality_floors(problem))
    multipliers = relaxed_optimum(fluid).multipliers
    longest_s = best.step_s * (1 + 1e-6)
    narrowed = Narrowed.of(fluid, multipliers, longest_s, None)
    found = solved(narrowed.problem, longest_s, longest_s, None, SolverLimits(1e-9, 10_000), Clock(SearchLimits()))
    assert found.placement is not None, instance.description
    assert found.step_s == pytest.approx(best.step_s, rel=1e-8), instance.description
    assert load_state(problem, narrowed.outside(found.placement)).step_s() == pytest.approx(found.step_s, rel=1e-12)
    known = narrowed.outside(found.placement)
    again = Narrowed.of(fluid, multipliers, best.step_s * 0.5, known)
    assert np.array_equal(again.outside(again.inside(known)).item_block, known.item_block)
    return len(narrowed.blocks), len(problem.block_option)


def test_the_optimum_is_left() -> None:
    """Of clusters of one and two kinds, with tiers, cut columns and groups of tables; and something is left out."""
    kept, every = np.sum([expect_optimum_kept(instance) for instance in instances(8)], axis=0)
    assert 0 < kept < every


@pytest.mark.slow
def test_the_optimum_is_left_of_many() -> None:
    """120 problems."""
    for instance in instances(60):
        expect_optimum_kept(instance)


def test_nothing_is_faster_than_the_bound() -> None:
    """Below the relaxation's optimum no table has all of what it needs."""
    problem = tiny_instance(0).problem
    fluid = Fluid(problem, integrality_floors(problem))
    relaxed = relaxed_optimum(fluid)
    kept = may_be_faster(fluid, relaxed.multipliers, relaxed.bound_s * 0.9)
    assert len(np.unique(problem.table_of_block[kept])) < problem.tables
