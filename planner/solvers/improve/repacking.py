"""Repacking: all tables over groups of ranks (nodes, say) in other options at once, and packed anew.

A table in fewer and larger blocks costs less, but leaves holes on the sites that hold it, unless others come to be cut
so that they fill these: a quarter of one table beside an eighth of another where each site had three eighths. From one
plan to the other no change of a single table leads that is not worse. So what a site may hold within the times of a
plan that is looked for is listed, and an integer programme chooses the options and how many sites hold what
(`planner.solvers.integer.site_patterns`).
"""

from collections.abc import Iterator

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.load_state import LoadState, load_state, place_everywhere, place_world
from planner.problem.numbers import Floats, Ints
from planner.problem.placement import Placement
from planner.problem.row_shares import shares_at
from planner.problem.sites import NOWHERE
from planner.solvers.integer.site_patterns import BlockTypes, site_counts

OPTIONS = 3
"""Options of a table that are tried beside its own: of those that cost less where all is level, the ones of the fewest
types of blocks, and of these the dearest."""
LEVELS, LOWEST, HIGHEST = 8, 0.85, 1.2
"""Times of the stages that end at the fewest: so many at most, between these multiples of what they last now."""
FIRST_STEP, LEAST_STEP = 0.5, 0.06
"""Share of the seconds between a plan and the bound by which a faster one is looked for; and the least, as it is halved
where there is none."""
MOST_PATTERNS, PATTERN_WORK = 500, 2_000
"""Patterns of one programme, and of all that are solved, at most: 0.2 ms each."""
MOST_SUMS = 2_000
"""Sums of loads among which the times are chosen."""
NEAR = 1e-9
"""Share of a room by which a pattern may exceed it, for the rounding of sums."""


