"""Plans for different groups of ranks, compared cell by cell on all ranks."""

from typing import Any

import numpy as np
import pytest

from planner.document.plan import Plan
from planner.document.plan_differences import plan_difference
from planner.document.table_differences import groups_of, table_differences
from planner.formulation.policy import Policy
from planner.planning.planning import plan
from planner.verification.verify import verify
from tests.oracles.instances import node_group, topology, workload

ROWS, DIM, RANKS = (40, 61, 97), 16, 8
OF_ROW = 4 * DIM + 4
"""Bytes of a row and its state."""
RULES: list[dict[str, Any]] = [{"tables": "user_*", "factor": 4}]
GROUPS: dict[str, dict[str, Any] | None] = {
    "one world": None,
    "two": {"factor": 2, "layout": "intra"},
    "two, apart": {"factor": 2, "layout": "inter"},
    "by rules": {"factor": 1, "rules": [{"tables": "user_*", "factor": 2}]},
    "by rules, apart": {"factor": 2, "layout": "inter", "rules": RULES},
}


def planned(groups: str, **more: Any) -> Plan:
    names = ("item_0", "user_1", "user_2")
    tables = [
        {"name": name, "rows": rows, "dim": DIM, "optimizer": "rowwise_adagrad"}
        for name, rows in zip(names, ROWS, strict=True)
    ]
    policy: dict[str, Any] = {"shardings": ["table_wise", "row_wise", "table_row_wise"], "tiers": "hbm"}
    if (replicas := GROUPS[groups]) is not None:
        policy["replicas"] = replicas | {"sync_every": 10}
    asked: dict[str, Any] = {"policy": Policy.model_validate(policy), "effort": 0, "simulate": False} | more
    cluster = topology(node_group("a", nodes=4, ranks=2))
    return plan(cluster, workload(tables, software="torchrec"), **asked)


def held(found: Plan, table: int) -> np.ndarray:
    """[ranks, rows, columns] whether each rank of the cluster holds the cell."""
    replicas, cells = found.replicas, np.zeros((RANKS, ROWS[table], DIM), dtype=bool)
    factor = 1 if replicas is None else replicas.factor
    for group in range(factor):
        for shard in found.tables[table].shards.to_list():
            for rank in range(shard["rank"], shard["rank"] + shard.get("replicas", 1)):
                is_apart = replicas is not None and replicas.layout == "inter"
                place = group * (RANKS // factor) + rank if is_apart else rank * factor + group
                rows, columns = shard["row_start"], shard["column_start"]
                cells[place, rows : rows + shard["rows"], columns : columns + shard["columns"]] = True
    return cells


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("one world", "two"),
        ("two", "two, apart"),
        ("by rules", "one world"),
        ("by rules, apart", "by rules"),
        ("two, apart", "by rules, apart"),
    ],
)
def test_what_moves_between_groups_is_counted_on_all_ranks(first: str, second: str) -> None:
    """Every cell that a rank has and did not have before; copies by rule are on different ranks of their groups."""
    before, after = planned(first), planned(second)
    told = {each["table"]: each["moved_bytes"] for each in table_differences(before, after, "the first plan")}
    for number, table in enumerate(after.tables):
        was, now = held(before, number), held(after, number)
        moved = (now & ~was).sum() / DIM * OF_ROW
        assert told.get(table.name, 0) == pytest.approx(moved, abs=1.0)
        assert (table.name in told) == (was != now).any()
    assert groups_of(before) != groups_of(after)
    stages = {stage.name: stage for stage in plan_difference(before, after, "the first plan").stages}
    assert stages["replica_sync"].change


@pytest.mark.parametrize("groups", ["two, apart", "by rules", "by rules, apart"])
def test_a_plan_that_follows_keeps_groups_that_are_not_stated(groups: str) -> None:
    """With their rules and intervals; its policy says them."""
    before = planned(groups)
    after = planned("one world", previous=before)
    assert after.replicas is not None
    assert before.replicas is not None
    assert after.replicas.chosen == before.replicas.chosen
    assert after.moves is not None
    assert after.moves.moved_bytes == 0
    assert verify(after, before) == []
