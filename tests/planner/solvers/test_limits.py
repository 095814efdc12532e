"""When a search ends: at its time, when it is told to, and for good."""

import math

import pytest

from planner.solvers.limits import Clock, SearchLimits, TimeShare


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


def test_a_half_of_the_time_is_as_much_as_all_else_took() -> None:
    """What was taken before counts, and nobody gets time back for what was not taken."""
    hand = Hand()
    whole, share = Clock(SearchLimits(time_limit_s=100.0, clock=hand)), TimeShare(0.5, hand)
    hand.now_s += 3.0
    with share.limited(whole) as clock:
        assert clock.left_s() == 3.0
        hand.now_s += 4.0
        assert clock.is_over()
    with share.limited(whole) as clock:
        assert clock.is_over()
    hand.now_s += 6.0
    with share.limited(whole) as clock:
        assert clock.left_s() == pytest.approx(5.0)
        assert not clock.is_over()
    assert not whole.is_over()


def test_a_share_ends_with_the_whole() -> None:
    """Whatever is left of it."""
    hand = Hand()
    whole, share = Clock(SearchLimits(time_limit_s=10.0, clock=hand)), TimeShare(0.5, hand)
    hand.now_s += 9.0
    with share.limited(whole) as clock:
        hand.now_s += 1.0
        assert clock.is_over()
