"""Whole tables on single ranks, and what a placement of them is as one that others may follow."""

import numpy as np

from planner.formulation.allowed_choices import planning_model
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.policy import Policy
from planner.problem.arrays import Problem
from planner.problem.goals import HbmMemories
from planner.problem.placement import Placement
from planner.problem.relocation import IncumbentPlacement, Rectangles
from tests.oracles.instances import node_group, topology, workload

ROW_BYTES = 4
"""Bytes of a column of a row."""


def whole_tables(tables: int, *, nodes: int = 1, ranks: int = 4, hbm_bytes: float = 10e9, seed: int = 0) -> Problem:
    """Return a problem of tables of unlike sizes, each a single block in HBM; block i holds table i."""
    random = np.random.default_rng(seed)
    profiles = [
        {"rows": int(rows), "dim": 64, "pooling_factor": int(pooling)}
        for rows, pooling in zip(10 ** random.uniform(3, 5, tables), random.integers(1, 40, tables), strict=True)
    ]
    policy = Policy(tiers=("hbm",), shardings=("table_wise",))
    cluster = topology(node_group("n", nodes=nodes, ranks=ranks, hbm_bytes=hbm_bytes))
    model = planning_model("physical", cluster, workload(profiles), policy)
    return build_problem(model, enumerate_options(model, policy))


def table_bytes(problem: Problem) -> np.ndarray:
    """Return the bytes [T] of each whole table."""
    return (problem.table_rows * 64 * ROW_BYTES).astype(float)


def incumbent(problem: Problem, rank_of_table: np.ndarray, lost: np.ndarray | None = None) -> IncumbentPlacement:
    """Return whole tables on these ranks [T] as an earlier plan; of those that are `lost` [T] the rank is gone."""
    gone = np.zeros(problem.tables, dtype=bool) if lost is None else lost
    table = np.flatnonzero(~gone)
    zeros, dims = np.zeros(len(table), dtype=np.int64), np.full(problem.tables, 64)
    held = Rectangles(
        table, rank_of_table[table], zeros, problem.table_rows[table], zeros, dims[table], zeros.copy(), zeros.copy()
    )
    return IncumbentPlacement(
        rectangles=held.sorted_by_place(problem.world),
        rows_before=problem.table_rows,
        table_columns=dims,
        replicated=np.zeros(problem.tables, dtype=bool),
        start=Placement(table, rank_of_table[table]),
        loose=np.flatnonzero(gone),
        block_columns=dims,
        block_memory=np.zeros(problem.tables, dtype=np.int64),
        block_state_memory=np.zeros(problem.tables, dtype=np.int64),
        memories=np.arange(len(problem.pool_capacity)),
        block_bytes=table_bytes(problem),
        hbm=HbmMemories(),
    )
