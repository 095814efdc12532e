"""Which instances the largest blocks of tables load most, of those that may outlast their stages with all that is
beside the block."""

import numpy as np

from planner.problem.numbers import Floats, Ints
from planner.solvers.bound.cutting_planes import FluidSolution
from planner.solvers.bound.fluid import Fluid

WEIGHTY = 0.03
"""Weight of a stage that is on a table's largest block, above which all stages that this loads are looked at."""
EXCESS = 4e-3
"""Share of the step by which others must outlast their stage at the optimum."""
AT_ONCE = 3
"""How many of these of each stage."""


def fullest_instances(fluid: Fluid, relaxed: FluidSolution) -> list[tuple[int, int]]:
    """Return (table, column) of what tables' largest blocks load most in a stage, without those that the optimum has:
    in each stage of the tables on whose blocks there is much weight, and where an instance outlasts its stage most.
    Ranks of one kind."""
    largest_s = np.zeros((fluid.problem.tables, len(fluid.problem.stage_of_column)))
    beside_s = fluid.problem.extremes.base_of_instance[0].copy()
    for share, choices in zip(relaxed.shares.tolist(), relaxed.choices, strict=True):
        largest_s += share * fluid.largest_loads(choices)
        beside_s += share * fluid.seconds_of_all(choices, np.arange(len(beside_s)))
    known = set(relaxed.beside)
    weighty = _of_weighty(fluid, relaxed, largest_s)
    return [
        each for each in dict.fromkeys(weighty + _too_full(fluid, relaxed, largest_s + beside_s)) if each not in known
    ]


def _of_weighty(fluid: Fluid, relaxed: FluidSolution, largest_s: Floats) -> list[tuple[int, int]]:
    """(table, column) of each stage of the tables whose blocks have much weight: the column [T, C] that is largest."""
    of_table, beside = relaxed.multipliers.of_table, relaxed.multipliers.beside
    tables = {pair[0] for of in (of_table, beside) for pair, share in of.items() if share >= WEIGHTY}
    found = []
    for columns in _columns_of_stages(fluid):
        largest = columns[largest_s[:, columns].argmax(axis=1)]
        found += [(table, int(largest[table])) for table in sorted(tables) if largest_s[table, largest[table]] > 0]
    return found


def _too_full(fluid: Fluid, relaxed: FluidSolution, load_s: Floats) -> list[tuple[int, int]]:
    """(table, column) of the instances, loaded by so much [T, C], that outlast the optimum's stages most."""
    stage_s = relaxed.stage_seconds - fluid.problem.stage_constants
    found = []
    for columns in _columns_of_stages(fluid):
        excess = load_s[:, columns] - stage_s[fluid.problem.stage_of_column[columns]]
        worst = np.argsort(-excess.max(axis=1), kind="stable")[:AT_ONCE]
        worst = worst[excess[worst].max(axis=1) > EXCESS * relaxed.bound_s]
        found += [(int(table), int(columns[excess[table].argmax()])) for table in worst]
    return found


def _columns_of_stages(fluid: Fluid) -> list[Ints]:
    """The columns of each stage that has any."""
    stages = fluid.problem.stage_of_column
    return [np.flatnonzero(stages == stage) for stage in np.unique(stages).tolist()]
