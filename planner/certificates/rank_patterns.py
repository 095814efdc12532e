"""Rank patterns: what a plan below a threshold may hold on the ranks of one node, and the most that it is worth.

Where a step is one number for each rank, a plan faster than z packs its blocks into ranks of less than z. At prices of
blocks, the dearest content of a node is found by two multiple-choice knapsacks (Gilmore & Gomory, Oper. Res. 9, 1961):
one over blocks of single ranks, one over what all ranks of a node hold. Where all nodes so filled are worth less than
the cheapest choice of options, no plan is faster than z; this holds at any prices (Farley, Oper. Res. 38, 1990). Loads
are rounded down to whole cells of z, so that every plan stays one.

A rank that holds two blocks of one splittable option may as well hold one of their joint width, at the load and bytes
of the cheapest blocks that add up to it: where there are all widths, it holds one block of each table at most. Nothing
here searches: the solver and the check of a proof both take their arithmetic from this module.
"""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np

from planner.certificates.lagrangian import block_values, region_capacity
from planner.certificates.tilings import cheapest_tilings, option_tilings, tiling_widths
from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.rounding import ROUNDING
from planner.problem.row_shares import shares_at

MOST_CELLS = 20_000
"""Cells into which a threshold is divided at most."""
MOST_BUNDLES = 300
"""Ways in which a site may hold blocks of one option at most."""


@dataclass(frozen=True)
class Bundles:
    """What a site may hold of one table: some blocks of one option. I of them, of n different blocks at most."""

    table: Ints
    """[I] ascending."""
    blocks: Ints
    """[I, n] where there are fewer, the rest is 0 with a count of 0."""
    counts: Ints
    """[I, n]"""

    def sums(self, values: Floats | Ints) -> Floats:
        """[I] of `values` [B] over the blocks."""
        return np.asarray((values[self.blocks] * self.counts).sum(axis=1))

    def chosen(self, which: Bools) -> "Bundles":
        """Some of them [I]."""
        return Bundles(self.table[which], self.blocks[which], self.counts[which])

    @cached_property
    def start(self) -> Ints:
        """Where those of each table begin that has any; and the end of the last ones."""
        return np.append(np.flatnonzero(np.diff(self.table, prepend=-1)), len(self.table))


def has_rank_patterns(problem: Problem) -> bool:
    """Whether the step is one number for each rank, all ranks are of one kind, and blocks span one sort of node; and
    whether sites may hold few enough sets of blocks of one option."""
    instance = problem.resource_of_rank
    is_one_number = len(problem.stage_constants) == 1 == len(instance) and problem.kinds == 1
    if not is_one_number or problem.everywhere.any() or len(np.unique(instance[0])) < problem.world:
        return False
    sites = [problem.sites[extent] for extent in np.unique(problem.block_extent[problem.is_on_group]).tolist()]
    if len(sites) > 1 or any(len(np.unique(each.sizes)) > 1 for each in sites):
        return False
    if not problem.is_on_rank[problem.block_is_splittable].all():
        return False
    return all(_bundle_count(problem, option) <= MOST_BUNDLES for option in range(len(problem.option_table)))


def _bundle_count(problem: Problem, option: int) -> float:
    """Sets of blocks of an option that a site may hold, one of which is empty where the option is fixed."""
    types = slice(int(problem.block_start[option]), int(problem.block_start[option + 1]))
    if problem.option_units[option]:
        return len(portions(tuple(problem.block_units[types].tolist()), int(problem.option_units[option])))
    if problem.option_colocated[option] or problem.option_apart[option]:
        return types.stop - types.start
    return float(np.prod(problem.block_count[types] + 1.0))


@cache
def portions(widths: tuple[int, ...], units: int) -> tuple[tuple[int, ...], ...]:
    """What a rank may hold of a table that is cut into some of these ascending widths: numbers of widths, descending.

    Widths that add up to one that there is are held as that one. Ends early above MOST_BUNDLES.
    """
    known = set(widths)
    found: list[tuple[tuple[int, ...], frozenset[int]]] = [
        ((number,), frozenset((0, width))) for number, width in enumerate(widths)
    ]
    for held, sums in found:
        for number in range(held[-1] + 1):
            more = {one + widths[number] for one in sums if one}
            if max(sums) + widths[number] <= units and not more & known and len(found) <= MOST_BUNDLES:
                found.append(((*held, number), sums | more | {widths[number]}))
    return tuple(held for held, _ in found)


