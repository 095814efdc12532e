"""Local search: a placement improved in rounds, each of which changes many pairs of ranks or nodes at once.

Three kinds of round take turns. *Transfers*: within each of many disjoint pairs of ranks, some or all columns of one
table go from one rank to the other; parts of a table on one rank merge. *Deals*: paired ranks, or paired nodes, deal
out their blocks anew (`repartition`). Pairs are disjoint, so their changes add up. All is judged by a smoothed step
(`smoothing`), whose norm nears the maximum while the search goes on.
"""

from functools import cached_property

import numpy as np

from planner.problem import NODE, RANK, Bools, Floats, Ints, LoadState, Placement, Problem, load_state, spread
from planner.solvers.items import Items, difference, merged_items
from planner.solvers.repartition import PRECISION, Bins, Hands, best_ways, deal, draw
from planner.solvers.smoothing import Smoothing

TRANSFERS = 4
"""Widths that are tried for each block in one round: all of it, and this many less one at random."""

TURNS = 8
"""Of so many rounds one deals out nodes and one transfers; the others deal out ranks, where most is won."""
CUTS = 16
"""Ways to divide a table's columns that a pair of ranks tries in one round."""
CUT_DRAWS = 3
"""Tables drawn for each, of which the one that costs least to cut is taken."""
BLOCKS_BESIDE_CUT = 8
"""Other blocks that are dealt anew with each of them."""
CUT_TURNS, CUT_FROM = (0, 4), 6
CONVERSIONS = 3
"""Other tiers and cache sizes that are drawn for each whole table in one round."""
CANDIDATES = 16
"""Conversions of one rank of which the best one or two are found in one round."""
FULLEST = 4
"""One in so many bins, the fullest, look for a better deal in one round."""


