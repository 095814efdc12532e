"""A policy is kept by plans, and verify sees where one is not; a plan that it forbids names its limits."""

import json
from typing import Any

import numpy as np
import pytest

from cost_models.registry import COST_MODELS
from cost_models.shards import SHARDINGS, USUAL_SHARDINGS
from cost_models.step import StepModel
from planner import plan
from planner.document.plan import Plan
from planner.formulation.choice_rules import allowed_choices
from planner.formulation.policy import Policy
from planner.formulation.runtimes import RUNTIMES
from planner.verification.verify import verify
from tests.oracles.instances import node_group, topology, workload
from topologies.errors import InputError

TABLES = [{"rows": 1000 * (i + 1), "dim": 32, "name": f"{'ab'[i % 2]}{i}"} for i in range(6)]
"""a0, b1, a2, b3, a4, b5."""


def policy(**fields: Any) -> Policy:
    return Policy.model_validate(fields)


# -- runtimes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cost_model", list(COST_MODELS))
@pytest.mark.parametrize("runtime", list(RUNTIMES))
def test_plans_keep_to_what_a_runtime_executes(runtime: str, cost_model: str) -> None:
    """Under every cost model; HugeCTR's own calls rows cut over some ranks column_wise."""
    cluster = topology(node_group("g", nodes=2, ssd_bytes=1e12))
    cut = policy(runtime=runtime, shardings=[sharding for sharding in SHARDINGS if sharding != "data_parallel"])
    found = plan(cluster, workload(TABLES), policy=cut, cost_model=cost_model)
    assert verify(found) == []
    rules = RUNTIMES[runtime]
    of_its_own = {"column_wise"} if cost_model == "hugectr" else set()
    assert {table.tier for table in found.tables} <= set(rules.tiers)
    assert {table.sharding for table in found.tables} <= {*rules.shardings} | of_its_own
    assert all((table.shards.columns % 4 == 0).all() for table in found.tables)


def test_unequal_nodes_have_no_node_wide_shardings_in_torchrec() -> None:
    """It takes the ranks of one node for those of every node."""
    unequal = StepModel(topology(node_group("g"), node_group("h", ranks=3)), workload(TABLES))
    choices = allowed_choices(unequal, policy(runtime="torchrec"))
    left = {SHARDINGS[i] for i in np.flatnonzero(choices.shardings.any(axis=0))}
    assert left == set(USUAL_SHARDINGS) - {"table_row_wise", "grid_shard"}


# -- plans and their verification --------------------------------------------------------------------------------

PAIRS = {"table_wise": ["ddr"], "row_wise": ["hbm"]}


def test_a_sharding_keeps_to_its_tiers() -> None:
    """Whole tables in DDR and tables cut by rows in HBM, of a policy that has both of both; verify sees the others."""
    cluster, model = topology(node_group("g", ddr_bytes=8e9)), workload(TABLES)
    limits = {"shardings": ["table_wise", "row_wise"], "tiers": ["hbm", "ddr"]}
    rules = [{"match": "*", "tiers_of": PAIRS}]
    found = plan(cluster, model, policy=policy(**limits, tables=rules), cost_model="physical")
    assert {(table.sharding, table.tier) for table in found.tables} <= {("table_wise", "ddr"), ("row_wise", "hbm")}
    assert verify(found) == []
    free = plan(cluster, model, policy=policy(**limits))
    broken = [f"{table.name}" for table in free.tables if table.tier not in PAIRS[table.sharding]]
    assert broken
    origin = free.provenance.model_copy(update={"policy": policy(**limits, tables=rules)})
    said = " ".join(verify(free.model_copy(update={"provenance": origin})))
    assert all(f"table {name}: " in said for name in broken)


