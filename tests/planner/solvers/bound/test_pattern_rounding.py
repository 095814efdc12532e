"""Plans from rank patterns: what is rounded keeps the rules of placements, and fills ranks up to the step in view."""

from dataclasses import replace

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.load_state import load_state
from planner.problem.placement import Placement
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.pattern_branching import PatternBranching
from planner.solvers.bound.pattern_prices import Work
from planner.solvers.bound.pattern_rounding import may_be_rounded
from planner.solvers.bound.presolve import presolve
from planner.solvers.limits import Clock, SearchLimits
from planner.solvers.lower_bound import bound_of
from tests.oracles.patterns import known_patterns


def _rounded(problem: Problem, best_s: float, threshold_s: float) -> Placement | None:
    """What patterns below a threshold are rounded to, once prices were looked for up to a tenth above the optimum."""
    patterns = PatternBranching(Fluid(problem), bound_of(solve_relaxation(Fluid(problem))))
    clock = Clock(SearchLimits())
    patterns.run(best_s * 1.1, Work(3e7), clock)
    return patterns.rounded(threshold_s, clock)


def _faults(problem: Problem, placement: Placement) -> list[str]:
    """Rules that a table breaks whose blocks are placed: counts, columns, different sites of what is apart."""
    found = []
    for table in np.unique(problem.table_of_block[placement.item_block]).tolist():
        of_table = problem.table_of_block[placement.item_block] == table
        blocks, places = placement.item_block[of_table], placement.item_place[of_table]
        options = np.unique(problem.block_option[blocks])
        if len(options) != 1:
            found.append(f"table {table}: {len(options)} options")
            continue
        option = int(options[0])
        types = np.arange(problem.block_start[option], problem.block_start[option + 1])
        if problem.option_units[option]:
            if problem.block_units[blocks].sum() != problem.option_units[option]:
                found.append(f"table {table}: other columns than it has")
        elif (np.bincount(blocks - types[0], minlength=len(types)) != problem.block_count[types]).any():
            found.append(f"table {table}: other blocks than its option has")
        if problem.option_apart[option] and len(set(places.tolist())) < len(places):
            found.append(f"table {table}: two blocks on one site")
        if ((places < 0) != problem.is_world_wide[blocks]).any():
            found.append(f"table {table}: a place that is none")
    return found


def test_what_is_rounded_is_a_placement_of_most_tables() -> None:
    """Of whole options, each column once; at a step in view a tenth above the optimum nearly all tables are in, and
    most of these plans are no longer than that."""
    tables, placed, plans, near = 0, 0, 0, 0
    for known in known_patterns(0, 30):
        problem = presolve(known.instance.problem).problem
        placement = _rounded(problem, known.best.step_s, known.best.step_s * 1.1)
        if placement is None:
            continue
        assert _faults(problem, placement) == [], known.instance.description
        tables, placed = tables + problem.tables, placed + len(np.unique(problem.table_of_block[placement.item_block]))
        if len(np.unique(problem.table_of_block[placement.item_block])) == problem.tables:
            plans += 1
            near += load_state(problem, placement).step_s() < known.best.step_s * 1.1001
    assert plans > 10
    assert placed > 0.8 * tables
    assert near > 0.7 * plans


def test_nothing_is_rounded_before_anything_is_priced() -> None:
    """There are no columns yet."""
    problem = presolve(known_patterns(0, 30)[0].instance.problem).problem
    patterns = PatternBranching(Fluid(problem), bound_of(solve_relaxation(Fluid(problem))))
    assert patterns.rounded(1.0, Clock(SearchLimits())) is None


def test_tables_that_may_not_be_everywhere_are_not_rounded() -> None:
    """Patterns know nothing of the ranks that a table may be on."""
    problem = presolve(known_patterns(0, 30)[0].instance.problem).problem
    assert may_be_rounded(problem)
    assert not may_be_rounded(replace(problem, rank_sets=np.zeros_like(problem.rank_sets)))
