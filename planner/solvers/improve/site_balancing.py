"""Load balancing of sites: groups of ranks above an aim swap blocks with others, and the aim goes down.

Where most blocks are cut over nodes, many fit on each, so that all stages and memories can be level at once; random
divisions of a pair of nodes find that only roughly. Here all swaps of one block of a site with one of another, or with
none, are priced against an aim for every stage (jumps and swaps: Schuurman and Vredeveld, INFORMS J. Comput. 19, 2007).
A site is as full as its fullest rank.
"""

from dataclasses import dataclass

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.rounding import ROUNDING_BYTES
from planner.problem.site_bins import site_bins
from planner.solvers.bound.load_steps import NEAR, common_amount, level_below
from planner.solvers.improve.state import SearchState

FIRST_STEP, LAST_STEP = 0.5, 0.02
"""Share of the way from a stage's longest to its mean that is aimed at first; less where it is not reached, and in the
end nothing."""
PARTNERS = 8
"""Other sites with which a site tries to swap in one round, drawn at random."""
CRITICAL = 0.9
"""Share of its stage's time that the fullest resource of a column has where a round looks at the column."""
SLOW = 0.1
"""Share of what is above the aim that a round must bring down, or else the aim is too low."""
BLAMED = 0.1
"""Columns with more than this share of what is left above are those whose aim is too low."""
ROOM = 0.08
"""Share of a step by which a level must be above the mean to be aimed at: swaps need some room."""
WORTH = 1e-3
"""Share of the penalty of both sites that a swap must take off."""


@dataclass
class Bins:
    """What a round works on. N sites, I blocks, D columns, M memories."""

    load: Floats
    """[N, D] of the fullest rank of each site, above its aim (below zero: under it), in seconds or in shares of it."""
    room: Floats
    """[N, M] bytes of the fullest rank."""
    item_load: Floats
    """[I, D] in the same unit."""
    item_bytes: Floats
    """[I, M]"""
    place: Ints
    """[I] the site of each block."""

    def penalty(self, load: Floats) -> Floats:
        """Return the penalty [...] of loads [..., D]: squares of what is above the aim."""
        return np.asarray((np.maximum(load, 0.0) ** 2).sum(axis=-1))


class SiteBalancer:
    """Rounds of swaps towards ever lower aims, where most blocks are cut over groups of ranks of one kind, and groups
    are many."""

    def __init__(self, state: SearchState) -> None:
        self._shared, problem = state, state.problem
        self._steps: Floats = np.full(len(problem.stage_constants), FIRST_STEP)
        self._target_s: Floats | None = None
        block = state.group_block
        self._sites = site_bins(problem, block) if problem.kinds == 1 and state.is_mostly_groups else None
        self._items: Ints = np.flatnonzero(may_swap(problem, block))
        if self._sites is None:
            return
        block = block[self._items]
        largest = problem.row_shares.largest[0, block][:, None]
        self._load: Floats = problem.extremes.peak_load(0, block)
        self._amounts = [common_amount(seconds) for seconds in self._load.T]
        self._bytes: Floats = problem.bytes_fixed[0, block] + problem.bytes_by_rows[0, block] * largest

    @property
    def is_active(self) -> bool:
        """Whether there is anything to balance here."""
        return self._sites is not None and len(self._items) > 1

    def balance(self) -> bool:
        """Make one round of swaps that bring sites below an aim; return False once no lower aim is reached."""
        if self._sites is None or not self.is_active:
            return False
        problem, state, first = self._shared.problem, self._shared, self._sites.first
        full = np.maximum.reduceat(state.loads.load, first, axis=1)
        columns, aim_s = self._aim(full)
        if (self._steps[problem.stage_of_column[columns]] <= LAST_STEP).all():
            return False
        bins = Bins(
            (full[columns] - aim_s[:, None]).T,
            np.minimum.reduceat(state.loads.free, first, axis=1).T + ROUNDING_BYTES,
            self._load[:, columns],
            self._bytes,
            state.group_site[self._items].copy(),
        )
        before = float(bins.penalty(bins.load).sum())
        self._swap_all(bins)
        changed = bins.place != state.group_site[self._items]
        if changed.any():
            index = self._items[changed]
            state.charge_groups(index, -1.0)
            state.group_site[index] = bins.place[changed]
            state.charge_groups(index, 1.0)
        left = np.maximum(bins.load, 0.0)
        stage = problem.stage_of_column[columns]
        if float(bins.penalty(bins.load).sum()) > (1 - SLOW) * before:
            for d in np.flatnonzero(left.sum(axis=0) > BLAMED * left.sum()):
                self._steps[stage[d]] /= 2
            self._target_s = None
        elif not left.any():
            self._target_s = None
        state.note()
        return True

    def _aim(self, full: Floats) -> tuple[Ints, Floats]:
        """Return columns, of those that are loaded alike one, and for each the load to aim at.

        What is above an aim counts in seconds, whatever the stage: a stage that is far above its own would else allow
        others to rise by as many times their way.
        """
        stage = self._shared.problem.stage_of_column
        peak, longest = full.max(axis=1), np.zeros(len(self._steps))
        np.maximum.at(longest, stage, peak)
        near = np.flatnonzero((peak >= np.maximum(CRITICAL * longest[stage], 1e-15)) & self._load.any(axis=0))
        if self._target_s is None:
            self._target_s = self._targets(full, near, longest)
        _, kept = np.unique(np.round(full[near] / longest[stage[near], None], 9), axis=0, return_index=True)
        columns = near[np.sort(kept)]
        return columns, self._target_s[stage[columns]] * (1 + 1e-9)

    def _targets(self, full: Floats, near: Ints, longest: Floats) -> Floats:
        """Return what each stage [S] aims at: part of the way to its mean from its longest; where sites' loads come in
        steps, the first one that all of them would be on, as there is nothing between."""
        stage, mean = self._shared.problem.stage_of_column, np.zeros(len(longest))
        np.maximum.at(mean, stage[near], full[near].mean(axis=1))
        steps = np.where(self._steps > LAST_STEP, self._steps, 0.0)
        target_s = longest - steps * (longest - mean)
        for column in near[full[near].max(axis=1) >= longest[stage[near]]].tolist():
            at, amount_s = int(stage[column]), self._amounts[column]
            if amount_s:
                least_s = longest[at] - steps[at] / FIRST_STEP * (longest[at] - mean[at]) + ROOM * amount_s
                level_s = level_below(full[column], amount_s, float(least_s) + (1 - NEAR) * amount_s)
                if level_s is not None:
                    target_s[at] = min(level_s, longest[at])
        return target_s

    def _swap_all(self, bins: Bins) -> None:
        """Let each site above the aim, the fullest first, make its best swap with one of some others; where these are
        few, again and again, as long as that gains something."""
        left, gains = len(bins.load), True
        while left > 0 and gains:
            over = bins.penalty(bins.load)
            fullest = [site for site in np.argsort(-over, kind="stable").tolist() if over[site] > 0][:left]
            left, gains = left - len(fullest), False
            for site in fullest:
                for other in self._partners(bins, site).tolist():
                    gains |= swap(bins, site, other)

    def _partners(self, bins: Bins, site: int) -> Ints:
        """Draw sites that a site above the aim tries to swap with: those first that have room where it is above it."""
        drawn = self._shared.random.permutation(len(bins.load))
        drawn = drawn[drawn != site]
        has_room = (bins.load[drawn][:, bins.load[site] > 0] < 0).all(axis=1)
        return np.asarray(drawn[np.argsort(~has_room, kind="stable")][:PARTNERS])


