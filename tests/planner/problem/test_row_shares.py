"""Rows cut over ranks: shares of sites, counted one by one."""

from dataclasses import replace

import numpy as np
import pytest

from planner.problem.row_shares import row_shares
from tests.oracles.instances import tiny_instance


@pytest.mark.parametrize(
    ("rows", "ranks", "held"),
    [(8, 4, [2, 2, 2, 2]), (9, 4, [3, 3, 3, 0]), (5, 4, [2, 2, 1, 0]), (1, 3, [1, 0, 0]), (7, 1, [7])],
)
def test_rows_are_cut_into_ceil_blocks(rows: int, ranks: int, held: list[int]) -> None:
    """As the runtimes cut them: equal blocks in order, a smaller one, empty ones."""
    assert row_shares(rows, ranks) * rows == pytest.approx(held)


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_shares_of_every_site_are_those_of_its_ranks(seed: int) -> None:
    """Rows of a block are dealt out in order over each of its sites; a replicated one has all of them on every rank."""
    problem = tiny_instance(seed).problem
    for block in range(len(problem.block_option)):
        rows = int(problem.table_rows[problem.table_of_block[block]])
        site_of_rank = problem.sites[problem.block_extent[block]].of_rank
        left: dict[int, int] = {}
        expected = []
        for rank in range(problem.world):
            site = int(site_of_rank[rank])
            ranks = int((site_of_rank == site).sum())
            held = min(-(-rows // ranks), left.get(site, rows))
            left[site] = left.get(site, rows) - held
            expected.append(1.0 if problem.block_replicated[block] else held / rows)
        assert problem.row_shares.on_every_site(block) == pytest.approx(expected)
        kind = problem.kind_of_rank
        cuts, holders = problem.row_shares.cuts[kind, block], problem.row_shares.holders[kind, block]
        largest = -(-rows // cuts) / rows
        assert (np.array(expected) <= largest + 1e-12).all()
        if problem.is_world_wide[block]:
            assert holders.tolist() == problem.ranks_of_kind[kind].tolist()
        else:
            assert holders.tolist() == [int((site_of_rank == site).sum()) for site in site_of_rank.tolist()]


@pytest.mark.parametrize("apart", [False, True])
def test_the_least_share_is_that_of_some_rank(apart: bool) -> None:
    """Of blocks of all ranks, were they on every site; the last ranks of small tables hold nothing."""
    least, compared = [], 0
    for seed in range(60):
        problem = replace(tiny_instance(seed).problem, copies_apart=apart)
        for rows in (3, 7, int(problem.block_rows.max(initial=1))):
            few = replace(problem, block_rows=np.full_like(problem.block_rows, rows))
            for block in np.flatnonzero(few.is_world_wide & (few.world % few.block_copies == 0)).tolist():
                least.append(few.row_shares.least[block])
                assert least[-1] == pytest.approx(few.row_shares.on_every_site(block).min(), abs=1e-15)
                compared += 0 < least[-1] < few.row_shares.largest[0, block] * (1 - 1e-9)
    assert compared > 3
    assert 0.0 in least