class Repacking:
    """Tables that are over groups of ranks, or on all of them, none on single ones; of one kind of rank and one sort of
    group."""

    def __init__(self, problem: Problem, options: Ints) -> None:
        """`options` [T] are those that the tables begin with."""
        self._problem = problem
        block = np.flatnonzero(np.isin(problem.block_option, options))
        self._taken = np.repeat(block, problem.block_count[block])
        """The blocks of all options, each as often as it is taken."""
        self._wide = self._taken[problem.is_world_wide[self._taken]]
        on_group = block[problem.is_on_group[block]]
        self._own = np.unique(problem.block_option[on_group])
        """The options of tables over groups."""
        extents = np.unique(problem.block_extent[on_group])
        self._sites = problem.sites[int(extents[0])] if len(extents) else problem.nodes
        self._work = PATTERN_WORK
        own = np.isin(problem.block_option, self._own)
        self.is_possible = bool(
            len(extents) == 1
            and problem.kinds == 1
            and problem.reach.all()
            and not problem.is_confined
            and not problem.is_on_rank[block].any()
            and not (problem.option_colocated | problem.option_apart)[self._own].any()
            and not problem.is_world_wide[own].any()
        )
        """Whether they are such tables."""

    def plans(self, stage_s: Floats, bound_s: float, cost: Floats) -> Iterator[tuple[Placement, float]]:
        """Yield faster and faster plans that fit, with their steps, than one whose stages last [S] seconds; blocks cost
        [B] where all is level."""
        problem = self._problem
        self._measure(self._options(cost))
        step_s, now_s = float(stage_s.sum()), stage_s - problem.stage_constants
        lead, others = self._moved_stages(now_s)
        levels, share = self._levels(lead, now_s), FIRST_STEP
        while share >= LEAST_STEP and self._work > 0:
            target_s = step_s - share * (step_s - bound_s) - float(problem.stage_constants.sum())
            found = self._first(levels, lead, others, now_s, target_s)
            if found is None or found[1] >= step_s:
                share /= 2
                continue
            _, step_s, level_s = found
            levels = [level_s]
            yield found[:2]

    def _first(
        self, levels: list[float], lead: Ints, others: Ints, now_s: Floats, target_s: float
    ) -> tuple[Placement, float, float] | None:
        """Return the first plan that is found to take at most so long in all stages, constants aside, its step, and how
        long it lets the stages last that lead."""
        for level_s in levels:
            placement = self._packed(_rooms(now_s, lead, level_s, others, target_s))
            if placement is not None:
                state = load_state(self._problem, placement)
                if state.overflow_bytes() <= 0:
                    return placement, state.step_s(), level_s
        return None

    # -- what blocks ask for -----------------------------------------------------------------------------------------

    def _options(self, cost: Floats) -> Ints:
        """Return the options of each table over groups that are tried, ascending."""
        problem, first, found = self._problem, self._problem.block_start[:-1], [self._own]
        total = np.add.reduceat(np.where(problem.allowed[0], cost, np.inf) * problem.block_count, first)
        extent = problem.block_extent[first]
        alike = np.logical_and.reduceat(problem.block_extent == extent[problem.block_option], first)
        alike &= (problem.option_units == 0) & ~problem.option_colocated & ~problem.option_apart
        kinds = np.diff(problem.block_start)
        for option in self._own.tolist():
            others = np.arange(*problem.option_start[problem.option_table[option] :][:2])
            others = others[alike[others] & (extent[others] == extent[option]) & (total[others] < total[option])]
            found.append(others[np.lexsort((-total[others], kinds[others]))][:OPTIONS])
        return np.unique(np.concatenate(found))

    def _measure(self, options: Ints) -> None:
        """Sum up what every rank has in any case, and what each of the options' block types asks of a rank of its site:
        seconds [C] and bytes [M] in one row, as shares of an instance."""
        problem, base = self._problem, LoadState(self._problem)
        place_everywhere(problem, base, self._taken)
        place_world(problem, base, self._wide)
        self._base, self._free = base.load.max(axis=1), base.free.min(axis=1)
        instances = np.concatenate([problem.resource_of_rank, problem.pool_of_rank])
        sharing = np.array([np.bincount(of).max() for of in instances])
        self._types = np.flatnonzero(np.isin(problem.block_option, options))
        size = np.full(len(self._types), self._sites.sizes[0])
        largest = shares_at(problem.block_rows[self._types], size, 0 * size, problem.block_copies[self._types])[:, None]
        largest[problem.block_replicated[self._types]] = 1.0
        load = problem.fixed[0, self._types] + problem.by_rows[0, self._types] * largest
        held = problem.bytes_fixed[0, self._types] + problem.bytes_by_rows[0, self._types] * largest
        self._asks = np.concatenate([load, held], axis=1) * sharing

    # -- times -------------------------------------------------------------------------------------------------------

    def _moved_stages(self, now_s: Floats) -> tuple[Ints, Ints]:
        """Return the stages that end at the fewest times, which are loaded alike, and the others that last as long as
        blocks say; none where all last as long in any case."""
        problem, alike, coarse = self._problem, dict[bytes, list[int]](), dict[bytes, float]()
        for stage in range(len(now_s)):
            own = np.flatnonzero(problem.stage_of_column == stage)
            asks = self._asks[:, own]
            if not asks.any() or self._base[own].max() >= now_s[stage] * (1 - NEAR):
                continue
            key = np.unique(np.round(asks[:, asks.any(axis=0)].T / asks.max(), 9), axis=0).tobytes()
            main = asks[:, int(asks.max(axis=0).argmax())]
            alike.setdefault(key, []).append(stage)
            coarse[key] = float(main[main > 0].min() / now_s[stage])
        first = max(coarse, key=lambda key: coarse[key], default=b"")
        others = [stage for key, stages in alike.items() if key != first for stage in stages]
        return np.array(alike.get(first, []), dtype=np.int64), np.array(others, dtype=np.int64)

    def _levels(self, stages: Ints, now_s: Floats) -> list[float]:
        """Return some of the times at which what a site holds may make the stages end, ascending; none of no stages."""
        if not len(stages):
            return []
        own = np.flatnonzero(self._problem.stage_of_column == stages[0])
        column = int(own[np.argmax(self._asks[:, own].max(axis=0))])
        most, sums = float(now_s[stages[0]]), np.full(1, self._base[column] / now_s[stages[0]])
        amounts = np.unique(np.round(self._asks[:, column] / most, 9))
        while True:
            more = np.unique(np.round((sums[:, None] + np.append(0.0, amounts)).ravel(), 9))
            more = more[more <= HIGHEST]
            if len(more) == len(sums) or len(more) > MOST_SUMS:
                break
            sums = more
        levels = sums[sums >= LOWEST]
        some = np.unique(np.linspace(0, len(levels) - 1, min(LEVELS, len(levels))).astype(int))
        return [most * float(level) for level in levels[some]]

    # -- patterns ----------------------------------------------------------------------------------------------------

    def _packed(self, stage_rooms: Floats) -> Placement | None:
        """Return a plan whose stages last [S] so many seconds at most, constants aside, but for what its options load
        everywhere; None where none is found."""
        problem, count = self._problem, self._problem.block_count[self._types]
        rooms = np.concatenate([stage_rooms[problem.stage_of_column] - self._base, self._free])
        used = self._asks.any(axis=0)
        if (rooms[used] < 0).any():
            return None
        patterns = _patterns(self._asks[:, used], rooms[used] * (1 + NEAR), count)
        if patterns is None:
            return None
        self._work -= len(patterns)
        option = problem.block_option[self._types]
        packed = site_counts(self._sites.count, BlockTypes(count, option, problem.option_table[option]), patterns)
        if packed is None:
            return None
        held = np.repeat(patterns, packed.sites, axis=0)
        blocks, places = [self._wide], [np.full(len(self._wide), NOWHERE)]
        for number in np.flatnonzero(np.isin(option, packed.options)).tolist():
            sites = np.repeat(np.arange(len(held)), held[:, number])[: int(count[number])]
            blocks.append(np.full(len(sites), self._types[number]))
            places.append(sites)
        taken, place = np.concatenate(blocks), np.concatenate(places)
        order = np.lexsort((place, taken))
        return Placement(taken[order], place[order])


