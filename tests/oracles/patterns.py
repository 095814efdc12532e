"""Tiny instances that have rank patterns, with their optima; and bounds that prices of patterns prove of them."""

import functools

from planner.certificates.multipliers import Bound
from planner.certificates.rank_patterns import has_rank_patterns
from planner.problem.arrays import Problem
from planner.solvers.bound.cutting_planes import solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.pattern_branching import PatternBranching
from planner.solvers.bound.pattern_prices import Work
from planner.solvers.bound.presolve import presolve
from planner.solvers.limits import Clock, SearchLimits
from tests.oracles.brute_force import optimum
from tests.oracles.instances import tiny_instance
from tests.oracles.packings import Known

WORK = 3e7


@functools.cache
def known_patterns(first: int, last: int) -> list[Known]:
    """Those of some seeds: several tiers, blocks of nodes and of the world, cuts into unequal widths."""
    instances = [tiny_instance(seed, rating) for seed in range(first, last) for rating in ("torchrec", "hugectr")]
    pairs = [(each, optimum(each.problem)) for each in instances if has_rank_patterns(each.problem)]
    return [Known(each, best) for each, best in pairs if best is not None and best.step_s > 0]


def priced(problem: Problem, step_s: float, work: float = WORK) -> tuple[Bound, Bound]:
    """The bound of the relaxation, and what prices of patterns make of it; as a search sees the problem."""
    fluid = Fluid(presolve(problem).problem)
    relaxed = solve_relaxation(fluid)
    before = Bound(relaxed.bound_s, relaxed.multipliers, None)
    return before, PatternBranching(fluid, before).run(step_s, Work(work), Clock(SearchLimits()))