@pytest.mark.parametrize("share", [0.013, 0.5])
def test_a_cache_has_the_share_that_the_policy_says(share: float) -> None:
    """Where its size is fixed, and nowhere else; two sizes for a table are a fault."""
    cluster, model = topology(node_group("g", ddr_bytes=8e9)), workload(TABLES)
    rules = [{"match": "a*", "cache_fraction": share}]
    found = plan(cluster, model, policy=policy(tiers=["ddr_cached"], tables=rules))
    held = {table.name: table.cache_fraction for table in found.tables}
    assert all((held[name] == share) == name.startswith("a") for name in held)
    assert verify(found) == []
    other = policy(tiers=["ddr_cached"], tables=[{"match": "a*", "cache_fraction": share / 2}])
    origin = found.provenance.model_copy(update={"policy": other})
    assert any(
        f"table a0: HBM holds {share:g} of its rows" in text
        for text in verify(found.model_copy(update={"provenance": origin}))
    )
    with pytest.raises(InputError, match=f"is {share:g} here and 0.1 in another rule"):
        plan(cluster, model, policy=policy(cache_fraction=0.1, tables=rules))


# -- infeasible --------------------------------------------------------------------------------------------------


def test_pinned_tables_that_do_not_fit_are_named_with_a_proof() -> None:
    """Two tables of 0.8 GB each on one rank of 1 GB: how much is short there, and prices that verify recomputes."""
    tables = [{"rows": 3_000_000, "dim": 64, "pooling_factor": 1} for _ in range(3)]
    model = workload(tables, embedding={"optimizer": "sgd"})
    cluster = topology(node_group("g", nodes=2, ranks=2))
    found = plan(cluster, model, policy=policy(tiers=["hbm"], tables=[{"match": ["t0", "t1"], "ranks": 2}]))
    assert found.status == "infeasible"
    assert found.infeasibility is not None
    assert [table.name for table in found.infeasibility.tables] == ["t0", "t1"]
    assert all("ranks 2 (tables.0)" in table.reason for table in found.infeasibility.tables)
    assert "2 tables that the policy keeps on ranks 2" in found.infeasibility.summary
    hbm = found.infeasibility.tiers[0]
    assert hbm.capacity_bytes == pytest.approx(1e9, rel=0.01)
    assert hbm.short_bytes == pytest.approx(2 * 768e6 - 1e9, rel=0.1)
    assert {price.ranks for price in found.infeasibility.memory_multipliers} == {(2,)}
    assert verify(Plan.model_validate(json.loads(found.to_json()))) == []
    no_policy = found.provenance.model_copy(update={"policy": policy(tiers=["hbm"])})
    assert verify(found.model_copy(update={"provenance": no_policy}))


def test_a_table_without_an_option_left_names_the_limits() -> None:
    """A grid only, of a table too narrow to cut: the limit is to blame, not the memory."""
    cluster, model = topology(node_group("g", nodes=2)), workload([{"rows": 3, "dim": 4}, {"rows": 1000, "dim": 32}])
    found = plan(cluster, model, policy=policy(tables=[{"match": "t0", "shardings": ["grid_shard"]}]))
    assert found.infeasibility is not None
    assert [table.name for table in found.infeasibility.tables] == ["t0"]
    assert "shardings grid_shard (tables.0)" in found.infeasibility.tables[0].reason
    assert verify(found) == []


@pytest.mark.parametrize(("runtime", "dtype"), [("torchrec", "int4"), ("hugectr", "mx9"), ("hugectr", "fp16")])
def test_formats_that_a_runtime_lacks_are_refused(runtime: str, dtype: str) -> None:
    """Not planned without a word: the table, its format and those that the runtime has are named."""
    model = workload([{"rows": 1000, "dim": 32, "dtype": dtype}], mode="inference")
    words = rf"{runtime} has no tables in {dtype}, the format of 't0'; give them one of fp32"
    with pytest.raises(InputError, match=words):
        plan(topology(node_group("g")), model, policy=policy(runtime=runtime))


def test_parts_are_counted_on_the_nodes_that_hold_them() -> None:
    """Rows over a node of two ranks are two parts, whatever larger nodes there are; on one of three they are three."""
    cluster = topology(node_group("large", ranks=3), node_group("small", ranks=2))
    model = workload([{"rows": 10_000, "dim": 16}])
    found = plan(cluster, model, policy=policy(shardings=("table_row_wise",), max_shards=2))
    assert found.tables[0].shards.rank.tolist() == [3, 4]
    assert verify(found) == []
    confined = plan(cluster, model, policy=policy(shardings=("table_row_wise",), max_shards=2, nodes=[0]))
    assert confined.status == "infeasible"
