"""Plans in which tables have copies by rule: written, verified, followed, and refused with a reason."""

import json
from typing import Any

import numpy as np
import pytest

from cost_models.shards import block_rows
from planner.document.plan import Plan, read_plan
from planner.formulation.policy import Policy
from planner.planning.planning import plan
from planner.verification.verify import verify
from tests.oracles.agreement import expect_near_simulation
from tests.oracles.instances import node_group, topology, workload
from topologies.errors import InputError

RULES = [{"tables": "user_*", "factor": 4}]
SHARD = ("rank", "row_start", "rows", "column_start", "columns")
NAMES = [f"{'user' if number % 3 == 0 else 'item'}_{number}" for number in range(6)]


def planned(replicas: dict[str, Any] | None = None, more: dict[str, Any] | None = None, **fields: Any) -> Plan:
    tables = [
        {"name": name, "rows": 100_003 * (number + 1), "dim": 64, "zipf_alpha": 1.05, "optimizer": "rowwise_adagrad"}
        for number, name in enumerate(NAMES)
    ]
    given = {"factor": 1, "sync_every": 20, "rules": RULES} if replicas is None else replicas
    given = {"state_every": "never"} | given
    policy = Policy.model_validate({"replicas": given} | (more or {}))
    nodes, levels = fields.pop("nodes", 2), fields.pop("levels", ())
    cluster = topology(node_group("a", nodes=nodes, ranks=4, hbm_bytes=fields.pop("hbm_bytes", 2e9)), levels=levels)
    trained = workload(tables, software="torchrec", global_batch=8192)
    return plan(cluster, trained, policy=policy, **({"effort": 0, "simulate": False} | fields))


def test_neighbours_hold_the_same_rows(tmp_path: Any) -> None:
    """Of each shard of a table with four copies four ranks in a row hold one, of the others one rank; it verifies, also
    as read from its file, with its step simulated within 3 %."""
    found = planned(simulate=True)
    assert verify(found) == []
    expect_near_simulation(found, 0.03)
    for table in found.tables:
        copies = 4 if table.name.startswith("user") else 1
        for start in np.unique(table.shards.column_start):
            own = table.shards.column_start == start
            ranks, rows = table.shards.rank[own], table.shards.rows[own]
            held = rows.reshape(-1, copies)
            cut = block_rows(held[:, 0].sum(), len(held), np.arange(len(held)))
            assert ranks[0] % copies == 0
            assert np.array_equal(ranks, ranks[0] + np.arange(len(ranks)))
            assert (held == cut[:, None]).all()
    path = tmp_path / "plan.json"
    path.write_text(found.to_json())
    again = read_plan(path)
    assert again.to_json() == found.to_json()
    assert verify(again) == []


