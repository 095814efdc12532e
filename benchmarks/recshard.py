"""RecShard's form of sharding: one program over all tables, rows split hot and cold, one accelerator per table.

Written anew from Sethi et al., "RecShard" (ASPLOS 2022, arXiv:2201.10095): a table's hottest rows are in HBM and the
others in host memory, read in place (UVM); how many is a choice among pieces of its access curve; the slowest
accelerator's lookups are made as fast as can be. As in the paper a lookup costs the bytes of its row over the bandwidth
of the memory that it is in.
"""

from dataclasses import dataclass

import numpy as np

from cost_models.model import CostModel
from cost_models.shards import MEMORY_DDR, MEMORY_HBM, Floats, Ints
from cost_models.step import StepModel

HIT_STEPS = np.array([0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0])
"""Shares of the reads at which a table's curve is cut into pieces."""
UNITS = 1_000_000
"""Whole numbers that a memory, and an even share of all reads from the host, are counted in."""


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
    """The best split that the solver (CP-SAT, one worker) finds in time; None without any. One kind of rank.

    Each table takes one pair of a cut and an accelerator. Costs and bytes are whole numbers: shares of UNITS.
    """
    from ortools.sat.python import cp_model

    tables, kind = model.tables, model.kinds[0]
    every, world = np.arange(len(tables.rows)), len(model.kind_of_rank)
    row = tables.row_bytes(every, tables.dim).astype(float)
    size = tables.rows * (row + tables.row_state_bytes(every, tables.dim))
    lookups = model.batching.global_samples * tables.lookups_per_sample * row
    rows, reads = pieces(model)
    seconds = (lookups / kind.lookup_bytes_per_s)[:, None] * reads + (lookups / kind.pcie_bytes_per_s)[:, None] * (
        1 - reads
    )
    room = min(_room(model, rank) for rank in range(world))
    hot = np.ceil(size[:, None] * rows / room * UNITS).astype(np.int64)
    cold = np.ceil(size[:, None] * (1 - rows) / float(model.memory_capacity[MEMORY_DDR][0]) * UNITS).astype(np.int64)
    unit = float(seconds.max(axis=1).sum()) / world / UNITS
    spent = np.ceil(seconds / unit).astype(np.int64)
    program = cp_model.CpModel()
    cuts = rows.shape[1]
    takes = np.array([[[program.new_bool_var("") for _ in range(world)] for _ in range(cuts)] for _ in every])
    slowest = program.new_int_var(0, int(spent.max(axis=1).sum()), "")
    for t in every:
        program.add_exactly_one(takes[t].ravel().tolist())
    for g in range(world):
        mine = takes[:, :, g].ravel().tolist()
        program.add(cp_model.LinearExpr.weighted_sum(mine, spent.ravel().tolist()) <= slowest)
        program.add(cp_model.LinearExpr.weighted_sum(mine, hot.ravel().tolist()) <= UNITS)
    for node in np.unique(model.node_of_rank):
        here = takes[:, :, model.node_of_rank == node]
        demand = np.repeat(cold.ravel(), here.shape[2])
        program.add(cp_model.LinearExpr.weighted_sum(here.ravel().tolist(), demand.tolist()) <= UNITS)
    program.minimize(slowest)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit_s
    solver.parameters.num_workers = 1
    status = solver.solve(program)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    taken = np.array([[[solver.value(one) for one in of_cut] for of_cut in of_table] for of_table in takes])
    cut, rank = taken.any(axis=2).argmax(axis=1), taken.any(axis=1).argmax(axis=1)
    return Split(
        rank=rank,
        hot=rows[every, cut],
        slowest_s=solver.objective_value * unit,
        bound_s=solver.best_objective_bound * unit,
        seconds=solver.user_time,
    )


def _room(model: StepModel, rank: int) -> float:
    """Bytes of HBM for rows: less the dense part, and an even part of all ids and outputs in flight."""
    from benchmarks.tier_greedy import in_flight_bytes

    free = model.memory_capacity[MEMORY_HBM][rank] - model.base_bytes[MEMORY_HBM]
    return float(free - in_flight_bytes(model).sum() / len(model.kind_of_rank) * 1.5)
