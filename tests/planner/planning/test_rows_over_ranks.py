"""Rows of a table over some ranks of a node, or scale-up domain: when they are options, as documents say them, on their
way out and in."""

import functools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cost_models.shards import SHARDINGS, USUAL_SHARDINGS
from planner import plan
from planner.document.plan import Plan
from planner.exporters.hugectr import hugectr_sharding
from planner.exporters.torchrec import torchrec_plan
from planner.formulation.policy import Policy, offered
from planner.importers.adoption import AdoptionInputs, adopted
from planner.importers.hugectr import hugectr_tables
from planner.verification.verify import verify
from tests.oracles.instances import node_group, topology, workload
from tests.oracles.violations import Document, violations
from topologies.cluster import Topology
from topologies.errors import InputError

ROWS = 100_001
TABLES = [{"rows": ROWS, "dim": 64, "pooling_factor": 40}, {"rows": 5003, "dim": 32, "pooling_factor": 3}]
OVER_RANKS = ("multi_rank_row_wise",)


def node(ranks: int = 4, nodes: int = 1, domain: int | None = None) -> Topology:
    """A node of so many ranks, or several of them, each a scale-up domain unless that is larger."""
    return topology(node_group("a", nodes=nodes, ranks=ranks, domain=domain))


@functools.cache
def made() -> Plan:
    """Both tables over two of four ranks."""
    return plan(node(), workload(TABLES), policy=Policy(runtime="hugectr", shardings=OVER_RANKS), effort=0)


def inputs(cluster: Topology, cost_model: str = "physical") -> AdoptionInputs:
    policy = offered(Policy(runtime="hugectr"), cluster, cost_model)
    return AdoptionInputs(cluster, workload(TABLES), cost_model, policy)


def over(ranks: tuple[int, ...], world: int) -> Document:
    """HugeCTR's words for the first table over some ranks, and the other on the first."""
    matrix = [["t0"] * (rank in ranks) + ["t1"] * (rank == 0) for rank in range(world)]
    return {"shard_matrix": matrix, "shard_strategy": [["mp", ["t0", "t1"]]]}


@pytest.mark.parametrize(
    ("cluster", "runtime", "cost_model", "expected"),
    [
        (node(4), "hugectr", "physical", True),
        (node(3), "hugectr", "physical", True),
        (node(2), "hugectr", "physical", False),
        (node(4, nodes=2), "hugectr", "physical", False),
        (node(4, nodes=3), "hugectr", "physical", False),
        (node(4, nodes=3, domain=12), "hugectr", "physical", True),
        (node(4, nodes=4, domain=8), "hugectr", "physical", False),
        (node(1, nodes=2, domain=2), "hugectr", "physical", False),
        (node(4), "hugectr", "hugectr", False),
        (node(4), "torchrec", "physical", False),
        (node(4), "any", "physical", False),
    ],
)
def test_when_they_are_offered(cluster: Topology, runtime: Any, cost_model: str, *, expected: bool) -> None:
    """To HugeCTR alone, on a single node or scale-up domain of three ranks or more, where steps are costed."""
    policy = offered(Policy(runtime=runtime), cluster, cost_model)
    assert ("multi_rank_row_wise" in policy.shardings) == expected


def test_a_cluster_of_several_nodes_has_none() -> None:
    """There the ranks of a node sum first."""
    found = plan(node(4, nodes=3), workload(TABLES), shardings=["table_wise", *OVER_RANKS], effort=0, simulate=False)
    assert {table.sharding for table in found.tables} == {"table_wise"}


def test_shards_are_parts_on_different_ranks() -> None:
    """ceil(rows / 2) rows on one rank and the rest on another."""
    found = made()
    assert verify(found) == []
    shards = found.tables[0].shards
    assert shards.rows.tolist() == [50_001, 50_000]
    assert shards.row_start.tolist() == [0, 50_001]
    assert len(set(shards.rank.tolist())) == 2


def _one_rank_twice(shards: list[Document]) -> None:
    shards[1]["rank"] = shards[0]["rank"]


