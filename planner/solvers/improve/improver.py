"""Local search: a placement improved in rounds, each of which changes many pairs of ranks or nodes at once.

Two kinds of round take turns. *Deals*: paired ranks, or paired nodes, deal out their blocks anew (`repartition`).
*Cuts*: paired ranks also divide the columns of one table in another way; parts of a table on one rank merge. Pairs are
disjoint, so their changes add up. All is judged by a smoothed step (`smoothing`), whose norm nears the maximum while
the search goes on. *Levelling* comes last: ranks above a target each exchange a few blocks with whichever other rank
suits best (`levelling`, `trading`).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.extents import NODE, RANK
from planner.problem.load_state import LoadState, load_state, place_everywhere, place_world, spread
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.placement import Placement
from planner.solvers.bound.load_steps import HEIGHTS, NEAR, level_below
from planner.solvers.improve.exchanges import Aim, Goods, Trade, within_spare
from planner.solvers.improve.items import Items, difference, merged_items
from planner.solvers.improve.repartition import PRECISION, ROUNDING_BYTES, Bins, Hands, best_ways, deal, draw
from planner.solvers.improve.respread import relief
from planner.solvers.improve.smoothing import Smoothing

TURNS = 8
"""Of so many rounds one deals out nodes and one may change tiers; the others deal out ranks, where most is won."""
CUTS = 16
"""Ways to divide a table's columns that a pair of ranks tries in one round."""
CUT_DRAWS = 3
"""Tables drawn for each, of which the one that costs least to cut is taken."""
BLOCKS_BESIDE_CUT = 8
"""Other blocks that are dealt anew with each of them."""
CUT_TURNS, CUT_FROM = (0, 4), 5
"""Turns in which tables are cut anew instead, once the norm is 2 to this power: before, whole blocks level as well."""
CONVERSIONS = 3
"""Other tiers and cache sizes that are drawn for each whole table in one round."""
CANDIDATES = 16
"""Conversions of one rank of which the best one or two are found in one round."""
FULLEST = 4
"""One in so many bins, the fullest, look for a better deal in one round."""
CRITICAL = 0.9
"""Share of its stage's time that the fullest resource of a column has where levelling looks at the column."""
FIRST_STEP, LAST_STEP = 0.2, 0.005
"""Of the way from a stage's longest to its mean, so much is aimed at first; less where it is not reached, and in the
end nothing."""
OVER = 0.4
"""Share of the ranks that are above an aim at most: the next one is lower."""
SLOW = 0.1
"""Share of what is above the aim that a round must bring down, or else the aim is too low."""
BLAMED = 0.1
"""Columns with more than this share of what is left above are those whose aim is too low."""
LEVELLED = 256
"""Ranks, the fullest, that look for an exchange in one round of levelling."""
DEAR = 3.0
"""How much more must be gained by dividing or spreading a table than that costs all ranks."""
AMPLE, SPARE = 0.05, 0.005
"""Where tables leave more than the first share of a memory tier free, the second share of each pool is kept for tables
that are spread over the world: they need room everywhere."""
WORTH = 1e-4
"""Share of what the aim shortens the step by, above which an exchange is worth making."""


@dataclass(frozen=True)
class _Cuts:
    """Ways to divide one table between two ranks, CUTS for each pair of ranks; arrays of [n]."""

    left: Ints
    right: Ints
    family: Ints
    """The table's free option."""
    units: Ints
    """Width that the left is to have."""
    rest: Ints
    """Width that the right is to have."""
    found: tuple[Ints, Ints]
    """Its items on either side now, -1 where there is none."""
    sides: tuple[tuple[Ints, tuple[Ints, Ints]], tuple[Ints, tuple[Ints, Ints]]]
    """Of either side the rank, and the table's block there now and then."""
    legal: Bools


