"""The start portfolio: placements that fit, whose steps are what is said, and of which the incumbent hears."""

import numpy as np
import pytest

from planner.problem.load_state import load_state
from planner.problem.numbers import Bools
from planner.solvers import start_portfolio
from planner.solvers.bound.fluid import Fluid
from planner.solvers.incumbent import Incumbent
from planner.solvers.limits import SearchLimits
from planner.solvers.lower_bound import bound_of, relaxed_optimum
from planner.solvers.start_portfolio import StartPortfolio
from tests.oracles.optima import solvable_problems
from tests.oracles.placements import faults


def test_starts_are_placements_that_fit() -> None:
    """Each with its step; the incumbent keeps the best of them, and on most problems some are near the optimum."""
    good = 0
    for problem, best_s in solvable_problems():
        fluid = Fluid(problem)
        relaxed = relaxed_optimum(fluid)
        incumbent = Incumbent(bound_of(relaxed), SearchLimits(gap=0.0), lambda *_: None)
        starts = StartPortfolio(fluid, relaxed, incumbent).starts()
        for placement, step_s in starts:
            state = load_state(problem, placement)
            assert faults(problem, placement) == []
            assert state.overflow_bytes() == 0
            assert abs(state.step_s() - step_s) <= 1e-9 * step_s
        assert incumbent.best_s == min((step_s for _, step_s in starts), default=np.inf)
        good += incumbent.best_s <= best_s * 1.1
    assert good >= 0.7 * len(solvable_problems())


def test_the_first_start_is_one() -> None:
    """Made before all others, whatever it is worth; where there is none, there are no others with as much memory."""
    for problem, _ in solvable_problems():
        fluid = Fluid(problem)
        relaxed = relaxed_optimum(fluid)
        incumbent = Incumbent(bound_of(relaxed), SearchLimits(gap=0.0), lambda *_: None)
        first = StartPortfolio(fluid, relaxed, incumbent).first()
        assert len(first) <= 1
        for placement, step_s in first:
            assert faults(problem, placement) == []
            assert incumbent.best_s == step_s


def test_a_search_that_is_done_makes_no_more() -> None:
    """Within a wide gap the first start ends it."""
    for problem, _ in solvable_problems()[:10]:
        fluid = Fluid(problem)
        relaxed = relaxed_optimum(fluid)
        incumbent = Incumbent(bound_of(relaxed), SearchLimits(gap=1e6), lambda *_: None)
        assert len(StartPortfolio(fluid, relaxed, incumbent).starts()) <= 1


def test_where_one_start_is_made_another_has_larger_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one as before, and at most one more, both of which fit; on some problems the second is the better."""
    better = 0
    monkeypatch.setattr(start_portfolio, "STARTS_WORK", 0.0)
    for problem, _ in solvable_problems():
        fluid = Fluid(problem)
        relaxed = relaxed_optimum(fluid)
        incumbent = Incumbent(bound_of(relaxed), SearchLimits(gap=0.0), lambda *_: None)
        starts = StartPortfolio(fluid, relaxed, incumbent).starts()
        monkeypatch.setattr(StartPortfolio, "_wide", lambda _: [])
        alone = StartPortfolio(fluid, relaxed, Incumbent(incumbent.bound, SearchLimits(gap=0.0), lambda *_: None))
        before = alone.starts()
        monkeypatch.undo()
        monkeypatch.setattr(start_portfolio, "STARTS_WORK", 0.0)
        assert [step_s for _, step_s in starts[: len(before)]] == [step_s for _, step_s in before]
        assert len(starts) <= len(before) + 1
        for placement, step_s in starts:
            assert faults(problem, placement) == []
            assert abs(load_state(problem, placement).step_s() - step_s) <= 1e-9 * step_s
        better += len(starts) > len(before) and starts[-1][1] < starts[0][1]
    assert better


def test_single_starts_are_off_single_ranks_as_the_relaxation_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the relaxation has no table on single ranks, the first start has none there that its caps allow elsewhere;
    where nothing fits so, others may."""
    monkeypatch.setattr(start_portfolio, "STARTS_WORK", 0.0)
    chosen: list[bool] = []
    real = start_portfolio.choose

    def seen(fluid: Fluid, usable: Bools, headroom: float, *, is_thorough: bool, barred: Bools | None = None) -> object:
        found = real(fluid, usable, headroom, is_thorough=is_thorough, barred=barred)
        of, on_rank = fluid.problem.table_of_block, fluid.problem.is_on_rank
        elsewhere = np.bincount(of[usable & ~on_rank], minlength=fluid.problem.tables) > 0
        chosen.append(found is not None and bool((on_rank[found[1]] & elsewhere).any()))
        return found

    monkeypatch.setattr(start_portfolio, "choose", seen)
    free = barred = 0
    for problem, _ in solvable_problems():
        fluid = Fluid(problem)
        relaxed = relaxed_optimum(fluid)
        chosen.clear()
        incumbent = Incumbent(bound_of(relaxed), SearchLimits(gap=0.0), lambda *_: None)
        starts = StartPortfolio(fluid, relaxed, incumbent).starts()
        if problem.is_on_rank[relaxed.choices].any():
            free += any(chosen)
        else:
            barred += 1
            assert not chosen[0]
            assert starts or any(chosen)
    assert free
    assert barred
