"""What verification takes as stated is listed, and is what it takes as stated."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from planner import plan
from planner.document.plan import Plan
from planner.formulation.option_space import EVERY_CUT
from planner.formulation.policy import Policy
from planner.verification.unchecked import INPUTS, in_words, unchecked
from planner.verification.verify import verify
from tests.oracles.instances import node_group, topology, workload


@pytest.fixture(scope="module")
def placed() -> Plan:
    return plan(topology(node_group("a")), workload([{"rows": 1000, "dim": 64}]), tiers=["hbm"])


def fields(found: Plan) -> set[str]:
    return {one.field for one in unchecked(found, given=INPUTS, has_folder=True)}


@pytest.mark.parametrize(
    ("key", "value"), [("seed", 7), ("seeds", 3), ("planner_version", "99"), ("solver", "by hand")]
)
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


ALWAYS = [
    (f"provenance.{key}", "a search is not repeated") for key in ("planner_version", "solver", "seed", "ended_by_time")
]
SOME = SimpleNamespace(others=["one"])
"""Stands for choices of which one was not taken."""


def changed(plan: Plan, **values: Any) -> Plan:
    """A plan that states something else; keys of parts are written as `objective__gap`."""
    for key, value in values.items():
        part, _, field = key.partition("__")
        plan = plan.model_copy(update={part: getattr(plan, part).model_copy(update={field: value}) if field else value})
    return plan


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"objective__best_step_s": None}, []),
        (
            {"objective__best_step_s": 1.0},
            [(f"objective.{key}", "a search is not repeated") for key in ("best_step_s", "given_up_s")],
        ),
        (
            {"objective__solver_bound_s": 1.0},
            [("objective.solver_bound_s", "a solver's word, without a certificate")],
        ),
        (
            {"objective__error_bar": None, "objective__no_error_bar": None},
            [(f"objective.{key}", "the document states none") for key in ("error_bar", "no_error_bar")],
        ),
        ({"objective__error_bar": None, "objective__no_error_bar": "why"}, []),
        ({"simulated": None}, [("simulated", "the document states none")]),
        ({"goals": ("one",)}, [("goals.*.best", "a search is not repeated")]),
        ({"robust": "drawn"}, [("robust.*.nominal", "the nominal plan is not in the document")]),
        (
            {"replicas": SOME},
            [("replicas.others.*", "of other choices that they fit their verdicts; a search is not repeated")],
        ),
        (
            {"dense": SOME},
            [("dense.others.*", "of other strategies that they fit their verdicts; a search is not repeated")],
        ),
        ({"other_exchange": "sptt"}, [("other_exchange.step_s", "a search is not repeated")]),
        (
            {"status": "timeout"},
            [("status", "that nothing was found in time, and that the memory suffices as a whole")],
        ),
        ({"objective": None, "moves": None}, []),
        (
            {"provenance__cache_fractions": (0.1,)},
            [("provenance.cache_fractions", "the bound covers these cache sizes and no others")],
        ),
        ({"moves": "some"}, [("moves", "give the former plan with --from")]),
    ],
)
def test_each_part_that_a_plan_may_have_is_listed_with_its_reason(
    placed: Plan, values: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    """Beside what is listed for every plan: those fields, with those words, and no others."""
    plain = changed(placed, objective__best_step_s=None)
    found = unchecked(changed(plain, **values), given=INPUTS)
    assert sorted(found) == sorted([*ALWAYS, *expected])


def test_with_the_former_plan_only_the_users_terms_are_left_of_moves(placed: Plan) -> None:
    """What was allowed to move; and, of a search that found nothing, how little it came down to."""
    terms = [(f"moves.{key}", "what the user set") for key in ("limit_bytes", "pay_back_steps")]
    for objective, more in ((placed.objective, []), (None, [("moves.found_bytes", "a search is not repeated")])):
        follows = changed(placed, moves="some", objective=objective)
        found = unchecked(follows, given=INPUTS, has_former=True)
        assert [each for each in found if each.field.startswith("moves")] == [*terms, *more]


def test_a_bound_on_some_cuts_says_on_which(placed: Plan) -> None:
    """Plans from before cuts were stated, plans of few cuts, and plans of every cut, of which nothing is said."""
    document = json.loads(placed.to_json())
    del document["provenance"]["cuts"]
    reasons = [
        [one.why for one in unchecked(plan, given=INPUTS) if one.field == "provenance.cuts"]
        for plan in (
            Plan.model_validate(document),
            changed(placed, provenance__cuts=placed.provenance.cuts.model_copy(update={"hbm": "few"})),
            changed(placed, provenance__cuts=EVERY_CUT),
        )
    ]
    assert reasons[0] == ["the document states none: the bound covers few column cuts"]
    assert len(reasons[1]) == 1
    assert reasons[1][0].startswith("the bound covers ")
    assert reasons[1][0].endswith(", and no others")
    assert reasons[2] == []


@pytest.mark.parametrize(("nodes", "exchange", "covers"), [(1, "auto", False), (2, "auto", True), (2, "flat", False)])
def test_an_exchange_that_was_not_chosen_of_several_is_no_gap(nodes: int, exchange: str, covers: bool) -> None:
    """Where the policy leaves exchanges open, the bound is on the plan's own alone, and says so."""
    found = plan(
        topology(node_group("a", nodes=nodes)),
        workload([{"rows": 1000, "dim": 64}]),
        policy=Policy(exchange="flat", tiers=("hbm",)),
    )
    policy = found.provenance.policy.model_copy(update={"exchange": exchange})
    listed = unchecked(changed(found, provenance__policy=policy), given=INPUTS)
    assert (("provenance.exchange", "the bound covers flat alone") in listed) == covers