def may_swap(problem: Problem, blocks: Ints) -> Bools:
    """Return which blocks [n] may be on any site, whatever else is there."""
    anywhere = np.asarray(problem.rank_sets.all(axis=1))[problem.table_rank_set[problem.table_of_block[blocks]]]
    return np.asarray(anywhere & ~problem.option_apart[problem.block_option[blocks]])


def swap(bins: Bins, site: int, other: int) -> bool:
    """Make the best swap of a block of one site with one of another, or with none, if there is a good one; return
    whether there is."""
    own, theirs = np.flatnonzero(bins.place == site), np.flatnonzero(bins.place == other)
    out, into = _with_nothing(bins.item_load[own]), _with_nothing(bins.item_load[theirs])
    out_bytes, into_bytes = _with_nothing(bins.item_bytes[own]), _with_nothing(bins.item_bytes[theirs])
    fitting = _fitting(out_bytes, into_bytes, bins.room[other], bins.room[site])
    most = (1 - WORTH) * float(bins.penalty(bins.load[[site, other]]).sum())
    best = _best_pair(bins.load[site], bins.load[other], out, into, fitting, most)
    if best is None:
        return False
    gone, come = best
    less, size = out[gone] - into[come], out_bytes[gone] - into_bytes[come]
    bins.load[site] -= less
    bins.load[other] += less
    bins.room[site] += size
    bins.room[other] -= size
    bins.place[own[gone : gone + 1]] = other
    bins.place[theirs[come : come + 1]] = site
    return True


def _with_nothing(amounts: Floats) -> Floats:
    """Return amounts [n + 1, x] with those of no block behind the last one."""
    return np.concatenate([amounts, np.zeros((1, amounts.shape[1]))])


def _best_pair(
    here: Floats, there: Floats, out: Floats, into: Floats, fitting: Bools, most: float
) -> tuple[int, int] | None:
    """Return which block of `out` [n, D] and of `into` [m, D], of the pairs that are `fitting` [n, m], change places so
    that the penalty of their two sites of loads [D] is least; None where that is not below `most`.

    Column by column, those first that have least room for the largest blocks: pairs whose penalty is too much already
    are left out of the next ones. So are columns in which neither site can come to be above its aim.
    """
    most_out, most_into = out.max(axis=0), into.max(axis=0)
    columns = np.flatnonzero((here + most_into > 0) | (there + most_out > 0))
    room = -(here + there)[columns] / (most_out + most_into)[columns]
    gone, come = np.nonzero(fitting)
    total = np.zeros(len(gone))
    for d in columns[np.argsort(room, kind="stable")].tolist():
        less = out[gone, d] - into[come, d]
        total += np.square(np.maximum(here[d] - less, 0.0)) + np.square(np.maximum(there[d] + less, 0.0))
        left = np.flatnonzero(total < most)
        gone, come, total = gone[left], come[left], total[left]
    if not len(total):
        return None
    at = int(total.argmin())
    return int(gone[at]), int(come[at])


def _fitting(out: Floats, into: Floats, there: Floats, here: Floats) -> Bools:
    """Return which pairs [n, m] of sizes `out` [n, M] and `into` [m, M] fit into so much room [M]; memories that have
    room for all of them are not looked at."""
    fitting = np.ones((len(out), len(into)), dtype=bool)
    for m in np.flatnonzero((out.max(axis=0) > there) | (into.max(axis=0) > here)).tolist():
        size = out[:, m, None] - into[:, m]
        fitting &= (size <= there[m]) & (-size <= here[m])
    return fitting
