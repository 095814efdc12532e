"""The enumeration of what a table may be: every way that fits, each once, with the loads that it adds."""

import itertools

import numpy as np
import pytest

from planner.certificates.partial_plans import PartialPlanBounds
from planner.certificates.table_placements import TableEnumeration
from planner.certificates.work_budget import WorkBudget, WorkExceededError
from planner.problem.arrays import Problem
from planner.problem.load_state import LoadState, place_block
from tests.oracles.incumbents import whole_tables
from tests.oracles.instances import confined_instance, tiny_instance
from tests.oracles.node_places import places


def _all_ways(problem: Problem, table: int) -> set[tuple[tuple[int, int], ...]]:
    """Return every way to hold a table by itself: blocks that make up an option, at places that fit and are allowed."""
    ways = set()
    for option in range(*problem.option_start[table : table + 2]):
        types = list(range(*problem.block_start[option : option + 2]))
        where = [(b, place) for b in types for place in places(problem, b) if _is_left(problem, table, b, place)]
        whole = int(problem.option_units[option])
        counts = problem.block_count[types]
        most = whole // int(problem.block_units[types].min()) if whole else int(counts.sum())
        for n in range(1, most + 1):
            for items in itertools.combinations_with_replacement(where, n):
                blocks = [block for block, _ in items]
                if whole:
                    is_complete = problem.block_units[blocks].sum() == whole
                else:
                    is_complete = [blocks.count(b) for b in types] == counts.tolist()
                if is_complete and _is_right(problem, option, items):
                    ways.add(items)
    return ways


def _is_left(problem: Problem, table: int, block: int, place: int) -> bool:
    """Whether the policy leaves the ranks of a place to the table."""
    ranks = problem.rank_sets[problem.table_rank_set[table]]
    if problem.block_extent[block] == 0:
        return bool(ranks[place])
    return bool(ranks[(problem.node_of_rank == place) | (place == -1)].all())


def _is_right(problem: Problem, option: int, items: tuple[tuple[int, int], ...]) -> bool:
    """Whether the items fit on empty ranks, and are on different ranks of one node where that is asked."""
    if problem.option_colocated[option]:
        ranks = [place for _, place in items]
        if len(set(ranks)) < len(ranks) or len(set(problem.node_of_rank[ranks].tolist())) > 1:
            return False
    state = LoadState(problem)
    for block, place in items:
        place_block(problem, state, block, place)
    return state.overflow_bytes() <= 1e-3


@pytest.mark.parametrize("make", [tiny_instance, confined_instance])
def test_all_ways_are_listed_once(make: object) -> None:
    """Of tables without affinity or anti-affinity; and what each adds is what its placing shows."""
    compared = 0
    for seed in range(25):
        instance = make(seed)  # type: ignore[operator]
        if not len(instance.options.table):
            continue
        problem = instance.problem
        bounds = PartialPlanBounds(problem, 1e3, None, None)
        enumeration = TableEnumeration(problem, bounds, WorkBudget(1e9))
        for table in np.flatnonzero(~problem.grouped).tolist():
            found = enumeration.placements(table)
            items = [] if found is None else [tuple(sorted(each)) for each in found.items]
            assert len(items) == len(set(items))
            assert set(items) == _all_ways(problem, table), (seed, table)
            if found is None:
                continue
            for n in range(0, len(items), max(1, len(items) // 3)):
                state, before = LoadState(problem), LoadState(problem)
                for block, place in items[n]:
                    place_block(problem, state, block, place)
                    state.add_everywhere(problem.everywhere[:, block])
                rows = np.concatenate([state.load - before.load, before.free - state.free])
                assert found.added[n, : len(rows)] == pytest.approx(rows, rel=1e-9, abs=1e-3)
            compared += len(items)
    assert compared > 100


def test_whole_tables_have_as_many_places_as_ranks() -> None:
    """Four ranks, four placements; and a budget of nothing is exceeded."""
    problem = whole_tables(2)
    bounds = PartialPlanBounds(problem, 1e3, None, None)
    found = TableEnumeration(problem, bounds, WorkBudget(1e6)).placements(0)
    assert found is not None
    assert found.items == [[(0, rank)] for rank in range(4)]
    with pytest.raises(WorkExceededError):
        TableEnumeration(problem, bounds, WorkBudget(1)).placements(0)
