"""Path relinking: what is said of every point of a path is true, and the path ends where tables were."""

import numpy as np
import pytest

from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.solvers.improve.path_relinking import PathRelinking, by_table, in_order, part_of
from planner.solvers.limits import Clock, SearchLimits
from tests.oracles.incumbents import incumbent, table_bytes, whole_tables
from tests.oracles.placements import faults


@pytest.mark.parametrize("seed", range(5))
def test_points_are_placements_with_their_step_and_bytes(seed: int) -> None:
    """Each is legal; its step is its loads', and its moved bytes are those of the tables on other ranks."""
    problem, random = whole_tables(12, seed=seed), np.random.default_rng(seed)
    before, after = random.integers(0, 4, 12), random.integers(0, 4, 12)
    relinking = PathRelinking(problem, incumbent(problem, before), Placement(np.arange(12), before))
    path = relinking.path_from(Placement(np.arange(12), after), Clock(SearchLimits()))
    assert len(path.points) == (before != after).sum() + 1
    for number, (step_s, moved) in enumerate(path.points):
        placement = path.placement(number)
        assert faults(problem, placement) == []
        assert step_s == pytest.approx(load_state(problem, placement).step_s(), rel=1e-9)
        expected = table_bytes(problem)[placement.item_place != before].sum()
        assert moved == pytest.approx(expected)
    assert path.placement(0).item_place.tolist() == after.tolist()
    assert path.placement(len(path.points) - 1).item_place.tolist() == before.tolist()
    assert path.points[-1][1] == 0
    assert all(later <= earlier for (_, earlier), (_, later) in zip(path.points, path.points[1:], strict=False))


def test_returns_that_cost_nothing_come_first() -> None:
    """Two tables that were changed for nothing return before the step gets longer."""
    problem = whole_tables(12, seed=1)
    before = np.arange(12) % 4
    after = before.copy()
    after[:6] = (before[:6] + 1) % 4
    relinking = PathRelinking(problem, incumbent(problem, before), None)
    path = relinking.path_from(Placement(np.arange(12), after), Clock(SearchLimits()))
    start = load_state(problem, path.placement(0))
    for number in range(len(path.points)):
        longer = load_state(problem, path.placement(number)).stage_seconds() > start.stage_seconds() * (1 + 1e-9)
        if longer.any():
            left = [i for i in range(12) if path.placement(number).item_place[i] != before[i]]
            assert len(left) < 6
            break


def test_no_return_is_a_path_of_one_point() -> None:
    """The placement itself, with its step and bytes."""
    problem = whole_tables(6)
    before = np.zeros(6, dtype=np.int64)
    relinking = PathRelinking(problem, incumbent(problem, before), None)
    here = Placement(np.arange(6), np.array([0, 1, 0, 0, 2, 0]))
    path = relinking.stay(here)
    assert path.points == [(load_state(problem, here).step_s(), table_bytes(problem)[[1, 4]].sum())]
    assert np.array_equal(relinking.moved_bytes(here) > 0, [False, True, False, False, True, False])


def test_parts_and_tables_of_a_placement() -> None:
    """What is marked is kept, in order, and every table has its blocks."""
    problem = whole_tables(4)
    placement = Placement(np.array([3, 1, 0, 2]), np.array([0, 1, 2, 3]))
    assert part_of(placement, np.array([True, False, True, False])).item_block.tolist() == [3, 0]
    assert in_order(placement).item_place.tolist() == [2, 1, 3, 0]
    assert by_table(problem, placement) == {0: [(0, 2)], 1: [(1, 1)], 2: [(2, 3)], 3: [(3, 0)]}
