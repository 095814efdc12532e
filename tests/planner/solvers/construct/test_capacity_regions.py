"""Where tables of groups may still go: partners follow, rivals stay away, and units hold whole groups."""

import functools

import numpy as np
import pytest

from cost_models.shards import RANK
from planner.problem.arrays import Problem
from planner.solvers.construct.capacity_regions import OpenRanks, units_of
from tests.oracles.instances import confined_instance


@functools.cache
def confined() -> list[Problem]:
    return [each.problem for seed in range(60) if (each := confined_instance(seed)).problem.is_confined]


def test_units_hold_every_confined_table_once() -> None:
    """Each table of a group, or with fewer ranks than others, is in one unit; partners in the same one."""
    assert len(confined()) >= 20
    for problem in confined():
        units = units_of(problem)
        members = [table for unit in units for table in unit.tables]
        assert len(members) == len(set(members))
        unit_of = {table: number for number, unit in enumerate(units) for table in unit.tables}
        for group in (*problem.affinity_groups, *problem.anti_affinity_groups):
            assert set(group.tables.tolist()) <= set(members)
        for group in problem.affinity_groups:
            assert len({unit_of[table] for table in group.tables.tolist()}) == 1
        everywhere = [problem.rank_sets[problem.table_rank_set[t]].sum() for t in range(problem.tables)]
        assert {t for t in range(problem.tables) if everywhere[t] < problem.reach.sum()} <= set(members)


def test_the_most_confined_unit_comes_first() -> None:
    """By the ranks that the most confined of a unit's tables may use."""
    for problem in confined():
        room = [
            min(int(problem.rank_sets[problem.table_rank_set[table]].sum()) for table in unit.tables)
            for unit in units_of(problem)
        ]
        assert room == sorted(room)


@pytest.mark.parametrize("seed", range(4))
def test_a_placed_block_binds_its_partners_and_rivals(seed: int) -> None:
    """After random placements of some tables, ranks are open to the others as the groups' definition says: tried here
    rank by rank, with everything that was placed."""
    random = np.random.default_rng(seed)
    for problem in confined():
        units = units_of(problem)
        tables = [table for unit in units for table in unit.tables]
        open_ranks, placed = OpenRanks(problem, units), dict[int, int]()
        blocks = {t: np.flatnonzero((problem.table_of_block == t) & (problem.block_extent == RANK)) for t in tables}
        for table in random.permutation(tables).tolist():
            if not len(blocks[table]):
                continue
            block = int(blocks[table][0])
            expected = problem.may_hold(block).copy()
            for rank in range(problem.world):
                for group in problem.affinity_groups:
                    others = [placed[t] for t in group.tables.tolist() if t in placed and table in group.tables]
                    expected[rank] &= all(group.zone_of_rank[rank] == group.zone_of_rank[other] for other in others)
                for group in problem.anti_affinity_groups:
                    others = [placed[t] for t in group.tables.tolist() if t in placed and table in group.tables]
                    expected[rank] &= all(group.zone_of_rank[rank] != group.zone_of_rank[other] for other in others)
            twin = open_ranks.copy()
            assert np.array_equal(open_ranks.of(block), expected)
            if expected.any():
                placed[table] = int(random.choice(np.flatnonzero(expected)))
                open_ranks.take(block, np.array([placed[table]]))
            assert np.array_equal(twin.of(block), expected), "a copy stays as it was"
