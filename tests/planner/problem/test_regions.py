"""Capacity regions: ranks of one kind that a relaxation counts together, and which tables they bind."""

import numpy as np
import pytest

from planner.problem.arrays import Problem
from tests.oracles.instances import confined_instance, tiny_instance


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    instances = [*map(tiny_instance, range(20)), *map(confined_instance, range(60))]
    return [each.problem for each in instances if len(each.options.table)]


def test_the_first_regions_are_the_kinds(problems: list[Problem]) -> None:
    """Each with the ranks of its kind that some table may use; they bind whatever is placed."""
    for problem in problems:
        regions = problem.capacity_regions
        used = np.zeros(problem.world, dtype=bool)
        for table in range(problem.tables):
            used |= problem.rank_sets[problem.table_rank_set[table]]
        for kind in range(problem.kinds):
            assert regions.kind[kind] == kind
            assert regions.ranks[kind].tolist() == (used & (problem.kind_of_rank == kind)).tolist()
            assert regions.binds[:, kind].all()


def test_a_region_binds_only_tables_that_cannot_leave_it(problems: list[Problem]) -> None:
    """Ranks of a table's set that are of the region's kind all lie in it; and regions are of one kind each."""
    bound = 0
    for problem in problems:
        regions = problem.capacity_regions
        for d in range(problem.kinds, len(regions.kind)):
            of_kind = problem.kind_of_rank == regions.kind[d]
            assert not (regions.ranks[d] & ~of_kind).any()
            for number in np.flatnonzero(regions.binds[:, d]).tolist():
                assert not (problem.rank_sets[number] & of_kind & ~regions.ranks[d]).any()
                bound += 1
    assert bound > 20


def test_a_set_pays_for_every_region_that_binds_it(problems: list[Problem]) -> None:
    """The values of its regions are summed kind by kind."""
    for problem in problems:
        regions = problem.capacity_regions
        values = np.random.default_rng(0).random((len(regions.kind), 3))
        for number in range(len(problem.rank_sets)):
            expected = np.zeros((problem.kinds, 3))
            for d, kind in enumerate(regions.kind.tolist()):
                if d < problem.kinds or regions.binds[number, d]:
                    expected[kind] += values[d]
            assert regions.of_set(values, number, problem.kinds) == pytest.approx(expected)
