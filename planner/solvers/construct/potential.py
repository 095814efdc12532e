"""The potential that greedy placement lets grow least: high powers of the loads, relative to the times aimed at.

The sum over ranks and columns of (load / time of the stage)^8 is a smooth stand-in for the fullest resource, as the
norms of load-balancing algorithms are (Awerbuch, Azar, Grove, Kao, Krishnan and Vitter, FOCS 1995).
"""

import numpy as np
from numpy.typing import NDArray

from planner.problem.load_state import LoadState, spread
from planner.problem.numbers import Bools, Floats, Ints
from planner.solvers.construct.partial_placement import PartialPlacement

SQUARINGS = 3
"""The potential is the sum of (load / stage time)^(2^3): high enough that the fullest resources decide."""
FAINT = 0.02
"""Columns of which a block takes less than this share of what it takes of another are left out."""


class Potential:
    """The growth of the potential of a partial placement by blocks on each rank or node."""

    def __init__(
        self, partial: PartialPlacement, stage_seconds: Floats, scarce: Bools, random: np.random.Generator | None
    ) -> None:
        """Loads are relative to `stage_seconds` [S]; the `scarce` [M] tiers count like columns. With `random`, growth
        is drawn at random wherever there is room."""
        problem = partial.problem
        self._partial, self._problem, self._random = partial, problem, random
        self.tiers: Ints = np.flatnonzero(scarce)
        self._room: Floats = np.maximum(LoadState(problem).free[self.tiers], 1.0)
        aim = np.maximum(stage_seconds - problem.stage_constants, 1e-12)
        self.aim: Floats = aim[problem.stage_of_column][:, None]
        self._may_hide = bool((problem.base_loads < 0).any())

    def sizes(self, blocks: Ints) -> dict[int, float]:
        """Return the largest share of a stage or of a rank's memory that each block takes on any kind of rank."""
        problem = self._problem
        free = np.maximum(self._partial.state.free.max(axis=1), 1.0)
        stored = (problem.bytes_fixed[:, blocks] + problem.bytes_by_rows[:, blocks]) / free
        size = stored.max(axis=(0, 2))
        for kind in range(problem.kinds):
            load = problem.extremes.peak_load(kind, blocks) + np.minimum(problem.extremes.base_of_instance[kind], 0.0)
            size = np.maximum(size, (load / self.aim[:, 0]).max(axis=1))
        return dict(zip(blocks.tolist(), size.tolist(), strict=True))

    def by_block_on_rank(self, block: int) -> Floats:
        """Return the growth [W] by a block of a single rank on each rank; infinite where it may not be."""
        problem = self._problem
        if problem.kinds == 1:
            load = (problem.fixed[0, block] + problem.by_rows[0, block])[:, None]
            size = (problem.bytes_fixed[0, block] + problem.bytes_by_rows[0, block])[:, None]
        else:
            load, size = spread(problem, block, np.ones(problem.world), problem.kind_of_rank)
        growth = self._growth(load, size, self._felt(load))
        return np.where(self._partial.open_ranks.of(block), growth, np.inf)

    def by_blocks_on_one_rank(self, blocks: list[int]) -> Floats:
        """Return the growth [W] by blocks of single ranks that all go to one rank; infinite where they may not be."""
        problem, kind = self._problem, self._problem.kind_of_rank
        load = (problem.fixed[:, blocks] + problem.by_rows[:, blocks]).sum(axis=1)[kind].T
        size = (problem.bytes_fixed[:, blocks] + problem.bytes_by_rows[:, blocks]).sum(axis=1)[kind].T
        open_to_all = np.logical_and.reduce([self._partial.open_ranks.of(block) for block in blocks])
        return np.where(open_to_all, self._growth(load, size, np.flatnonzero(load.any(axis=1))), np.inf)

    def by_block_on_group(self, block: int) -> tuple[Floats, Floats]:
        """Return the growth [W] by each rank's part of a group-wide block, and the parts' bytes [M, W]."""
        problem = self._problem
        load, size = spread(problem, block, problem.row_shares.on_every_site(block), problem.kind_of_rank)
        growth = self._growth(load, size, self._felt(load))
        return np.where(self._partial.open_ranks.of(block), growth, np.inf), size

    def by_each(self, load: Floats, size: Floats) -> NDArray[np.float32]:
        """Return the growth [n, W] by each of n blocks on each rank, infinite where it does not fit.

        They take `load` [K, n, C] and `size` [K, n, M]. In single precision.
        """
        state, aim = self._partial.state, self.aim[:, 0]
        kind = self._problem.kind_of_rank if self._problem.kinds > 1 else np.zeros(1, dtype=np.int64)
        share = (self._above_zero(load, state.load.max(axis=1)) / aim).max(axis=0)
        felt = np.flatnonzero((share > FAINT * share.max(axis=1, keepdims=True)).any(axis=0))
        terms = [(state.load[c] / aim[c], load[kind, :, c].T / aim[c]) for c in felt]
        for m, room in zip(self.tiers, self._room, strict=True):
            terms.append((1.0 - state.free[m] / room, size[kind, :, m].T / room))
        grown = np.zeros((load.shape[1], self._problem.world), dtype=np.float32)
        for now, more in terms:
            then = now.astype(np.float32) + more.astype(np.float32)
            if self._may_hide:
                now, then = np.maximum(now, 0.0), np.maximum(then, np.float32(0.0))
            for _ in range(SQUARINGS):
                now = now * now
                np.square(then, out=then)
            then -= now.astype(np.float32)
            grown += then
        for m in np.flatnonzero(size.any(axis=(0, 1))):
            grown[state.free[m] < size[kind, :, m].T] = np.inf
        return grown

    def _felt(self, load: Floats) -> Ints:
        """Return the columns whose stage `load` [C, W] prolongs noticeably, compared with the one it prolongs most."""
        share = (self._above_zero(load, self._partial.state.load) / self.aim).max(axis=1)
        return np.flatnonzero(share > FAINT * share.max())

    def _above_zero(self, load: Floats, now: Floats) -> Floats:
        """Return what `load` adds to loads `now` of its shape but for leading dimensions, below zero none of it: there
        something hides it."""
        return load + np.minimum(now, 0.0) if self._may_hide else load

    def _growth(self, load: Floats, size: Floats, columns: Ints) -> Floats:
        """Return the growth [W] if each rank took `load` [C, W]; infinite where `size` [M, W] does not fit."""
        state = self._partial.state
        now = state.load[columns] / self.aim[columns]
        then = now + load[columns] / self.aim[columns]
        if self._may_hide:
            now, then = np.maximum(now, 0.0), np.maximum(then, 0.0)
        for _ in range(SQUARINGS):
            now, then = now * now, then * then
        grown = (then - now).sum(axis=0)
        if len(self.tiers):
            free = state.free[self.tiers]
            now, then = 1.0 - free / self._room, 1.0 - (free - size[self.tiers]) / self._room
            for _ in range(SQUARINGS):
                now, then = now * now, then * then
            grown = grown + (then - now).sum(axis=0)
        if self._random is not None:
            grown = self._random.random(len(grown))
        return np.where((state.free >= size).all(axis=0), grown, np.inf)
