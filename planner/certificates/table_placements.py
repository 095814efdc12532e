"""All placements of one table by itself: an option, what it is made of, and where each of its blocks is."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from planner.certificates.partial_plans import PartialPlanBounds
from planner.certificates.work_budget import WorkBudget, WorkExceededError
from planner.problem.arrays import Problem
from planner.problem.load_state import place_block
from planner.problem.numbers import Floats
from planner.problem.products import product
from planner.problem.sites import NOWHERE

MOST_PLACEMENTS = 4_000
"""Placements of one table at most."""
NUMBERS_PER_PAIR = 8
"""Numbers that take as long as one of the numbers of a block at a place, which are worked out one block at a time."""

Counts = list[tuple[int, int]]
"""(block, how often) of what makes up an option."""
PlacedRows = dict[tuple[int, int], Floats]
"""[R, W] what a block adds at a place, by (block, place)."""


@dataclass(frozen=True)
class TablePlacements:
    """All placements of one table. n of them."""

    items: list[list[tuple[int, int]]]
    """(block, place) of each."""
    added: Floats
    """[n, R, W] what each adds to the rows of a partial plan."""
    linear: Floats
    """[n, J] what each adds to the functionals of a partial plan."""


class TableEnumeration:
    """The enumeration of what each table of a problem may be; equal blocks of a table are not told apart."""

    def __init__(
        self, problem: Problem, bounds: PartialPlanBounds, budget: WorkBudget, known: PlacedRows | None = None
    ) -> None:
        """What blocks add is taken from `known`, and written there."""
        self._problem, self._bounds, self._budget = problem, bounds, budget
        self._known: PlacedRows = {} if known is None else known

    def placements(self, table: int) -> TablePlacements | None:
        """The placements of a table that fit by themselves; None where there are none."""
        problem, bounds = self._problem, self._bounds
        blocks = np.arange(*problem.table_block_start[table : table + 2])
        pairs = [(int(block), place) for block in blocks for place in self._places(int(block))]
        if not pairs:
            return None
        self._budget.spend(NUMBERS_PER_PAIR * len(pairs) * bounds.base.size)
        rows = np.stack([self._rows_of(block, place) for block, place in pairs])
        base = bounds.linear(bounds.base[None])
        fits = bounds.is_possible(bounds.base + rows, bounds.linear(rows) + base)
        number = {pair: i for i, pair in enumerate(pairs) if fits[i]}
        places_of: dict[int, list[int]] = {int(block): [] for block in blocks}
        for block, place in number:
            places_of[block].append(place)
        items: list[list[tuple[int, int]]] = []
        for option, counts in self._ways(table, places_of):
            for placement in self._placements_of_option(option, counts, places_of):
                items.append(placement)
                self._budget.spend(bounds.base.size)
                if len(items) > MOST_PLACEMENTS:
                    raise WorkExceededError
        if not items:
            return None
        row = np.repeat(np.arange(len(items)), [len(placement) for placement in items])
        pair = np.array([number[each] for placement in items for each in placement], dtype=np.int64)
        count = np.bincount(row * len(pairs) + pair, minlength=len(items) * len(pairs)).astype(float)
        count = count.reshape(len(items), len(pairs))
        added = product(count, rows.reshape(len(rows), -1)).reshape(len(count), *rows.shape[1:])
        kept = np.ones(len(items), dtype=bool)
        covers = np.stack([self._ranks_of(block, place) for block, place in pairs])
        for g, group in enumerate(bounds.groups):
            if table in group.tables:
                zones = group.zone_of_rank[:, None] == group.zone_of_rank
                touched = ((count @ covers) > 0) @ zones > 0
                added[:, bounds.columns + bounds.pools + g] = touched
                if g < len(problem.affinity_groups):
                    first = group.zone_of_rank[touched.argmax(axis=1)]
                    kept &= (touched == (group.zone_of_rank == first[:, None])).all(axis=1)
        linear = bounds.linear(added)
        kept &= bounds.is_possible(bounds.base + added, linear + base)
        which = np.flatnonzero(kept)
        return TablePlacements([items[i] for i in which], added[which], linear[which]) if len(which) else None

    def _places(self, block: int) -> list[int]:
        sites = self._problem.sites_of(block)
        is_open = sites.all(self._problem.may_hold(block))
        if sites.reach == "world":
            return [NOWHERE] if is_open[NOWHERE] else []
        return [int(place) for place in np.flatnonzero(is_open)]

    def _rows_of(self, block: int, place: int) -> Floats:
        """[R, W] what a block adds at a place."""
        if (known := self._known.get((block, place))) is not None:
            return known
        state = self._bounds.blank.copy()
        state.load[:], state.free[:] = 0.0, 0.0
        place_block(self._problem, state, block, place)
        state.add_everywhere(self._problem.everywhere[:, block])
        marks = np.zeros((len(self._bounds.groups), self._problem.world))
        self._known[block, place] = np.concatenate([state.load, -state.free, marks])
        return self._known[block, place]

    def _ranks_of(self, block: int, place: int) -> Floats:
        """[W] 1 for ranks that hold a part of the block."""
        holds = np.zeros(self._problem.world)
        holds[self._problem.sites_of(block).ranks(place)] = 1.0
        return holds

    def _ways(self, table: int, places: dict[int, list[int]]) -> list[tuple[int, Counts]]:
        """Options of a table and of which blocks each is made up, whose `places` are known. Raises WorkExceededError
        where these can be put in too many ways, before any of them is written down."""
        problem, ways, least = self._problem, list[tuple[int, Counts]](), 0
        for option in range(problem.option_start[table], problem.option_start[table + 1]):
            start, stop = problem.block_start[option : option + 2].tolist()
            is_free = not (problem.option_colocated[option] or problem.option_apart[option])
            for counts in self._counts(option, {block: places[block] for block in range(start, stop)}):
                combinations = math.prod(math.comb(len(places[b]) + n - 1, n) for b, n in counts)
                least += combinations if is_free else 0
                if max(combinations, least) > MOST_PLACEMENTS:
                    raise WorkExceededError
                ways.append((option, counts))
        return ways

    def _placements_of_option(
        self, option: int, counts: Counts, places: dict[int, list[int]]
    ) -> Iterator[list[tuple[int, int]]]:
        """Items of each placement of an option made up of some blocks, which may be at some `places` each."""
        is_colocated, is_apart = bool(self._problem.option_colocated[option]), bool(self._problem.option_apart[option])
        pairs = ([(block, place) for place in places[block]] for block, _ in counts)
        groups = (itertools.combinations_with_replacement(of, n) for of, (_, n) in zip(pairs, counts, strict=True))
        for combination in itertools.product(*groups):
            items = list(itertools.chain.from_iterable(combination))
            if is_apart and len({place for _, place in items}) < len(items):
                continue
            if not is_colocated or self._is_on_one_node([place for _, place in items]):
                yield items

    def _is_on_one_node(self, ranks: list[int]) -> bool:
        """Whether the ranks are different ones of one node."""
        return len(set(ranks)) == len(ranks) and len({int(self._problem.node_of_rank[rank]) for rank in ranks}) == 1

    def _counts(self, option: int, places_of: dict[int, list[int]]) -> Iterator[Counts]:
        """(block, how often) of each way to make up an option of blocks that have a place."""
        problem = self._problem
        whole = int(problem.option_units[option])
        if not whole:
            if all(places_of.values()):
                yield [(block, int(problem.block_count[block])) for block in places_of]
            return
        widths = [(block, int(problem.block_units[block])) for block, places in places_of.items() if places]
        stack: list[tuple[int, int, list[tuple[int, int]]]] = [(len(widths), whole, [])]
        steps = 0
        while stack:
            at, left, taken = stack.pop()
            steps += 1
            if steps > 10 * MOST_PLACEMENTS:
                raise WorkExceededError
            if not left:
                yield taken
            elif at:
                block, units = widths[at - 1]
                for times in range(left // units + 1):
                    more = [(block, times)] if times else []
                    stack.append((at - 1, left - times * units, [*taken, *more]))