class Improver:
    """Improves one placement; deterministic for its seed. Tables outside `movable_tables` [T] stay as they are.

    A placement that is a little over-full may come to fit: ranks deal out their blocks, and tables change their tiers,
    in ways that fit. `best_s` is infinite as long as none was met.
    """

    def __init__(self, problem: Problem, placement: Placement, seed: int, movable_tables: Bools | None = None) -> None:
        self._problem = problem
        self._random = np.random.default_rng(seed)
        self._load: Floats = problem.whole_load
        self._size: Floats = problem.whole_bytes
        self._everywhere: Floats = problem.everywhere_load
        self._allowed: Bools = np.concatenate([problem.allowed, np.ones((problem.kinds, 1), dtype=bool)], axis=1)
        extent, blocks = problem.block_extent[placement.item_block], placement.item_block
        may_move = ~self._is_held(blocks)
        if movable_tables is not None:
            may_move &= movable_tables[problem.table_of_block[blocks]]
        movable = self._movable(placement) & may_move
        on_node = (extent == NODE) & may_move
        settled = ~movable & ~on_node
        self._settled = Placement(blocks[settled], placement.item_place[settled])
        self._node_block, self._node = blocks[on_node], placement.item_place[on_node]
        family = self._family_of_option[problem.block_option[blocks[movable]]]
        self._items = merged_items(
            Items(family, problem.block_units[blocks[movable]], placement.item_place[movable]), problem.world
        )
        self._state: LoadState = load_state(problem, self._placement())
        capacity = np.array([of_tier.min() for of_tier in problem.pool_capacity])
        is_ample = self._state.free.mean(axis=1) > AMPLE * capacity
        self._spare: Floats = np.where(is_ample, SPARE * capacity, 0.0)[:, None]
        self.best_s = np.inf
        self._best = self._placement()
        self._note()
        self._steps: Floats = np.full(len(problem.stage_constants), FIRST_STEP)
        self._steps[np.setdiff1d(np.arange(len(self._steps)), problem.stage_of_column)] = 0.0
        self._target_s: Floats | None = None
        self._least_s: Floats = np.zeros(len(self._steps))

    def _movable(self, placement: Placement) -> Bools:
        """[I] free blocks on single ranks, but for parts of a table on one rank whose joint width no block type has,
        and for tables in groups."""
        problem, blocks = self._problem, placement.item_block
        is_free = (problem.block_extent[blocks] == RANK) & problem.block_is_free[blocks]
        index = np.flatnonzero(is_free & ~self._is_held(blocks))
        family = self._family_of_option[problem.block_option[blocks[index]]]
        _, which = np.unique(family * problem.world + placement.item_place[index], return_inverse=True)
        joint = np.bincount(which, weights=problem.block_units[blocks[index]]).astype(np.int64)[which]
        movable = np.zeros(len(blocks), dtype=bool)
        movable[index[self._block_of[family, joint] >= 0]] = True
        return movable

    def _is_held(self, blocks: Ints) -> Bools:
        """[I] blocks of tables that must stay with others or away from them: they stay where they are."""
        return np.asarray(self._problem.grouped[self._problem.table_of_block[blocks]])

    @cached_property
    def _family_of_option(self) -> Ints:
        """[O] number of each free option, -1 for fixed ones."""
        free = self._problem.option_units > 0
        return np.where(free, np.cumsum(free) - 1, -1)

    @cached_property
    def _whole_units(self) -> Ints:
        """[F]"""
        return self._problem.option_units[self._problem.option_units > 0]

    @cached_property
    def _block_of(self) -> Ints:
        """[F, most units + 1] block of each family and width: -1 where there is none, the empty block for width 0."""
        problem = self._problem
        most = int(problem.option_units.max(initial=0))
        table = np.full((int((problem.option_units > 0).sum()), most + 1), -1, dtype=np.int64)
        blocks = np.flatnonzero(problem.block_is_free)
        table[self._family_of_option[problem.block_option[blocks]], problem.block_units[blocks]] = blocks
        table[:, 0] = len(problem.block_option)
        return table

    def best(self) -> Placement:
        """The best placement so far; the given one where none fits."""
        return self._best

    def _placement(self) -> Placement:
        items = self._items
        blocks = (self._settled.item_block, self._node_block, self._block_of[items.family, items.units])
        places = (self._settled.item_place, self._node, items.rank)
        block, place = np.concatenate(blocks), np.concatenate(places)
        order = np.lexsort((place, block))
        return Placement(block[order], place[order])

    # -- rounds ------------------------------------------------------------------------------------------------

    def round(self, number: int, squarings: int) -> int:
        """One round of a kind that follows from its number; how many blocks it moved."""
        smoothing = Smoothing(self._problem, self._state, squarings)
        turn = number % TURNS
        if turn == TURNS - 1 or not len(self._items.rank):
            changed = self._deal_nodes(smoothing)
        elif turn in CUT_TURNS and squarings >= CUT_FROM:
            changed = self._cut(smoothing)
        elif turn == TURNS // 4 and self._has_alternatives:
            changed = self._convert(Smoothing(self._problem, self._state, squarings, negligible=0.0))
        else:
            changed = self._deal_ranks(smoothing)
        if changed:
            self._note()
        return changed

    def _note(self) -> None:
        """Remember the state if it fits and is the best one."""
        step_s = self._state.step_s()
        if step_s < self.best_s and self._state.overflow_bytes() <= ROUNDING_BYTES:
            self.best_s, self._best = step_s, self._placement()

    @cached_property
    def _goods(self) -> Goods:
        amounts = (self._load, self._everywhere, self._size)
        return Goods(self._problem, self._block_of, *amounts, self._allowed, self._table_of_family)

    # -- levelling ---------------------------------------------------------------------------------------------

    def level(self) -> bool:
        """One round of exchanges that bring ranks below an aim; False once no lower aim is reached."""
        items, state, stage = self._items, self._state, self._problem.stage_of_column
        if not len(items.rank) or (self._steps <= LAST_STEP).all():
            return False
        aim = self._aim()
        if not len(aim.columns):
            return False
        over = np.maximum(state.load[aim.columns] - aim.load[:, None], 0.0) * aim.weight[:, None]
        gained = self._exchange(aim, over.sum(axis=0))
        left = np.maximum(state.load[aim.columns] - aim.load[:, None], 0.0) * aim.weight[:, None]
        if gained < SLOW * over.sum():
            for d in np.flatnonzero(left.sum(axis=1) > BLAMED * left.sum()):
                self._steps[stage[aim.columns[d]]] /= 2
            self._target_s = None
        elif not left.any():
            self._target_s = None
        self._note()
        return True

    def relieve(self) -> bool:
        """Spread tables over the world, or bring some back, where that lets stages end on a step."""
        problem, items, held = self._problem, self._items, self._problem.block_option[self._settled.item_block]
        change = relief(self._goods, items, self._state, held)
        if change is None:
            return False
        kept = np.ones(len(items.rank), dtype=bool)
        kept[change.items] = False
        left = ~np.isin(held, change.back)
        blocks = np.flatnonzero(np.isin(problem.block_option, change.options))
        blocks = np.repeat(blocks, problem.block_count[blocks])
        self._settled = Placement(
            np.concatenate([self._settled.item_block[left], blocks]),
            np.concatenate([self._settled.item_place[left], np.full(len(blocks), -1)]),
        )
        both = zip(
            (items.family, items.units, items.rank),
            (change.placed.family, change.placed.units, change.placed.rank),
            strict=True,
        )
        self._items = merged_items(Items(*(np.concatenate([old[kept], new]) for old, new in both)), problem.world)
        self._state = load_state(problem, self._placement())
        return True

    def _aim(self) -> Aim:
        """Every stage a part of the way from its longest resource to the mean; the aim of the round before, if there
        is still work to do."""
        problem, load, stage = self._problem, self._state.load, self._problem.stage_of_column
        peak, longest = load.max(axis=1), np.zeros(len(problem.stage_constants))
        np.maximum.at(longest, stage, peak)
        near = np.flatnonzero(peak >= np.maximum(CRITICAL * longest[stage], 1e-15))
        if self._target_s is None:
            mean, few = np.zeros(len(longest)), np.zeros(len(longest))
            np.maximum.at(mean, stage[near], load[near][:, problem.reach].mean(axis=1))
            np.maximum.at(few, stage[near], np.quantile(load[near][:, problem.reach], 1 - OVER, axis=1))
            levels = self._levels_below(longest)
            for of, level_s in levels.items():
                self._steps[of] *= level_s >= mean[of]
            self._target_s = longest - np.where(self._steps > LAST_STEP, self._steps, 0.0) * (longest - mean)
            self._target_s = np.minimum(np.maximum(self._target_s, few), longest)
            for of, level_s in levels.items():
                if self._steps[of] == FIRST_STEP:
                    self._target_s[of] = min(level_s, float(self._target_s[of]))
            on_level = [of for of, level_s in levels.items() if self._target_s[of] == level_s]
            self._least_s = np.where(self._steps > LAST_STEP, 0.0, longest)
            self._least_s[on_level] = self._target_s[on_level]
        gain_s = float(np.maximum(longest - self._target_s, 0.0).sum())
        excess = load[near] - self._target_s[stage[near], None]
        columns: list[int] = []
        weight: list[float] = []
        for row, column in enumerate(near.tolist()):
            slack_s = 1e-6 * float(self._target_s[stage[column]])
            twin = [k for k, other in enumerate(columns) if np.allclose(excess[row], excess[other], 0.0, slack_s)]
            if twin:
                weight[twin[0]] += 1.0
            elif self._load[:, self._block_of[self._items.family, self._items.units], column].any():
                columns.append(row)
                weight.append(1.0)
        kept = near[columns]
        target_s = self._target_s[stage[kept]]
        reach = np.maximum(longest[stage[kept]] - target_s, 1e-3 * target_s)
        return Aim(kept, np.array(weight), target_s * (1 + 1e-7), reach, gain_s, self._least_s)

    def _levels_below(self, longest: Floats) -> dict[int, float]:
        """Of each stage that lasts `longest` [S] for a resource whose loads come in steps: the next level below."""
        problem, load = self._problem, self._state.load
        stage, peak, found = problem.stage_of_column, load.max(axis=1), {}
        for column in np.flatnonzero((peak == longest[stage]) & (self._goods.amount > 0)).tolist():
            for units in HEIGHTS:
                step_s = units * float(self._goods.amount[column])
                level_s = level_below(load[column, problem.reach], step_s, float(peak[column]) - step_s * 2 * NEAR)
                if level_s is not None:
                    found[int(stage[column])] = level_s
                    break
        return found

    def _exchange(self, aim: Aim, over: Floats) -> float:
        """Each of the ranks that are over the aim makes its best exchange; what is gained in seconds above the aim."""
        worth = DEAR * float(over.sum()) / max(aim.gain_s, 1e-15)
        effort = FIRST_STEP / float(self._steps[self._steps > LAST_STEP].min())
        trade = Trade(self._goods, self._items, self._state, self._spare, aim, worth, effort, self._random)
        worth_s = WORTH * aim.gain_s
        gained = 0.0
        for rank in np.argsort(-over, kind="stable")[:LEVELLED].tolist():
            if over[rank] > worth_s and trade.free[rank]:
                gained += trade.improve(rank, worth_s)
        if not trade.is_changed:
            return 0.0
        self._replace(trade.items())
        self._settle(np.array(trade.settled, dtype=np.int64))
        return gained

    def _settle(self, blocks: Ints) -> None:
        """World-wide blocks in the place of tables that were taken out of the items."""
        if len(blocks):
            old, nowhere = self._settled, np.full(len(blocks), -1)
            self._settled = Placement(
                np.concatenate([old.item_block, blocks]), np.concatenate([old.item_place, nowhere])
            )
            place_everywhere(self._problem, self._state, blocks)
            place_world(self._problem, self._state, blocks)

    def _pairs(self, fullness: Floats, kind: Ints) -> tuple[Ints, Ints]:
        """Disjoint pairs of bins of one kind: the fullest ones, each with one of the others at random."""
        left: list[Ints] = []
        right: list[Ints] = []
        for k in range(self._problem.kinds):
            members = np.flatnonzero(kind == k)
            order = members[np.argsort(-fullness[members], kind="stable")]
            pairs = min(max(-(-len(order) // FULLEST), 4), len(order) // 2)
            left.append(order[:pairs])
            right.append(self._random.permutation(order[pairs:])[:pairs])
        return np.concatenate(left), np.concatenate(right)

    @cached_property
    def _reached_kind(self) -> Ints:
        """[W] kind of each rank that tables may use, -1 for the others."""
        return np.where(self._problem.reach, self._problem.kind_of_rank, -1)

    @staticmethod
    def _partners(left: Ints, right: Ints, bins: int) -> Ints:
        """[bins] the other bin of each one's pair, -1 where it has none."""
        partner = np.full(bins, -1)
        partner[left], partner[right] = right, left
        return partner

    def _room(self, ranks: Ints) -> Floats:
        """[M, W] bytes that each of the `ranks` may add in one round: an equal part of what their pool has left."""
        problem, free = self._problem, within_spare(self._state.free, self._spare)
        pools = zip(problem.pool_of_rank, problem.pool_capacity, strict=True)
        takers = np.stack([np.bincount(pool[ranks], minlength=len(capacity))[pool] for pool, capacity in pools])
        return np.where(free > 0, free / np.maximum(takers, 1), free)

    def _rank_bins(self, pairs: tuple[Ints, Ints]) -> tuple[Bins, Ints]:
        """Every rank with the items that its partner may take in one round; and the items in the order of theirs."""
        problem, items = self._problem, self._items
        partner = self._partners(*pairs, problem.world)[items.rank]
        order = np.flatnonzero(partner >= 0)
        order = order[np.argsort(items.rank[order], kind="stable")]
        if problem.is_confined:
            order = order[problem.is_within(self._table_of_family[items.family[order]], partner[order])]
        kind = problem.kind_of_rank[items.rank[order]]
        block = self._block_of[items.family[order], items.units[order]]
        bins = Bins(
            self._state.load.T[:, None, :],
            self._room(np.concatenate(pairs)).T[:, None, :],
            items.rank[order],
            self._load[kind, block][:, None, :],
            self._size[kind, block][:, None, :],
        )
        return bins, order

    def _cut(self, smoothing: Smoothing) -> int:
        """Pairs of ranks divide the columns of one table between them in another way, and deal out their other blocks.

        Every pair makes some tries; the first leaves its blocks as they are. All are priced with the best deal of some
        of the other blocks.
        """
        problem, items = self._problem, self._items
        pairs = self._pairs(smoothing.fullness(self._state.load), self._reached_kind)
        bins, order = self._rank_bins(pairs)
        cuts = self._draw_cuts(pairs, bins, order)
        if not len(cuts.left):
            return 0
        kind = problem.kind_of_rank[cuts.left]
        load = tuple(bins.load[at] + self._more(self._load, kind, change) for at, change in cuts.sides)
        free = tuple(bins.free[at] - self._more(self._size, kind, change) for at, change in cuts.sides)
        dealt, at_left = draw(bins, cuts.left, cuts.right, BLOCKS_BESIDE_CUT, self._random)
        touched = (dealt >= 0) & (items.family[order[dealt]] == cuts.family[:, None])
        dealt, at_left = np.where(touched, -1, dealt), at_left & ~touched
        to_left, value, _ = best_ways(bins, Hands(dealt, at_left, (load[0], load[1]), (free[0], free[1])), smoothing)
        for k, share in enumerate(problem.ranks_of_kind / problem.world):
            more = sum(self._everywhere[k, new] - self._everywhere[k, old] for _, (old, new) in cuts.sides)
            value = value + share * smoothing.uniform_growth(more)
        value = np.where(cuts.legal, value, np.inf).reshape(-1, CUTS)
        first, best = np.arange(len(value)), value.argmin(axis=1)
        taken = (first * CUTS + best)[value[first, best] < value[:, 0] * (1 - PRECISION)]
        if not len(taken):
            return 0
        rank = items.rank.copy()
        changes = (to_left[taken] != at_left[taken]) & (dealt[taken] >= 0)
        goes_to = np.where(to_left[taken], cuts.left[taken, None], cuts.right[taken, None])
        rank[order[dealt[taken][changes]]] = goes_to[changes]
        return len(taken) if self._replace(self._with_cuts(cuts, taken, rank)) else 0

    def _draw_cuts(self, pairs: tuple[Ints, Ints], bins: Bins, order: Ints) -> "_Cuts":
        """Tables of the pairs' items at random, those that cost little to cut more often, and widths for their left."""
        items, count = self._items, np.bincount(bins.item_bin, minlength=self._problem.world)
        busy = count[pairs[0]] + count[pairs[1]] > 0
        left, right = np.repeat(pairs[0][busy], CUTS), np.repeat(pairs[1][busy], CUTS)
        start = np.cumsum(count) - count
        drawn = (self._random.random((len(left), CUT_DRAWS)) * (count[left] + count[right])[:, None]).astype(np.int64)
        on_left = drawn < count[left][:, None]
        item = order[drawn + np.where(on_left, start[left][:, None], (start[right] - count[left])[:, None])]
        family = items.family[item[np.arange(len(left)), self._cut_cost[items.family[item]].argmin(axis=1)]]
        found = [self._find(family, side) for side in (left, right)]
        was = [np.where(at >= 0, items.units[at], 0) for at in found]
        whole = was[0] + was[1]
        units = (self._random.random(len(left)) * (whole + 1)).astype(np.int64)
        units[::CUTS] = was[0][::CUTS]
        old = [self._block_of[family, of] for of in was]
        new = [self._block_of[family, of] for of in (units, whole - units)]
        kind = self._problem.kind_of_rank[left]
        legal = np.all([(block >= 0) & self._allowed[kind, block] for block in new], axis=0)
        legal[::CUTS] = True
        sides = ((left, (old[0], new[0])), (right, (old[1], new[1])))
        return _Cuts(left, right, family, units, whole - units, (found[0], found[1]), sides, legal)

    def _more(self, amounts: Floats, kind: Ints, change: tuple[Ints, Ints]) -> Floats:
        """[n, 1, x] what the second block asks of a rank above the first; `amounts` [K, B, x]."""
        old, new = change
        return (amounts[kind, new] - amounts[kind, old])[:, None]

    def _with_cuts(self, cuts: "_Cuts", taken: Ints, rank: Ints) -> Items:
        """The items on these ranks, the tables that are `taken` cut anew."""
        items = self._items
        kept = np.ones(len(rank), dtype=bool)
        for found in cuts.found:
            kept[found[taken][found[taken] >= 0]] = False
        family = np.concatenate([items.family[kept], cuts.family[taken], cuts.family[taken]])
        units = np.concatenate([items.units[kept], cuts.units[taken], cuts.rest[taken]])
        ranks = np.concatenate([rank[kept], cuts.left[taken], cuts.right[taken]])
        wide = units > 0
        return Items(family[wide], units[wide], ranks[wide])

    @cached_property
    def _cut_cost(self) -> Floats:
        """[F] seconds, summed over columns, by which two blocks of the smallest width take more than one twice as wide.

        0 where there is no such block.
        """
        problem, blocks = self._problem, np.flatnonzero(self._problem.block_is_free)
        _, first = np.unique(problem.block_option[blocks], return_index=True)
        smallest = blocks[first]
        width = np.minimum(2 * problem.block_units[smallest], self._block_of.shape[1] - 1)
        twice = self._block_of[np.arange(len(smallest)), width]
        seconds = self._load[0].sum(axis=1)
        return np.where(twice >= 0, 2 * seconds[smallest] - seconds[twice], 0.0)

    def _deal_ranks(self, smoothing: Smoothing) -> int:
        items = self._items
        left, right = self._pairs(smoothing.fullness(self._state.load), self._reached_kind)
        bins, order = self._rank_bins((left, right))
        if not len(order):
            return 0
        moved, target = deal(bins, left, right, smoothing, self._random)
        rank = items.rank.copy()
        rank[order[moved]] = target
        return len(moved) if len(moved) and self._replace(Items(items.family, items.units, rank)) else 0

    def _deal_nodes(self, smoothing: Smoothing) -> int:
        problem = self._problem
        sizes = np.diff(problem.node_start)
        changed = 0
        for k in range(problem.kinds):
            nodes = np.flatnonzero(problem.kind_of_rank[problem.node_start[:-1]] == k)
            mine = np.flatnonzero(np.isin(self._node, nodes))
            if len(nodes) < 2 or not len(mine):
                continue
            ranks = int(sizes[nodes[0]])
            of_nodes = np.concatenate([np.arange(problem.node_start[n], problem.node_start[n + 1]) for n in nodes])
            fullness = smoothing.fullness(self._state.load)[of_nodes].reshape(len(nodes), ranks).sum(axis=1)
            left, right = self._pairs(fullness, np.zeros(len(nodes), dtype=np.int64))
            order = mine[np.argsort(self._node[mine], kind="stable")]
            partner = nodes[self._partners(left, right, len(nodes))[np.searchsorted(nodes, self._node[order])]]
            order = order[self._may_be_on_node(self._node_block[order], partner)]
            if not len(order):
                continue
            load, size = self._node_amounts(self._node_block[order], k, ranks)
            shape = (len(nodes), ranks, -1)
            bins = Bins(
                self._state.load.T[of_nodes].reshape(shape),
                self._room(of_nodes).T[of_nodes].reshape(shape),
                np.searchsorted(nodes, self._node[order]),
                load,
                size,
            )
            moved, target = deal(bins, left, right, smoothing, self._random)
            if len(moved):
                self._charge_nodes(order[moved], -1.0)
                self._node[order[moved]] = nodes[target]
                self._charge_nodes(order[moved], 1.0)
                changed += len(moved)
        return changed

    def _may_be_on_node(self, blocks: Ints, nodes: Ints) -> Bools:
        """[n] whether each block's table may use all ranks of the node at its position."""
        problem = self._problem
        return np.asarray(problem.node_sets[problem.table_rank_set[problem.table_of_block[blocks]], nodes])

    def _node_amounts(self, blocks: Ints, kind: int, ranks: int) -> tuple[Floats, Floats]:
        """Loads [n, ranks, C] and bytes [n, ranks, M] of node-wide blocks."""
        problem = self._problem
        share = np.stack([problem.node_share(block, ranks) for block in blocks.tolist()])[..., None]
        load = problem.fixed[kind, blocks][:, None] + problem.by_rows[kind, blocks][:, None] * share
        size = problem.bytes_fixed[kind, blocks][:, None] + problem.bytes_by_rows[kind, blocks][:, None] * share
        return load, size

    def _charge_nodes(self, index: Ints, sign: float) -> None:
        problem = self._problem
        for block, node in zip(self._node_block[index].tolist(), self._node[index].tolist(), strict=True):
            ranks = slice(int(problem.node_start[node]), int(problem.node_start[node + 1]))
            share = problem.node_share(block, ranks.stop - ranks.start)
            load, size = spread(problem, block, share, problem.kind_of_rank[ranks])
            self._state.add(sign * load, sign * size, ranks)

    # -- conversions -------------------------------------------------------------------------------------------

    @cached_property
    def _table_of_family(self) -> Ints:
        """[F]"""
        return self._problem.option_table[np.flatnonzero(self._problem.option_units > 0)]

    @cached_property
    def _has_alternatives(self) -> bool:
        """Whether a table has more than one free option: another memory tier or cache size."""
        return len(np.unique(self._table_of_family)) < len(self._table_of_family)

    def _convert(self, smoothing: Smoothing) -> int:
        """Whole tables change their tier or cache size where they are: on each rank the best one or two of some."""
        problem, items = self._problem, self._items
        item, family = self._alternatives()
        if not len(item):
            return 0
        rank = items.rank[item]
        kind = problem.kind_of_rank[rank]
        old, new = self._block_of[items.family[item], items.units[item]], self._block_of[family, items.units[item]]
        load, size = self._load[kind, new] - self._load[kind, old], self._size[kind, new] - self._size[kind, old]
        ranks, drawn = self._drawn(rank, smoothing)
        there = (drawn >= 0)[..., None]
        more = np.where(there, smoothing.relative(load)[drawn], 0.0)
        bytes_more = np.where(there, size[drawn], 0.0)
        now = smoothing.relative(self._state.load.T[ranks])[:, None, None]
        value = smoothing.value_of((now + more[:, :, None] + more[:, None])[..., None, :])
        fits = (self._state.free.T[ranks][:, None, None] >= bytes_more[:, :, None] + bytes_more[:, None]).all(axis=-1)
        same = np.where(there[..., 0], item[drawn], -np.arange(1, drawn.shape[1] + 1))
        twice = same[:, :, None] == same[:, None]
        twice[:, 0, 0] = False
        value = np.where(fits & ~twice, value, np.inf).reshape(len(ranks), -1)
        best = value.argmin(axis=1)
        better = np.flatnonzero(value[np.arange(len(ranks)), best] < value[:, 0] * (1 - 1e-9))
        one, two = np.divmod(best[better], drawn.shape[1])
        taken = np.concatenate([drawn[better, one], drawn[better, two]])
        taken = taken[taken >= 0]
        families = items.family.copy()
        families[item[taken]] = family[taken]
        return len(taken) if len(taken) and self._replace(Items(families, items.units, items.rank)) else 0

    def _alternatives(self) -> tuple[Ints, Ints]:
        """Whole tables on one rank, each with another free option of its table that has this width, drawn at random."""
        items, problem = self._items, self._problem
        table = self._table_of_family[items.family]
        single = np.bincount(table, minlength=problem.tables)[table] == 1
        start = np.searchsorted(self._table_of_family, np.arange(problem.tables + 1))
        item = np.repeat(np.flatnonzero(single), CONVERSIONS)
        count = np.diff(start)[table[item]]
        family = start[table[item]] + (self._random.random(len(item)) * count).astype(np.int64)
        block = self._block_of[family, items.units[item]]
        kind = problem.kind_of_rank[items.rank[item]]
        possible = (family != items.family[item]) & (block >= 0) & self._allowed[kind, block]
        possible &= items.units[item] == self._whole_units[items.family[item]]
        return item[possible], family[possible]

    def _drawn(self, rank: Ints, smoothing: Smoothing) -> tuple[Ints, Ints]:
        """Ranks of which no two share a memory pool, the fullest first, and for each [n, m] some candidates of its own.

        The first candidate of each rank is -1, to change nothing; so are those that are missing.
        """
        problem = self._problem
        order = np.argsort(-smoothing.fullness(self._state.load), kind="stable")
        for pool in problem.pool_of_rank:
            order = order[np.sort(np.unique(pool[order], return_index=True)[1])]
        lottery = np.lexsort((self._random.random(len(rank)), rank))
        start = np.searchsorted(rank[lottery], np.arange(problem.world + 1))
        count = np.minimum(np.diff(start), CANDIDATES)[order]
        position = np.arange(CANDIDATES)
        index = np.minimum(start[order][:, None] + position, max(len(lottery) - 1, 0))
        chosen = np.where(position < count[:, None], lottery[index], -1)
        return order, np.concatenate([np.full((len(order), 1), -1), chosen], axis=1)

    def _find(self, family: Ints, rank: Ints) -> Ints:
        """Item of each family on each rank, -1 where there is none."""
        world = self._problem.world
        key = self._items.family * world + self._items.rank
        wanted = family * world + rank
        at = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
        return np.where(key[at] == wanted, at, -1)

    def _replace(self, items: Items) -> bool:
        """Put other items in the place of all, and update loads and free memory.

        False, with nothing changed, where two parts of a table met whose joint width no block type has.
        """
        merged = merged_items(items, self._problem.world)
        if (self._block_of[merged.family, merged.units] < 0).any():
            return False
        before, self._items = self._items, merged
        gone, come = difference(before, merged, self._problem.world)
        self._charge(before, gone, -1.0)
        self._charge(merged, come, 1.0)
        return True

    def _charge(self, items: Items, index: Ints, sign: float) -> None:
        problem = self._problem
        block, rank = self._block_of[items.family[index], items.units[index]], items.rank[index]
        kind = problem.kind_of_rank[rank]
        load, size = self._load[kind, block], self._size[kind, block]
        world = problem.world
        per_rank: Floats = np.array([np.bincount(rank, weights=column, minlength=world) for column in load.T])
        stored: Floats = np.array([np.bincount(rank, weights=tier, minlength=world) for tier in size.T])
        everywhere = self._everywhere[:, block].sum(axis=1)
        self._state.add(sign * per_rank, sign * stored, slice(0, world))
        self._state.add_everywhere(sign * everywhere)
