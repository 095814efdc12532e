"""Longest-first placement of the chosen options' blocks, all stages and all memory tiers at once."""

import numpy as np

from planner.problem import (
    NODE,
    RANK,
    WORLD,
    Floats,
    Ints,
    LoadState,
    Placement,
    Problem,
    place_block,
    place_everywhere,
    place_world,
    spread,
)

_SQUARINGS = 3
"""The potential is the sum of (load / stage time)^(2^3): high enough that the fullest resources decide."""

_FAINT = 0.02
"""Columns of which a block takes less than this share of what it takes of another are left out."""


def place(problem: Problem, picks: Ints, stage_seconds: Floats) -> tuple[Placement, LoadState] | None:
    """Give every block of the chosen options a place, or None when the next block fits nowhere.

    World-wide blocks come first, then those that need a node, then single ranks' from the largest to the smallest.
    Each goes where the potential over the resources it uses grows least, among the places with memory for it.
    `stage_seconds` [S] are the times to aim at.
    """
    return _Greedy(problem, stage_seconds).run(picks)


class _Greedy:
    def __init__(self, problem: Problem, stage_seconds: Floats) -> None:
        self._problem = problem
        self._state = LoadState(problem)
        aim = np.maximum(stage_seconds - problem.stage_constants, 1e-12)
        self._aim: Floats = aim[problem.stage_of_column][:, None]
        self._node_sizes: list[int] = np.diff(problem.node_start).tolist()
        self._items: list[int] = []
        self._places: list[int] = []

    def run(self, picks: Ints) -> tuple[Placement, LoadState] | None:
        problem, state = self._problem, self._state
        blocks, tied = self._expand(picks)
        place_everywhere(problem, state, np.array(blocks + [b for group in tied for b in group], dtype=np.int64))
        extent = problem.block_extent
        world_wide = [block for block in blocks if extent[block] == WORLD]
        place_world(problem, state, np.array(world_wide, dtype=np.int64))
        for block in world_wide:
            self._record(block, -1)
        if state.overflow_bytes() > 0:
            return None
        self._size_of = self._sizes(np.unique(np.array(blocks + [b for group in tied for b in group], dtype=np.int64)))
        by_size = sorted(blocks, key=self._size_of.__getitem__, reverse=True)
        done = (
            all(self._put_on_node(block) for block in by_size if extent[block] == NODE)
            and all(
                self._put_together(group)
                for group in sorted(tied, key=lambda g: -sum(map(self._size_of.__getitem__, g)))
            )
            and all(self._put_on_rank(block) for block in by_size if extent[block] == RANK)
        )
        if not done:
            return None
        order = np.argsort(self._items, kind="stable")
        items, places = np.array(self._items)[order], np.array(self._places)[order]
        return Placement(items, places), state

    def _expand(self, picks: Ints) -> tuple[list[int], list[list[int]]]:
        """Every block of the options as often as it occurs; and those of tied options, a list for each."""
        problem = self._problem
        free: list[int] = []
        tied: list[list[int]] = []
        for pick in picks.tolist():
            members = problem.blocks_of_pick(pick)
            if problem.option_tied[problem.block_option[pick]]:
                tied.append(members)
            else:
                free += members
        return free, tied

    def _total_size(self, blocks: list[int]) -> float:
        return sum(self._size_of[block] for block in blocks)

    def _sizes(self, blocks: Ints) -> dict[int, float]:
        """The largest share of a stage or of a rank's memory that each block takes on any kind of rank."""
        problem = self._problem
        free = np.maximum(self._state.free.max(axis=1), 1.0)
        stored = (problem.bytes_fixed[:, blocks] + problem.bytes_by_rows[:, blocks]) / free
        size = stored.max(axis=(0, 2))
        for kind in range(problem.kinds):
            size = np.maximum(size, (problem.peak_load(kind, blocks) / self._aim[:, 0]).max(axis=1))
        return dict(zip(blocks.tolist(), size.tolist(), strict=True))

    def _record(self, block: int, where: int) -> None:
        self._items.append(block)
        self._places.append(where)

    def _felt(self, load: Floats) -> Ints:
        """Columns whose stage `load` [C, W] prolongs noticeably, compared with the one that it prolongs most."""
        share = (load / self._aim).max(axis=1)
        return np.flatnonzero(share > _FAINT * share.max())

    def _growth(self, load: Floats, size: Floats, columns: Ints) -> Floats:
        """[W] growth of the potential if each rank took `load` [C, W]; infinite where `size` [M, W] does not fit."""
        now = self._state.load[columns] / self._aim[columns]
        then = now + load[columns] / self._aim[columns]
        for _ in range(_SQUARINGS):
            now, then = now * now, then * then
        grown = (then - now).sum(axis=0)
        return np.where((self._state.free >= size).all(axis=0), grown, np.inf)

    def _rank_growth(self, block: int) -> Floats:
        problem = self._problem
        if problem.kinds == 1:
            load = (problem.fixed[0, block] + problem.by_rows[0, block])[:, None]
            size = (problem.bytes_fixed[0, block] + problem.bytes_by_rows[0, block])[:, None]
        else:
            load, size = spread(problem, block, np.ones(problem.world), problem.kind_of_rank)
        growth = self._growth(load, size, self._felt(load))
        return np.where(problem.allowed[problem.kind_of_rank, block], growth, np.inf)

    def _put_on_rank(self, block: int) -> bool:
        growth = self._rank_growth(block)
        rank = int(growth.argmin())
        if growth[rank] == np.inf:
            return False
        place_block(self._problem, self._state, block, rank)
        self._record(block, rank)
        return True

    def _put_on_node(self, block: int) -> bool:
        problem = self._problem
        share_of = {n: problem.node_share(block, n) for n in set(self._node_sizes)}
        share = np.concatenate([share_of[n] for n in self._node_sizes])
        load, size = spread(problem, block, share, problem.kind_of_rank)
        growth = self._growth(load, size, self._felt(load))
        growth = np.where(problem.allowed[problem.kind_of_rank, block], growth, np.inf)
        of_node = np.add.reduceat(growth, problem.node_start[:-1])
        for node in np.argsort(of_node, kind="stable").tolist():
            if of_node[node] == np.inf:
                return False
            ranks = slice(int(problem.node_start[node]), int(problem.node_start[node + 1]))
            if self._node_has_room(size[:, ranks], ranks):
                place_block(problem, self._state, block, node)
                self._record(block, node)
                return True
        return False

    def _node_has_room(self, size: Floats, ranks: slice) -> bool:
        """Whether the shared pools, too, hold what all ranks of the node bring together."""
        for m, pool in enumerate(self._problem.pool_of_rank):
            members = pool[ranks]
            total = np.bincount(members - members[0], weights=size[m])
            if (total[members - members[0]] > self._state.free[m, ranks]).any():
                return False
        return True

    def _put_together(self, blocks: list[int]) -> bool:
        """Blocks of one tied option on different ranks of the node where their growth sums to least."""
        problem = self._problem
        growth = np.stack([self._rank_growth(block) for block in blocks])
        best, found = np.inf, None
        for node in range(len(self._node_sizes)):
            ranks = np.arange(problem.node_start[node], problem.node_start[node + 1])
            if len(ranks) < len(blocks):
                continue
            order = ranks[np.argsort(growth[0, ranks], kind="stable")][: len(blocks)]
            total = growth[np.arange(len(blocks)), order].sum()
            if total < best:
                best, found = total, order
        if found is None:
            return False
        for block, rank in zip(blocks, found.tolist(), strict=True):
            place_block(problem, self._state, block, rank)
            self._record(block, rank)
        return self._state.overflow_bytes() == 0