class PatternRules:
    """Patterns below one threshold, of a problem that has them; N nodes of L ranks, or of one where no block spans
    more, B blocks, T tables."""

    def __init__(self, problem: Problem, threshold_s: float, cells: int) -> None:
        self.problem, self.threshold_s, self.cells = problem, threshold_s, cells
        spans = np.unique(problem.block_extent[problem.is_on_group])
        site_of_rank = problem.sites[int(spans[0])].of_rank if len(spans) else np.arange(problem.world)
        self.ranks = int(np.bincount(site_of_rank)[0])
        """L"""
        self.nodes = len(np.unique(site_of_rank[problem.reach]))
        """N"""
        self.ranks_of_nodes: Ints = np.argsort(site_of_rank, kind="stable")
        """[W] all ranks, node by node."""
        self.tilings = option_tilings(problem)
        self.load_cells = self._load_cells()
        """[B] of each rank that takes part in the block; `cells` where it may be nowhere."""
        self.demand = np.where(problem.is_world_wide, self.nodes, 1)
        """[B] nodes or ranks that hold the block where it is taken once."""
        world = np.where(problem.is_world_wide, self.load_cells * problem.block_count, 0)
        self._world_cells = np.add.reduceat(world, problem.block_start[:-1])
        self.on_rank, self.on_node = self._bundles(is_on_rank=True), self._bundles(is_on_rank=False)

    def _load_cells(self) -> Ints:
        problem = self.problem
        wide = np.where(problem.is_world_wide, problem.world, self.ranks)
        copies = np.where(problem.is_on_rank, 1, problem.block_copies)
        least = shares_at(problem.block_rows, wide, wide - 1, copies)
        least = np.where(problem.is_on_rank | problem.block_replicated, 1.0, least)
        load = problem.fixed[0, :, 0] + problem.by_rows[0, :, 0] * least
        load = self.joined(np.where(problem.allowed[0], load, np.inf))
        room_s = self.threshold_s - float(problem.stage_constants[0]) - float(problem.base_loads[0, 0])
        of_room = load * (1 - ROUNDING) / room_s * self.cells if room_s > 0 else np.full(len(load), np.inf)
        return np.minimum(np.floor(of_room), self.cells).astype(np.int64)

    def joined(self, values: Floats) -> Floats:
        """[B] the least of `values` [B] over the blocks that each block of a splittable option may stand for."""
        ends, joint = np.append(values, np.inf), np.append(values, np.inf)
        for of_units in self.tilings:
            joint[of_units.block] = of_units.cheapest(ends)[0]
        return joint[:-1]

    def _bundles(self, *, is_on_rank: bool) -> Bundles:
        """What a rank may hold of each table, or a node on all its ranks."""
        problem, found = self.problem, []
        for option in range(len(problem.option_table)):
            types = np.arange(problem.block_start[option], problem.block_start[option + 1])
            types = types[problem.is_on_rank[types] == is_on_rank]
            found += [(int(problem.option_table[option]), own) for own in self._bundles_of(option, types)]
        width = max((len(own) for _, own in found), default=1)
        blocks, counts = np.zeros((len(found), width), dtype=np.int64), np.zeros((len(found), width), dtype=np.int64)
        for i, (_, own) in enumerate(found):
            blocks[i, : len(own)], counts[i, : len(own)] = zip(*own, strict=True)
        return Bundles(np.array([table for table, _ in found], dtype=np.int64), blocks, counts)

    def _bundles_of(self, option: int, types: Ints) -> Sequence[tuple[tuple[int, int], ...]]:
        """(block, how often) of each way to hold some of an option's `types` at one site; world-wide ones are there."""
        problem = self.problem
        if problem.option_units[option] and len(types):
            widths = tuple(problem.block_units[types].tolist())
            held = portions(widths, int(problem.option_units[option]))
            return [tuple(Counter(types[list(numbers)].tolist()).items()) for numbers in held]
        is_apart = problem.option_colocated[option] or problem.option_apart[option]
        if is_apart and not problem.is_world_wide[types].any():
            return [((block, 1),) for block in types.tolist()]
        ways = [
            [(block, n) for n in range(int(problem.block_count[block]) + 1)]
            if not problem.is_world_wide[block]
            else [(block, int(problem.block_count[block]))]
            for block in types.tolist()
        ]
        some = (tuple(pair for pair in way if pair[1]) for way in itertools.product(*ways))
        return [way for way in some if way]

    @cached_property
    def blocks(self) -> Bools:
        """[B] those that a plan below the threshold may hold."""
        return np.asarray(self.load_cells < self.cells)

    def case(self, leading: Bools) -> "PatternCase":
        """Return the plans in which every table's leading block is one of these [B]: the widest block of a splittable
        option, the first one of a fixed option."""
        return PatternCase(self, leading)


