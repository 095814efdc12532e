"""Whether prices of rank patterns prove what a tree of cases says of each."""

from collections.abc import Iterator

import numpy as np

from planner.certificates.pattern_trees import Division, PatternPrices, PatternTree, divided_leads
from planner.certificates.rank_patterns import MOST_CELLS, PatternRules, has_rank_patterns
from planner.problem.arrays import Problem
from planner.problem.numbers import Bools


def pattern_faults(problem: Problem, tree: PatternTree) -> Iterator[str]:
    """What keeps a tree from proving that no plan is faster than its threshold."""
    if not has_rank_patterns(problem):
        yield "rank patterns: the step is not one number for each rank of one kind"
        return
    if not 1 <= tree.cells <= MOST_CELLS:
        yield f"rank patterns: {tree.cells} cells, not 1 to {MOST_CELLS}"
        return
    waiting: list[Bools] = [np.ones(len(problem.block_option), dtype=bool)]
    rules: dict[float, PatternRules] = {}
    for number, case in enumerate(tree.cases):
        if not waiting:
            yield f"rank patterns: case {number} is of no other one"
            return
        leading = waiting.pop()
        if isinstance(case, Division):
            parts = divided_leads(problem, leading, case)
            if parts is None:
                yield f"rank patterns: case {number} is divided by blocks {case.first} to {case.last}, not of one table"
                return
            waiting += reversed(parts)
        elif not is_price(case):
            yield f"rank patterns: the prices of case {number} are none"
            return
        else:
            if case.threshold_s not in rules:
                rules[case.threshold_s] = PatternRules(problem, case.threshold_s, tree.cells)
            if not rules[case.threshold_s].case(leading).is_refuted(case.blocks, case.byte):
                yield f"rank patterns: the prices of case {number} do not prove {case.threshold_s!r} s"
                return
    if waiting:
        yield f"rank patterns: {len(waiting)} cases are left out"


def is_price(prices: PatternPrices) -> bool:
    """Whether all numbers are finite and none is negative, and the threshold positive."""
    numbers = np.concatenate([prices.blocks, prices.byte.ravel()])
    return bool(np.isfinite(numbers).all() and (numbers >= 0).all() and 0 < prices.threshold_s < np.inf)
