"""HugeCTR's plans: the published ones come in, rate as published, and go out as they were."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cost_models.workload.loading import load_workload
from planner.exporters.hugectr import hugectr_sharding
from planner.formulation.policy import Policy, offered
from planner.importers.adoption import AdoptionInputs, adopted
from planner.importers.hugectr import hugectr_tables
from planner.verification.verify import verify
from topologies.cluster import Topology
from topologies.errors import InputError
from topologies.loading import load_topology

PUBLISHED = json.loads((Path(__file__).parents[2] / "cost_models" / "hugectr_published_plans.json").read_text())[
    "plans"
]
WORKLOAD = load_workload("dlrm-dcnv2")


def cluster(ranks: int, ratio: float) -> Topology:
    """One node in which HBM is `ratio` times as fast as the links."""
    overrides = [
        f"nodes.0.accelerators.count={ranks}",
        f"nodes.0.accelerators.hbm.bandwidth={ratio * 400:g}GB/s",
        "nodes.0.links.scale_up.bandwidth=400GB/s",
    ]
    return load_topology("dgx-h100", overrides=overrides)


def document(published: dict) -> dict:
    """What HugeCTR's sample hands to `shard`: the replicated tables on every GPU, all by their numbers."""
    replicated = [str(table) for table in published["replicated"]]
    parts = sorted({table for own in published["matrix"] for table in own})
    return {
        "shard_matrix": [[str(table) for table in own] + replicated for own in published["matrix"]],
        "shard_strategy": [["mp", [str(table) for table in parts]], ["dp", replicated]],
    }


def inputs(published: dict, cost_model: str = "hugectr") -> AdoptionInputs:
    topology = cluster(len(published["matrix"]), published["mem_comm_bw_ratio"])
    return AdoptionInputs(topology, WORKLOAD, cost_model, Policy(runtime="hugectr"))


@pytest.mark.parametrize("published", PUBLISHED, ids=lambda p: p["submission"])
def test_published_plans_come_in_and_go_out(published):
    """Rating as published, memory of each GPU within 2 %, nothing that `verify` denies, and the same lists again."""
    told = inputs(published)
    written = document(published)
    plan = adopted(hugectr_tables(written, told, "log"), told, "hugectr", "log", simulate=False)
    assert verify(plan) == []
    rating = np.array(published["hot"]) + published["table_cost"]
    assert plan.objective.step_s == pytest.approx(rating.max(), rel=1e-12)
    assert plan.objective.lower_bound_s <= plan.objective.step_s
    np.testing.assert_allclose([rank.seconds["rating"] for rank in plan.ranks], rating, rtol=1e-12)
    replicas = told.model.table_bytes[published["replicated"]].sum()
    stored = np.array([rank.bytes.hbm for rank in plan.ranks]) - replicas
    np.testing.assert_allclose(stored / 1e9, published["mem_GB"], rtol=0.02, atol=1e-6)
    again = hugectr_sharding(plan, names="index")
    assert [set(own) for own in again["shard_matrix"]] == [set(own) for own in written["shard_matrix"]]
    ways = {way: set(tables) for way, tables in written["shard_strategy"] if tables}
    assert {way: set(tables) for way, tables in again["shard_strategy"]} == ways


def test_the_step_of_whole_tables_and_of_tables_on_all_gpus():
    """The `physical` model costs these; what HugeCTR's own rating leaves out (what is in flight) comes on top."""
    published = PUBLISHED[0]
    counts = Counter(table for own in published["matrix"] for table in own)
    matrix = [[t for t in own if counts[t] in (1, 4)] for own in published["matrix"]]
    matrix[1] += [table for table, count in counts.items() if count == 2]
    changed = published | {"matrix": matrix}
    told = inputs(changed, "physical")
    plan = adopted(hugectr_tables(document(changed), told, "log"), told, "hugectr", "log", simulate=False)
    assert {table.sharding for table in plan.tables} == {"table_wise", "row_wise"}
    assert all("usable" in fault for fault in verify(plan))
    rated = adopted(hugectr_tables(document(changed), inputs(changed), "log"), inputs(changed), "hugectr", "log")
    for rank, own in zip(plan.ranks, rated.ranks, strict=True):
        assert own.bytes.hbm < rank.bytes.hbm < own.bytes.hbm + 8e9


def test_rows_over_some_gpus_of_a_node_have_a_step():
    """The `physical` model costs them, too, and its bound covers them; the same lists go out again."""
    written = document(PUBLISHED[1])
    told = inputs(PUBLISHED[1], "physical")
    told = replace(told, policy=offered(told.policy, told.topology, "physical"))
    plan = adopted(hugectr_tables(written, told, "log"), told, "hugectr", "log", simulate=False)
    assert Counter(table.sharding for table in plan.tables)["multi_rank_row_wise"] > 0
    assert not plan.objective.outside
    assert plan.objective.lower_bound_s <= plan.objective.step_s
    assert all("usable" in fault for fault in verify(plan))
    again = hugectr_sharding(plan, names="index")
    assert [set(own) for own in again["shard_matrix"]] == [set(own) for own in written["shard_matrix"]]


def test_everything_wrong_is_said_at_once():
    """Unknown names, a table that is lacking, one under both ways."""
    written = document(PUBLISHED[0])
    written["shard_matrix"][0].append("cat_99")
    written["shard_matrix"] = [[t for t in own if t != "7"] for own in written["shard_matrix"]]
    written["shard_strategy"][1][1].append("3")
    with pytest.raises(InputError) as error:
        hugectr_tables(written, inputs(PUBLISHED[0]), "log")
    said = str(error.value)
    assert "shard_matrix.0: 'cat_99' is no table" in said
    assert "shard_matrix: lacks table 'cat_7'" in said
    assert "has 'cat_3' under mp and dp" in said


def test_another_number_of_gpus_is_an_error():
    """The matrix has one list per GPU."""
    with pytest.raises(InputError, match="dgx-h100 has 8"):
        hugectr_tables(document(PUBLISHED[0]), inputs(PUBLISHED[1]), "log")
