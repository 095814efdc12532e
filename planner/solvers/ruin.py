"""Ruin and recreate: a few tables are taken out and put back one after the other, each in its best way.

All is judged against a target for every stage. A resource below its target costs what the fluid relaxation charges
for its seconds, so that a table is cut no finer than it must be, and a little less where it is already full, so that
holes stay large; above the target it costs much more. Of one table all ways are weighed: any tiling of its columns over
ranks by dynamic programming (`tiling`), every node for node-wide blocks, all groups of ranks of one node for tied ones,
the world. The target falls with every better plan. (Schrimpf et al., J. Comput. Phys. 159, 2000.)
"""

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planner.problem import NODE, RANK, WORLD, Bools, Floats, Ints, LoadState, Placement, Problem, load_state, spread
from planner.solvers.prices import Prices
from planner.solvers.tiling import cheapest_tiling

LINEAR, QUADRATIC = 4.0, 100.0
"""What seconds above the target cost, over those below: at once, and more with their share of the target."""
FULLNESS, CROWD = 0.15, 0.3
"""Seconds on a resource that is about to reach its target cost less by twice the first share, or by twice the second
over the tables per rank, if that is less: only where few blocks share a rank must one be full for the next to fit."""
RANKS = 16
"""Ranks that parts of a table may go to: the least loaded ones; with equal loads ahead, no others are any better."""
MOST_RUINED = 4
"""Tables that are taken out at once."""
COOLING = 0.01
"""Temperature at the end of a run over that at its beginning."""
ROUNDING_BYTES = 1e-3
"""Bytes by which a rank may seem over-full: sums of doubles."""
STEP_DOWN = 0.002
"""Relative distance of the target below the best plan."""

Pieces = list[tuple[int, int]]
"""(block, place) of one table."""


@dataclass(frozen=True)
class _Offer:
    growth: float
    pieces: Pieces


@dataclass(frozen=True)
class _Way:
    """One option of a table and what its blocks ask; n block types that are worth weighing, K kinds."""

    option: int
    blocks: Ints
    least: float
    """Growth that no place can undercut."""
    everywhere: Floats
    """[n] growth by what every rank pays for a block."""
    load: Floats
    """[K, n, C]"""
    size: Floats
    """[K, n, M]"""
    tiers: list[int]
    """Those of which the blocks take bytes."""