class WholeCuts(NamedTuple):
    """How splittable options of U units are cut into whole blocks. n options."""

    options: Ints
    """[n] ascending."""
    block: Ints
    """[n, U + 1] block of each width."""
    width: Ints
    """[n, U + 1] the last width of the cheapest tiling of each number of units."""
    widest: Ints
    """[n] the first width: the rest is tiled as `width` says."""

    def content(self, option: int) -> list[int]:
        """The blocks that an option is cut into."""
        row = int(np.searchsorted(self.options, option))
        first = int(self.widest[row])
        rest = tiling_widths(self.width[row], self.width.shape[1] - 1 - first)
        return [int(self.block[row, width]) for width in (first, *rest)]


class PatternCase:
    """The plans below a threshold in which the leading block of every table is one of some."""

    def __init__(self, rules: PatternRules, leading: Bools) -> None:
        problem, leading = rules.problem, leading & rules.blocks
        self.rules = rules
        any_leads = np.logical_or.reduceat(leading, problem.block_start[:-1])
        leads = np.where(problem.option_units > 0, any_leads, leading[problem.block_start[:-1]])
        held = np.where(leads, rules._world_cells, np.iinfo(np.int64).max)
        held = np.minimum.reduceat(held, problem.option_start[:-1])
        self.is_possible = bool((held <= rules.cells).all())
        """Whether every table has an option left."""
        self._held = np.where(held <= rules.cells, held, 0)
        self.room = rules.cells - 1 - int(self._held.sum())
        """Cells that are left of every rank besides what tables hold everywhere in any case."""
        self.extra_cells = rules.load_cells - np.where(problem.is_world_wide, self._held[problem.table_of_block], 0)
        """[B] of a rank beyond that."""
        self.is_held: Bools = problem.is_world_wide & (self._held[problem.table_of_block] > 0) & (self.extra_cells == 0)
        """[B] world-wide blocks that take no more than what is held in any case."""
        widest = np.zeros(len(problem.option_table), dtype=np.int64)
        np.maximum.at(widest, problem.block_option[leading], problem.block_units[leading])
        usable = (self.extra_cells <= self.room) & rules.blocks
        usable &= leads[problem.block_option] & (problem.block_units <= widest[problem.block_option])
        whole = np.logical_and.reduceat(usable, problem.block_start[:-1]) | (problem.option_units > 0)
        self.usable: Bools = usable & whole[problem.block_option]
        """[B]"""
        self.leading: Bools = leading & self.usable
        self.on_rank = self._fitting(rules.on_rank)
        self.on_node = self._fitting(rules.on_node)

    def _fitting(self, bundles: Bundles) -> Bundles:
        usable = self.usable[bundles.blocks] | (bundles.counts == 0)
        bundles = bundles.chosen(usable.all(axis=1))
        return bundles.chosen(self.cells_of(bundles) <= self.room)

    def cells_of(self, bundles: Bundles) -> Ints:
        """[I] that each takes of every rank of its site, beyond what is held there in any case."""
        return np.maximum(bundles.sums(self.extra_cells), 0).astype(np.int64)

    def dearest(self, bundles: Bundles, prices: Floats) -> "Knapsack":
        """What a site may hold at most, of the bundles on ranks or on nodes, at `prices` [B] of blocks."""
        return Knapsack(bundles, self.cells_of(bundles), bundles.sums(prices), self.room)

    def node_value(self, prices: Floats) -> float:
        """The most that a node holds at `prices` [B] of blocks."""
        on_rank, on_node = (self.dearest(bundles, prices).best for bundles in (self.on_rank, self.on_node))
        return float((on_node + self.rules.ranks * on_rank[::-1]).max())

    def values(self, prices: Floats, byte: Floats) -> Floats:
        """[B] what a block is worth where it is taken once, its bytes at `byte` [D, M] included; infinite where it may
        not be."""
        rules = self.rules
        worth = prices * rules.demand
        if byte.any():
            worth = worth + rules.joined(block_values(rules.problem, np.zeros((len(byte), 1)), byte))
        return np.where(self.usable, worth, np.inf)

    def cheapest(self, values: Floats) -> tuple[Floats, "list[WholeCuts]"]:
        """[O] the least that an option is worth at `values` [B] of blocks, and how splittable ones are cut for it."""
        problem = self.rules.problem
        options = np.full(len(problem.option_table), np.inf)
        fixed = np.flatnonzero(problem.option_units == 0)
        counted = np.where(problem.block_is_splittable, 0.0, values * problem.block_count)
        options[fixed] = np.add.reduceat(counted, problem.block_start[:-1])[fixed]
        ends, leads, cuts = np.append(values, np.inf), np.append(self.leading, False), []
        for of_units in self.rules.tilings:
            rows = np.flatnonzero(leads[of_units.block].any(axis=1))
            block = of_units.block[rows]
            best, width = cheapest_tilings(ends[block])
            with_lead = np.where(leads[block], ends[block], np.inf) + best[:, ::-1]
            widest = with_lead.argmin(axis=1)
            options[of_units.options[rows]] = with_lead[np.arange(len(rows)), widest]
            cuts.append(WholeCuts(of_units.options[rows], block, width, widest))
        return options, cuts

    def least_value(self, options: Floats, byte: Floats) -> float:
        """The least that all tables are worth beyond what the memory is, rounded down, where their options are worth
        [O] so much; infinite where one has none left."""
        problem = self.rules.problem
        total = float(np.minimum.reduceat(options, problem.option_start[:-1]).sum())
        if not self.is_possible or self.room < 0 or np.isinf(total):
            return np.inf
        paid = float((byte * region_capacity(problem)).sum())
        return total - paid - ROUNDING * (total + paid)

    def is_refuted(self, prices: Floats, byte: Floats) -> bool:
        """Whether prices [B] of blocks and of bytes [D, M] prove that there is no such plan."""
        options, _ = self.cheapest(self.values(prices, byte))
        least = self.least_value(options, byte)
        return least == np.inf or least > self.rules.nodes * self.node_value(prices) * (1 + ROUNDING)


