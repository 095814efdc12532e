"""The Pareto front: of all placements met, the best for every budget and price, as looking at all of them says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.problem.goals import GIVE
from planner.problem.placement import Placement
from planner.solvers.front import Front, MoveTerms
from planner.solvers.improve.path_relinking import RelinkingPath
from tests.oracles.incumbents import whole_tables

PROBLEM = whole_tables(2)
HERE = Placement(np.arange(2), np.zeros(2, dtype=np.int64))
POINTS = st.lists(st.tuples(st.floats(0.1, 10.0), st.integers(0, 50).map(float)), min_size=1, max_size=6)
PATHS = st.lists(POINTS, min_size=1, max_size=5)


def front_of(paths: list[list[tuple[float, float]]]) -> Front:
    """Return the front of all points."""
    front = Front()
    for points in paths:
        returns = [(i % 2, [(i % 2, 1)]) for i in range(len(points) - 1)]
        front.add(RelinkingPath(PROBLEM, HERE, points, returns))
    return front


@given(PATHS, st.integers(-1, 60))
def test_within_a_budget_the_shortest_step_is_found(paths: list[list[tuple[float, float]]], budget: int) -> None:
    """Of all points that move so much at most; None where there is none."""
    allowed = [step for points in paths for step, moved in points if moved <= budget]
    best = front_of(paths).within(float(budget))
    assert (best is None) == (not allowed)
    if best is not None:
        assert best.step_s == min(allowed)
        assert best.moved_bytes <= budget


@given(PATHS, st.one_of(st.none(), st.floats(0.0, 60.0)), st.floats(0.0, 0.5), st.floats(0.0, 5.0))
def test_the_terms_choose_the_cheapest(
    paths: list[list[tuple[float, float]]], limit: float | None, price: float, least_s: float
) -> None:
    """Step and price of the moved bytes together are the least of all points, or nearly so where that moves less."""
    terms = MoveTerms(limit, price, least_s)
    points = [point for each in paths for point in each if limit is None or point[1] <= limit]
    costs = [max(step, least_s) + price * moved for step, moved in points]
    exact, even = front_of(paths).best(terms, even=0.0), front_of(paths).best(terms)
    assert (exact is None) == (not points)
    if exact is None or even is None:
        return
    assert max(exact.step_s, least_s) + price * exact.moved_bytes == pytest.approx(min(costs), rel=1e-12)
    assert max(even.step_s, least_s) + price * even.moved_bytes <= min(costs) * (1 + GIVE) * (1 + 1e-12)
    assert even.moved_bytes <= exact.moved_bytes


@given(PATHS)
def test_the_fewest_bytes_are_known(paths: list[list[tuple[float, float]]]) -> None:
    """Of all points; a front without any has none."""
    assert Front().fewest_bytes is None
    assert front_of(paths).fewest_bytes == min(moved for points in paths for _, moved in points)


def test_a_point_is_the_placement_at_that_point_of_its_path() -> None:
    """The start before any return, and with the tables that returned until then."""
    path = RelinkingPath(PROBLEM, HERE, [(3.0, 9.0), (2.0, 5.0), (4.0, 1.0)], [(0, [(0, 2)]), (1, [(1, 3)])])
    front = Front()
    front.add(path)
    places = []
    for budget in (1.0, 5.0, 100.0):
        point = front.within(budget)
        assert point is not None
        places.append(point.placement().item_place.tolist())
    assert places == [[2, 3], [2, 0], [2, 0]], "what moves more and is slower is on no front"
