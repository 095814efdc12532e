"""A placement that fits where the start portfolio has none: by first fit, or by options in the order of value."""

import itertools

import numpy as np

from planner.problem.load_state import load_state
from planner.solvers.bound.cutting_planes import FluidSolution
from planner.solvers.bound.fluid import Fluid
from planner.solvers.construct.choices import cheapest_first
from planner.solvers.construct.greedy import place
from planner.solvers.construct.packing import pack
from planner.solvers.incumbent import Start
from planner.solvers.limits import Clock

MOST_TABLES, MOST_CHOICES = 40, 2000
"""How many choices of options are tried, and up to which number of tables."""
CONFINED_TRIES = 20
"""Tries for each choice where ranks are forbidden or tables grouped; all but one of them place at random."""


def fallback_placement(fluid: Fluid, relaxed: FluidSolution, clock: Clock) -> Start | None:
    """Return what fits by bytes alone, or the first choice of options that does; None where neither is found."""
    packed = pack(fluid.problem, clock.is_over)
    if packed is not None:
        return packed, load_state(fluid.problem, packed).step_s()
    return _first_that_fits(fluid, relaxed, clock)


def _first_that_fits(fluid: Fluid, relaxed: FluidSolution, clock: Clock) -> Start | None:
    """Return the first choice of options that can be placed, the cheapest by the bound's duals first; small problems
    only."""
    problem = fluid.problem
    if problem.tables > MOST_TABLES:
        return None
    values = fluid.choice_values(relaxed.multipliers)
    tries = CONFINED_TRIES if problem.is_confined else 1
    random = np.random.default_rng(0)
    for choices in itertools.islice(cheapest_first(values, problem.table_block_start), MOST_CHOICES // tries):
        for attempt in range(tries):
            placed = place(problem, choices, relaxed.stage_seconds, random=random if attempt else None)
            if placed is not None:
                return placed[0], placed[1].step_s()
        if clock.is_over():
            break
    return None