class Improver:
    """Improves one placement; deterministic for its seed."""

    def __init__(self, problem: Problem, placement: Placement, seed: int) -> None:
        self._problem = problem
        self._random = np.random.default_rng(seed)
        self._load: Floats = _with_nothing(problem.fixed + problem.by_rows)
        self._size: Floats = _with_nothing(problem.bytes_fixed + problem.bytes_by_rows)
        self._everywhere: Floats = _with_nothing(problem.everywhere)
        self._allowed: Bools = np.concatenate([problem.allowed, np.ones((problem.kinds, 1), dtype=bool)], axis=1)
        extent, blocks = problem.block_extent[placement.item_block], placement.item_block
        movable = self._movable(placement)
        on_node = extent == NODE
        settled = ~movable & ~on_node
        self._settled = Placement(blocks[settled], placement.item_place[settled])
        self._node_block, self._node = blocks[on_node], placement.item_place[on_node]
        family = self._family_of_option[problem.block_option[blocks[movable]]]
        self._items = merged_items(
            Items(family, problem.block_units[blocks[movable]], placement.item_place[movable]), problem.world
        )
        self._state: LoadState = load_state(problem, self._placement())
        self.best_s = self._state.step_s()
        self._best = self._placement()

    def _movable(self, placement: Placement) -> Bools:
        """[I] free blocks on single ranks, but for parts of a table on one rank whose joint width no block type has."""
        problem, blocks = self._problem, placement.item_block
        index = np.flatnonzero((problem.block_extent[blocks] == RANK) & problem.block_is_free[blocks])
        family = self._family_of_option[problem.block_option[blocks[index]]]
        _, which = np.unique(family * problem.world + placement.item_place[index], return_inverse=True)
        joint = np.bincount(which, weights=problem.block_units[blocks[index]]).astype(np.int64)[which]
        movable = np.zeros(len(blocks), dtype=bool)
        movable[index[self._block_of[family, joint] >= 0]] = True
        return movable

    @cached_property
    def _family_of_option(self) -> Ints:
        """[O] number of each free option, -1 for fixed ones."""
        free = self._problem.option_units > 0
        return np.where(free, np.cumsum(free) - 1, -1)

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
        """The best placement so far."""
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
            step_s = self._state.step_s()
            if step_s < self.best_s:
                self.best_s, self._best = step_s, self._placement()
        return changed

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

    def _room(self, ranks: Ints) -> Floats:
        """[M, W] bytes that each of the `ranks` may add in one round: an equal part of what their pool has left."""
        problem, free = self._problem, self._state.free
        pools = zip(problem.pool_of_rank, problem.pool_capacity, strict=True)
        takers = np.stack([np.bincount(pool[ranks], minlength=len(capacity))[pool] for pool, capacity in pools])
        return np.where(free > 0, free / np.maximum(takers, 1), free)

    def _rank_bins(self, ranks: Ints) -> tuple[Bins, Ints]:
        """Every rank with its items, of which `ranks` may change in one round; and the items in the order of theirs."""
        problem, items = self._problem, self._items
        order = np.argsort(items.rank, kind="stable")
        kind = problem.kind_of_rank[items.rank[order]]
        block = self._block_of[items.family[order], items.units[order]]
        bins = Bins(
            self._state.load.T[:, None, :],
            self._room(ranks).T[:, None, :],
            items.rank[order],
            self._load[kind, block][:, None, :],
            self._size[kind, block][:, None, :],
        )
        return bins, order

    @cached_property
    def _cut_cost(self) -> Floats:
        """[F] seconds in all columns that a rank takes more for two of the smallest blocks than for twice the load of one.

        Twice the smallest width less one of twice that width, or nothing where there is no such block.
        """
        problem, blocks = self._problem, np.flatnonzero(self._problem.block_is_free)
        family = self._family_of_option[problem.block_option[blocks]]
        smallest = np.full(len(self._block_of), -1)
        smallest[family[::-1]] = blocks[::-1]
        twice = self._block_of[np.arange(len(smallest)), np.minimum(2 * problem.block_units[smallest], self._block_of.shape[1] - 1)]
        seconds = self._load[0].sum(axis=1)
        return np.where(twice >= 0, 2 * seconds[smallest] - seconds[twice], 0.0)

    def _cut(self, smoothing: Smoothing) -> int:
        """Pairs of ranks divide the columns of one table between them in another way, and deal out their other blocks.

        Every pair tries some tables and widths; the first try leaves its blocks as they are.
        """
        problem, items = self._problem, self._items
        pairs = self._pairs(smoothing.fullness(self._state.load), problem.kind_of_rank)
        bins, order = self._rank_bins(np.concatenate(pairs))
        count = np.bincount(items.rank, minlength=problem.world)
        busy = count[pairs[0]] + count[pairs[1]] > 0
        left, right = np.repeat(pairs[0][busy], CUTS), np.repeat(pairs[1][busy], CUTS)
        if not len(left):
            return 0
        start = np.cumsum(count) - count
        tickets = self._random.random((len(left), CUT_DRAWS)) * (count[left] + count[right])[:, None]
        drawn = tickets.astype(np.int64)
        on_left = drawn < count[left][:, None]
        drawn_items = order[drawn + np.where(on_left, start[left][:, None], (start[right] - count[left])[:, None])]
        cheapest = self._cut_cost[items.family[drawn_items]].argmin(axis=1)
        item = drawn_items[np.arange(len(left)), cheapest]
        family = items.family[item]
        here = [self._find(family, side) for side in (left, right)]
        was = [np.where(found >= 0, items.units[found], 0) for found in here]
        whole = was[0] + was[1]
        units = (self._random.random(len(left)) * (whole + 1)).astype(np.int64)
        units[::CUTS] = was[0][::CUTS]
        kind = problem.kind_of_rank[left]
        old = [self._block_of[family, of] for of in was]
        new = [self._block_of[family, of] for of in (units, whole - units)]
        legal = np.all([(block >= 0) & self._allowed[kind, block] for block in new], axis=0)
        legal[::CUTS] = True
        items_dealt, at_left = draw(bins, left, right, BLOCKS_BESIDE_CUT, self._random)
        cut_ones = (items_dealt >= 0) & np.any([order[items_dealt] == found[:, None] for found in here], axis=0)
        items_dealt, at_left = np.where(cut_ones, -1, items_dealt), at_left & ~cut_ones
        load = tuple(
            bins.load[side] + (self._load[kind, after] - self._load[kind, before])[:, None]
            for side, before, after in zip((left, right), old, new, strict=True)
        )
        free = tuple(
            bins.free[side] - (self._size[kind, after] - self._size[kind, before])[:, None]
            for side, before, after in zip((left, right), old, new, strict=True)
        )
        to_left, value, _ = best_ways(bins, Hands(items_dealt, at_left, load, free), smoothing)
        for k, share in enumerate(problem.ranks_of_kind / problem.world):
            more = sum(self._everywhere[k, after] - self._everywhere[k, before] for before, after in zip(old, new, strict=True))
            value = value + share * smoothing.uniform_growth(more)
        value = np.where(legal, value, np.inf).reshape(-1, CUTS)
        tries = np.arange(len(value)) * CUTS
        best = value.argmin(axis=1)
        taken = (tries + best)[value[np.arange(len(value)), best] < value[:, 0] * (1 - PRECISION)]
        if not len(taken):
            return 0
        rank = items.rank.copy()
        changes = (to_left != at_left) & (items_dealt >= 0)
        changes = changes[taken]
        rank[order[items_dealt[taken][changes]]] = np.where(to_left[taken], left[taken, None], right[taken, None])[changes]
        kept = np.ones(len(rank), dtype=bool)
        for found in here:
            kept[found[taken][found[taken] >= 0]] = False
        parts = [Items(items.family[kept], items.units[kept], rank[kept])]
        parts += [
            Items(family[taken], width[taken], side[taken])
            for width, side in ((units, left), (whole - units, right))
        ]
        joined = Items(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("family", "units", "rank")))
        wide = joined.units > 0
        return len(taken) if self._replace(Items(joined.family[wide], joined.units[wide], joined.rank[wide])) else 0

    def _deal_ranks(self, smoothing: Smoothing) -> int:
        problem, items = self._problem, self._items
        left, right = self._pairs(smoothing.fullness(self._state.load), problem.kind_of_rank)
        bins, order = self._rank_bins(np.concatenate([left, right]))
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
            order = mine[np.argsort(self._node[mine], kind="stable")]
            load, size = self._node_amounts(self._node_block[order], k, ranks)
            shape = (len(nodes), ranks, -1)
            of_nodes = np.concatenate([np.arange(problem.node_start[n], problem.node_start[n + 1]) for n in nodes])
            bins = Bins(
                self._state.load.T[of_nodes].reshape(shape),
                self._room(of_nodes).T[of_nodes].reshape(shape),
                np.searchsorted(nodes, self._node[order]),
                load,
                size,
            )
            fullness = smoothing.fullness(self._state.load)[of_nodes].reshape(len(nodes), ranks).sum(axis=1)
            left, right = self._pairs(fullness, np.zeros(len(nodes), dtype=np.int64))
            moved, target = deal(bins, left, right, smoothing, self._random)
            if len(moved):
                self._charge_nodes(order[moved], -1.0)
                self._node[order[moved]] = nodes[target]
                self._charge_nodes(order[moved], 1.0)
                changed += len(moved)
        return changed

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

    # -- transfers ---------------------------------------------------------------------------------------------

    def _transfer(self, smoothing: Smoothing) -> int:
        """Every paired item may give all, or a random part, of its columns to the partner of its rank."""
        items, world = self._items, self._problem.world
        left, right = self._pairs(smoothing.fullness(self._state.load), self._problem.kind_of_rank)
        partner = np.full(world, -1)
        partner[left], partner[right] = right, left
        giver = np.repeat(np.flatnonzero(partner[items.rank] >= 0), TRANSFERS)
        width = items.units[giver]
        part = 1 + (self._random.random(len(giver)) * (width - 1)).astype(np.int64)
        moved = np.where(np.arange(len(giver)) % TRANSFERS == 0, width, part)
        legal = (moved < width) | (np.arange(len(giver)) % TRANSFERS == 0)
        giver, moved = giver[legal], moved[legal]
        source = items.rank[giver]
        target = partner[source]
        family, width = items.family[giver], items.units[giver]
        taker = self._find(family, target)
        taken = np.where(taker >= 0, items.units[taker], 0)
        most = self._block_of.shape[1] - 1
        before = self._block_of[family, width], self._block_of[family, taken]
        after = self._block_of[family, width - moved], self._block_of[family, np.minimum(taken + moved, most)]
        room = self._room(np.concatenate([left, right]))
        score = self._score((source, target), before, after, smoothing, room)
        best = _best_of_pairs(np.minimum(source, target), score)
        given = len(best) and self._give(giver[best], taker[best], moved[best], target[best])
        return len(best) if given else 0

    def _score(
        self,
        ranks: tuple[Ints, Ints],
        before: tuple[Ints, Ints],
        after: tuple[Ints, Ints],
        smoothing: Smoothing,
        room: Floats,
    ) -> Floats:
        """[m] growth of the smoothed step when blocks `before` on both ranks give way to `after`; inf if illegal.

        `room` [M, W] is what each rank may add.
        """
        problem, kind = self._problem, self._problem.kind_of_rank
        index = np.flatnonzero((after[0] >= 0) & (after[1] >= 0))
        growth, fits = np.zeros(len(index)), np.ones(len(index), dtype=bool)
        for rank, old, new in zip(ranks, before, after, strict=True):
            rank, old, new = rank[index], old[index], new[index]
            of = kind[rank]
            more = self._size[of, new] - self._size[of, old]
            fits &= self._allowed[of, new]
            fits &= ((more <= room[:, rank].T) | (more <= 0)).all(axis=1)
            growth += smoothing.growth_at(self._state.load, self._load[of, new] - self._load[of, old], rank)
            for k, share in enumerate(problem.ranks_of_kind / problem.world):
                growth += share * smoothing.uniform_growth(self._everywhere[k, new] - self._everywhere[k, old])
        score = np.full(len(ranks[0]), np.inf)
        score[index] = np.where(fits, growth, np.inf)
        return score

    def _find(self, family: Ints, rank: Ints) -> Ints:
        """Item of each family on each rank, -1 where there is none."""
        world = self._problem.world
        key = self._items.family * world + self._items.rank
        wanted = family * world + rank
        at = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
        return np.where(key[at] == wanted, at, -1)

    def _give(self, giver: Ints, taker: Ints, moved: Ints, target: Ints) -> bool:
        items = self._items
        units = items.units.copy()
        units[giver] -= moved
        met = taker >= 0
        units[taker[met]] += moved[met]
        kept = units > 0
        return self._replace(
            Items(
                np.concatenate([items.family[kept], items.family[giver[~met]]]),
                np.concatenate([units[kept], moved[~met]]),
                np.concatenate([items.rank[kept], target[~met]]),
            )
        )

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


def _with_nothing(array: Floats) -> Floats:
    """The array [K, B, n] with a row of zeros behind the last block."""
    return np.concatenate([array, np.zeros_like(array[:, :1])], axis=1)


def _best_of_pairs(pair: Ints, score: Floats) -> Ints:
    """The candidate of each pair that lowers the smoothed step most, for the pairs that have one."""
    good = np.flatnonzero(score < 0)
    order = good[np.lexsort((score[good], pair[good]))]
    first = np.ones(len(order), dtype=bool)
    first[1:] = pair[order][1:] != pair[order][:-1]
    return order[first]
