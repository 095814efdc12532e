"""How shards cover a table: every sharding as its words say, and what is not so is said."""

import numpy as np
import pytest

from cost_models.shards import TABLE_COLUMN_WISE, Sharding
from cost_models.workload.table_profile import TableProfile
from planner.document.plan import TablePlan
from planner.document.shards import Shards
from planner.verification.coverage import coverage_fault
from tests.oracles.instances import workload

NODE_OF_RANK = np.array([0, 0, 1, 1])
PROFILE: TableProfile = workload([{"rows": 10, "dim": 8}]).tables[0]


def fault(sharding: Sharding, *shards: tuple[int, int, int, int, int]) -> str | None:
    """Of shards (rank, first row, rows, first column, columns) on two nodes of two ranks."""
    matrix = np.array([(*shard, 0, 0, 0) for shard in shards], dtype=np.int64)
    table = TablePlan(
        name="t", sharding=sharding, tier="hbm", dtype="fp32", cache_fraction=None, shards=Shards.from_matrix(matrix)
    )
    return coverage_fault(table, (PROFILE.rows, PROFILE.dim), NODE_OF_RANK, (TABLE_COLUMN_WISE,), one_domain=False)


SOUND: list[tuple[Sharding, list[tuple[int, int, int, int, int]]]] = [
    ("table_wise", [(3, 0, 10, 0, 8)]),
    ("column_wise", [(0, 0, 10, 0, 4), (3, 0, 10, 4, 4)]),
    ("table_column_wise", [(2, 0, 10, 0, 4), (3, 0, 10, 4, 4)]),
    ("row_wise", [(0, 0, 3, 0, 8), (1, 3, 3, 0, 8), (2, 6, 3, 0, 8), (3, 9, 1, 0, 8)]),
    ("table_row_wise", [(2, 0, 5, 0, 8), (3, 5, 5, 0, 8)]),
    ("grid_shard", [(0, 0, 5, 0, 4), (1, 5, 5, 0, 4), (2, 0, 5, 4, 4), (3, 5, 5, 4, 4)]),
    ("data_parallel", [(rank, 0, 10, 0, 8) for rank in range(4)]),
]


@pytest.mark.parametrize(("sharding", "shards"), SOUND)
def test_every_sharding_covers_a_table_in_its_own_way(
    sharding: Sharding, shards: list[tuple[int, int, int, int, int]]
) -> None:
    """And no longer once a shard is missing, or a column."""
    assert fault(sharding, *shards) is None
    if len(shards) > 1:
        assert fault(sharding, *shards[:-1]) is not None
    narrower = [
        (rank, first, rows, column, columns - 4 * (column + columns == 8))
        for rank, first, rows, column, columns in shards
    ]
    assert fault(sharding, *narrower) is not None


@pytest.mark.parametrize(
    ("words", "sharding", "shards"),
    [
        ("a rank that does not exist", "table_wise", [(4, 0, 10, 0, 8)]),
        ("do not tile the columns", "column_wise", [(0, 0, 10, 0, 4), (1, 0, 10, 0, 4)]),
        ("not a multiple of 4", "column_wise", [(0, 0, 10, 0, 2), (1, 0, 10, 2, 6)]),
        ("has one column block, not 2", "table_wise", [(0, 0, 10, 0, 4), (1, 0, 10, 4, 4)]),
        ("different ranks of one node", "table_column_wise", [(1, 0, 10, 0, 4), (2, 0, 10, 4, 4)]),
        ("one is table_row_wise", "grid_shard", [(0, 0, 5, 0, 8), (1, 5, 5, 0, 8)]),
        ("ceil(rows / ranks)", "table_row_wise", [(2, 0, 6, 0, 8), (3, 6, 4, 0, 8)]),
        ("on each of its ranks", "row_wise", [(1, 0, 3, 0, 8), (0, 3, 3, 0, 8), (2, 6, 3, 0, 8), (3, 9, 1, 0, 8)]),
    ],
)
def test_what_does_not_cover_a_table_is_said(
    words: str, sharding: Sharding, shards: list[tuple[int, int, int, int, int]]
) -> None:
    """One fault at a time."""
    found = fault(sharding, *shards)
    assert found is not None
    assert words in found


def parts_fault(
    sharding: Sharding, node_of_rank: list[int], *shards: tuple[int, int], one_domain: bool = False
) -> str | None:
    """Of a table of ten rows and eight columns, cut into rows alone: shards (rank, rows), one after the other."""
    one_domain |= len(set(node_of_rank)) == 1
    rows = np.array([rows for _, rows in shards])
    matrix = np.zeros((len(shards), 8), dtype=np.int64)
    matrix[:, 0], matrix[:, 1], matrix[:, 2], matrix[:, 4] = [r for r, _ in shards], np.cumsum(rows) - rows, rows, 8
    table = TablePlan(
        name="t", sharding=sharding, tier="hbm", dtype="fp32", cache_fraction=None, shards=Shards.from_matrix(matrix)
    )
    return coverage_fault(table, (10, 8), np.array(node_of_rank), (TABLE_COLUMN_WISE,), one_domain=one_domain)


ONE_NODE, THREE_NODES = [0, 0, 0, 0], [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("words", "sharding", "nodes", "shards"),
    [
        (None, "multi_rank_row_wise", ONE_NODE, [(0, 4), (1, 4), (2, 2)]),
        (None, "multi_rank_row_wise", ONE_NODE, [(3, 5), (1, 5)]),
        (None, "multi_node_row_wise", THREE_NODES, [(0, 3), (1, 2), (4, 3), (5, 2)]),
        (None, "multi_node_row_wise", THREE_NODES, [(4, 3), (5, 2), (2, 3), (3, 2)]),
        ("a cluster of one node", "multi_rank_row_wise", THREE_NODES, [(0, 5), (1, 5)]),
        ("not all, each of them once", "multi_rank_row_wise", ONE_NODE, [(0, 3), (1, 3), (2, 3), (3, 1)]),
        ("not all, each of them once", "multi_rank_row_wise", ONE_NODE, [(0, 4), (1, 4), (0, 2)]),
        ("not all, each of them once", "multi_node_row_wise", THREE_NODES, [(0, 5), (1, 5)]),
        ("as many ranks on every node", "multi_node_row_wise", [0, 0, 1, 1, 2], [(0, 3), (1, 2), (2, 3), (3, 2)]),
        (
            "each rank of its nodes",
            "multi_node_row_wise",
            THREE_NODES,
            [(1, 3), (0, 2), (4, 3), (5, 2)],
        ),
        ("each rank of its nodes", "multi_node_row_wise", THREE_NODES, [(0, 5), (4, 3), (5, 2)]),
        ("its row blocks are not", "multi_rank_row_wise", ONE_NODE, [(0, 3), (1, 3), (2, 4)]),
        ("its row blocks are not", "multi_rank_row_wise", ONE_NODE, [(0, 5), (1, 5), (2, 0)]),
        ("its row blocks are not", "multi_node_row_wise", THREE_NODES, [(0, 2), (1, 3), (4, 3), (5, 2)]),
    ],
)
def test_parts_of_rows_are_equal_on_some_of_the_ranks_or_nodes(
    words: str | None, sharding: Sharding, nodes: list[int], shards: list[tuple[int, int]]
) -> None:
    """Each part ceil(rows / parts) but for the last, on any ranks of a node, or cut over the ranks of any nodes."""
    found = parts_fault(sharding, nodes, *shards)
    assert found is None if words is None else words in str(found)
