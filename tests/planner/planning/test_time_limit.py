"""Cache sizes take no more of a time limit than their share."""

import math

from planner.planning import time_limit
from planner.planning.time_limit import CACHE_SIZES_SHARE, TimeLimit


def test_work_that_would_take_more_than_the_share_is_not_begun(monkeypatch) -> None:
    """And it is said what there was no time for; the search has what is left, and never less than nothing."""
    now = [100.0]
    monkeypatch.setattr(time_limit.time, "monotonic", lambda: now[0])
    limit = TimeLimit(10.0, None)
    assert limit.has_time(10.0 * CACHE_SIZES_SHARE)
    assert limit.ended == ()
    now[0] += 3.0
    assert limit.has_time(2.0)
    assert not limit.has_time(2.1)
    assert limit.ended == ("cache sizes",)
    assert limit.left_s() == 7.0
    now[0] += 30.0
    assert limit.left_s() == 0.0


def test_without_a_limit_only_a_stop_ends_it() -> None:
    """A stop is no want of time, so nothing is noted."""
    assert TimeLimit(math.inf, None).has_time(1e12)
    stopped = TimeLimit(math.inf, lambda: True)
    assert not stopped.has_time(0.0)
    assert stopped.ended == ()
