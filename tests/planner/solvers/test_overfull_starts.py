"""Over-full starts: what they end in fits, is legal, and is told to the incumbent."""

from dataclasses import replace

import numpy as np
import pytest

from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.rounding import ROUNDING_BYTES
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.infeasible import shortage
from planner.solvers.improve.local_search import LocalSearch
from planner.solvers.incumbent import Incumbent, Start
from planner.solvers.limits import SearchLimits
from planner.solvers.lower_bound import bound_of, relaxed_optimum
from planner.solvers.overfull_starts import OverfullStarts
from planner.solvers.start_portfolio import StartPortfolio
from tests.oracles.incumbents import whole_tables
from tests.oracles.placements import faults


def scarce(seed: int, share: float) -> Problem:
    """Return 60 tables that fill this share of the HBM of four ranks."""
    problem = whole_tables(60, seed=seed)
    size = (problem.bytes_fixed + problem.bytes_by_rows)[0, :, 0].sum()
    capacity = np.full(4, size / 4 / share + problem.base_bytes[0])
    return replace(problem, pool_capacity=(capacity, *problem.pool_capacity[1:]))


def starts_of(problem: Problem) -> tuple[list[Start], Incumbent]:
    """Return the starts of one problem, and who heard of them."""
    fluid = Fluid(problem)
    relaxed = relaxed_optimum(fluid)
    incumbent = Incumbent(bound_of(relaxed), SearchLimits(gap=0.0), lambda *_: None)
    local = LocalSearch(fluid, relaxed.multipliers, incumbent)
    tight = np.arange(len(problem.pool_capacity)) == 0
    allowed = [usable for _, usable in StartPortfolio(fluid, relaxed, incumbent).allowed[:2]]
    return OverfullStarts(fluid, relaxed, tight, incumbent, local, 0).starts(allowed), incumbent


@pytest.mark.parametrize("seed", range(3))
def test_what_comes_out_fits(seed: int) -> None:
    """Tables that fill 99 % of the memory: a legal placement that fits is found, with its step."""
    problem = scarce(seed, 0.99)
    starts, incumbent = starts_of(problem)
    assert starts
    for placement, step_s in starts:
        state = load_state(problem, placement)
        assert faults(problem, placement) == []
        assert state.overflow_bytes() <= ROUNDING_BYTES
        assert abs(state.step_s() - step_s) <= 1e-9 * step_s
    assert incumbent.best_s <= min(step_s for _, step_s in starts)


def test_what_cannot_fit_is_no_start() -> None:
    """Tables of which each needs more than half of a rank, one more than there are ranks: no start, and no error."""
    problem = whole_tables(5)
    size = (problem.bytes_fixed + problem.bytes_by_rows)[0, :, 0]
    capacity = (np.full(4, size.min() * 1.3 + problem.base_bytes[0]), *problem.pool_capacity[1:])
    rows = np.zeros_like(problem.bytes_by_rows)
    rows[..., 0] = size.min()
    fixed = np.zeros_like(problem.bytes_fixed)
    tight = replace(problem, pool_capacity=capacity, bytes_by_rows=rows, bytes_fixed=fixed)
    assert shortage(Fluid(tight)) is None
    assert starts_of(tight)[0] == []
