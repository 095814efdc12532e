"""Rows of a table over several nodes: when they are options, as documents say them, and on their way out and in."""

import copy
import functools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cost_models.shards import USUAL_SHARDINGS
from planner import plan
from planner.document.plan import Plan
from planner.exporters.hugectr import hugectr_sharding
from planner.exporters.torchrec import torchrec_plan
from planner.formulation.option_space import Space
from planner.formulation.policy import Policy, offered
from planner.importers.adoption import AdoptionInputs, adopted
from planner.importers.hugectr import hugectr_tables
from planner.verification.verify import verify
from tests.oracles.instances import node_group, topology, workload
from tests.oracles.violations import Document, violations
from topologies.cluster import Topology
from topologies.errors import InputError
from topologies.loading import load_topology

ROWS = 100_001
TABLES = [{"rows": ROWS, "dim": 64, "pooling_factor": 40}, {"rows": 5003, "dim": 32, "pooling_factor": 3}]
OVER_NODES = ["multi_node_row_wise"]


def cluster(nodes: int = 4) -> Topology:
    """Nodes of two ranks."""
    return topology(node_group("a", nodes=nodes))


@functools.cache
def made() -> Plan:
    """Both tables over two of four nodes."""
    return plan(cluster(), workload(TABLES), shardings=OVER_NODES)


# -- when they are options ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "policy", "cost_model", "expected"),
    [
        (4, Policy(), "physical", False),
        (4, Policy(runtime="torchrec"), "physical", False),
        (4, Policy(runtime="hugectr"), "physical", True),
        (2, Policy(runtime="hugectr"), "physical", False),
        (4, Policy(runtime="hugectr"), "hugectr", False),
        (4, Policy(runtime="hugectr", shardings=("table_wise", "row_wise")), "physical", False),
    ],
)
def test_when_they_are_offered(nodes: int, policy: Policy, cost_model: str, *, expected: bool) -> None:
    """To HugeCTR alone, on three nodes or more, where the policy leaves the shardings open; the document says so."""
    assert ("multi_node_row_wise" in offered(policy, cluster(nodes), cost_model).shardings) == expected
    found = plan(cluster(nodes), workload(TABLES), policy=policy, cost_model=cost_model, effort=0, simulate=False)
    assert ("multi_node_row_wise" in found.provenance.policy.shardings) == expected
    if not expected:
        assert offered(policy, cluster(nodes), cost_model) == policy


def test_unequal_nodes_have_none() -> None:
    """Rows are cut evenly over all ranks."""
    unequal = topology(node_group("a", nodes=3), node_group("b", ranks=3))
    policy = Policy(runtime="hugectr")
    assert offered(policy, unequal, "physical") == policy
    found = plan(unequal, workload(TABLES), shardings=["table_wise", *OVER_NODES], simulate=False)
    assert {table.sharding for table in found.tables} == {"table_wise"}


@pytest.mark.parametrize(
    ("nodes", "expected"), [(2, []), (3, [2]), (6, [2, 3, 4]), (16, [2, 4, 8]), (512, [2, 4, 8, 16, 32, 64, 128, 256])]
)
def test_numbers_of_nodes(nodes: int, expected: list[int]) -> None:
    """The powers of two and the divisors below the number of nodes: few, however large the cluster."""
    question = AdoptionInputs(load_topology("dgx-h100", nodes=nodes), workload(TABLES), "physical", Policy())
    from planner.formulation.choice_rules import allowed_choices
    from planner.formulation.option_space import EVERY_CUT

    space = Space(question.model, allowed_choices(question.model, question.policy), EVERY_CUT)
    assert space.counts(7, 0) == expected


def test_where_they_cannot_be_the_smallest_remedy_is_named() -> None:
    """Two nodes are too few for it; three are not."""
    found = plan(cluster(2), workload(TABLES), shardings=OVER_NODES)
    assert found.status == "infeasible"
    assert found.infeasibility is not None
    assert any("3 nodes" in remedy.words for remedy in found.infeasibility.remedies)


# -- documents ---------------------------------------------------------------------------------------------------


