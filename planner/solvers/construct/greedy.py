"""Longest-first placement of the chosen options' blocks, all stages and all memory tiers at once."""

import itertools

import numpy as np
from numpy.typing import NDArray

from planner.problem.arrays import Problem
from planner.problem.extents import NODE, RANK, WORLD
from planner.problem.load_state import LoadState, load_state, place_block, place_everywhere, place_world, spread
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.placement import Placement
from planner.problem.relocation import ranks_of
from planner.solvers.construct.capacity_regions import OpenRanks, TableUnit, units_of

_SQUARINGS = 3
"""The potential is the sum of (load / stage time)^(2^3): high enough that the fullest resources decide."""

_HEAVY = 0.5
"""Share of a rank's memory above which a single rank's block is placed before those that need a node; where these find
no room then, they are placed first."""
_FAINT = 0.02
"""Columns of which a block takes less than this share of what it takes of another are left out."""
_ONE_OF, _WORTHWHILE = 32, 8
"""Blocks are placed together, each on another rank, at most one for so many ranks; one by one where these would be
fewer than the second number."""


def place(
    problem: Problem,
    picks: Ints,
    stage_seconds: Floats,
    held: Placement | None = None,
    loose: Ints | None = None,
    random: np.random.Generator | None = None,
    scarce: Bools | None = None,
    spare: Floats | None = None,
) -> tuple[Placement, LoadState] | None:
    """Give every block of the chosen options a place, or None when the next block fits nowhere.

    World-wide blocks come first, then tables that may not be anywhere or not beside any other, then blocks that fill
    most of a rank, then those that need a node, then single ranks' from the largest to the smallest. Each goes where
    the potential over the resources it uses grows least, among the places with memory for it.
    `stage_seconds` [S] are the times to aim at. Of the `scarce` [M] tiers, too, the fullest decide. Blocks that are
    `held` have their places already; `loose` ones, of single ranks or nodes, are placed like those of the picks, and
    all together make up an option of each table. With `random`, another order and other places are tried.
    Of each tier's pools `spare` [M] bytes are left free, where that is possible.
    """
    tiers = np.zeros(len(problem.pool_capacity), dtype=bool) if scarce is None else scarce
    others = [] if loose is None else loose.tolist()
    kept = (spare, None) if spare is not None and spare.any() else (None,)
    for heavy, left in itertools.product((_HEAVY, np.inf), kept):
        found = _Greedy(problem, stage_seconds, held, random, tiers, left).run(picks, others, heavy)
        if found is not None:
            return found
    return None


