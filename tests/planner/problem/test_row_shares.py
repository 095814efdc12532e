"""Rows cut over ranks: shares of sites, counted one by one."""

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
