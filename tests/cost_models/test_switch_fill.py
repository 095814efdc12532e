"""Node groups are taken apart by what is under the switches above them, and ranks stay in their order."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from cost_models.switch_fill import by_switch_fill
from tests.oracles.instances import node_group, topology
from topologies.cluster import Topology
from topologies.fabric import Fabric


def parts(*groups: dict[str, Any], levels: Sequence[tuple[int, float]]) -> list[tuple[str, int]]:
    """Names and nodes of the parts of a cluster, which has as many ranks in the same places."""
    stated = topology(*groups, levels=levels)
    apart = by_switch_fill(stated)
    Topology.model_validate(apart.model_dump(mode="json"))
    for name in ("node_of_rank", "domain_of_rank", "nic_of_rank", "nic_bytes_per_s", "leaf_of_nic"):
        assert np.array_equal(getattr(Fabric(stated), name), getattr(Fabric(apart), name)), name
    assert by_switch_fill(apart) is apart
    return [(group.name, group.count) for group in apart.nodes]


def test_the_last_leaf_is_a_part_of_its_own() -> None:
    """Of five nodes under leaves of four, one is alone."""
    assert parts(node_group("a", nodes=5), levels=[(4, 4.0)]) == [("a (nodes 0 to 3)", 4), ("a (node 4)", 1)]


def test_two_levels_make_three_parts() -> None:
    """Thirteen nodes under leaves of four and spines of eight: full, under a spine of five, and alone."""
    found = parts(node_group("a", nodes=13), levels=[(4, 2.0), (8, 2.0)])
    assert found == [("a (nodes 0 to 7)", 8), ("a (nodes 8 to 11)", 4), ("a (node 12)", 1)]


def test_groups_that_share_a_leaf_are_parted_from_those_that_do_not() -> None:
    """Three nodes and three under leaves of two."""
    found = parts(node_group("a", nodes=3), node_group("b", nodes=3), levels=[(2, 4.0)])
    assert found == [("a (nodes 0 to 1)", 2), ("a (node 2)", 1), ("b (node 0)", 1), ("b (nodes 1 to 2)", 2)]


@pytest.mark.parametrize(
    ("group", "levels"),
    [
        (node_group("a", nodes=4), [(2, 4.0)]),  # full leaves
        (node_group("a", nodes=3), [(2, 1.0)]),  # nothing is narrow
        (node_group("a", nodes=3), [(4, 4.0)]),  # all are under one
        (node_group("a", nodes=3, remote_bytes=1e12), [(2, 4.0)]),  # one pool of hosts
        (node_group("a", nodes=4, domain=4), [(3, 4.0)]),  # a domain across leaves
    ],
)
def test_whole_groups_stay_as_they_are(group: dict[str, Any], levels: Sequence[tuple[int, float]]) -> None:
    """And so do their names."""
    assert parts(group, levels=levels) == [("a", group["count"])]
