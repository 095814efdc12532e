"""The incumbent: of all offers the best, of all bounds the highest, and every change is told."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from planner.certificates.multipliers import Bound, Multipliers
from planner.problem.placement import Placement
from planner.solvers.incumbent import OPTIMAL_GAP, Incumbent
from planner.solvers.limits import SearchLimits

NONE = np.zeros((1, 1))
PRICES = Multipliers(NONE, NONE, np.zeros((1, 1)))
SECONDS = st.floats(0.1, 10.0)


def placement(number: int) -> Placement:
    """Return one that is told from others by its only block."""
    return Placement(np.array([number]), np.array([0]))


@given(st.lists(st.tuples(st.booleans(), SECONDS), min_size=1, max_size=12), SECONDS)
def test_the_best_offer_and_the_highest_bound_are_kept(events: list[tuple[bool, float]], first_s: float) -> None:
    """Whatever comes in whatever order; what is told gets better each time, and says the same."""
    told: list[tuple[str, float | None, float | None]] = []
    incumbent = Incumbent(Bound(first_s, PRICES, None), SearchLimits(), lambda *news: told.append(news))
    made: list[int] = []

    def make(number: int) -> Placement:
        made.append(number)
        return placement(number)

    for number, (is_offer, seconds) in enumerate(events):
        if is_offer:
            incumbent.offer(lambda number=number: make(number), seconds, "test")  # type: ignore[misc]
        else:
            incumbent.raise_to(Bound(seconds, PRICES, None))
    steps = [seconds for is_offer, seconds in events if is_offer]
    assert incumbent.best_s == min(steps, default=np.inf)
    assert incumbent.bound.seconds == max([first_s, *(seconds for is_offer, seconds in events if not is_offer)])
    if incumbent.best is not None:
        first_best = events.index((True, min(steps)))
        assert incumbent.best[0].item_block.tolist() == [first_best]
        assert made[-1] == first_best, "placements that are not better are not even made"
    told_steps = [step for source, step, _ in told if source == "test" and step is not None]
    assert all(later < earlier for earlier, later in itertools.pairwise(told_steps))
    bounds = [bound for *_, bound in told if bound is not None]
    assert bounds == sorted(bounds)


@given(SECONDS, st.floats(1.0, 2.0), st.floats(0.0, 0.5))
def test_near_enough_is_within_the_gap(bound_s: float, ratio: float, gap: float) -> None:
    """The search is done where step / bound - 1 is at most the gap, or the one that is called optimal."""
    incumbent = Incumbent(Bound(bound_s, PRICES, None), SearchLimits(gap=gap), lambda *_: None)
    assert not incumbent.is_done()
    assert not incumbent.is_within(1e9)
    incumbent.offer(placement(0), bound_s * ratio, "test")
    distance = incumbent.best_s / bound_s - 1
    if abs(distance - gap) > 1e-9 and abs(distance - OPTIMAL_GAP) > 1e-9:
        assert incumbent.is_within(gap) == (distance < gap)
        assert incumbent.is_done() == (distance < max(gap, OPTIMAL_GAP))


def test_a_search_that_is_told_to_stop_is_done() -> None:
    """Though it has no placement."""
    incumbent = Incumbent(Bound(1.0, PRICES, None), SearchLimits(stop=lambda: True), lambda *_: None)
    assert incumbent.is_done()
