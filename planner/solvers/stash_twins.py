"""The same blocks of a table without a stash: what lets a table that fits stay in HBM between the passes."""

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.goals import HbmMemories
from planner.problem.numbers import Ints


def stash_bytes(problem: Problem, memories: HbmMemories) -> np.ndarray:
    """[B] what whole blocks stash."""
    if memories.stash is None:
        return np.zeros(len(problem.block_option))
    return np.asarray(problem.bytes_by_rows[0, :, memories.stash])


def unstashed(problem: Problem, memories: HbmMemories, blocks: Ints) -> Ints | None:
    """[n] the blocks of an option of their table that stashes nothing, cut and as large when all is back as these
    [n]; None where there is no such option."""
    table, back = int(problem.table_of_block[blocks[0]]), problem.bytes_by_rows[0, :, memories.moments[-1]]
    own = np.arange(*problem.table_block_start[table : table + 2])
    own = own[(stash_bytes(problem, memories)[own] == 0) & problem.allowed[:, own].any(axis=0)]
    cut = np.stack([problem.block_units, problem.block_count, problem.block_extent, problem.block_rows])
    for option in np.unique(problem.block_option[own]).tolist():
        of = own[problem.block_option[own] == option]
        same = (cut[:, of, None] == cut[:, None, blocks]).all(axis=0) & np.isclose(
            back[of, None], back[None, blocks], rtol=1e-12
        )
        if same.any(axis=0).all():
            return np.asarray(of[same.argmax(axis=0)])
    return None