def test_shards_are_those_of_parts_on_nodes() -> None:
    """ceil(rows / 2) rows on one node and the rest on another, each cut over its ranks."""
    found = made()
    assert verify(found) == []
    shards = found.tables[0].shards
    assert shards.rows.tolist() == [25_001, 25_000, 25_000, 25_000]
    assert shards.row_start.tolist() == [0, 25_001, 50_001, 75_001]
    nodes = (shards.rank // 2).tolist()
    assert nodes[0] == nodes[1] != nodes[2] == nodes[3]
    assert (shards.rank % 2).tolist() == [0, 1, 0, 1]


def _swap_nodes(shards: list[Document]) -> None:
    for shard in shards:
        shard["rank"] = {0: 2, 1: 3, 2: 0, 3: 1}.get(shard["rank"], shard["rank"])


def _one_node_twice(shards: list[Document]) -> None:
    for shard, rank in zip(shards, (0, 1, 0, 1), strict=True):
        shard["rank"] = rank


def _every_node(shards: list[Document]) -> None:
    shards += [{**shard, "rank": shard["rank"] + 4} for shard in copy.deepcopy(shards)]


def _half_a_node(shards: list[Document]) -> None:
    del shards[-1]


def _ranks_of_two_nodes(shards: list[Document]) -> None:
    shards[1]["rank"], shards[2]["rank"] = shards[2]["rank"], shards[1]["rank"]


def _against_their_order(shards: list[Document]) -> None:
    shards[0]["rank"], shards[1]["rank"] = shards[1]["rank"], shards[0]["rank"]


def _cut_over_all_at_once(shards: list[Document]) -> None:
    shards[0]["rows"], shards[2]["rows"] = 25_000, 25_001
    shards[1]["row_start"] = shards[2]["row_start"] - 25_000


def _one_node(shards: list[Document]) -> None:
    del shards[2:]


@pytest.mark.parametrize(
    "corrupt",
    [
        _one_node_twice,
        _every_node,
        _half_a_node,
        _ranks_of_two_nodes,
        _against_their_order,
        _cut_over_all_at_once,
        _one_node,
    ],
)
def test_other_shards_are_refused(corrupt: Callable[[list[Document]], None]) -> None:
    """A node that is missing, there twice or in part; ranks and rows that are not those of the parts."""
    document = json.loads(made().to_json())
    document["tables"][0]["shards"].sort(key=lambda shard: shard["row_start"])
    corrupt(document["tables"][0]["shards"])
    assert violations(document)


def test_another_name_for_the_same_shards_is_refused() -> None:
    """They are neither rows of one node nor of all."""
    for name in USUAL_SHARDINGS:
        document = json.loads(made().to_json())
        document["tables"][0]["sharding"] = name
        assert violations(document)


def test_a_number_of_nodes_that_is_not_tried_is_outside_the_bound() -> None:
    """Three of seven: costed and simulated, and the plan says that the bound does not cover it."""
    seven = cluster(7)
    inputs = AdoptionInputs(seven, workload(TABLES), "physical", offered(Policy(runtime="hugectr"), seven, "physical"))
    names = [table.name for table in inputs.workload.tables]
    matrix = [[names[0]] * (rank in (2, 3, 6, 7, 12, 13)) + [names[1]] * (rank == 0) for rank in range(14)]
    sharding = {"shard_matrix": matrix, "shard_strategy": [["mp", names]]}
    found = adopted(hugectr_tables(sharding, inputs, "x"), inputs, "hugectr", "x")
    assert found.objective is not None
    assert found.objective.outside == (names[0],)
    assert verify(found) == []


# -- runtimes ----------------------------------------------------------------------------------------------------


def test_hugectr_lists_the_table_on_the_ranks_of_its_nodes() -> None:
    """And what it lists comes in again, inside the bound, in whatever order the nodes hold the rows."""
    policy = Policy(runtime="hugectr", shardings=("multi_node_row_wise",))
    found = plan(cluster(), workload(TABLES), policy=policy)
    document = json.loads(found.to_json())
    for table in document["tables"]:
        _swap_nodes(table["shards"])
    inputs = AdoptionInputs(cluster(), workload(TABLES), "physical", policy)
    for way in (found, Plan.model_validate(document)):
        sharding: dict[str, Any] = json.loads(json.dumps(hugectr_sharding(way)))
        for number, table in enumerate(way.tables):
            listed = [rank for rank, own in enumerate(sharding["shard_matrix"]) if table.name in own]
            assert listed == sorted(table.shards.rank.tolist()), number
        again = adopted(hugectr_tables(sharding, inputs, "x"), inputs, "hugectr", "x", simulate=False)
        assert again.objective is not None
        assert not again.objective.outside
        for before, after in zip(way.tables, again.tables, strict=True):
            np.testing.assert_array_equal(before.shards.as_matrix()[:, :5], after.shards.as_matrix()[:, :5])


def test_torchrec_refuses_them_by_name() -> None:
    """Its row_wise has a shard on every rank."""
    with pytest.raises(InputError, match="cannot execute table 't0': it is multi_node_row_wise"):
        torchrec_plan(made())
    with pytest.raises(InputError, match="no sharding is left"):
        plan(cluster(), workload(TABLES), policy=Policy(runtime="torchrec"), shardings=OVER_NODES)


# -- re-planning -------------------------------------------------------------------------------------------------


def test_tables_stay_where_they_were() -> None:
    """Nothing moves where nothing may; and of a larger table no more than the rows that must."""
    before = made()
    for limit in (0, None):
        after = plan(cluster(), workload(TABLES), shardings=OVER_NODES, previous=before, max_move_bytes=limit)
        assert verify(after, before) == []
        assert after.moves is not None
        assert after.moves.moved_bytes == 0
        assert after.tables[0].shards.rank.tolist() == before.tables[0].shards.rank.tolist()


def test_a_lost_node_leaves_the_parts_on_the_others() -> None:
    """The part that was there goes elsewhere."""
    before = made()
    lost = int(before.tables[0].shards.rank[0]) // 2
    after = plan(cluster(3), workload(TABLES), shardings=OVER_NODES, previous=before, lost_nodes=[lost])
    assert verify(after, before) == []
    assert after.moves is not None
    assert {table.sharding for table in after.tables} == {"multi_node_row_wise"}
