"""What regions of ranks have together, counted rank by rank."""

import numpy as np
import pytest

from cost_models.shards import WORLD
from planner.problem.arrays import Problem
from planner.solvers.bound.aggregates import blocks_of_choices, capacity_of, instances_of, row_share_of_kind
from tests.oracles.instances import confined_instance, tiny_instance


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    instances = [*map(tiny_instance, range(30)), *map(confined_instance, range(30))]
    return [each.problem for each in instances if len(each.options.table)]


def test_instances_and_bytes_of_a_region_are_those_of_its_ranks(problems: list[Problem]) -> None:
    """Each once, however many ranks use it; of resources that kinds share, all of them for every kind."""
    for problem in problems:
        instances, capacity = instances_of(problem), capacity_of(problem)
        for d, ranks in enumerate(problem.capacity_regions.ranks):
            own = np.flatnonzero(ranks).tolist()
            for c, instance in enumerate(problem.resource_of_rank):
                kinds_of = {int(i): set(problem.kind_of_rank[(instance == i) & problem.reach]) for i in instance}
                if max(map(len, kinds_of.values())) == 1:
                    assert instances[d, c] == len({int(instance[rank]) for rank in own})
                else:
                    every = len({int(instance[rank]) for rank in np.flatnonzero(problem.reach)})
                    assert instances[d, c] == (every if d < problem.kinds else 0)
            for m, pool in enumerate(problem.pool_of_rank):
                total = sum(problem.pool_capacity[m][i] for i in {int(pool[rank]) for rank in own})
                assert capacity[d, m] == pytest.approx(total - len(own) * problem.base_bytes[m], rel=1e-9)


def test_kinds_hold_the_rows_of_their_ranks(problems: list[Problem]) -> None:
    """World-wide blocks are cut into equal parts in rank order, or replicated on every rank; others have no share."""
    for problem in problems:
        for kind in range(problem.kinds):
            found = row_share_of_kind(problem, kind)
            for block in range(len(found)):
                rows = int(problem.table_rows[problem.table_of_block[block]])
                part = -(-rows // problem.world)
                expected = 0.0
                for rank in np.flatnonzero(problem.kind_of_rank == kind).tolist():
                    own = rows if problem.block_replicated[block] else min(max(rows - rank * part, 0), part)
                    expected += own / rows * (problem.block_extent[block] == WORLD)
                assert found[block] == pytest.approx(expected, rel=1e-12)


def test_a_fixed_option_counts_with_all_its_blocks(problems: list[Problem]) -> None:
    """One that is splittable with the block that names it."""
    for problem in problems:
        choices = np.random.default_rng(0).integers(0, len(problem.block_option), size=5)
        blocks, lengths = blocks_of_choices(problem, choices)
        for choice, own in zip(choices.tolist(), np.split(blocks, lengths.cumsum()[:-1]), strict=True):
            option = problem.block_option[choice]
            whole = np.flatnonzero(problem.block_option == option)
            expected = [choice] if problem.option_units[option] else whole.tolist()
            if problem.block_start[option] == choice or problem.option_units[option]:
                assert own.tolist() == expected
