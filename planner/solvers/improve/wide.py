"""Group-wide and world-wide blocks as every rank feels them: what does not change while tables come and go."""

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.load_state import spread
from planner.problem.numbers import Floats


class WideBlocks:
    """Group-wide and world-wide blocks of one problem; what was asked for once is known.

    Of one table many are alike: grids of several numbers of column blocks have blocks of the same widths.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        instances = (*problem.resource_of_rank, *problem.pool_of_rank)
        self._shares = any(len(np.unique(instance)) < problem.world for instance in instances)
        self._alike: dict[int, int] = {}
        self._known: dict[tuple[bytes, ...], int] = {}
        self._spreads: dict[int, tuple[Floats, Floats]] = {}
        self._totals: dict[int, tuple[Floats, Floats]] = {}

    @property
    def any_shared(self) -> bool:
        """Whether some ranks share a resource or a pool of memory."""
        return self._shares

    def alike(self, block: int) -> int:
        """Return the first block that was asked for which is where this one may be, at the same cost, `everywhere`
        aside."""
        if block not in self._alike:
            problem = self._problem
            asked = (problem.fixed, problem.by_rows, problem.bytes_fixed, problem.bytes_by_rows, problem.allowed)
            table, extent = int(problem.table_of_block[block]), int(problem.block_extent[block])
            rows = int(problem.block_rows[block])
            kept = bytes([extent, bool(problem.block_replicated[block])]), table.to_bytes(8), rows.to_bytes(8)
            key = (*kept, *(amounts[:, block].tobytes() for amounts in asked))
            self._alike[block] = self._known.setdefault(key, block)
        return self._alike[block]

    def spread(self, block: int) -> tuple[Floats, Floats]:
        """Return the loads [C, W] and bytes [M, W] of a block, were it on every one of its sites."""
        block = self.alike(block)
        if block not in self._spreads:
            problem = self._problem
            share = problem.row_shares.on_every_site(block)
            self._spreads[block] = spread(problem, block, share, problem.kind_of_rank)
        return self._spreads[block]

    def total(self, block: int) -> tuple[Floats, Floats]:
        """Return what `spread` brings to the instance [C, W] and the pool [M, W] that each rank uses."""
        block = self.alike(block)
        if block not in self._totals:
            load, size = self.spread(block)
            if self._shares:
                problem = self._problem
                load = np.stack([np.bincount(of, x)[of] for of, x in zip(problem.resource_of_rank, load, strict=True)])
                size = np.stack([np.bincount(of, x)[of] for of, x in zip(problem.pool_of_rank, size, strict=True)])
            self._totals[block] = load, size
        return self._totals[block]