def _rooms(now_s: Floats, lead: Ints, level_s: float, others: Ints, target_s: float) -> Floats:
    """Return [S] how long stages may last that take `target_s` together: those that lead as long as given, the others
    in proportion to what they do now; none where those that lead take too long.

    What options load everywhere may last longer than a room: a plan is judged by its own step.
    """
    rooms = now_s.copy()
    rooms[lead] *= level_s / now_s[lead[0]]
    if len(others):
        rooms[others] *= (target_s - float(np.delete(rooms, others).sum())) / float(now_s[others].sum())
    return rooms if rooms.sum() <= target_s * (1 + NEAR) else np.full(len(rooms), -np.inf)


def _patterns(asks: Floats, rooms: Floats, count: Ints) -> Ints | None:
    """[P, G] how often a site may hold each type of blocks, of which there are [G] and which ask for [G, D], within [D]
    rooms, those alone that nothing can be added to; None where there are too many."""
    patterns, held = np.zeros((1, 0), dtype=np.int64), np.zeros((1, asks.shape[1]))
    for ask, most in zip(asks, count.tolist(), strict=True):
        number = np.arange(most + 1)
        total = held[:, None] + number[None, :, None] * ask
        row, times = np.nonzero((total <= rooms).all(axis=2))
        if len(row) > 4 * MOST_PATTERNS:
            return None
        patterns, held = np.concatenate([patterns[row], times[:, None]], axis=1), total[row, times]
    fuller = (held[:, None] + asks <= rooms).all(axis=2) & (patterns < count)
    patterns = patterns[~fuller.any(axis=1)]
    return None if len(patterns) > MOST_PATTERNS else patterns
