"""Limits of a search: when it ends, and the clock that tells."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class SearchLimits:
    """When to stop, and the seed of every random choice.

    The search ends within `gap` of the bound (step / bound - 1), after `effort` passes of the local search (None: no
    end), after `time_limit_s`, or when `stop` says so. Where neither time nor `stop` ends it, the outcome follows from
    the problem and the seed alone.
    """

    time_limit_s: float = math.inf
    gap: float = 0.01
    effort: int | None = 1
    seed: int = 0
    stop: Callable[[], bool] | None = None
    clock: Callable[[], float] = time.monotonic
    """Seconds that time is measured in: those of the wall, or of the process."""
    branch_nodes: int = 400
    """That branching looks at, at most; fewer where the problem is large."""
    pattern_work: float = 8e9
    """Cells of bundles that pricing of rank patterns may look at for each pass of the local search."""
    pattern_share: float = 0.5
    """Share of the time that rank patterns may have taken after each pass, where passes have no end: bound and plan are
    as far from the optimum, as far as anybody knows."""
    useful_bound_s: float = math.inf
    """Branching does not raise the bound above this: placements that the problem leaves out take no more."""

    def left_of(self, clock: "Clock") -> "SearchLimits":
        """Return the same limits for what is to end when the clock does."""
        return replace(self, time_limit_s=clock.left_s())


class Clock:
    """When a search ends for want of time, or because it is told to."""

    def __init__(self, limits: SearchLimits) -> None:
        self._now = limits.clock
        self._end = self._now() + limits.time_limit_s
        self._stop, self._is_over = limits.stop, False
        self.ran_out = False
        """Whether something that was not done yet ended because time was up."""

    def left_s(self) -> float:
        """Return the seconds until the end, at least 0."""
        return max(self._end - self._now(), 0.0)

    def is_over(self) -> bool:
        """Whether time is up, or someone said stop; once over, it stays so."""
        if not self._is_over:
            self.ran_out = self._now() >= self._end
            self._is_over = self.ran_out or (self._stop is not None and self._stop())
        return self._is_over


class TimeShare:
    """How long something may take that has a share of all time since a beginning, which is now."""

    def __init__(self, share: float, now: Callable[[], float]) -> None:
        """A share below 1; `now` is the time in seconds."""
        self._share, self._now, self._began_s, self._taken_s = share, now, now(), 0.0

    @contextmanager
    def limited(self, whole: Clock) -> Iterator[Clock]:
        """A clock that is over once the share is taken, or the clock of the whole is; the time within counts."""
        began_s = self._now()
        left_s = (self._share * (began_s - self._began_s) - self._taken_s) / (1 - self._share)
        yield Clock(SearchLimits(max(left_s, 0.0), clock=self._now, stop=whole.is_over))
        self._taken_s += self._now() - began_s
