"""What the moves of a local search share: a placement as items, its loads, and the best one so far."""

from functools import cached_property

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.load_state import LoadState, load_state, place_everywhere, place_on_groups, place_world
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.placement import Placement
from planner.problem.rounding import ROUNDING_BYTES
from planner.problem.sites import NOWHERE
from planner.solvers.improve.exchange_index import ExchangeIndex
from planner.solvers.improve.exchanges import within_spare
from planner.solvers.improve.items import Items, difference, merged_items

FULLEST = 4
"""One in so many bins, the fullest, look for a partner in one round."""
AMPLE, SPARE = 0.05, 0.005
"""Where tables leave more than the first share of a memory tier free, the second share of each pool is kept for tables
that are spread over the world: they need room everywhere."""


class SearchState:
    """A placement that moves change in place; deterministic for its seed. Tables outside `movable_tables` [T] stay as
    they are. `best_s` is infinite as long as no placement that fits was met."""

    def __init__(self, problem: Problem, placement: Placement, seed: int, movable_tables: Bools | None = None) -> None:
        self.problem = problem
        self.random = np.random.default_rng(seed)
        self.block_load: Floats = problem.whole_load
        self.block_bytes: Floats = problem.whole_bytes
        self.block_everywhere: Floats = np.pad(problem.everywhere, ((0, 0), (0, 1), (0, 0)))
        self.allowed: Bools = np.concatenate([problem.allowed, np.ones((problem.kinds, 1), dtype=bool)], axis=1)
        blocks = placement.item_block
        may_move = ~self._is_grouped(blocks)
        if movable_tables is not None:
            may_move &= movable_tables[problem.table_of_block[blocks]]
        movable = self._movable(placement) & may_move
        on_group = problem.is_on_group[blocks] & may_move
        settled = ~movable & ~on_group
        self.settled = Placement(blocks[settled], placement.item_place[settled])
        self.group_block, self.group_site = blocks[on_group], placement.item_place[on_group]
        family = self.family_of_option[problem.block_option[blocks[movable]]]
        self.items = merged_items(
            Items(family, problem.block_units[blocks[movable]], placement.item_place[movable]), problem.world
        )
        self.loads: LoadState = load_state(problem, self.placement())
        capacity = np.array([of_tier.min() for of_tier in problem.pool_capacity])
        is_ample = self.loads.free.mean(axis=1) > AMPLE * capacity
        self.spare: Floats = np.where(is_ample, SPARE * capacity, 0.0)[:, None]
        self.best_s = np.inf
        self.best = self.placement()
        self.note()

    def _movable(self, placement: Placement) -> Bools:
        """Return the splittable blocks on single ranks [I], but for parts of a table on one rank whose joint width no
        block type has, and for tables in groups."""
        problem, blocks = self.problem, placement.item_block
        is_splittable = problem.is_on_rank[blocks] & problem.block_is_splittable[blocks]
        index = np.flatnonzero(is_splittable & ~self._is_grouped(blocks))
        family = self.family_of_option[problem.block_option[blocks[index]]]
        _, which = np.unique(family * problem.world + placement.item_place[index], return_inverse=True)
        joint = np.bincount(which, weights=problem.block_units[blocks[index]]).astype(np.int64)[which]
        movable = np.zeros(len(blocks), dtype=bool)
        movable[index[self.block_of[family, joint] >= 0]] = True
        return movable

    def _is_grouped(self, blocks: Ints) -> Bools:
        """Return which blocks [I] are of tables that must stay with others or away from them: they stay where they
        are."""
        return np.asarray(self.problem.grouped[self.problem.table_of_block[blocks]])

    @cached_property
    def family_of_option(self) -> Ints:
        """The number [O] of each splittable option, -1 for fixed ones."""
        free = self.problem.option_units > 0
        return np.where(free, np.cumsum(free) - 1, -1)

    @cached_property
    def whole_units(self) -> Ints:
        """The units [F] of each family's whole table."""
        return self.problem.option_units[self.problem.option_units > 0]

    @cached_property
    def block_of(self) -> Ints:
        """The block [F, most units + 1] of each family and width: -1 where there is none, the empty block for width
        0."""
        problem = self.problem
        most = int(problem.option_units.max(initial=0))
        table = np.full((int((problem.option_units > 0).sum()), most + 1), -1, dtype=np.int64)
        blocks = np.flatnonzero(problem.block_is_splittable)
        table[self.family_of_option[problem.block_option[blocks]], problem.block_units[blocks]] = blocks
        table[:, 0] = len(problem.block_option)
        return table

    @cached_property
    def table_of_family(self) -> Ints:
        """The table [F] of each family."""
        return self.problem.option_table[np.flatnonzero(self.problem.option_units > 0)]

    @cached_property
    def cut_cost(self) -> Floats:
        """The seconds [F], over all columns, by which two blocks of least width take more than one twice as wide; 0
        where there is no such block."""
        problem, blocks = self.problem, np.flatnonzero(self.problem.block_is_splittable)
        _, first = np.unique(problem.block_option[blocks], return_index=True)
        smallest = blocks[first]
        width = np.minimum(2 * problem.block_units[smallest], self.block_of.shape[1] - 1)
        twice = self.block_of[np.arange(len(smallest)), width]
        seconds = self.block_load[0].sum(axis=1)
        return np.where(twice >= 0, 2 * seconds[smallest] - seconds[twice], 0.0)

    def placement(self) -> Placement:
        """Return the state as a placement, in one order of its blocks."""
        items = self.items
        blocks = (self.settled.item_block, self.group_block, self.block_of[items.family, items.units])
        places = (self.settled.item_place, self.group_site, items.rank)
        block, place = np.concatenate(blocks), np.concatenate(places)
        order = np.lexsort((place, block))
        return Placement(block[order], place[order])

    def note(self) -> None:
        """Remember the state if it fits and is the best one."""
        step_s = self.loads.step_s()
        if step_s < self.best_s and self.loads.overflow_bytes() <= ROUNDING_BYTES:
            self.best_s, self.best = step_s, self.placement()

    @cached_property
    def exchange_index(self) -> ExchangeIndex:
        """What ranks may give and take, to look exchanges up."""
        amounts = (self.block_load, self.block_everywhere, self.block_bytes)
        return ExchangeIndex(self.problem, self.block_of, *amounts, self.allowed, self.table_of_family)

    def pairs(self, fullness: Floats, kind: Ints) -> tuple[Ints, Ints]:
        """Draw disjoint pairs of bins of one kind: the fullest ones, each with one of the others at random."""
        left: list[Ints] = []
        right: list[Ints] = []
        for k in range(self.problem.kinds):
            members = np.flatnonzero(kind == k)
            order = members[np.argsort(-fullness[members], kind="stable")]
            pairs = min(max(-(-len(order) // FULLEST), 4), len(order) // 2)
            left.append(order[:pairs])
            right.append(self.random.permutation(order[pairs:])[:pairs])
        return np.concatenate(left), np.concatenate(right)

    @cached_property
    def reached_kind(self) -> Ints:
        """The kind [W] of each rank that tables may use, -1 for the others."""
        return np.where(self.problem.reach, self.problem.kind_of_rank, -1)

    @staticmethod
    def partners(left: Ints, right: Ints, bins: int) -> Ints:
        """Return the other bin of each one's pair [bins], -1 where it has none."""
        partner = np.full(bins, -1)
        partner[left], partner[right] = right, left
        return partner

    def room(self, ranks: Ints) -> Floats:
        """Return the bytes [M, W] that each of the `ranks` may add in one round: an equal part of what their pool has
        left."""
        problem, free = self.problem, within_spare(self.loads.free, self.spare)
        pools = zip(problem.pool_of_rank, problem.pool_capacity, strict=True)
        takers = np.stack([np.bincount(pool[ranks], minlength=len(capacity))[pool] for pool, capacity in pools])
        return np.where(free > 0, free / np.maximum(takers, 1), free)

    def settle(self, blocks: Ints) -> None:
        """Put world-wide blocks in the place of tables that were taken out of the items."""
        if len(blocks):
            old, nowhere = self.settled, np.full(len(blocks), NOWHERE)
            self.settled = Placement(
                np.concatenate([old.item_block, blocks]), np.concatenate([old.item_place, nowhere])
            )
            place_everywhere(self.problem, self.loads, blocks)
            place_world(self.problem, self.loads, blocks)

    def find(self, family: Ints, rank: Ints) -> Ints:
        """Return the item of each family on each rank, -1 where there is none."""
        world = self.problem.world
        key = self.items.family * world + self.items.rank
        wanted = family * world + rank
        at = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
        return np.where(key[at] == wanted, at, -1)

    def replace(self, items: Items) -> bool:
        """Put other items in the place of all, and update loads and free memory.

        False, with nothing changed, where two parts of a table met whose joint width no block type has.
        """
        merged = merged_items(items, self.problem.world)
        if (self.block_of[merged.family, merged.units] < 0).any():
            return False
        before, self.items = self.items, merged
        gone, come = difference(before, merged, self.problem.world)
        self._charge(before, gone, -1.0)
        self._charge(merged, come, 1.0)
        return True

    def _charge(self, items: Items, index: Ints, sign: float) -> None:
        problem = self.problem
        block, rank = self.block_of[items.family[index], items.units[index]], items.rank[index]
        kind = problem.kind_of_rank[rank]
        load, size = self.block_load[kind, block], self.block_bytes[kind, block]
        world = problem.world
        per_rank, stored = (_summed(amounts, rank, world) for amounts in (load, size))
        everywhere = self.block_everywhere[:, block].sum(axis=1)
        self.loads.add(sign * per_rank, sign * stored, slice(0, world))
        self.loads.add_everywhere(sign * everywhere)

    def charge_groups(self, index: Ints, sign: float) -> None:
        """Add group-wide blocks to the loads, or take them away with a `sign` of -1."""
        place_on_groups(self.problem, self.loads, self.group_block[index], self.group_site[index], sign)

    @cached_property
    def has_alternatives(self) -> bool:
        """Whether a table has more than one splittable option: another memory tier or cache size."""
        return len(np.unique(self.table_of_family)) < len(self.table_of_family)

    @property
    def is_mostly_groups(self) -> bool:
        """Whether more blocks are cut over groups of ranks than stand on single ones."""
        return len(self.group_block) > len(self.items.rank)


def _summed(amounts: Floats, rank: Ints, world: int) -> Floats:
    """Return amounts [n, x] summed over each rank's [x, W]."""
    columns = amounts.shape[1]
    row = np.arange(columns)[:, None] * world
    total = np.bincount((row + rank).ravel(), weights=amounts.T.ravel(), minlength=columns * world)
    return np.asarray(total.reshape(columns, world), dtype=np.float64)
