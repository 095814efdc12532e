"""Plans from rank patterns: the optimum of a master programme is rounded, first its options, then nodes, then ranks.

Each step holds what the optimum has of one kind in nearly whole numbers, and solves the rest anew, with new columns
where these are needed (diving: Wäscher & Gau, OR Spektrum 18, 1996; Sadykov et al., INFORMS J. Comput. 31, 2019). How
tables are cut follows from the patterns: these hold as many columns of a table as it has, or a few more.
"""

from collections.abc import Sequence

import numpy as np

from planner.certificates.rank_patterns import PatternRules
from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.placement import Placement
from planner.problem.sites import NOWHERE
from planner.solvers.bound.pattern_master import Content
from planner.solvers.bound.pattern_prices import PriceSearch, Work
from planner.solvers.limits import Clock

NEARLY_WHOLE = 0.97
"""Share of a table, of a node or of a rank that is taken for the whole, with all others like it at once."""
OF_OPTIONS, OF_COUNTS = 10, 1
"""Pricings at most each time that options, or counts, were held."""
WHOLE = 1e-6
"""A count is a whole number where it is this near to one."""


def may_be_rounded(problem: Problem) -> bool:
    """Whether all tables may be on all ranks, beside all others."""
    return bool(problem.reach.all()) and not problem.is_confined


class PatternRounding:
    """Rounds the optimum of one threshold, beginning with what a search for prices has found below another one."""

    def __init__(self, rules: PatternRules, leading: Bools, found: PriceSearch, clock: Clock) -> None:
        """Among plans of which the `leading` blocks [B] are some of these, of a problem that `may_be_rounded`."""
        self._rules, self._clock = rules, clock
        self._search = self._next(leading, found)

    def _next(self, leading: Bools, before: PriceSearch) -> PriceSearch | None:
        """The search among plans of fewer leading blocks; None where a table has none left."""
        case = self._rules.case(leading)
        if not case.is_possible or case.room < 0:
            return None
        search = PriceSearch(case, Work(np.inf), self._clock, before.best)
        search.master.inherit(before.master)
        search.fits(OF_OPTIONS)
        return search

    def placement(self) -> Placement | None:
        """A placement, or most of one: tables are left out that patterns do not hold as a whole. None where a table has
        no option left that is short enough."""
        while self._search is not None:
            leading = self._decided(self._search)
            if leading is None:
                break
            self._search = self._next(leading, self._search)
        if self._search is None:
            return None
        self._round(on_rank=False)
        self._round(on_rank=True)
        return self._placed(self._search)

    def _decided(self, search: PriceSearch) -> Bools | None:
        """The leading blocks [B] that remain once tables that are nearly whole, or the one that is nearest to it, have
        one option; None where all have."""
        problem, leading = self._rules.problem, search.case.leading
        first = problem.block_start[:-1]
        share = np.add.reduceat(search.master.lead_shares(), first)
        is_left = np.logical_or.reduceat(leading, first)
        left = np.add.reduceat(is_left.astype(int), problem.option_start[:-1])
        best = _best_of_each(np.where(is_left, share, -1.0), problem.option_start)
        open_tables = np.flatnonzero(left > 1)
        if not len(open_tables):
            return None
        most = share[best[open_tables]]
        fixed = open_tables[(most > NEARLY_WHOLE) | (most == most.max())]
        is_fixed = np.isin(problem.table_of_block, fixed)
        return leading & (~is_fixed | np.isin(problem.block_option, best[fixed]))

    def _round(self, *, on_rank: bool) -> None:
        """Hold whole numbers of all nodes, or of all patterns of ranks."""
        search = self._search
        assert search is not None
        master, whole = search.master, self._rules.nodes * (self._rules.ranks if on_rank else 1)
        while not self._clock.is_over():
            counts = master.counts(on_rank=on_rank)
            held = sum(each.held for each in counts)
            if held >= whole or not counts:
                return
            rest = [each.value - each.held for each in counts]
            if max(rest) < WHOLE:
                return
            nearly = [i for i, value in enumerate(rest) if value > NEARLY_WHOLE]
            for i in nearly or [int(np.argmax(rest))]:
                master.hold(counts[i], counts[i].held + max(int(rest[i] + 1 - NEARLY_WHOLE), 1))
            search.fits(OF_COUNTS)

    def _placed(self, search: PriceSearch) -> Placement:
        """Put what nodes and ranks hold where it fits; tables that are not whole then are left out."""
        room, nodes = search.case.room, _held(search, self._rules.nodes, on_rank=False)
        nodes += [(0, {})] * (self._rules.nodes - len(nodes))
        ranks = _held(search, self._rules.nodes * self._rules.ranks, on_rank=True)
        left = [[room - cells] * self._rules.ranks for cells, _ in nodes]
        rooms = np.array([each for node in left for each in node])
        is_free, filled = np.ones(len(rooms), dtype=bool), list[Content]([{} for _ in rooms])
        for cells, content in ranks:
            fits = np.flatnonzero(is_free & (rooms >= cells))
            if len(fits):
                at = int(fits[rooms[fits].argmin()])
                filled[at], is_free[at] = content, False
        used, on_rank = np.zeros(len(rooms), dtype=np.int64), list[Content]([{} for _ in rooms])
        for at, rank in enumerate(self._rules.ranks_of_nodes.tolist()):
            used[rank], on_rank[rank] = room - rooms[at] + search.cells(filled[at]), filled[at]
        return _Dealing(self._rules, search.case.leading, [content for _, content in nodes], on_rank, used).placement()


