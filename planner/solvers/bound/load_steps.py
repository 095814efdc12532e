"""Integrality of loads: what a rank sends is a whole number of column units, mostly of several at once.

Where almost all blocks of single ranks take whole multiples of one amount, so do the loads of most ranks, and the next
level below the mean can be reached by all. A block that takes something between, over a node for example, keeps its
ranks off the steps: none of their blocks can make up for it.
"""

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Floats
from planner.solvers.bound.cutting_planes import FluidSolution

NEAR = 1e-3
"""Share of a step by which a load may be off it."""
HEIGHTS = (4, 2, 1)
"""Column units that a step may be high."""
MOST_STEPS = 256
"""Steps that a block may take at most, for them to matter."""
ALIKE = 0.5
"""Share of the ranks whose loads differ by whole steps."""


def common_amount(seconds: Floats) -> float:
    """The largest amount of which all are whole multiples, if it is one of them or between two; else 0."""
    levels = np.unique(np.round(seconds, 15))
    levels = levels[levels > 0]
    if not len(levels):
        return 0.0
    amount = float(min(levels[0], np.diff(levels).min(initial=np.inf)))
    return amount if levels[-1] <= MOST_STEPS * amount and _are_multiples(levels, amount).all() else 0.0


def amounts(problem: Problem) -> Floats:
    """[C] seconds of which all blocks of splittable options take whole multiples on their rank; 0 where there is
    nothing like that."""
    return np.array([amount_of(problem, column) for column in range(len(problem.stage_of_column))])


def amount_of(problem: Problem, column: int) -> float:
    """The same of one column."""
    load = problem.fixed[..., column] + problem.by_rows[..., column]
    return common_amount(load[:, problem.block_is_splittable])


def level_below(load: Floats, step_s: float, most_s: float) -> float | None:
    """The highest level, no more than `most_s`, of ranks' loads [n] that mostly differ by whole steps; None where less
    of them do."""
    beyond = np.round(np.mod(load, step_s) / step_s / NEAR) % round(1 / NEAR)
    usual, count = np.unique(beyond, return_counts=True)
    if count.max() < ALIKE * len(load):
        return None
    offset_s = float(load[beyond == usual[count.argmax()]][0]) % step_s
    return offset_s + float(np.floor((most_s - offset_s) / step_s + NEAR)) * step_s


def blocks_in_steps(problem: Problem, relaxed: FluidSolution) -> Bools:
    """[B] blocks that take whole steps of what tables take that the optimum holds uncut on single ranks.

    World-wide ones load all ranks alike; so do all blocks where there are no steps.
    """
    choices = relaxed.choices[int(relaxed.shares.argmax())]
    uncut = choices[problem.is_on_rank[choices] & problem.block_is_splittable[choices]]
    uncut = uncut[problem.block_units[uncut] == problem.option_units[problem.block_option[uncut]]]
    in_steps = np.ones(len(problem.block_option), dtype=bool)
    for kind in range(problem.kinds):
        for column in np.flatnonzero(relaxed.multipliers.weight.any(axis=0)).tolist():
            load = problem.fixed[kind, :, column] + problem.by_rows[kind, :, column]
            step_s = _step(load[uncut], problem.world)
            if step_s:
                in_steps &= ~problem.allowed[kind] | _are_multiples(load, step_s)
    return np.asarray(in_steps | problem.is_world_wide)


def _step(load: Floats, world: int) -> float:
    """The seconds of one step, of what each block takes; 0 where most ranks' loads would not be alike."""
    amount = common_amount(load)
    for units in HEIGHTS if amount else ():
        if _are_multiples(load, units * amount).mean() ** (len(load) / world) >= ALIKE:
            return units * amount
    return 0.0


def _are_multiples(seconds: Floats, amount: float) -> Bools:
    parts = seconds / amount
    return np.asarray(np.abs(parts - np.round(parts)) < NEAR)