class Knapsack:
    """A multiple-choice knapsack: at most one bundle of each table (Kellerer et al., Knapsack Problems, 2004, ch. 11).

    O(I x cells); bundles that another one of their table undercuts are passed over. What is in it is found by asking,
    table by table, from which cells the most came.
    """

    def __init__(self, bundles: Bundles, cells: Ints, worth: Floats, room: int) -> None:
        self._bundles, self._cells, self._worth = bundles, cells, worth
        self.best: Floats = np.zeros(room + 1)
        """[room + 1] the most that fits into so many cells."""
        self._before: list[tuple[Ints, Floats]] = []
        """Of each table its bundles, and the most without them."""
        self._with_it = np.empty(room + 1)
        order = np.lexsort((-worth, cells, bundles.table))
        for first, last in itertools.pairwise(bundles.start.tolist()):
            own = order[first:last]
            before = np.maximum.accumulate(np.append(0.0, worth[own][:-1]))
            self._add(own[worth[own] > before])

    def _add(self, own: Ints) -> None:
        """Let one of a table's bundles in, which are ascending by cells and by worth."""
        before, best = self.best, self.best.copy()
        size = len(best)
        for cells, worth in zip(self._cells[own].tolist(), self._worth[own].tolist(), strict=True):
            with_it = self._with_it[cells:]
            np.add(before[: size - cells], worth, out=with_it)
            np.maximum(best[cells:], with_it, out=best[cells:])
        self._before.append((own, before))
        self.best = best

    def content(self, cells: int) -> dict[int, int]:
        """How often each block is in what is worth most among all that fits into so many cells."""
        content: dict[int, int] = {}
        most = float(self.best[cells])
        for own, before in reversed(self._before):
            if before[cells] == most:
                continue
            fitting = own[self._cells[own] <= cells]
            taken = int(fitting[np.argmax(before[cells - self._cells[fitting]] + self._worth[fitting])])
            pairs = zip(self._bundles.blocks[taken].tolist(), self._bundles.counts[taken].tolist(), strict=True)
            for block, count in pairs:
                if count:
                    content[block] = content.get(block, 0) + count
            cells -= int(self._cells[taken])
            most = float(before[cells])
        return content