def _held(search: PriceSearch, most: int, *, on_rank: bool) -> list[tuple[int, Content]]:
    """Cells and content of all nodes or ranks that are held, the fullest first."""
    counts = search.master.counts(on_rank=on_rank)
    held = [(search.cells(each.content), each.content) for each in counts for _ in range(each.held)]
    return sorted(held, key=lambda each: -each[0])[:most]


class _Dealing:
    """Which blocks each table has where, by what nodes and ranks hold of it."""

    def __init__(
        self, rules: PatternRules, leading: Bools, nodes: Sequence[Content], ranks: Sequence[Content], used: Ints
    ) -> None:
        """`used` [W] cells of each rank."""
        self._rules, self._used = rules, used
        problem = rules.problem
        self._options = np.flatnonzero(np.logical_or.reduceat(leading, problem.block_start[:-1]))
        self._held: dict[tuple[int, bool], list[tuple[int, int]]] = {}
        for contents in (nodes, ranks):
            for at, content in enumerate(contents):
                for block, count in content.items():
                    key = int(problem.block_option[block]), bool(problem.is_on_rank[block])
                    self._held.setdefault(key, []).extend([(block, at)] * count)

    def placement(self) -> Placement:
        """The blocks of all tables that are whole, and their places."""
        placed = [pair for option in self._options.tolist() for pair in self._of_option(option)]
        pairs = np.array(sorted(placed), dtype=np.int64).reshape(-1, 2)
        return Placement(pairs[:, 0], pairs[:, 1])

    def _of_option(self, option: int) -> list[tuple[int, int]]:
        """The blocks of an option and their places; none where nodes or ranks lack some, or where those of ranks
        belong on one node."""
        problem = self._rules.problem
        if problem.option_colocated[option]:
            return []
        if problem.option_units[option]:
            return self._cut(option)
        types = np.arange(problem.block_start[option], problem.block_start[option + 1])
        blocks = np.repeat(types, problem.block_count[types])
        is_wide, is_on_rank = problem.is_world_wide[blocks], problem.is_on_rank[blocks]
        placed = [(int(block), NOWHERE) for block in blocks[is_wide]]
        for own, held in (
            (blocks[~is_wide & ~is_on_rank], self._held.get((option, False), [])),
            (blocks[is_on_rank], self._held.get((option, True), [])),
        ):
            places = [at for block, at in sorted(held, key=self._lightness) if not problem.is_world_wide[block]]
            if len(places) < len(own):
                return []
            wanted = sorted(own.tolist(), key=lambda block: self._lightness((block, 0)))
            placed += list(zip(wanted, places, strict=False))
        return placed

    def _lightness(self, placed: tuple[int, int]) -> tuple[int, int, int]:
        """Larger blocks stand for smaller ones, so that the largest place is for the largest block."""
        return -int(self._rules.load_cells[placed[0]]), *placed

    def _cut(self, option: int) -> list[tuple[int, int]]:
        """The blocks of a splittable option: as wide as ranks hold them, but for what these have too much of it, or
        what they lack, which goes to the emptiest ranks; none where no block is as wide as what is left."""
        problem = self._rules.problem
        types = range(int(problem.block_start[option]), int(problem.block_start[option + 1]))
        block_of = {int(problem.block_units[block]): block for block in types}
        held = sorted((int(problem.block_units[block]), at) for block, at in self._held.get((option, True), []))
        over = sum(units for units, _ in held) - int(problem.option_units[option])
        parts: list[tuple[int, int]] = []
        for units, at in held:
            less = min(units, max(over, 0))
            less = less if less == units or units - less in block_of else 0
            over -= less
            if less < units:
                parts.append((units - less, at))
        while over < 0:
            units = max((units for units in block_of if units <= -over), default=0)
            if not units:
                return []
            at = int(self._used.argmin())
            self._used[at] += self._rules.load_cells[block_of[units]]
            parts.append((units, at))
            over += units
        return [] if over else [(block_of[units], at) for units, at in parts]


def _best_of_each(values: Floats, start: Ints) -> Ints:
    """[T] where the highest of `values` [O] is among those of each table, of which the first ones are at `start`."""
    most = np.maximum.reduceat(values, start[:-1])
    at = np.flatnonzero(values == np.repeat(most, np.diff(start)))
    return at[np.searchsorted(at, start[:-1])]
