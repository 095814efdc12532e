"""RecShard's form of sharding: one program over all tables, rows split hot and cold, one accelerator per table.

Written anew from Sethi et al., "RecShard" (ASPLOS 2022, arXiv:2201.10095): a table's hottest rows are in HBM and the
others in host memory, read in place (UVM); how many is a choice among pieces of its access curve; the slowest
accelerator's lookups are made as fast as can be. As in the paper a lookup costs the bytes of its row over the bandwidth
of the memory that it is in. Pieces may be taken in part here, which is the program's convex form and no worse.
"""

import datetime
from dataclasses import dataclass

import numpy as np

from cost_models.model import CostModel
from cost_models.shards import MEMORY_DDR, MEMORY_HBM, Floats, Ints
from cost_models.step import StepModel

HIT_STEPS = np.array([0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0])
"""Shares of the reads at which a table's curve is cut into pieces."""


@dataclass(frozen=True)
class Split:
    """A table's rows on one accelerator: the hottest in HBM, the others in its host's memory."""

    rank: Ints
    """[T]"""
    hot: Floats
    """[T] share of the rows in HBM."""
    slowest_s: float
    """The program's objective."""
    bound_s: float
    seconds: float
    """That the solver took."""


def pieces(model: CostModel) -> tuple[Floats, Floats]:
    """[T, I + 1] shares of rows and of reads at which each table's curve is cut."""
    tables = len(model.tables.rows)
    grid = np.concatenate([[0.0], np.geomspace(1e-7, 1.0, 2000)])
    every = np.repeat(np.arange(tables), len(grid))
    hits = model.tables.access.hit_rate(every, np.tile(grid, tables)).reshape(tables, -1)
    rows = np.stack([np.interp(HIT_STEPS, curve, grid) for curve in hits])
    rows[:, -1] = 1.0
    reads = model.tables.access.hit_rate(np.arange(tables)[:, None], rows)
    reads[:, 0] = 0.0
    return rows, reads


def solve(model: StepModel, time_limit_s: float) -> Split | None:
    """The best split that the solver (HiGHS) finds in time; None without any. One kind of rank."""
    from ortools.math_opt.python import mathopt

    tables, kind = model.tables, model.kinds[0]
    every, world = np.arange(len(tables.rows)), len(model.kind_of_rank)
    row = tables.row_bytes(every, tables.dim).astype(float)
    size = tables.rows * (row + tables.row_state_bytes(every, tables.dim))
    lookups = model.batching.global_samples * tables.lookups_per_sample * row
    fast, slow = lookups / kind.lookup_bytes_per_s, lookups / kind.pcie_bytes_per_s
    rows, reads = pieces(model)
    width, more = np.diff(rows, axis=1), np.diff(reads, axis=1)
    program = mathopt.Model()
    slowest = program.add_variable(lb=0.0)
    program.minimize(slowest)
    on = [[program.add_binary_variable() for _ in range(world)] for _ in every]
    hot = [[[program.add_variable(lb=0.0) for _ in range(width.shape[1])] for _ in range(world)] for _ in every]
    for t in every.tolist():
        program.add_linear_constraint(mathopt.fast_sum(on[t]) == 1.0)
        for g in range(world):
            for piece in hot[t][g]:
                program.add_linear_constraint(piece <= on[t][g])
    unit = float(slow.sum()) / world
    for g in range(world):
        saved = [
            float((slow[t] - fast[t]) * more[t, i] / unit) * hot[t][g][i]
            for t in every.tolist()
            for i in range(width.shape[1])
        ]
        spent = [float(slow[t] / unit) * on[t][g] for t in every.tolist()]
        program.add_linear_constraint(mathopt.fast_sum(spent) - mathopt.fast_sum(saved) <= slowest)
        held = [
            float(size[t] * width[t, i] / 1e9) * hot[t][g][i] for t in every.tolist() for i in range(width.shape[1])
        ]
        program.add_linear_constraint(mathopt.fast_sum(held) <= _room(model, g) / 1e9)
    for node in np.unique(model.node_of_rank).tolist():
        ranks = np.flatnonzero(model.node_of_rank == node).tolist()
        below = [float(size[t] / 1e9) * on[t][g] for t in every.tolist() for g in ranks]
        above = [
            float(size[t] * width[t, i] / 1e9) * hot[t][g][i]
            for t in every.tolist()
            for g in ranks
            for i in range(width.shape[1])
        ]
        limit = float(model.memory_capacity[MEMORY_DDR][node]) / 1e9
        program.add_linear_constraint(mathopt.fast_sum(below) - mathopt.fast_sum(above) <= limit)
    parameters = mathopt.SolveParameters(time_limit=datetime.timedelta(seconds=time_limit_s))
    result = mathopt.solve(program, mathopt.SolverType.HIGHS, params=parameters)
    if not result.has_primal_feasible_solution():
        return None
    values = result.variable_values()
    rank = np.array([int(np.argmax([values[one] for one in row_of])) for row_of in on])
    taken = np.array([[values[piece] for piece in hot[t][rank[t]]] for t in every.tolist()])
    return Split(
        rank=rank,
        hot=np.clip((taken * width).sum(axis=1), 0.0, 1.0),
        slowest_s=result.objective_value() * unit,
        bound_s=result.dual_bound() * unit,
        seconds=result.solve_time().total_seconds(),
    )


def _room(model: StepModel, rank: int) -> float:
    """Bytes of HBM for rows: less the dense part, and an even part of all ids and outputs in flight."""
    from benchmarks.tier_greedy import in_flight_bytes

    free = model.memory_capacity[MEMORY_HBM][rank] - model.base_bytes[MEMORY_HBM]
    return float(free - in_flight_bytes(model).sum() / len(model.kind_of_rank) * 1.5)
