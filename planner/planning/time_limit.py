"""The time limit of a plan, which cache sizes and the search share."""

import time
from collections.abc import Callable

from planner.document.origin import TimedWork

CACHE_SIZES_SHARE = 0.5
"""The share of the time limit that finding cache sizes may take: sizes that are a little off cost less than places."""


class TimeLimit:
    """Seconds from now on, and what they ended."""

    def __init__(self, limit_s: float, stop: Callable[[], bool] | None) -> None:
        self._limit_s, self._stop, self._began = limit_s, stop or (lambda: False), time.monotonic()
        self.ended: tuple[TimedWork, ...] = ()
        """What there was no time for."""

    def has_time(self, seconds: float) -> bool:
        """Whether so many seconds more for cache sizes leave the search what it needs."""
        used_s = time.monotonic() - self._began
        if used_s + seconds > CACHE_SIZES_SHARE * self._limit_s:
            self.ended = ("cache sizes",)
            return False
        return not self._stop()

    def left_s(self) -> float:
        """Seconds that are left, at least 0."""
        return max(self._limit_s - (time.monotonic() - self._began), 0.0)
