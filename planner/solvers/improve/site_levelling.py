"""Sites that are to be level again once tables on them have changed: swaps, one after the other, until no site is above
the stages' longest and the memory that there is."""

import numpy as np

from planner.problem.numbers import Floats, Ints
from planner.solvers.improve.site_balancing import Bins, may_swap, swap
from planner.solvers.improve.site_division import divide
from planner.solvers.improve.state import SearchState

SLACK = 1e-3
"""Share of a stage's time by which sites may be above it in the end: swaps of all with all bring that down."""
PAIR_SWAPS = 100
"""Swaps of a site that a table gives up with one that has more of it, at most."""
PARTNERS = 24
"""Other sites that swap with one that is still above its aim."""
ATTEMPTS = 8
"""Draws of such partners."""


class SiteLevelling:
    """What is on the sites, and what may come there. Loads and bytes are shares of their aims."""

    def __init__(self, state: SearchState, more: Ints | None = None, aims: Floats | None = None) -> None:
        """Blocks `more` [n] may come to what is there; all on groups of ranks have sites of one extent. Stages `aim` at
        these times [S], constants aside; at the present ones where none are given."""
        problem, self._state = state.problem, state
        sites = problem.sites[int(problem.block_extent[state.group_block[0]])]
        movable = may_swap(problem, state.group_block)
        self._settled = state.group_block[~movable], state.group_site[~movable]
        come = np.zeros(0, dtype=np.int64) if more is None else more
        self.present = int(movable.sum())
        """Blocks that are there at first: those that may come follow."""
        block = np.concatenate([state.group_block[movable], come])
        self._block, self._table = block, problem.table_of_block[block]
        first, loads = sites.first, state.loads
        full = np.maximum.reduceat(loads.load, first, axis=1)
        free = np.minimum.reduceat(loads.free, first, axis=1)
        longest = np.zeros(len(problem.stage_constants))
        np.maximum.at(longest, problem.stage_of_column, full.max(axis=1))
        longest = longest if aims is None else aims
        load = problem.extremes.peak_load(0, block)
        columns = np.flatnonzero(load.any(axis=0))
        aim = (1 + SLACK) * longest[problem.stage_of_column[columns]]
        largest = problem.row_shares.largest[0, block][:, None]
        stored = problem.bytes_fixed[0, block] + problem.bytes_by_rows[0, block] * largest
        capacity = np.array([max(float(of_tier.min()), 1.0) for of_tier in problem.pool_capacity])
        self._everywhere: Floats = problem.everywhere[0, block][:, columns] / aim
        place = np.full(len(block), -1)
        place[: self.present] = state.group_site[movable]
        self.bins = Bins(
            np.concatenate([full[columns].T / aim - 1.0, -free.T / capacity], axis=1),
            np.zeros((sites.count, 0)),
            np.concatenate([load[:, columns] / aim, stored / capacity], axis=1),
            np.zeros((len(block), 0)),
            place,
        )
        least = problem.extremes.base_of_instance[0, columns] / aim
        self._room: Floats = np.concatenate([1.0 - least, np.ones(stored.shape[1])])
        """[D + M] what the largest block may take of a site."""

    def held(self) -> tuple[Ints, Ints]:
        """Return the blocks that are there now, and their sites."""
        there = np.flatnonzero(self.bins.place >= 0)
        blocks, places = self._settled
        return np.append(blocks, self._block[there]), np.append(places, self.bins.place[there])

    def of_table(self, table: int) -> Ints:
        """Return which blocks of a table are there now."""
        return np.flatnonzero((self._table == table) & (self.bins.place >= 0))

    def fits(self, index: Ints) -> bool:
        """Whether each of some blocks would fit a site without others."""
        return not bool((self.bins.item_load[index] > self._room).any())

    def replace(self, old: Ints, new: Ints, kept: Ints, divided: Ints | None = None) -> bool:
        """Take blocks `old` away and put others, `new`, on the sites `kept`, then level, after the sites `divided`,
        ascending, have shared their small blocks anew, if there are any; return whether that succeeds: otherwise
        nothing has changed."""
        bins = self.bins
        before, sites = (bins.load.copy(), bins.place.copy()), bins.place[old]
        np.subtract.at(bins.load, sites, bins.item_load[old])
        np.add.at(bins.load, kept, bins.item_load[new])
        bins.place[old], bins.place[new] = -1, kept
        more = self._everywhere[new].sum(axis=0) - self._everywhere[old].sum(axis=0)
        bins.load[:, : len(more)] += more
        changed = np.unique(sites) if divided is None else divided
        if (divided is None or divide(bins, divided)) and self.level(changed):
            return True
        bins.load, bins.place = before
        return False

    def level_again(self) -> bool:
        """Level all sites, with other partners as often as it takes, so often at most; return whether none is above the
        aim in the end."""
        return any(self.level(np.zeros(0, dtype=np.int64)) for _ in range(ATTEMPTS))

    def level(self, sites: Ints) -> bool:
        """Let these sites swap with each other, then those above the aim with some others; return whether none is
        above it in the end."""
        bins = self.bins
        for site in sites.tolist():
            for other in sites.tolist():
                swaps = 0
                while other != site and swaps < PAIR_SWAPS and swap(bins, site, other):
                    swaps += 1
        drawn = self._state.random.permutation(len(bins.load))[:PARTNERS]
        for other in drawn.tolist():
            above = np.flatnonzero(bins.penalty(bins.load) > 0)
            if not len(above):
                return True
            for site in above[above != other].tolist():
                swap(bins, site, other)
        return not bool((bins.penalty(bins.load) > 0).any())
