"""The search for prices of rank patterns: the same verdicts as without edges, and prices that stay within these."""

from collections.abc import Iterator

import numpy as np

from planner.certificates.rank_patterns import PatternRules
from planner.problem.arrays import Problem
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.pattern_branching import CELLS, fluid_prices
from planner.solvers.bound.pattern_prices import PriceSearch, Work
from planner.solvers.bound.presolve import presolve
from planner.solvers.limits import Clock, SearchLimits
from planner.solvers.lower_bound import bound_of
from tests.oracles.patterns import Known, known_patterns

THRESHOLDS = (0.8, 0.9, 0.97, 1.03)
"""Over the optimum."""


def _search(problem: Problem, threshold_s: float) -> PriceSearch | None:
    """The search of all plans below a threshold; None where blocks alone refute it."""
    rules = PatternRules(problem, threshold_s, CELLS)
    case = rules.case(np.ones(len(problem.block_option), dtype=bool))
    if not case.is_possible or case.room < 0:
        return None
    prices = fluid_prices(rules, bound_of(solve_relaxation(Fluid(problem))))
    return PriceSearch(case, Work(np.inf), Clock(SearchLimits()), prices)


def _pairs(questions: int) -> Iterator[tuple[Known, PriceSearch, PriceSearch]]:
    """Two searches for the same prices, at each threshold of so many questions at which there may be any."""
    for known in known_patterns(0, questions):
        problem = presolve(known.instance.problem).problem
        for share in THRESHOLDS:
            one, other = (_search(problem, share * known.best.step_s) for _ in range(2))
            if one is not None and other is not None:
                yield known, one, other


def test_a_threshold_is_refuted_where_the_programme_needs_more_nodes() -> None:
    """As it does once dual values alone find no new columns; no other one is refuted, and hardly any such one is not.
    Prices of one that is not are as they are, near to none."""
    refuted, missed = 0, 0
    for known, search, plain in _pairs(30):
        needs_more = not plain.fits(1_000)
        prices = search.run()
        if prices is None:
            assert search.master.solve() is not None
            assert not search.master.is_at_edge, known.instance.description
        else:
            assert needs_more, known.instance.description
            assert search.case.is_refuted(prices.blocks, prices.byte)
        refuted, missed = refuted + (prices is not None), missed + (needs_more and prices is None)
    assert refuted > 20
    assert missed <= 0.02 * refuted


def test_a_search_goes_on_where_work_ended_it() -> None:
    """Two pricings at a time, it comes to the verdicts that it comes to in one go."""
    refuted, interrupted = 0, 0
    for known, whole, piecewise in _pairs(12):
        prices, in_pieces = whole.run(), None
        piecewise.is_interrupted = True
        while in_pieces is None and piecewise.is_interrupted:
            piecewise.work.left = 0.0
            piecewise.work.spend(piecewise.case, -2)
            in_pieces = piecewise.run()
            interrupted += piecewise.is_interrupted
        assert (in_pieces is None) == (prices is None), known.instance.description
        refuted += prices is not None
    assert refuted > 5
    assert interrupted > 0


def test_prices_stay_near_to_those_that_are_given() -> None:
    """Within a tenth of them, where those of few columns would be anything; and at an edge then."""
    edges = 0
    for known in known_patterns(0, 30):
        search = _search(presolve(known.instance.problem).problem, 0.96 * known.best.step_s)
        if search is None:
            continue
        usable = search.case.usable
        search.fits(1)
        free = search.master.solve()
        search.master.keep_near(search.best, 0.1)
        near = search.master.solve()
        assert free is not None
        assert near is not None
        middle, prices = search.best.blocks[usable], near.prices.blocks[usable]
        assert (np.abs(prices - middle) <= 0.1 * middle + 1e-6).all()
        assert near.nodes <= free.nodes * (1 + 1e-9)
        edges += search.master.is_at_edge
    assert edges > 5