class Ruin:
    """One placement under repair; deterministic for its seed."""

    def __init__(self, problem: Problem, prices: Prices, usable: Bools, target: Floats, seed: int) -> None:
        self._problem, self._usable = problem, usable
        self._random = random.Random(seed)
        self._fullness = min(FULLNESS, CROWD * problem.world / problem.tables)
        self._state = LoadState(problem)
        self._kind = problem.kind_of_rank
        self._weight: Floats = prices.weight[self._kind].T
        self._byte: Floats = prices.byte[self._kind].T
        pools = zip(problem.pool_of_rank, problem.pool_capacity, strict=True)
        self._room: Floats = np.stack([np.maximum(capacity, 1.0)[pool] for pool, capacity in pools])
        self._pool_sharing: Floats = np.stack([np.bincount(of)[of] for of in problem.pool_of_rank]).astype(float)
        self._sharing: Floats = np.stack([np.bincount(of)[of] for of in problem.resource_of_rank]).astype(float)
        self._instances = np.array([len(np.unique(of)) for of in problem.resource_of_rank], dtype=float)
        self._is_shared = bool(problem.sharing.max() > 1) or any(
            len(np.unique(pool)) < problem.world for pool in problem.pool_of_rank
        )
        self._spreads: dict[int, tuple[Floats, Floats]] = {}
        self._ways: dict[int, list[_Way]] = {}
        self._pieces: list[Pieces] = [[] for _ in range(problem.tables)]
        self._at: dict[tuple[bool, int], set[int]] = {}
        self.best_s, self._best = np.inf, None
        self._target: Floats = np.full(len(problem.stage_constants), np.inf)
        self._aim_at(target)

    def start_from(self, placement: Placement) -> None:
        """Hold this placement."""
        problem = self._problem
        self._state = load_state(problem, placement)
        self._at.clear()
        self._pieces = [[] for _ in range(problem.tables)]
        table = problem.option_table[problem.block_option[placement.item_block]]
        pairs = zip(placement.item_block.tolist(), placement.item_place.tolist(), strict=True)
        for t, pair in zip(table.tolist(), pairs, strict=True):
            self._pieces[t].append(pair)
        for t, pieces in enumerate(self._pieces):
            self._register(t, pieces)
        self._note()

    def build(self) -> None:
        """Put in the tables that are not there, the heaviest first, each in its best way."""
        for t in sorted(range(self._problem.tables), key=lambda t: (-self._ways_of(t)[0].least, t)):
            if not self._pieces[t]:
                offer = self._best_offer(t)
                assert offer is not None
                self._charge(offer.pieces, 1.0)
                self._register(t, offer.pieces)
                self._pieces[t] = offer.pieces
        self._note()

    def _note(self) -> bool:
        """Remember the state if it is the best one and fits; and aim below it."""
        step_s = self._state.step_s()
        if step_s >= self.best_s * (1 - 1e-9) or self._state.free.min() < -ROUNDING_BYTES:
            return False
        self.best_s, self._best = step_s, self._placement()
        self._aim_at(self._state.stage_seconds() * (1 - STEP_DOWN))
        return True

    def best(self) -> Placement | None:
        """The best placement so far that fits."""
        return self._best

    def _aim_at(self, stage_seconds: Floats) -> None:
        problem = self._problem
        self._target = stage_seconds = np.minimum(stage_seconds, self._target)
        working = stage_seconds - problem.stage_constants
        working = np.maximum(working, max(1e-3 * float(working.sum()), 1e-15))
        aim = working[problem.stage_of_column]
        self._aim: Floats = aim[:, None]
        self._price: Floats = self._weight * self._aim
        self._fine: Floats = (aim / self._instances)[:, None]
        self._byte_fine: Floats = self._byte * self._room + float(working.sum()) / problem.world

    # -- the search --------------------------------------------------------------------------------------------

    def run(self, steps: int, temperature: float, is_over: Callable[[], bool]) -> None:
        """So many times, ruin and recreate; worse states are taken with a chance that the temperature governs.

        It is the growth, as a share of the step, at which the chance is 1 / e; it falls to a hundredth of what is given.
        """
        value = self._value()
        for step in range(steps):
            heat = temperature * COOLING ** (step / steps) * float(self._aim.max())
            value = self._recreate(self._ruined(), value, heat * self._random.expovariate(1.0))
            if self._note():
                value = self._value()
            if is_over():
                break

    def _ruined(self) -> list[int]:
        """Tables to take out: one or two from a rank that is above its target, if there is one; others near by."""
        problem, draw = self._problem, self._random
        over = np.flatnonzero((self._state.load > self._aim).any(axis=0))
        rank = int(over[draw.randrange(len(over))]) if len(over) and draw.random() < 0.8 else draw.randrange(problem.world)
        wanted = min(draw.randint(1, MOST_RUINED), problem.tables)
        here = self._tables_at(rank)
        draw.shuffle(here)
        chosen = here[: min(wanted, 2)]
        for _ in range(100):
            if len(chosen) >= wanted:
                break
            near = draw.randrange(problem.tables)
            if chosen and draw.random() < 0.5:
                block, place = draw.choice(self._pieces[draw.choice(chosen)])
                if problem.block_extent[block] == RANK:
                    near = draw.choice(self._tables_at(place))
            if near not in chosen:
                chosen.append(near)
        if draw.random() < 0.7:
            return sorted(chosen, key=lambda t: (-self._ways_of(t)[0].least, t))
        draw.shuffle(chosen)
        return chosen

    def _tables_at(self, rank: int) -> list[int]:
        """Tables with a block on the rank or its node."""
        node = int(self._problem.node_of_rank[rank])
        return sorted(self._at.get((True, rank), set()) | self._at.get((False, node), set()))

    def _recreate(self, tables: list[int], value: float, tolerance: float) -> float:
        """Take the tables out and put them back in this order; the new value, or the old one with nothing changed."""
        state = self._state
        load, free = state.load.copy(), state.free.copy()
        old = [self._pieces[t] for t in tables]
        for pieces in old:
            self._charge(pieces, -1.0)
        new: list[Pieces] = []
        for t in tables:
            offer = self._best_offer(t)
            if offer is None:
                break
            self._charge(offer.pieces, 1.0)
            new.append(offer.pieces)
        else:
            found = self._value()
            if found <= value + tolerance:
                for t, before, after in zip(tables, old, new, strict=True):
                    self._register(t, before, False)
                    self._register(t, after)
                    self._pieces[t] = after
                return found
        state.load[:], state.free[:] = load, free
        return value

    def _register(self, table: int, pieces: Pieces, is_there: bool = True) -> None:
        extent = self._problem.block_extent
        for block, place in pieces:
            if place >= 0:
                tables = self._at.setdefault((extent[block] == RANK, place), set())
                tables.add(table) if is_there else tables.discard(table)

    def _placement(self) -> Placement:
        pairs = np.array([pair for pieces in self._pieces for pair in pieces], dtype=np.int64)
        by_block = np.lexsort((pairs[:, 1], pairs[:, 0]))
        return Placement(pairs[by_block, 0], pairs[by_block, 1])

    # -- what a state is worth ---------------------------------------------------------------------------------

    def _cost(self, x: Floats, price: Floats, fine: Floats) -> Floats:
        """Of relative loads `x` on instances with these prices and fines of the whole target."""
        over = np.maximum(x - 1.0, 0.0)
        return np.asarray(price * x * (1.0 - self._fullness * x) + fine * over * (LINEAR + QUADRATIC * over))

    def _value(self) -> float:
        cost = self._cost(self._state.load / self._aim, self._price, self._fine) / self._sharing
        return float(cost.sum() + (self._byte_cost(self._state.free) / self._pool_sharing).sum())

    def _byte_cost(self, free: Floats) -> Floats:
        """[M, W] of pools with so many bytes `free` (less than none, where they are over-full)."""
        over = np.maximum(-free / self._room, 0.0)
        return np.asarray(self._byte_fine * over * (LINEAR + QUADRATIC * over) - self._byte * free)

    def _byte_growth(self, free: Floats, size: Floats, tier: int, ranks: Ints) -> Floats:
        """[R, n] growth by `size` [R or 1, n] more bytes on ranks with so many `free` [R] ones."""
        room, fine = self._room[tier, ranks][:, None], self._byte_fine[tier, ranks][:, None]
        now = np.maximum(-free / self._room[tier, ranks], 0.0)[:, None]
        then = np.maximum((size - free[:, None]) / room, 0.0)
        paid = self._byte[tier, ranks][:, None] * size
        return np.asarray(paid + fine * (then * (LINEAR + QUADRATIC * then) - now * (LINEAR + QUADRATIC * now)))

    def _growth(self, load: Floats, ranks: Ints) -> Floats:
        """[R, n] growth if each of the `ranks` took `load` [R or 1, n, C] more."""
        now = (self._state.load[:, ranks] / self._aim).T[:, None]
        price, fine = self._price[:, ranks].T[:, None], self._fine[:, 0]
        then = now + load / self._aim[:, 0]
        grown = self._cost(then, price, fine) - self._cost(now, price, fine)
        return np.asarray(grown[..., 0] if grown.shape[-1] == 1 else grown.sum(axis=-1))

    def _charge(self, pieces: Pieces, sign: float) -> None:
        problem, state = self._problem, self._state
        on_rank = [pair for pair in pieces if problem.block_extent[pair[0]] == RANK]
        if on_rank:
            block, rank = np.array(on_rank).T
            kind = self._kind[rank]
            load = sign * (problem.fixed[kind, block] + problem.by_rows[kind, block])
            size = sign * (problem.bytes_fixed[kind, block] + problem.bytes_by_rows[kind, block])
            if self._is_shared or len(set(rank.tolist())) < len(rank):
                for r, of_load, of_size in zip(rank.tolist(), load, size, strict=True):
                    state.add_on_rank(of_load, of_size, r)
            else:
                state.load[:, rank] += load.T
                state.free[:, rank] -= size.T
        for block, place in pieces:
            if problem.block_extent[block] != RANK:
                load, size = self._spread(block)
                ranks = slice(0, problem.world)
                if problem.block_extent[block] == NODE:
                    ranks = slice(int(problem.node_start[place]), int(problem.node_start[place + 1]))
                if self._is_shared:
                    state.add(sign * load[:, ranks], sign * size[:, ranks], ranks)
                else:
                    state.load[:, ranks] += sign * load[:, ranks]
                    state.free[:, ranks] -= sign * size[:, ranks]
        everywhere = problem.everywhere[:, [block for block, _ in pieces]].sum(axis=1)
        if everywhere.any():
            state.add_everywhere(sign * everywhere)

    def _spread(self, block: int) -> tuple[Floats, Floats]:
        """Loads [C, W] and bytes [M, W] of a NODE block, were it on every node, or of a WORLD one."""
        if block not in self._spreads:
            problem = self._problem
            if problem.block_extent[block] == WORLD:
                share = problem.world_share(block)
            else:
                sizes = np.diff(problem.node_start).tolist()
                share = np.concatenate([problem.node_share(block, n) for n in sizes])
            self._spreads[block] = spread(problem, block, share, self._kind)
        return self._spreads[block]

    # -- one table's best way ----------------------------------------------------------------------------------

    def _ways_of(self, table: int) -> list[_Way]:
        """The options of a table that are worth weighing, the cheapest first."""
        if table not in self._ways:
            problem = self._problem
            ways = []
            for option in range(int(problem.option_start[table]), int(problem.option_start[table + 1])):
                blocks = np.arange(problem.block_start[option], problem.block_start[option + 1])
                worth_it = self._usable[blocks]
                if problem.option_units[option]:
                    blocks = blocks[worth_it]
                if worth_it.any():
                    ways.append(self._way(option, blocks))
            self._ways[table] = sorted(ways, key=lambda way: (way.least, way.option))
        return self._ways[table]

    def _way(self, option: int, blocks: Ints) -> _Way:
        problem = self._problem
        load = problem.fixed[:, blocks] + problem.by_rows[:, blocks]
        size = problem.bytes_fixed[:, blocks] + problem.bytes_by_rows[:, blocks]
        weight = self._weight.sum(axis=1)
        everywhere = np.einsum("knc,kc->n", problem.everywhere[:, blocks] * (problem.ranks_of_kind / problem.world)[:, None, None], np.tile(weight / self._sharing.mean(axis=1), (problem.kinds, 1)))
        if problem.block_extent[blocks[0]] == RANK:
            of_kind = np.array([int(np.flatnonzero(self._kind == k)[0]) for k in range(problem.kinds)])
            least = ((1 - 2 * self._fullness) * (load * self._weight[:, of_kind].T[:, None]).sum(axis=2) + (size * self._byte[:, of_kind].T[:, None]).sum(axis=2)).min(axis=0) + everywhere
            units = problem.block_units[blocks]
            total = (least / units).min() * problem.option_units[option] if units[0] else least @ problem.block_count[blocks]
        else:
            total = 0.0
            for i, block in enumerate(blocks.tolist()):
                of_load, of_size = self._spread(block)
                cost = (of_load / self._sharing * self._weight).sum(axis=0) * (1 - 2 * self._fullness) + (of_size * self._byte).sum(axis=0)
                if problem.block_extent[block] == NODE:
                    cost = np.add.reduceat(cost, problem.node_start[:-1]).min()
                total += (float(cost.sum()) + float(everywhere[i])) * int(problem.block_count[block])
        return _Way(option, blocks, float(total), everywhere, load, size, np.flatnonzero(size.any(axis=(0, 1))).tolist())

    def _best_offer(self, table: int) -> _Offer | None:
        problem = self._problem
        best: _Offer | None = None
        for way in self._ways_of(table):
            if best is not None and way.least >= best.growth:
                break
            if problem.option_tied[way.option]:
                offer = self._tied_offer(way)
            elif problem.option_units[way.option]:
                offer = self._rank_offer(way)
            elif problem.block_extent[way.blocks[0]] == WORLD:
                offer = self._world_offer(way)
            else:
                offer = self._node_offer(way)
            if offer is not None and (best is None or offer.growth < best.growth):
                best = offer
        return best

    def _placed_growth(self, way: _Way, ranks: Ints) -> Floats:
        """[R, n] growth by each block on each of the ranks; infinite where it may not be."""
        kind = self._kind[ranks] if len(way.load) > 1 else np.zeros(1, dtype=np.int64)
        growth = self._growth(way.load[kind], ranks) + way.everywhere
        for m in way.tiers:
            growth += self._byte_growth(self._state.free[m, ranks], way.size[kind, :, m], m, ranks)
        return np.where(self._problem.allowed[kind[:, None], way.blocks], growth, np.inf)

    def _rank_offer(self, way: _Way) -> _Offer | None:
        """The best tiling of a free option over the least loaded ranks that have memory for its narrowest block."""
        problem = self._problem
        ranks = np.arange(problem.world)
        if problem.world > RANKS:
            fullness = (self._state.load / self._aim).max(axis=0)
            for m in way.tiers:
                over = way.size[:, 0, m][self._kind] > self._state.free[m]
                fullness = np.where(over, fullness + 1.0, fullness)
            ranks = np.sort(np.argpartition(fullness, RANKS)[:RANKS])
        growth = self._placed_growth(way, ranks)
        if len(way.blocks) == 1 and problem.block_units[way.blocks[0]] == problem.option_units[way.option]:
            rank = int(growth[:, 0].argmin())
            cost = float(growth[rank, 0])
            return _Offer(cost, [(int(way.blocks[0]), int(ranks[rank]))]) if np.isfinite(cost) else None
        units = problem.block_units[way.blocks]
        whole = int(problem.option_units[way.option])
        cost = np.full((len(ranks), whole + 1), np.inf)
        cost[:, 0] = 0.0
        cost[:, units] = growth
        tiling = cheapest_tiling(cost)
        if tiling is None:
            return None
        taken = np.flatnonzero(tiling.widths)
        blocks = way.blocks[np.searchsorted(units, tiling.widths[taken])]
        return _Offer(tiling.cost, list(zip(blocks.tolist(), ranks[taken].tolist(), strict=True)))

    def _tied_offer(self, way: _Way) -> _Offer | None:
        """The blocks of a tied option on the ranks of one node where they cost least, the largest blocks first."""
        problem = self._problem
        growth = self._placed_growth(way, np.arange(problem.world))
        rows = np.repeat(np.arange(len(way.blocks)), problem.block_count[way.blocks])
        best: _Offer | None = None
        for first, stop in itertools.pairwise(problem.node_start.tolist()):
            if stop - first < len(rows):
                continue
            ranks = first + np.argsort(growth[first:stop, 0], kind="stable")[: len(rows)]
            total = float(growth[ranks, rows].sum())
            if np.isfinite(total) and (best is None or total < best.growth):
                best = _Offer(total, list(zip(way.blocks[rows].tolist(), ranks.tolist(), strict=True)))
        return best

    def _node_offer(self, way: _Way) -> _Offer | None:
        """Blocks of a node-wide option on the nodes where they cost least, each on another node."""
        problem = self._problem
        taken = np.zeros(len(problem.node_start) - 1, dtype=bool)
        pieces: Pieces = []
        total = 0.0
        for i, block in enumerate(way.blocks.tolist()):
            growth = np.add.reduceat(self._wide_growth(block), problem.node_start[:-1]) + way.everywhere[i]
            for _ in range(int(problem.block_count[block])):
                node = int(np.where(taken, np.inf, growth).argmin())
                if taken[node] or not np.isfinite(growth[node]):
                    return None
                taken[node] = True
                total += float(growth[node])
                pieces.append((block, node))
        return _Offer(total, pieces)

    def _world_offer(self, way: _Way) -> _Offer | None:
        block = int(way.blocks[0])
        total = float(self._wide_growth(block).sum() + way.everywhere[0])
        return _Offer(total, [(block, -1)]) if np.isfinite(total) else None

    def _wide_growth(self, block: int) -> Floats:
        """[W] each rank's part of the growth by a NODE or WORLD block; infinite where it may not be."""
        problem, state = self._problem, self._state
        load, size = self._spread(block)
        now = state.load / self._aim
        then = now + load / self._aim
        cost = self._cost(then, self._price, self._fine) - self._cost(now, self._price, self._fine)
        growth = (cost / self._sharing).sum(axis=0)
        for m in np.flatnonzero(size.any(axis=1)):
            pool = problem.pool_of_rank[m]
            more = np.bincount(pool, weights=size[m])[pool]
            everyone = np.arange(problem.world)
            of_pool = self._byte_growth(state.free[m], more[:, None], int(m), everyone)[:, 0]
            growth += of_pool / self._pool_sharing[m]
        return np.where(problem.allowed[self._kind, block], growth, np.inf)
