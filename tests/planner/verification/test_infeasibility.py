"""Why there is no plan: every word and number of it is written anew from the inputs, and compared."""

import json
from collections.abc import Callable

import pytest

from planner import plan
from planner.formulation.policy import Policy
from tests.oracles.instances import node_group, topology, workload
from tests.oracles.violations import Document, violations, violations_after


@pytest.fixture(scope="module")
def documents() -> dict[str, str]:
    """What has no plan, for each reason: a table fits nowhere, memory is short, on some ranks, or pieces do not pack;
    `placed` has one."""
    two = topology(node_group("a", nodes=2))
    single = topology(node_group("a", hbm_bytes=1e9, ddr_bytes=None))
    three = workload([{"rows": 2_200_000 + i, "dim": 64} for i in range(3)], global_batch=64)
    pinned = Policy.model_validate({"tiers": ["hbm"], "tables": [{"match": "t[0-2]", "ranks": [0, 1]}]})
    found = {
        "homeless": plan(two, workload([{"rows": 10**9, "dim": 128}, {"rows": 100, "dim": 64}])),
        "shortage": plan(two, workload([{"rows": 9_000_000 + i, "dim": 64} for i in range(9)]), tiers=["ddr"]),
        "confined": plan(two, workload([{"rows": 3_000_000 + i, "dim": 64} for i in range(4)]), policy=pinned),
        "trial": plan(single, three, shardings=["table_wise"]),
        "placed": plan(two, workload([{"rows": 1000, "dim": 64}]), tiers=["hbm"], effort=0),
    }
    return {name: each.to_json() for name, each in found.items()}


@pytest.mark.parametrize("kind", ["homeless", "shortage", "confined", "trial"])
def test_what_the_planner_writes_verifies(documents: dict[str, str], kind: str) -> None:
    """Whatever the reason is."""
    document = json.loads(documents[kind])
    assert document["status"] == "infeasible"
    assert violations(document) == []


def _ghost(document: Document) -> None:
    document["infeasibility"]["tables"][0]["name"] = "ghost"


def _larger(document: Document) -> None:
    document["infeasibility"]["tables"][0]["bytes"] *= 2


def _other_reason(document: Document) -> None:
    document["infeasibility"]["tables"][0]["reason"] = "out of spite"


def _one_less(document: Document) -> None:
    del document["infeasibility"]["tables"][0]


def _more_capacity(document: Document) -> None:
    document["infeasibility"]["tiers"][0]["capacity_bytes"] *= 2


def _one_tier_less(document: Document) -> None:
    del document["infeasibility"]["tiers"][1]


def _less_short(document: Document) -> None:
    tier = document["infeasibility"]["tiers"][1]
    tier["short_bytes"] = (tier["short_bytes"] or 0) // 2 + 1


def _other_summary(document: Document) -> None:
    document["infeasibility"]["summary"] = "the moon is full"


def _said_to_be_tried(document: Document) -> None:
    document["infeasibility"]["exhaustive_search"] = True


def _not_tried(document: Document) -> None:
    document["infeasibility"]["exhaustive_search"] = False


def _half_the_prices(document: Document) -> None:
    prices = document["infeasibility"]["memory_multipliers"]
    prices.append(dict(prices[0], seconds_per_byte=prices[0]["seconds_per_byte"] / 2))


def _timeout(document: Document) -> None:
    document["status"] = "timeout"


def _timeout_without_a_word(document: Document) -> None:
    document["status"] = "timeout"
    del document["infeasibility"]


def _a_proof(document: Document) -> None:
    document["proof"] = {"threshold_s": None, "weights": [], "memory_multipliers": []}


@pytest.mark.parametrize(
    ("kind", "falsify", "said"),
    [
        *((kind, _ghost, "infeasible: tables.0.name is") for kind in ("homeless", "shortage", "confined", "trial")),
        *((kind, _larger, "infeasible: tables.0.bytes is") for kind in ("homeless", "shortage", "confined", "trial")),
        *((kind, _other_reason, "tables.0.reason") for kind in ("homeless", "shortage", "confined", "trial")),
        ("shortage", _one_less, "infeasible: tables.0.name"),
        ("shortage", _more_capacity, "infeasible: tiers.0.capacity_bytes"),
        ("confined", _more_capacity, "infeasible: tiers.0.capacity_bytes"),
        ("homeless", _one_tier_less, "infeasible: tiers.1"),
        ("homeless", _less_short, "infeasible: tiers.1.short_bytes"),
        ("confined", _other_summary, "infeasible: summary"),
        ("shortage", _said_to_be_tried, "trying all placements does not show"),
        ("trial", _not_tried, "its memory multipliers do not prove"),
        ("shortage", _half_the_prices, "its memory multipliers do not prove"),
        ("shortage", _timeout, "status: timeout with infeasibility"),
        ("shortage", _timeout, "status: timeout without unplaced"),
        ("shortage", _timeout_without_a_word, "status: timeout without unplaced"),
        ("shortage", _a_proof, "the proof of a bound without an objective"),
    ],
)
def test_a_falsified_reason_is_named(
    documents: dict[str, str], kind: str, falsify: Callable[[Document], None], said: str
) -> None:
    """Whatever is changed in why nothing fits, some violation says what it should be."""
    found = violations_after(falsify, documents[kind])
    assert any(said in violation for violation in found), found


@pytest.mark.parametrize("kind", ["homeless", "trial"])
def test_a_placed_plan_has_no_reason_that_there_is_none(documents: dict[str, str], kind: str) -> None:
    """A reason from elsewhere beside a placement is a violation."""
    document = json.loads(documents["placed"])
    assert violations(document) == []
    document["infeasibility"] = json.loads(documents[kind])["infeasibility"]
    assert any("with infeasibility" in violation for violation in violations(document))


def test_a_table_that_fits_nowhere_is_no_want_of_time(documents: dict[str, str]) -> None:
    """An infeasible problem whose document says that nothing was found in time, in the words that go with it."""
    document = json.loads(documents["homeless"])
    tables = document.pop("infeasibility")["tables"]
    document |= {"status": "timeout", "unplaced": {"summary": "x", "tables": tables, "remedies": []}}
    assert any("fit nowhere, which is infeasible" in violation for violation in violations(document))
