"""Neighbouring node groups that are alike are one to costs, and ranks stay in their order."""

from collections.abc import Mapping

import numpy as np
import pytest

from cost_models.alike_groups import with_alike_joined
from planner import plan, verify
from planner.document.plan import Plan
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology
from topologies.fabric import Fabric

TABLES = [{"rows": rows, "dim": 64, "pooling_factor": ids} for rows, ids in ((900_000, 9), (40_000, 2), (300_000, 30))]
FIGURES = ("node_of_rank", "domain_of_rank", "nic_of_rank", "nic_bytes_per_s", "leaf_of_nic", "pcie_switch_of_rank")


def joined(*groups: Mapping[str, object]) -> list[tuple[str, int]]:
    """Names and nodes of the groups of a cluster, which has as many ranks in the same places."""
    stated = topology(*map(dict, groups), levels=[(2, 2.0)])
    found = with_alike_joined(stated)
    Topology.model_validate(found.model_dump(mode="json"))
    for name in FIGURES:
        assert np.array_equal(getattr(Fabric(stated), name), getattr(Fabric(found), name)), name
    assert with_alike_joined(found) is found
    return [(group.name, group.count) for group in found.nodes]


def test_groups_that_differ_in_name_and_number_are_one() -> None:
    """Three in a row, too; not those that another one is between."""
    a, b, c = (node_group(name, nodes=nodes, ranks=4) for name, nodes in (("a", 2), ("b", 1), ("c", 3)))
    assert joined(a, b, c) == [("a and b and c", 6)]
    assert joined(a, node_group("x", ranks=2), b, c) == [("a", 2), ("x", 1), ("b and c", 4)]


@pytest.mark.parametrize(
    "unlike", [{"ranks": 2}, {"hbm_bytes": 1.01e9}, {"nic_bytes_per_s": 24e9}, {"ddr_bytes": None}, {"domain": 2}]
)
def test_groups_that_differ_in_anything_else_stay_apart(unlike: dict[str, object]) -> None:
    """Be it memory, a link, or what shares one."""
    other: dict[str, object] = {"nodes": 2, "ranks": 4, **unlike}
    assert joined(node_group("a", nodes=2, ranks=4), node_group("b", **other)) == [("a", 2), ("b", 2)]  # type: ignore[arg-type]


def test_what_a_group_shares_keeps_it_apart() -> None:
    """Its remote hosts, and a scale-up domain of which it has a part."""
    remote = [node_group(name, nodes=2, remote_bytes=1e12) for name in "ab"]
    assert joined(*remote) == [("a", 2), ("b", 2)]
    whole = [node_group(name, nodes=4, ranks=4, domain=8) for name in "ab"]
    assert joined(*whole) == [("a and b", 8)]
    halves = tuple(group.model_copy(update={"count": 1}) for group in topology(*whole).nodes)
    parts = topology(*whole).model_copy(update={"nodes": halves})
    assert with_alike_joined(parts) is parts


def planned(*groups: Mapping[str, object]) -> Plan:
    return plan(topology(*map(dict, groups)), workload(TABLES), effort=0)


def test_a_plan_is_that_of_one_group() -> None:
    """To the last byte of every shard and of the bound; a group that is hardly unlike is estimated alike."""
    two = planned(*(node_group(name, nodes=2, ranks=2) for name in "ab"))
    one = planned(node_group("a", nodes=4, ranks=2))
    assert verify(two) == []
    assert two.objective == one.objective
    assert two.tables == one.tables
    nearly = planned(*(node_group(name, nodes=2, ranks=2, hbm_bytes=1e9 + (name == "b")) for name in "ab"))
    assert nearly.objective is not None
    assert two.objective is not None
    assert nearly.objective.lower_bound_s <= two.objective.step_s * (1 + 1e-9)
    assert two.objective.lower_bound_s <= nearly.objective.step_s * (1 + 1e-9)
