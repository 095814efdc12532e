"""What verification takes as stated is listed, and is what it takes as stated."""

import json
from typing import Any

import pytest

from planner import plan
from planner.document.plan import Plan
from planner.verification.unchecked import INPUTS, in_words, unchecked
from planner.verification.verify import verify
from tests.oracles.instances import node_group, topology, workload


@pytest.fixture(scope="module")
def placed() -> Plan:
    return plan(topology(node_group("a")), workload([{"rows": 1000, "dim": 64}]), tiers=["hbm"])


def fields(found: Plan) -> set[str]:
    return {one.field for one in unchecked(found, given=INPUTS, has_folder=True)}


@pytest.mark.parametrize(("key", "value"), [("seed", 7), ("planner_version", "99"), ("solver", "by hand")])
def test_what_is_listed_may_be_anything(placed: Plan, key: str, value: Any) -> None:
    """Of where a plan comes from, nothing follows that could be recomputed: it is listed for every plan."""
    document = json.loads(placed.to_json())
    document["provenance"][key] = value
    changed = Plan.model_validate(document)
    assert verify(changed) == []
    assert f"provenance.{key}" in fields(changed)
    of_search = {"objective.best_step_s", "objective.given_up_s"} if placed.objective.best_step_s else set()
    stated = {f"provenance.{name}" for name in ("planner_version", "solver", "seed", "ended_by_time")}
    assert fields(placed) == stated | of_search


def test_a_plan_without_a_fingerprint_of_its_policy_says_so(placed: Plan) -> None:
    """Plans from before there was one are read, verify, and list it; one that is wrong is a violation."""
    document = json.loads(placed.to_json())
    document["provenance"]["policy"]["max_shards"] = 7
    assert any("policy: the content hashes to" in fault for fault in verify(Plan.model_validate(document)))
    del document["provenance"]["policy"]["max_shards"], document["provenance"]["policy_fingerprint"]
    old = Plan.model_validate(document)
    assert verify(old) == []
    assert "provenance.policy_fingerprint" in fields(old)
    assert '"policy_fingerprint"' not in old.to_json()


def test_one_line_says_all(placed: Plan) -> None:
    """Fields with the same reason stand together."""
    words = "planner_version, solver, seed, ended_by_time (a search is not repeated)"
    assert in_words(unchecked(placed, given=INPUTS)) == words


@pytest.mark.parametrize("given", [(), ("topology", "policy"), INPUTS])
def test_the_question_is_the_documents_own_unless_the_user_states_it(placed: Plan, given: tuple[str, ...]) -> None:
    """A document can be right in all its figures and answer another question."""
    listed = {one.field.removeprefix("provenance.") for one in unchecked(placed, given=given)}
    assert listed & {*INPUTS} == {*INPUTS} - {*given}


def test_remedies_and_what_a_solver_found_are_listed() -> None:
    """Of a plan that there is not, what would help is not tried again."""
    none = plan(
        topology(node_group("a")), workload([{"rows": 9_000_000 + i, "dim": 64} for i in range(5)]), tiers=["ddr"]
    )
    assert none.status == "infeasible"
    assert {"infeasibility.remedies", "infeasibility.tiers.*.short_bytes"} <= fields(none)
