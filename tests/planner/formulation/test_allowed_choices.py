"""What each table may use: every way of breaking a limit is named, alone, and what breaks none is in order."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from cost_models.shards import PLACEMENT_TIERS, SHARDINGS, STASHED_TIERS, STATE_PLACES
from cost_models.step import StepModel
from cost_models.workload.formats import DTYPES
from planner.formulation.allowed_choices import (
    AllowedChoices,
    HeldTable,
    allowed_states,
    planning_model,
    violations,
)
from planner.formulation.choice_rules import allowed_choices
from planner.formulation.policy import Policy
from planner.problem.regions import TableGroup
from tests.oracles.instances import node_group, topology, workload

CLUSTER = topology(node_group("g", nodes=2, scm_bytes=1e9))
TRAINED = workload([{"rows": 1000, "dim": 64, "name": name} for name in ("users", "items", "shops")])
RULES = {
    "match": "users",
    "tiers": ["hbm", "ddr_cached"],
    "shardings": ["table_wise", "column_wise"],
    "tiers_of": {"column_wise": ["hbm"]},
    "cache_fraction": 0.25,
    "ranks": "0-2",
    "max_shards": 3,
    "column_multiple": 16,
}


@pytest.fixture(scope="module")
def choices() -> AllowedChoices:
    """Of a policy that limits one of three tables in every way."""
    return allowed_choices(StepModel(CLUSTER, TRAINED), Policy.model_validate({"tables": [RULES]}))


def _held(name: str = "users", ranks: tuple[int, ...] = (0, 1), widths: tuple[int, ...] = (32, 32)) -> HeldTable:
    """A table in HBM, cut by columns: nothing is wrong with it."""
    return HeldTable(
        name,
        PLACEMENT_TIERS.index("hbm"),
        SHARDINGS.index("column_wise"),
        DTYPES.index("fp32"),
        0,
        np.array(ranks),
        len(ranks),
        np.array(widths),
    )


def _faults(choices: AllowedChoices, users: HeldTable) -> list[str]:
    others = [_held(name, (1,), (64,)) for name in ("items", "shops")]
    return list(violations(choices, [users, *others]))


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table,
        lambda table: replace(table, ranks=np.array([2]), parts=1, widths=np.array([64])),
        lambda table: replace(table, ranks=np.array([0, 1, 2]), parts=3, widths=np.array([32, 16, 16])),
        lambda table: replace(table, parts=1, widths=np.array([36])),  # of a whole table any width is its own
        lambda table: replace(
            table,
            tier=PLACEMENT_TIERS.index("ddr_cached"),
            sharding=SHARDINGS.index("table_wise"),
            parts=1,
            cache_fraction=0.25,
        ),
    ],
)
def test_what_keeps_to_all_limits_is_in_order(
    change: Callable[[HeldTable], HeldTable], choices: AllowedChoices
) -> None:
    """At each limit, and below it."""
    assert _faults(choices, change(_held())) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tier": PLACEMENT_TIERS.index("ddr")}, "column_wise in ddr is not what the policy allows"),
        ({"sharding": SHARDINGS.index("row_wise")}, "row_wise in hbm is not what the policy allows"),
        ({"tier": PLACEMENT_TIERS.index("ddr_cached")}, "column_wise in ddr_cached is not what the policy allows"),
        ({"dtype": DTYPES.index("fp16")}, "is stored as fp16, which neither workload nor policy says"),
        ({"state": STATE_PLACES.index("ddr")}, "its optimizer state is in ddr, which no policy says"),
        ({"cache_fraction": 0.3}, "HBM holds 0.3 of its rows, against the policy"),
        ({"ranks": np.array([1, 3])}, "is on rank 3, against the policy"),
        ({"parts": 4}, "is cut into 4 parts, against the policy"),
        ({"widths": np.array([32, 24, 8])}, "has a block of 24 columns, against the policy"),
    ],
)
def test_each_broken_limit_is_named_alone(change: dict[str, object], words: str, choices: AllowedChoices) -> None:
    """The table, what is wrong, and the rule that says so; the same is allowed to a table without the rule."""
    (fault,) = _faults(choices, replace(_held(), **change))
    assert fault.startswith(f"table users: {words}")
    assert "which" in fault or "max_shards 3, column_multiple 16" in fault
    free = [_held(), replace(_held("items"), **change), _held("shops", (1,), (64,))]
    limited_everywhere = ("is stored as", "optimizer state")
    assert bool(list(violations(choices, free))) == any(each in words for each in limited_everywhere)


def test_groups_are_held_together_and_apart(choices: AllowedChoices) -> None:
    """On every placement of two tables on four ranks: a group of ranks, or of nodes, holds both, or not both."""
    for zone_of_rank in (np.arange(4), np.array([0, 0, 1, 1])):
        group = TableGroup(np.array([1, 2]), zone_of_rank)
        together, apart = replace(choices, together=(group,)), replace(choices, apart=(group,))
        for one in range(4):
            for other in range(4):
                tables = [_held(), _held("items", (one,), (64,)), _held("shops", (other,), (64,))]
                is_shared = zone_of_rank[one] == zone_of_rank[other]
                assert (list(violations(together, tables)) == []) == is_shared
                assert (list(violations(apart, tables)) == []) != is_shared


def test_a_table_cut_over_zones_is_neither_together_nor_apart(choices: AllowedChoices) -> None:
    """Every block counts: one that strays leaves its group, one that meets another breaks it."""
    group = TableGroup(np.array([1, 2]), np.arange(4))
    tables = [_held(), _held("items", (0, 1)), _held("shops", (1,), (64,))]
    strays = list(violations(replace(choices, together=(group,)), tables))
    assert [stray[: stray.index(",")] for stray in strays] == [
        "table items: is on rank 1",
        "table shops: is on rank 1",
    ]
    (met,) = violations(replace(choices, apart=(group,)), tables)
    assert met.startswith("table shops: is on rank 1, beside items")


@pytest.mark.parametrize("tier", PLACEMENT_TIERS)
@pytest.mark.parametrize("place", STATE_PLACES)
def test_state_at_home_is_state_with_the_rows(tier: str, place: str) -> None:
    """Rows in DDR and state in DDR are one place: it is stated as with_table, whichever of both a policy allows. State
    of what is stashed is with the rows."""
    policy = Policy.model_validate({"tiers": list(PLACEMENT_TIERS), "optimizer_state": [place]})
    may = allowed_states(
        allowed_choices(StepModel(CLUSTER, TRAINED), policy),
        PLACEMENT_TIERS.index(tier),  # type: ignore[arg-type]
    )
    found = {word for word, allowed in zip(STATE_PLACES, may[0].tolist(), strict=True) if allowed}
    home = tier.removesuffix("_cached").removesuffix("_split")
    if tier in STASHED_TIERS:
        assert found == {place} & {"with_table"}
    elif place != home:
        assert found == {place}
    elif tier.endswith("_split"):  # a part of its rows is in HBM: where the others are is none of their places
        assert found == set()
    else:
        assert found == {"with_table"}


def test_the_model_of_a_plan_has_what_a_policy_leaves_free() -> None:
    """A reserve in bytes, and one in parts of what the topology leaves."""
    policy = Policy.model_validate({"reserve": {"hbm": "10%", "ddr": "4GB"}})
    model = planning_model("physical", CLUSTER, TRAINED, policy)
    capacity = dict(zip(model.memories, model.memory_capacity, strict=True))
    assert capacity["hbm"] == pytest.approx([0.9e9] * 4)
    assert capacity["ddr"] == pytest.approx([6e9] * 2)
    assert capacity["scm"] == pytest.approx([1e9] * 2)
