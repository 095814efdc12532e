"""Plans from rank patterns, where ranks hold few tables: what the bound's programme needs is rounded, then mended.

Its optimum in fractions has options and cuts that fill ranks, which local search comes to by chance alone.
"""

from planner.solvers.bound.pattern_branching import PatternBranching
from planner.solvers.improve.passes import Passes
from planner.solvers.incumbent import Incumbent
from planner.solvers.limits import SearchLimits, TimeShare
from planner.solvers.lower_bound import LOOSE

TRIED, TIME_SHARE = 4, 0.35
"""Steps in view for each pass of the local search, about a second each; or, where passes have no end, the share of all
time that they may take."""
LEAST_SHARE, MOST_SHARE = 0.25, 0.75
"""Steps in view, as shares of the way from the bound to the best plan: below, options are missed that are worth their
while; above, little is won."""
MENDINGS = 2
"""Of a rounded plan, each with a seed of its own: either takes as long as the rounding."""


class PatternPlans:
    """Rounds patterns of one problem at one step in view after the other, between its bound and its best plan."""

    def __init__(self, incumbent: Incumbent, passes: Passes, limits: SearchLimits) -> None:
        self._incumbent, self._passes, self._limits = incumbent, passes, limits
        self._number, self._time = 0, TimeShare(TIME_SHARE, limits.clock)

    def run(self, patterns: PatternBranching | None, passes: int) -> None:
        """Go on with as many steps in view as so many passes of the local search allow, or as the time does."""
        if patterns is None:
            return
        if self._limits.effort is not None:
            while self._number < TRIED * passes and self._is_tried(patterns):
                pass
            return
        with self._time.limited(self._incumbent.clock) as clock:
            while not clock.is_over() and self._is_tried(patterns):
                pass

    def _is_tried(self, patterns: PatternBranching) -> bool:
        """Whether patterns were rounded at another step, as plan and bound are not near enough yet."""
        incumbent = self._incumbent
        if incumbent.best is None or incumbent.is_within(LOOSE) or incumbent.is_done():
            return False
        self._number += 1
        share = LEAST_SHARE + (MOST_SHARE - LEAST_SHARE) * van_der_corput(self._number)
        threshold_s = incumbent.bound.seconds + share * (incumbent.best_s - incumbent.bound.seconds)
        placement = patterns.rounded(threshold_s, incumbent.clock)
        if placement is None:
            return False
        for mending in range(MENDINGS):
            self._passes.mend(placement, threshold_s, MENDINGS * self._number + mending)
        return True


def van_der_corput(number: int) -> float:
    """A half, a quarter, three quarters, an eighth, five eighths and so on: the binary digits of a number from 1, the
    last one first, behind the point (van der Corput 1935)."""
    digits = f"{number:b}"[::-1]
    return int(digits, 2) / (1 << len(digits))
