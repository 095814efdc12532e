"""How the ranks of one node share its blocks: an integer programme over the blocks of single ranks and the ranks."""

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.load_state import LoadState
from planner.problem.numbers import Bools, Floats, Ints
from planner.solvers.integer.node_choices import instances_of_ranks, ranks_sharing
from planner.solvers.integer.scip import FEASIBILITY, solved
from planner.solvers.limits import Clock

NODES = 300
"""Branch nodes of the programme at most."""


def dealt(
    problem: Problem,
    empty: LoadState,
    held: Ints,
    even: Bools,
    asks: Floats,
    each: Floats,
    stage_s: Floats,
    clock: Clock,
) -> Ints | None:
    """Return how many of each block [H, ranks] the ranks of a node hold, so that stages end early; None where nothing
    is found in time that fits.

    The node has `held` [H] of blocks of one rank, those that are `even` [H] in equal numbers on all its ranks; one
    `asks` [H, C + M] seconds and bytes of its rank. Beside the base of an `empty` state every rank has `each` [C + M].
    Stages last `stage_s` [S] or longer, constants aside.
    """
    from ortools.math_opt.python import mathopt

    ranks, columns = int(problem.nodes.sizes[0]), len(problem.stage_of_column)
    own, shared = np.flatnonzero((held > 0) & ~even), np.flatnonzero((held > 0) & even)
    each = each + asks[shared].T @ (held[shared] // ranks)
    model, unit_s = mathopt.Model(), float(stage_s.sum()) or 1.0
    here = [[model.add_integer_variable(lb=0.0, ub=float(held[h])) for _ in range(ranks)] for h in own.tolist()]
    for h, some in zip(own.tolist(), here, strict=True):
        model.add_linear_constraint(mathopt.fast_sum(some) == float(held[h]))
    stages = [model.add_variable(lb=seconds / unit_s) for seconds in stage_s.tolist()]
    base = np.concatenate([empty.load.max(axis=1), np.zeros(len(empty.free))])
    free = empty.free.min(axis=1)
    rows = zip(instances_of_ranks(problem)[:, :ranks], ranks_sharing(problem).tolist(), strict=True)
    for row, (instance, sharing) in enumerate(rows):
        unit = unit_s if row < columns else max(float(free[row - columns]), 1.0)
        loading = [(float(asks[h, row]), some) for h, some in zip(own.tolist(), here, strict=True) if asks[h, row]]
        if row >= columns and not loading and not each[row]:
            continue
        for of in np.unique(instance).tolist():
            members = np.flatnonzero(instance == of).tolist()
            scale = sharing / len(members)
            terms = [seconds * scale / unit * some[rank] for seconds, some in loading for rank in members]
            load = mathopt.fast_sum(terms) + float((each[row] * sharing + base[row]) / unit)
            most = stages[int(problem.stage_of_column[row])] if row < columns else 1.0 - FEASIBILITY
            model.add_linear_constraint(load <= most)
    model.minimize(mathopt.fast_sum(stages))
    values = solved(model, NODES, clock)
    if values is None:
        return None
    places = np.zeros((len(held), ranks), dtype=np.int64)
    places[shared] = (held[shared] // ranks)[:, None]
    places[own] = np.array([[round(values[one]) for one in some] for some in here], dtype=np.int64).reshape(-1, ranks)
    return places
