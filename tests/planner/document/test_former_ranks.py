"""Ranks of a changed cluster follow their node group, their node and their number on it."""

import pytest

from planner.document.former_ranks import rank_after
from tests.oracles.instances import node_group, topology

FOUR = topology(node_group("a", nodes=4))


@pytest.mark.parametrize(
    ("nodes", "lost", "expected"),
    [
        (4, (), [0, 1, 2, 3, 4, 5, 6, 7]),
        (3, (), [0, 1, 2, 3, 4, 5, -1, -1]),
        (3, (1,), [0, 1, -1, -1, 2, 3, 4, 5]),
        (4, (0, 3), [-1, -1, 0, 1, 2, 3, -1, -1]),
    ],
)
def test_nodes_behind_a_lost_one_move_up(nodes: int, lost: tuple[int, ...], expected: list[int]) -> None:
    """Two ranks a node; what the new cluster has no node for is gone."""
    assert rank_after(FOUR, topology(node_group("a", nodes=nodes)), lost).tolist() == expected


def test_groups_are_the_same_by_name_before_position() -> None:
    """The groups have changed places; a group under a new name counts only where no name is left."""
    before = topology(node_group("a"), node_group("b"))
    assert rank_after(before, topology(node_group("b"), node_group("a")), ()).tolist() == [2, 3, 0, 1]
    assert rank_after(before, topology(node_group("x"), node_group("a")), ()).tolist() == [2, 3, -1, -1]
    assert rank_after(before, topology(node_group("x"), node_group("y")), ()).tolist() == [0, 1, 2, 3]