@pytest.mark.parametrize("shardings", [["table_wise", "column_wise"], ["row_wise"], ["table_row_wise", "grid_shard"]])
def test_copies_are_whole_runs_of_nodes_apart(shardings: list[str]) -> None:
    """In inter layout, at the same place of each; the plan verifies, and is simulated within 3 %."""
    rules = [{"tables": "user_*", "factor": 4}, {"tables": "item_1", "factor": 2}]
    found = planned({"factor": 1, "layout": "inter", "rules": rules}, {"shardings": shardings}, nodes=8, simulate=True)
    assert verify(found) == []
    expect_near_simulation(found, 0.03)
    assert found.objective.gap < 0.03
    for table in found.tables:
        copies = 4 if table.name.startswith("user") else 2 if table.name == "item_1" else 1
        shards = sorted(zip(*(getattr(table.shards, name).tolist() for name in SHARD), strict=True))
        first = [shard for shard in shards if shard[0] < 32 // copies]
        again = [(rank + copy * 32 // copies, *rest) for copy in range(copies) for rank, *rest in first]
        assert sorted(again) == shards
    data = json.loads(found.to_json())
    data["replicas"]["layout"] = data["provenance"]["policy"]["replicas"]["layout"] = "intra"
    assert any("user_0" in fault for fault in verify(Plan.model_validate(data)))


@pytest.mark.parametrize(
    ("strategy", "exchange"),
    [("default", "auto"), ("default", "sptt"), ("fully_sharded", "flat"), ("fully_sharded", "sptt")],
)
def test_copies_are_cut_and_exchanged_as_those_of_all_tables_are(strategy: str, exchange: str) -> None:
    """Plans with cut copies, and with vectors through towers, are simulated on all ranks within 3 %, and verify."""
    replicas = {"factor": 1, "strategy": strategy, "rules": RULES}
    found = planned(replicas, {"exchange": exchange, "shardings": ["table_wise", "row_wise"]}, simulate=True)
    assert verify(found) == []
    expect_near_simulation(found, 0.03)
    stages = {stage.name for stage in found.stages}
    assert ("replica_sync" in stages) == (strategy == "default")
    if exchange == "sptt":
        assert found.provenance.exchange == "sptt"
        assert "output_intra_host" in stages


def test_a_rule_of_as_many_copies_changes_nothing() -> None:
    """The placement, figures and proof are those of the same number for all."""
    groups = {"factor": 2, "layout": "intra", "sync_every": 20}
    alike, ruled = planned(groups), planned(groups | {"rules": [{"tables": "user_*", "factor": 2}]})
    assert (ruled.objective, ruled.tables, ruled.stages) == (alike.objective, alike.tables, alike.stages)


def test_more_copies_take_the_place_of_exchanges_where_they_pay() -> None:
    """A plan of all choices of `factor` beside a rule is the best of them, and says what the others are."""
    found = planned({"factor": [1, 2], "sync_every": 1000, "rules": RULES})
    assert verify(found) == []
    assert found.replicas is not None
    assert [(each.factor, each.layout) for each in found.replicas.others] == [(3 - found.replicas.factor, "intra")]
    steps = [planned({"factor": n, "sync_every": 1000, "rules": RULES}).objective for n in (1, 2)]
    assert found.objective is not None
    assert found.objective.step_s == min(each.step_s for each in steps if each is not None)


def test_both_layouts_are_compared_where_both_are_stated() -> None:
    """The document says so, and verifies as it is read."""
    found = planned({"factor": 1, "layout": ["intra", "inter"], "sync_every": 1000, "rules": RULES}, nodes=4)
    assert found.replicas is not None
    (other,) = found.replicas.others
    assert {other.layout, found.replicas.layout} == {"intra", "inter"}
    assert verify(Plan.model_validate_json(found.to_json())) == []


def test_tables_without_copies_may_be_below_hbm() -> None:
    """Those of one world keep their tiers; copies are in HBM."""
    found = planned(hbm_bytes=1.2e8)
    assert verify(found) == []
    tiers = {table.tier for table in found.tables if table.name.startswith("item")}
    assert tiers - {"hbm"}
    assert {table.tier for table in found.tables if table.name.startswith("user")} == {"hbm"}


@pytest.mark.parametrize("layout", ["intra", "inter"])
def test_a_plan_that_follows_keeps_the_rules(layout: str) -> None:
    """What stays stays, copies with it; another rule is other groups, and refused with both."""
    groups = {"factor": 1, "layout": layout, "sync_every": 20, "rules": [{"tables": "user_*", "factor": 4}]}
    before = planned(groups, nodes=4)
    after = planned(groups, more={"max_shards": 16}, previous=before, nodes=4)
    assert verify(after, before) == []
    assert after.moves is not None
    stored = sum(int(table.shards.bytes.sum()) for table in before.tables)
    assert after.moves.moved.total < 0.2 * stored
    with pytest.raises(InputError, match=r"4 of user_\*.*2 of user_\*|2 of user_\*.*4 of user_\*"):
        planned(groups | {"rules": [{"tables": "user_*", "factor": 2}]}, previous=before, nodes=4)


@pytest.fixture(scope="module")
def right() -> str:
    return planned(more={"shardings": ["table_wise", "row_wise"]}).to_json()


def _other_copy(data: Any) -> None:
    shards = next(table for table in data["tables"] if table["name"] == "user_0")["shards"]
    alone = {key: value for key, value in shards[0].items() if key != "replicas"}
    shards[:1] = [alone, alone | {"rank": (alone["rank"] + 4) % 8}]


def _fewer_copies(data: Any) -> None:
    data["replicas"]["rules"][0]["factor"] = 2


def _no_rules(data: Any) -> None:
    del data["replicas"]["rules"]


def _other_tables(data: Any) -> None:
    data["replicas"]["rules"][0]["tables"] = ["item_*"]


def _other_rules(data: Any) -> None:
    data["replicas"]["rules"][0]["factor"] = data["provenance"]["policy"]["replicas"]["rules"][0]["factor"] = 2


@pytest.mark.parametrize("corrupt", [_other_copy, _fewer_copies, _no_rules, _other_tables, _other_rules])
def test_what_is_not_by_the_rules_does_not_verify(right: str, corrupt: Any) -> None:
    """A copy elsewhere, and rules that are not the policy's, or not those that the shards follow."""
    data = json.loads(right)
    corrupt(data)
    assert verify(Plan.model_validate(data)) != []


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"rules": [{"tables": "users", "factor": 4}]}, {}, "names no table"),
    ({"rules": [{"tables": "user_*", "factor": 8}]}, {}, "has 4 accelerators a node, no multiple of 8"),
    ({"factor": "auto", "rules": [{"tables": "user_*", "factor": 3}]}, {}, "3"),
    ({}, {"colocate": [["user_0", "item_1"]]}, "colocate does not know copies"),
    ({}, {"separate": [["user_0", "item_1"]]}, "separate does not know copies"),
    ({}, {"tables": [{"match": "user_*", "shardings": ["data_parallel"]}]}, "user_0"),
    ({}, {"tables": [{"match": "user_*", "tiers": ["ddr"]}]}, "user_0"),
    ({}, {"runtime": "torchrec"}, "tables of an EmbeddingBagCollection"),
]


