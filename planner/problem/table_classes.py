"""Tables that nothing tells apart: plans in which they change places are equally good."""

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.numbers import Ints

TABLES_ALIKE = 3.0
"""Tables for each class on average, at least, for most tables to be alike."""


def are_mostly_alike(problem: Problem) -> bool:
    """Return whether most tables have others that nothing tells apart from them."""
    many = problem.tables >= TABLES_ALIKE * len(np.unique(problem.table_rows))
    return many and problem.tables >= TABLES_ALIKE * (int(table_classes(problem).max()) + 1)


def table_classes(problem: Problem) -> Ints:
    """[T] equal for tables of the same rows, options and blocks, which may be on the same ranks; numbered in the order
    of their first tables. A table that must stay with others or away from them is a class of its own."""
    known: dict[bytes, int] = {}
    return np.array([known.setdefault(_marks(problem, table), len(known)) for table in range(problem.tables)])


def _marks(problem: Problem, table: int) -> bytes:
    """All that there is to tell of a table."""
    options = slice(*problem.option_start[table : table + 2].tolist())
    blocks = slice(*problem.table_block_start[table : table + 2].tolist())
    parts = (
        np.array([table if problem.grouped[table] else -1, problem.table_rows[table], problem.table_rank_set[table]]),
        *(of[options] for of in (problem.option_units, problem.option_colocated, problem.option_apart)),
        np.diff(problem.block_start[options.start : options.stop + 1]),
        *(of[blocks] for of in (problem.block_count, problem.block_units, problem.block_extent)),
        *(of[blocks] for of in (problem.block_replicated, problem.block_copies, problem.block_rows)),
        *(of[:, blocks] for of in (problem.allowed, problem.fixed, problem.by_rows, problem.everywhere)),
        *(of[:, blocks] for of in (problem.bytes_fixed, problem.bytes_by_rows)),
    )
    return b"".join(np.ascontiguousarray(part).tobytes() for part in parts)
