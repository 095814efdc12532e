"""Local search: one table is taken out and put back in the best way that any of its options offers.

All places of all its options are priced at once against the smoothed step: every width of a free option on every
rank, every node of a node-wide block, the whole world. Equal parts go to the places where they cost least; the places
differ, so their costs add up. This changes how a table is cut, which `improve` does not, at a price that only
problems of few tables can pay.
"""

from dataclasses import dataclass

import numpy as np

from planner.problem import WORLD, Bools, Floats, Ints, LoadState, Placement, Problem, load_state, place_block, spread
from planner.solvers.repartition import ROUNDING_BYTES
from planner.solvers.smoothing import Smoothing

Pieces = list[tuple[int, int]]
"""(block, place) of one table."""


@dataclass(frozen=True)
class _Offer:
    growth: float
    pieces: Pieces


def reinsert_tables(problem: Problem, placement: Placement, squarings: int, order: Ints, usable: Bools) -> Placement:
    """Take the tables out in this `order`, one after the other, each put back at its best.

    `usable` [B] says which picks (see `Problem.blocks_of_pick`) are worth pricing. The smoothed step falls; the step
    itself may rise.
    """
    return _Reinserter(problem, placement, squarings, usable).run(order)


class _Reinserter:
    def __init__(self, problem: Problem, placement: Placement, squarings: int, usable: Bools) -> None:
        self._problem, self._squarings, self._usable = problem, squarings, usable
        self._state: LoadState = load_state(problem, placement)
        self._kind_share: Floats = problem.ranks_of_kind / problem.world
        table = problem.option_table[problem.block_option[placement.item_block]]
        self._pieces: list[Pieces] = [[] for _ in range(problem.tables)]
        for t, block, place in zip(table, placement.item_block, placement.item_place, strict=True):
            self._pieces[int(t)].append((int(block), int(place)))
        self._smoothing = self._smoothed()

    def _smoothed(self) -> Smoothing:
        return Smoothing(self._problem, self._state, self._squarings, negligible=0.0)

    def run(self, order: Ints) -> Placement:
        for table in order[~self._problem.grouped[order]].tolist():
            if self._reinsert(table):
                self._smoothing = self._smoothed()
        pairs = np.array([pair for pieces in self._pieces for pair in pieces], dtype=np.int64)
        by_block = np.lexsort((pairs[:, 1], pairs[:, 0]))
        return Placement(pairs[by_block, 0], pairs[by_block, 1])

    def _reinsert(self, table: int) -> bool:
        """False, with everything as it was, if there is nothing better."""
        problem, old = self._problem, self._pieces[table]
        with_it = self._smoothing.value(self._state.load)
        self._charge(old, -1.0)
        paid = with_it - self._smoothing.value(self._state.load)
        best = _Offer(paid * (1 - 1e-6), old)
        for option in range(int(problem.option_start[table]), int(problem.option_start[table + 1])):
            offer = self._offer(option)
            if offer is not None and offer.growth < best.growth:
                best = offer
        self._charge(best.pieces, 1.0)
        worse = self._smoothing.value(self._state.load) > with_it or self._state.overflow_bytes() > ROUNDING_BYTES
        if best.pieces is not old and worse:
            self._charge(best.pieces, -1.0)  # ranks that share a resource take more together than one by one
            self._charge(old, 1.0)
            return False
        self._pieces[table] = best.pieces
        return best.pieces is not old

    def _charge(self, pieces: Pieces, sign: float) -> None:
        everywhere = self._problem.everywhere[:, [block for block, _ in pieces]].sum(axis=1)
        self._state.add_everywhere(sign * everywhere)
        for block, place in pieces:
            place_block(self._problem, self._state, block, place, sign)

    def _offer(self, option: int) -> _Offer | None:
        problem = self._problem
        types = np.arange(problem.block_start[option], problem.block_start[option + 1])
        worth_it = self._usable[types]
        if problem.option_tied[option] or not worth_it.any():
            return None
        if problem.option_units[option]:
            return self._rank_offer(option, types[worth_it])
        if problem.block_extent[types[0]] == WORLD:
            return self._world_offer(int(types[0]))
        return self._node_offer(np.repeat(types, problem.block_count[types]))

    def _everywhere_cost(self, blocks: Ints) -> float:
        """Growth of the smoothed step by what every rank pays for the blocks."""
        seconds = (self._problem.everywhere[:, blocks].sum(axis=1) * self._kind_share[:, None]).sum(axis=0)
        return float(self._smoothing.uniform_growth(seconds))

    def _rank_offer(self, option: int, types: Ints) -> _Offer | None:
        """The best cut of a free option into equal parts on different ranks."""
        problem = self._problem
        growth = np.stack([self._growth(int(block), np.ones(problem.world)) for block in types])
        order = np.argsort(growth, axis=1, kind="stable")
        sizes, whole = problem.block_units[types], int(problem.option_units[option])
        best: _Offer | None = None
        for parts in sorted({-(-whole // int(size)) for size in sizes}):
            widths = np.array([whole // parts + (i < whole % parts) for i in range(parts)])
            rows = np.minimum(np.searchsorted(sizes, widths), len(sizes) - 1)
            if parts > problem.world or (sizes[rows] != widths).any():
                continue
            ranks = order[rows[0], :parts]
            total = float(growth[rows, ranks].sum()) + self._everywhere_cost(types[rows])
            if np.isfinite(total) and (best is None or total < best.growth):
                best = _Offer(total, list(zip(types[rows].tolist(), ranks.tolist(), strict=True)))
        return best

    def _node_offer(self, blocks: Ints) -> _Offer | None:
        """Blocks of a node-wide option on the nodes where they cost least, each on another node."""
        problem = self._problem
        sizes = np.diff(problem.node_start).tolist()
        pieces: Pieces = []
        total, growth = self._everywhere_cost(blocks), np.zeros(0)
        taken = np.zeros(len(sizes), dtype=bool)
        for i, block in enumerate(blocks.tolist()):
            if not i or block != blocks[i - 1]:
                share = {n: problem.node_share(block, n) for n in set(sizes)}
                of_rank = self._growth(block, np.concatenate([share[n] for n in sizes]))
                growth = np.add.reduceat(of_rank, problem.node_start[:-1])
            node = int(np.where(taken, np.inf, growth).argmin())
            if taken[node] or not np.isfinite(growth[node]):
                return None
            total += float(growth[node])
            taken[node] = True
            pieces.append((block, node))
        return _Offer(total, pieces)

    def _world_offer(self, block: int) -> _Offer | None:
        total = float(self._growth(block, self._problem.world_share(block)).sum())
        return _Offer(total + self._everywhere_cost(np.array([block])), [(block, -1)]) if np.isfinite(total) else None

    def _growth(self, block: int, share: Floats) -> Floats:
        """[W] growth of the smoothed step where each rank holds its share of a block's rows; infinite where it may not.

        A single rank's block must fit into the rank's pools; of blocks on more, all ranks of a pool together.
        """
        problem = self._problem
        load, size = spread(problem, block, share, problem.kind_of_rank)
        fits: Bools = problem.may_hold(block)
        for m, pool in enumerate(problem.pool_of_rank):
            if size[m].any():
                alone = problem.block_is_free[block]
                needed = size[m] if alone else np.bincount(pool, weights=size[m])[pool]
                fits &= needed <= self._state.free[m]
        return np.where(fits, self._smoothing.growth_each(self._state.load, load), np.inf)