UNEVEN: list[tuple[dict[str, Any], str]] = [
    ({"nodes": 2}, "2 nodes cannot be dealt out to 4 groups"),
    ({"nodes": 12, "levels": [(8, 2.0)]}, "3 nodes cut the 8 under a l0 unevenly"),
    ({"nodes": 12, "levels": [(9, 2.0)]}, "12 nodes do not fill switches of 9"),
]


def test_a_layout_that_is_not_stated_is_named_where_the_other_can_be() -> None:
    """More copies than a node has accelerators, on as many nodes; without rules, the numbers that there can be."""
    rules = [{"tables": "user_*", "factor": 8}]
    with pytest.raises(InputError, match="layout is intra unless stated, and with layout inter it can be"):
        planned({"factor": 1, "rules": rules}, nodes=8)
    with pytest.raises(InputError, match=r"are no multiple of 3; 1, 2, 4 can be$"):
        planned({"factor": 3})


@pytest.mark.parametrize(("fields", "message"), UNEVEN)
def test_nodes_that_copies_would_cut_unevenly_are_refused(fields: dict[str, Any], message: str) -> None:
    """With the numbers."""
    with pytest.raises(InputError, match=message):
        planned({"factor": 1, "layout": "inter", "rules": RULES}, **fields)


@pytest.mark.parametrize(("replicas", "more", "message"), REFUSED)
def test_what_does_not_go_with_rules_is_refused(replicas: dict[str, Any], more: dict[str, Any], message: str) -> None:
    """By name, with the tables or numbers that it is about."""
    with pytest.raises(InputError, match=message):
        planned({"factor": 1, "rules": RULES} | replicas, more)