def _one_rank(shards: list[Document]) -> None:
    del shards[1]


def _uneven(shards: list[Document]) -> None:
    shards[0]["rows"], shards[1]["rows"], shards[1]["row_start"] = 50_000, 50_001, 50_000


def _every_rank(shards: list[Document]) -> None:
    shards[:] = [
        {**shards[0], "rank": rank, "row_start": 25_001 * rank, "rows": min(25_001, ROWS - 25_001 * rank)}
        for rank in range(4)
    ]


@pytest.mark.parametrize("corrupt", [_one_rank_twice, _one_rank, _uneven, _every_rank])
def test_other_shards_are_refused(corrupt: Callable[[list[Document]], None]) -> None:
    """A rank that is there twice, alone or with all others; rows that are not those of the parts."""
    document = json.loads(made().to_json())
    document["tables"][0]["shards"].sort(key=lambda shard: shard["row_start"])
    corrupt(document["tables"][0]["shards"])
    assert violations(document)


def test_another_name_for_the_same_shards_is_refused() -> None:
    """They are neither whole, nor on all ranks, nor on those of a node."""
    for name in SHARDINGS:
        document = json.loads(made().to_json())
        document["tables"][0]["sharding"] = name
        assert bool(violations(document)) == (name in (*USUAL_SHARDINGS, "multi_node_row_wise"))


def test_a_number_of_ranks_that_is_not_tried_is_outside_the_bound() -> None:
    """Three of seven: costed and simulated, and the plan says that the bound does not cover it."""
    asked = inputs(node(7))
    found = adopted(hugectr_tables(over((1, 4, 5), 7), asked, "x"), asked, "hugectr", "x")
    assert found.objective is not None
    assert found.objective.outside == ("t0",)
    assert verify(found) == []


@pytest.mark.parametrize("ranks", [(1, 4), (0, 1), (2, 3), (0, 1, 4, 5)])
def test_in_a_scale_up_domain_a_table_is_on_any_ranks(ranks: tuple[int, ...]) -> None:
    """Also on those of whole nodes: HugeCTR's planner deals tables to GPUs there; and it comes out as it came in."""
    asked = inputs(node(2, nodes=4, domain=8))
    listed = over(ranks, 8)
    found = adopted(hugectr_tables(listed, asked, "x"), asked, "hugectr", "x")
    assert found.tables[0].sharding == "multi_rank_row_wise"
    assert found.objective is not None
    assert not found.objective.outside
    assert verify(found) == []
    sharding: dict[str, Any] = json.loads(json.dumps(hugectr_sharding(found)))
    assert [sorted(own) for own in sharding["shard_matrix"]] == [sorted(own) for own in listed["shard_matrix"]]
    assert sharding["planned_with"]["sums_by_node"] == []
    assert hugectr_tables(sharding, asked, "x")[0].sharding == "multi_rank_row_wise"


@pytest.mark.parametrize("sharding", ["table_row_wise", "multi_node_row_wise"])
def test_a_file_of_ours_says_whose_ranks_sum_by_node(sharding: Any) -> None:
    """Where several nodes are one domain the matrix cannot say it."""
    cluster, policy = node(2, nodes=4, domain=8), Policy(runtime="hugectr", shardings=(sharding,))
    found = plan(cluster, workload(TABLES), policy=policy, effort=0, simulate=False)
    document: dict[str, Any] = json.loads(json.dumps(hugectr_sharding(found)))
    assert document["planned_with"]["sums_by_node"] == ["t0", "t1"]
    again = adopted(hugectr_tables(document, inputs(cluster), "x"), inputs(cluster), "hugectr", "x", simulate=False)
    for before, after in zip(found.tables, again.tables, strict=True):
        assert after.sharding == sharding
        np.testing.assert_array_equal(before.shards.as_matrix()[:, :5], after.shards.as_matrix()[:, :5])
    del document["planned_with"]["sums_by_node"]  # of a version that knew nothing else
    assert hugectr_tables(document, inputs(cluster), "x")[0].sharding == sharding


