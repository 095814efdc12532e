"""Decided parts of tables: the rules lead to every way to make up an option, and to each one once."""

from collections.abc import Iterator
from itertools import combinations_with_replacement

import numpy as np
import pytest

from planner.certificates.parts import PartDecision, PartRules
from planner.problem.arrays import Problem
from tests.oracles.instances import tiny_instance


def _decided(rules: PartRules, table: int, before: tuple[PartDecision, ...]) -> Iterator[tuple[int, ...]]:
    """The blocks of every complete list of parts that the rules allow after `before`."""
    if before and not rules.is_unfinished(before):
        yield tuple(part.first for part in before)
        return
    around = rules.open_range(table, before)
    assert around is not None
    for block in range(around[0], around[1] + 1):
        part = PartDecision(block, block, 0)
        if rules.is_part(part, before) and _are_left(rules, before, part):
            yield from _decided(rules, table, (*before, part))


def _are_left(rules: PartRules, before: tuple[PartDecision, ...], part: PartDecision) -> bool:
    """Whether the option of the part has as many units left as it takes."""
    problem = rules.problem
    option = int(problem.block_option[part.first])
    if before and option != problem.block_option[before[0].first]:
        return False
    return not problem.option_units[option] or rules.units_left((*before, part))[1] >= 0


def _ways(problem: Problem, option: int) -> set[tuple[int, ...]]:
    """Every list of blocks that make up an option: in order, or the widest first."""
    types = range(*problem.block_start[option : option + 2])
    whole = int(problem.option_units[option])
    if not whole:
        return {tuple(np.repeat(list(types), problem.block_count[list(types)]).tolist())}
    most = whole // int(problem.block_units[list(types)].min())
    return {
        tuple(reversed(blocks))
        for n in range(1, most + 1)
        for blocks in combinations_with_replacement(types, n)
        if problem.block_units[list(blocks)].sum() == whole
    }


@pytest.mark.parametrize("seed", range(30))
def test_the_rules_list_every_way_once(seed: int) -> None:
    """Tilings of splittable options from the widest block on, fixed ones block by block; nothing else."""
    problem = tiny_instance(seed).problem
    rules = PartRules(problem)
    for table in range(problem.tables):
        options = range(*problem.option_start[table : table + 2])
        found = list(_decided(rules, table, ()))
        assert len(found) == len(set(found))
        assert set(found) == set().union(*(_ways(problem, option) for option in options))


def test_a_range_is_decided_again_until_it_is_one_block() -> None:
    """A placed range is inexact; an open part is asked for its place."""
    problems = [tiny_instance(seed).problem for seed in range(20)]
    problem = next(each for each in problems if ((each.option_units > 0) & (np.diff(each.block_start) > 1)).any())
    rules = PartRules(problem)
    option = int(np.flatnonzero((problem.option_units > 0) & (np.diff(problem.block_start) > 1))[0])
    table, first = int(problem.option_table[option]), int(problem.block_start[option])
    last = int(problem.block_start[option + 1]) - 1
    wide, still_open = (PartDecision(first, last, 0),), (PartDecision(first, last, None),)
    assert rules.is_inexact(wide)
    assert not rules.is_inexact(still_open)
    assert rules.undecided_range(table, wide, 0) == (first, last)
    assert rules.undecided_range(table, still_open, 0) == (first, last)
    assert rules.placed(still_open) == ()
    fewest, most = rules.units_left(wide)
    units = problem.block_units[first : last + 1]
    assert (fewest, most) == (problem.option_units[option] - units.max(), problem.option_units[option] - units.min())


@pytest.mark.parametrize("index", [-2, -1, 1])
def test_a_part_that_is_not_next_is_not_to_be_decided(index: int) -> None:
    """Numbers below zero are no parts, also of a table of which nothing is decided."""
    assert PartRules(tiny_instance(0).problem).undecided_range(0, (), index) is None
