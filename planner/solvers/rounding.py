"""From the fluid optimum's fractions to one option per table."""

import numpy as np

from planner.problem import Floats, Ints
from planner.solvers.fluid import Fluid, FluidSolution


def round_picks(fluid: Fluid, solution: FluidSolution) -> Ints:
    """One pick [T] per table, so that the totals stay near the fluid optimum's.

    Almost every table has the same option in all proposals and keeps it. The others are decided one after the other,
    the heaviest first; each takes, of the options that the optimum mixes for it, the one that keeps the running
    totals (seconds by column, bytes by tier) nearest to those of the fractions.
    """
    agreed: Ints = solution.picks[0].copy()
    undecided = np.flatnonzero((solution.picks != agreed).any(axis=0))
    if not len(undecided):
        return agreed
    scale = _scale(fluid, solution)
    choices = [_mixture(solution, int(table)) for table in undecided]
    vectors = [fluid.pick_totals(options, solution.prices) * scale for options, _ in choices]
    weight = [float(np.abs(vector).max()) for vector in vectors]
    drift = np.zeros(len(scale))
    for i in sorted(range(len(undecided)), key=lambda i: (-weight[i], i)):
        options, shares = choices[i]
        wanted = drift - shares @ vectors[i]
        off = ((wanted + vectors[i]) ** 2).sum(axis=1)
        taken = int(off.argmin())
        drift = wanted + vectors[i][taken]
        agreed[undecided[i]] = options[taken]
    return agreed


def _mixture(solution: FluidSolution, table: int) -> tuple[Ints, Floats]:
    """The options that the optimum mixes for a table, and their shares."""
    options, which = np.unique(solution.picks[:, table], return_inverse=True)
    shares: Floats = np.bincount(which, weights=solution.shares).astype(float)
    return options, shares


def _scale(fluid: Fluid, solution: FluidSolution) -> Floats:
    """[K x (C + M)] what makes totals comparable: seconds by the stage's time, bytes by the tier's capacity."""
    problem = fluid.problem
    stage = np.maximum(solution.stage_seconds - problem.stage_constants, 1e-12)[problem.stage_of_column]
    seconds = 1.0 / (stage * np.maximum(fluid.instances, 1.0))
    size = 1.0 / np.maximum(fluid.capacity, 1.0)
    return np.concatenate([seconds, size], axis=1).ravel()