@pytest.mark.parametrize(("cluster", "cost_model"), [(node(4, nodes=2), "physical"), (node(8), "torchrec")])
def test_where_nobody_costs_them_they_are_refused_by_name(cluster: Topology, cost_model: str) -> None:
    """In a cluster of several nodes, and under TorchRec's cost model."""
    with pytest.raises(InputError, match="t0: its rows are cut over 2 of 8 GPUs"):
        hugectr_tables(over((0, 1), 8), inputs(cluster, cost_model), "x")


def test_a_rank_without_rows_is_refused_by_name() -> None:
    """Five rows over four of eight ranks are two, two, one and none."""
    few = workload([{"rows": 5, "dim": 64}, TABLES[1]])
    asked = AdoptionInputs(node(8), few, "physical", offered(Policy(runtime="hugectr"), node(8), "physical"))
    with pytest.raises(InputError, match="leaves one of them without any"):
        hugectr_tables(over((0, 1, 2, 3), 8), asked, "x")


def test_hugectr_lists_the_table_on_its_ranks() -> None:
    """And what it lists comes in again, inside the bound, in whatever order the ranks hold the rows."""
    document, asked = json.loads(made().to_json()), inputs(node())
    for table in document["tables"]:
        first, last = table["shards"]
        first["rank"], last["rank"] = last["rank"], first["rank"]
    for way in (made(), Plan.model_validate(document)):
        sharding: dict[str, Any] = json.loads(json.dumps(hugectr_sharding(way)))
        for table in way.tables:
            listed = [rank for rank, own in enumerate(sharding["shard_matrix"]) if table.name in own]
            assert listed == sorted(table.shards.rank.tolist())
        again = adopted(hugectr_tables(sharding, asked, "x"), asked, "hugectr", "x", simulate=False)
        assert again.objective is not None
        assert not again.objective.outside
        for before, after in zip(way.tables, again.tables, strict=True):
            np.testing.assert_array_equal(before.shards.as_matrix()[:, :5], after.shards.as_matrix()[:, :5])


def test_torchrec_refuses_them_by_name() -> None:
    """Its row_wise has a shard on every rank."""
    with pytest.raises(InputError, match="cannot execute table 't0': it is multi_rank_row_wise"):
        torchrec_plan(made())


@pytest.mark.parametrize("limit", [0, None])
def test_tables_stay_where_they_were(limit: int | None) -> None:
    """Nothing moves where nothing may, nor where nothing is gained."""
    policy, before = Policy(runtime="hugectr", shardings=OVER_RANKS), made()
    after = plan(
        node(), workload(TABLES), policy=policy, previous=before, max_move_bytes=limit, effort=0, simulate=False
    )
    assert verify(after, before) == []
    assert after.moves is not None
    assert after.moves.moved_bytes == 0


def test_whole_tables_are_no_parts_of_a_former_plan() -> None:
    """A table that was over two ranks is one table where it may only be whole, and the other way round."""
    policy = Policy(runtime="hugectr", shardings=("table_wise",))
    whole = plan(node(), workload(TABLES), policy=policy, previous=made(), effort=0, simulate=False)
    assert verify(whole, made()) == []
    cut = plan(node(), workload(TABLES), policy=Policy(shardings=OVER_RANKS), previous=whole, effort=0, simulate=False)
    assert verify(cut, whole) == []
    assert {table.sharding for table in cut.tables} == set(OVER_RANKS)


def test_a_cluster_without_sites_is_named() -> None:
    """Where the policy leaves nothing but rows over some ranks, on several nodes: what they need, and what else is."""
    made = plan(node(4, nodes=3), workload(TABLES), shardings=OVER_RANKS, effort=0, simulate=False)
    assert made.infeasibility is not None
    said = made.infeasibility.tables[0].reason
    assert "needs a single node, or scale-up domain, of three ranks or more; beyond it, multi_node_row_wise" in said
    assert verify(made) == []
