"""What seconds and bytes are worth beside a plan whose stages are not all level.

In the fluid optimum every stage is level. A stage that a few large blocks decide never is in a plan: that has room for
seconds below its longest, which cost nothing more. The multipliers of the relaxation whose stages last as long as those
do tell what the others and the memories are worth then, and so which options tables should take instead.
"""

import numpy as np

from planner.certificates.multipliers import Multipliers
from planner.problem.load_state import load_state
from planner.problem.numbers import Bools, Floats
from planner.problem.placement import Placement
from planner.problem.rounding import ROUNDING
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid

LEVEL = 0.98
"""Share of a stage's longest load that its mean is at least where the stage is level."""


def present_prices(fluid: Fluid, placement: Placement) -> tuple[Multipliers, Bools]:
    """Return the multipliers beside a plan, and the blocks [B] that no stage which is not level would be longer for, of
    a problem of one kind of rank."""
    problem, state = fluid.problem, load_state(fluid.problem, placement)
    stage, longest = problem.stage_of_column, state.stage_seconds() - problem.stage_constants
    mean = np.zeros(len(longest))
    np.maximum.at(mean, stage, state.load[:, problem.reach].mean(axis=1))
    uneven = mean < LEVEL * longest
    usable = np.ones(len(problem.block_option), dtype=bool)
    for each in np.flatnonzero(uneven).tolist():
        usable &= problem.extremes.peaks_in_stage(each) <= longest[each] * (1 + ROUNDING)
    usable[placement.item_block] = True
    floors: Floats = np.where(uneven, np.maximum(longest, fluid.floors), fluid.floors)
    return solve_relaxation(fluid, usable=usable, floors=floors).multipliers, usable