class _Greedy:
    def __init__(
        self,
        problem: Problem,
        stage_seconds: Floats,
        held: Placement | None,
        random: np.random.Generator | None,
        scarce: Bools,
        spare: Floats | None,
    ) -> None:
        self._problem, self._random = problem, random
        self._state = LoadState(problem) if held is None else load_state(problem, held)
        self._spare = np.zeros((len(problem.pool_capacity), 1)) if spare is None else spare[:, None]
        self._state.free -= self._spare
        self._tiers: Ints = np.flatnonzero(scarce)
        self._room: Floats = np.maximum(LoadState(problem).free[self._tiers], 1.0)
        aim = np.maximum(stage_seconds - problem.stage_constants, 1e-12)
        self._aim: Floats = aim[problem.stage_of_column][:, None]
        self._node_sizes: list[int] = np.diff(problem.node_start).tolist()
        self._items: list[int] = [] if held is None else held.item_block.tolist()
        self._places: list[int] = [] if held is None else held.item_place.tolist()

    def run(self, picks: Ints, loose: list[int], heavy: float) -> tuple[Placement, LoadState] | None:
        problem, state = self._problem, self._state
        members: list[list[int]] = [[] for _ in range(problem.tables)]
        is_tied = np.zeros(problem.tables, dtype=bool)
        for block in loose:
            members[int(problem.table_of_block[block])].append(block)
        for pick, table in zip(picks.tolist(), problem.table_of_block[picks].tolist(), strict=True):
            members[table] = problem.blocks_of_pick(pick)
            is_tied[table] = problem.option_tied[problem.block_option[pick]]
        every = np.array([block for blocks in members for block in blocks], dtype=np.int64)
        place_everywhere(problem, state, every)
        extent = problem.block_extent
        world_wide = every[extent[every] == WORLD]
        place_world(problem, state, world_wide)
        for block in world_wide.tolist():
            self._record(block, -1)
        if state.overflow_bytes() > 0:
            return None
        self._size_of = self._sizes(np.unique(every))
        units = units_of(problem)
        if self._random is not None:
            units = [units[i] for i in self._random.permutation(len(units))]
        self._open = OpenRanks(problem, units)
        if units:
            self._follow_held()
        unconfined = np.ones(problem.tables, dtype=bool)
        unconfined[[table for unit in units for table in unit.tables]] = False
        blocks = [b for t in np.flatnonzero(unconfined & ~is_tied).tolist() for b in members[t]]
        by_size = sorted(blocks, key=self._size_of.__getitem__, reverse=True)
        tied = [members[t] for t in np.flatnonzero(unconfined & is_tied).tolist()]
        stored = problem.extremes.pool_demand.min(axis=0).max(axis=1)
        single = [block for block in by_size if extent[block] == RANK]
        done = (
            all(self._put_unit(unit, members, is_tied) for unit in units)
            and self._put_on_ranks([block for block in single if stored[block] > heavy])
            and all(self._put_on_node(block) for block in by_size if extent[block] == NODE)
            and all(self._put_together(group) for group in sorted(tied, key=self._total_size, reverse=True))
            and self._put_on_ranks([block for block in single if stored[block] <= heavy])
        )
        if not done:
            return None
        order = np.argsort(self._items, kind="stable")
        items, places = np.array(self._items)[order], np.array(self._places)[order]
        state.free += self._spare
        return Placement(items, places), self._state

    def _follow_held(self) -> None:
        """Blocks that have their places already bind their partners and rivals."""
        blocks, places = np.array(self._items, dtype=np.int64), np.array(self._places, dtype=np.int64)
        for block, first, count in zip(blocks.tolist(), *ranks_of(self._problem, blocks, places), strict=True):
            if self._problem.block_extent[block] != WORLD:
                self._open.take(block, np.arange(first, first + count))

    def _total_size(self, blocks: list[int]) -> float:
        return sum(self._size_of[block] for block in blocks)

    # -- tables that may not be everywhere ---------------------------------------------------------------------

    def _put_unit(self, unit: TableUnit, members: list[list[int]], is_tied: Bools) -> bool:
        """All blocks of a unit in the zone where they cost least, or the next one where they fit."""
        extent = self._problem.block_extent
        local = [b for table in unit.tables for b in members[table] if extent[b] != WORLD]
        if not unit.zone_of_rank[-1]:
            return self._put_tables(unit, members, is_tied)
        if not local:
            return True
        value = self._zone_growth(unit, local)
        for zone in np.argsort(value, kind="stable").tolist():
            if value[zone] == np.inf:
                break
            before = self._state.copy(), self._open.copy(), len(self._items)
            self._open.keep(unit.tables, unit.zone_of_rank == zone)
            if self._put_tables(unit, members, is_tied):
                return True
            self._state, self._open, count = before
            del self._items[count:], self._places[count:]
        return False

    def _zone_growth(self, unit: TableUnit, blocks: list[int]) -> Floats:
        """[zones] what the blocks cost in each zone at least; infinite where they do not fit, one by one or in all."""
        problem, zone = self._problem, unit.zone_of_rank
        starts = np.searchsorted(zone, np.arange(zone[-1] + 1))
        if len(starts) == problem.world:  # on a rank they add up
            kind = problem.kind_of_rank
            load = (problem.fixed[:, blocks] + problem.by_rows[:, blocks]).sum(axis=1)[kind].T
            size = (problem.bytes_fixed[:, blocks] + problem.bytes_by_rows[:, blocks]).sum(axis=1)[kind].T
            open_to_all = np.logical_and.reduce([self._open.of(block) for block in blocks])
            return np.where(open_to_all, self._growth(load, size, np.flatnonzero(load.any(axis=1))), np.inf)
        total = np.zeros(len(starts))
        for block in blocks:
            on_node = problem.block_extent[block] == NODE
            growth = self._node_growth(block)[0] if on_node else self._rank_growth(block)
            total += (np.add if on_node else np.minimum).reduceat(growth, starts)
        return total

    def _put_tables(self, unit: TableUnit, members: list[list[int]], is_tied: Bools) -> bool:
        extent = self._problem.block_extent
        for table in sorted(unit.tables, key=lambda table: -self._total_size(members[table])):
            if is_tied[table]:
                done = self._put_together(members[table])
            else:
                local = [block for block in members[table] if extent[block] != WORLD]
                done = all(
                    self._put_on_node(block) if extent[block] == NODE else self._put_on_rank(block)
                    for block in sorted(local, key=self._size_of.__getitem__, reverse=True)
                )
            if not done:
                return False
        return True

    # -- blocks ------------------------------------------------------------------------------------------------

    def _sizes(self, blocks: Ints) -> dict[int, float]:
        """The largest share of a stage or of a rank's memory that each block takes on any kind of rank."""
        problem = self._problem
        free = np.maximum(self._state.free.max(axis=1), 1.0)
        stored = (problem.bytes_fixed[:, blocks] + problem.bytes_by_rows[:, blocks]) / free
        size = stored.max(axis=(0, 2))
        for kind in range(problem.kinds):
            size = np.maximum(size, (problem.extremes.peak_load(kind, blocks) / self._aim[:, 0]).max(axis=1))
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
        if len(self._tiers):
            free = self._state.free[self._tiers]
            now, then = 1.0 - free / self._room, 1.0 - (free - size[self._tiers]) / self._room
            for _ in range(_SQUARINGS):
                now, then = now * now, then * then
            grown = grown + (then - now).sum(axis=0)
        if self._random is not None:
            grown = self._random.random(len(grown))
        return np.where((self._state.free >= size).all(axis=0), grown, np.inf)

    def _rank_growth(self, block: int) -> Floats:
        problem = self._problem
        if problem.kinds == 1:
            load = (problem.fixed[0, block] + problem.by_rows[0, block])[:, None]
            size = (problem.bytes_fixed[0, block] + problem.bytes_by_rows[0, block])[:, None]
        else:
            load, size = spread(problem, block, np.ones(problem.world), problem.kind_of_rank)
        growth = self._growth(load, size, self._felt(load))
        return np.where(self._open.of(block), growth, np.inf)

    def _put_on_rank(self, block: int) -> bool:
        growth = self._rank_growth(block)
        rank = int(growth.argmin())
        if growth[rank] == np.inf:
            return False
        self._put(block, rank, np.array([rank]))
        return True

    def _put_on_ranks(self, blocks: list[int]) -> bool:
        """Blocks that may be anywhere, in this order; some at once where they share nothing with other ranks."""
        problem = self._problem
        at_once = 1 if self._random is not None else problem.world // _ONE_OF
        if at_once < _WORTHWHILE or not blocks:
            return all(self._put_on_rank(block) for block in blocks)
        alone = self._load_no_others(np.array(blocks))
        at = 0
        while at < len(blocks):
            some = int(np.argmin(np.append(alone[at : at + at_once], False)))
            if some < 2:
                if not self._put_on_rank(blocks[at]):
                    return False
                at += 1
                continue
            placed = self._put_apart(np.array(blocks[at : at + some]))
            if not placed:
                return False
            at += placed
        return True

    def _load_no_others(self, blocks: Ints) -> Bools:
        """[n] blocks of single ranks that share no memory with other ranks, and resources only where these are never
        longer loaded than a rank's own by blocks like it."""
        problem = self._problem
        load, size = self._asked(blocks)
        sharing = np.array([np.bincount(of).max() for of in problem.resource_of_rank])
        own: Floats = np.zeros((*load.shape[:2], len(problem.stage_constants)))
        for column in np.flatnonzero(sharing == 1).tolist():
            stage = problem.stage_of_column[column]
            own[:, :, stage] = np.maximum(own[:, :, stage], load[:, :, column])
        is_least = load * sharing <= own[:, :, problem.stage_of_column] * (1 + 1e-9)
        shared = [tier for tier, pool in enumerate(problem.pool_of_rank) if (pool[1:] == pool[:-1]).any()]
        return np.asarray((is_least | (sharing == 1)).all(axis=(0, 2)) & (size[:, :, shared] == 0).all(axis=(0, 2)))

    def _asked(self, blocks: Ints) -> tuple[Floats, Floats]:
        """Seconds [K, n, C] and bytes [K, n, M] of the ranks that hold blocks of single ranks."""
        problem = self._problem
        load = problem.fixed[:, blocks] + problem.by_rows[:, blocks]
        return load, problem.bytes_fixed[:, blocks] + problem.bytes_by_rows[:, blocks]

    def _put_apart(self, blocks: Ints) -> int:
        """Blocks of single ranks on different ones, in this order; how many there was room for."""
        problem, state = self._problem, self._state
        load, size = self._asked(blocks)
        growth = self._growth_of_many(load, size)
        growth[~(problem.allowed[:, blocks][problem.kind_of_rank] & problem.reach[:, None]).T] = np.inf
        ranks: list[int] = []
        for row in growth:
            row[ranks] = np.inf
            rank = int(row.argmin())
            if row[rank] == np.inf:
                break
            ranks.append(rank)
        if ranks:
            placed, kind = np.arange(len(ranks)), problem.kind_of_rank[ranks]
            more_load, more_size = np.zeros_like(state.load), np.zeros_like(state.free)
            more_load[:, ranks], more_size[:, ranks] = load[kind, placed].T, size[kind, placed].T
            state.add(more_load, more_size, slice(0, problem.world))
            self._items += blocks[placed].tolist()
            self._places += ranks
        return len(ranks)

    def _growth_of_many(self, load: Floats, size: Floats) -> NDArray[np.float32]:
        """[n, W] growth of the potential by each of n blocks on each rank, infinite where it does not fit.

        They take `load` [K, n, C] and `size` [K, n, M]. In single precision.
        """
        state, aim = self._state, self._aim[:, 0]
        kind = self._problem.kind_of_rank if self._problem.kinds > 1 else np.zeros(1, dtype=np.int64)
        share = (load / aim).max(axis=0)
        felt = np.flatnonzero((share > _FAINT * share.max(axis=1, keepdims=True)).any(axis=0))
        terms = [(state.load[c] / aim[c], load[kind, :, c].T / aim[c]) for c in felt]
        for m, room in zip(self._tiers, self._room, strict=True):
            terms.append((1.0 - state.free[m] / room, size[kind, :, m].T / room))
        grown = np.zeros((load.shape[1], self._problem.world), dtype=np.float32)
        for now, more in terms:
            then = now.astype(np.float32) + more.astype(np.float32)
            for _ in range(_SQUARINGS):
                now = now * now
                np.square(then, out=then)
            then -= now.astype(np.float32)
            grown += then
        for m in np.flatnonzero(size.any(axis=(0, 1))):
            grown[state.free[m] < size[kind, :, m].T] = np.inf
        return grown

    def _put(self, block: int, where: int, ranks: Ints) -> None:
        place_block(self._problem, self._state, block, where)
        self._record(block, where)
        self._open.take(block, ranks)

    def _node_growth(self, block: int) -> tuple[Floats, Floats]:
        """[W] growth of the potential by each rank's part of a node-wide block; and the parts' bytes [M, W]."""
        problem = self._problem
        share_of = {n: problem.node_share(block, n) for n in set(self._node_sizes)}
        share = np.concatenate([share_of[n] for n in self._node_sizes])
        load, size = spread(problem, block, share, problem.kind_of_rank)
        growth = self._growth(load, size, self._felt(load))
        return np.where(self._open.of(block), growth, np.inf), size

    def _put_on_node(self, block: int) -> bool:
        problem = self._problem
        growth, size = self._node_growth(block)
        of_node = np.add.reduceat(growth, problem.node_start[:-1])
        for node in np.argsort(of_node, kind="stable").tolist():
            if of_node[node] == np.inf:
                return False
            ranks = slice(int(problem.node_start[node]), int(problem.node_start[node + 1]))
            if self._node_has_room(size[:, ranks], ranks):
                self._put(block, node, np.arange(ranks.start, ranks.stop))
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
            self._put(block, rank, np.array([rank]))
        return self._state.overflow_bytes() == 0
