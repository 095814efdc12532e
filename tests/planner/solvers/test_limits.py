"""When a search ends: at its time, when it is told to, and for good."""

import math

from planner.solvers.limits import Clock, SearchLimits


class Hand:
    """A clock that is set by hand."""

    now_s = 5.0

    def __call__(self) -> float:
        return self.now_s


def test_time_runs_out_at_the_limit_and_stays_out() -> None:
    """Not before; and a clock that went back would change nothing."""
    hand = Hand()
    clock = Clock(SearchLimits(time_limit_s=10.0, clock=hand))
    assert clock.left_s() == 10.0
    hand.now_s = 14.5
    assert not clock.is_over()
    assert clock.left_s() == 0.5
    hand.now_s = 15.0
    assert clock.is_over()
    assert clock.ran_out
    assert clock.left_s() == 0.0
    hand.now_s = 6.0
    assert clock.is_over()


def test_to_be_told_to_stop_is_not_to_run_out_of_time() -> None:
    """Whoever says stop once has said it."""
    answers = iter([False, True, False])
    clock = Clock(SearchLimits(stop=lambda: next(answers)))
    assert not clock.is_over()
    assert clock.is_over()
    assert clock.is_over()
    assert not clock.ran_out


def test_without_limits_nothing_ends() -> None:
    """Neither time nor anybody ends a search that knows no limit."""
    clock = Clock(SearchLimits())
    assert clock.left_s() == math.inf
    assert not clock.is_over()


def test_a_part_has_the_time_that_is_left() -> None:
    """All other limits are the same."""
    hand = Hand()
    limits = SearchLimits(time_limit_s=10.0, gap=0.25, effort=3, seed=9, clock=hand)
    clock = Clock(limits)
    hand.now_s = 12.0
    part = limits.left_of(clock)
    assert part.time_limit_s == 3.0
    assert (part.gap, part.effort, part.seed, part.clock) == (0.25, 3, 9, hand)
