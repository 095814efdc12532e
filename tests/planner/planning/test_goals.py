"""Goals of a policy, from its words to the document: written, verified, and refused where they are not pursued."""

from functools import cache

import pytest

from planner import plan, verify
from planner.document.plan import Plan
from planner.formulation.goal_words import goals_of_flag
from planner.formulation.policy import Policy
from planner.problem.goals import Goal
from tests.oracles.instances import node_group, topology, workload
from topologies.errors import InputError

CLUSTER = topology(node_group("g", ranks=4, hbm_bytes=4e9))
TRAINED = workload([{"rows": 900_000 + 70_000 * i, "dim": 64, "pooling_factor": 3 + 7 * i} for i in range(6)])
HBM = {"tiers": ["hbm"], "shardings": ["table_wise", "column_wise"]}
ORDER = ["step", {"blocks": "20%"}, "fullest_rank"]


def _planned(goals: object = None, **more: object) -> Plan:
    policy = Policy.model_validate(HBM if goals is None else {**HBM, "goals": goals})
    return plan(CLUSTER, TRAINED, policy=policy, effort=1, simulate=False, **more)  # type: ignore[arg-type]


@cache
def _usual() -> Plan:
    return _planned()


@cache
def _followed() -> Plan:
    policy = Policy.model_validate({**HBM, "goals": [{"step": "2%"}, "blocks", {"fullest_rank": "5%"}, "moved_bytes"]})
    grown = workload([{"rows": 900_000 + 70_000 * i, "dim": 64, "pooling_factor": 45 - 7 * i} for i in range(6)])
    return plan(
        CLUSTER, grown, policy=policy, previous=_usual(), max_move_bytes=2_000_000_000, effort=1, simulate=False
    )


def test_words_are_read_and_written() -> None:
    """Names, or names with a share; a flag says the same; a policy is written as it was read."""
    policy = Policy.model_validate({"goals": ORDER})
    assert policy.goals == (Goal("step"), Goal("blocks", 0.2), Goal("fullest_rank"))
    assert Policy.model_validate({"goals": goals_of_flag("step, blocks=20%,fullest_rank")}) == policy
    assert Policy.model_validate(policy.model_dump(mode="json")) == policy


@pytest.mark.parametrize(
    ("goals", "words"),
    [
        (["blocks", "step"], "begin with step"),
        ([], "begin with step"),
        (["step", "blocks", "blocks"], "twice"),
        (["step", "block"], "did you mean 'blocks'"),
        (["step", {"blocks": "x"}], "'x'"),
        (["step", {"blocks": "120%"}], "100%"),
        (["step", {"blocks": "1%", "fullest_rank": "1%"}], "one goal"),
    ],
)
def test_wrong_words_are_refused(goals: object, words: str) -> None:
    """By name, with the remedy."""
    with pytest.raises(ValueError, match=words):
        Policy.model_validate({"goals": goals})


def test_the_usual_order_named_is_the_usual_plan() -> None:
    """The same tables on the same ranks; only then the document tells how far goals are reached."""
    named = _planned(["step", "crowded_ranks", "blocks", "fullest_rank"])
    assert named.tables == _usual().tables
    assert _usual().goals == ()
    assert [goal.name for goal in named.goals] == ["step", "crowded_ranks", "blocks", "fullest_rank"]
    assert named.goals[0].tolerance == 1e-3
    assert verify(named) == []


def test_values_are_those_of_the_document() -> None:
    """Steps, blocks, shares of memory; each within its tolerance."""
    found = _planned([{"step": "3%"}, {"blocks": "20%"}, "fullest_rank"])
    step, blocks, share = found.goals
    assert found.objective is not None
    assert step.value == found.objective.step_s
    assert step.best == (found.objective.best_step_s or found.objective.step_s)
    assert blocks.value == sum(len(table.shards) for table in found.tables)
    assert share.value == max(rank.bytes["hbm"] / rank.capacity["hbm"] for rank in found.ranks)
    assert all(each.value <= each.best * (1 + each.tolerance) * (1 + 1e-6) for each in found.goals)
    assert verify(found) == []


@pytest.mark.parametrize("change", [{"value": 0.5}, {"best": 0.01}, {"tolerance": 0.9}, {"name": "crowded_ranks"}])
def test_a_changed_goal_is_found(change: dict[str, object]) -> None:
    """Values, best values below what is left, tolerances and names."""
    found = _planned(ORDER)
    goals = (*found.goals[:2], found.goals[2].model_copy(update=change))
    assert any(fault.startswith("goals") for fault in verify(found.model_copy(update={"goals": goals})))
    assert any(fault.startswith("goals") for fault in verify(found.model_copy(update={"goals": ()})))


def test_a_plan_that_follows_keeps_to_its_goals() -> None:
    """Blocks and the fullest rank before moved bytes: all are told, all are within their tolerances, and the limit
    holds."""
    followed = _followed()
    assert followed.moves is not None
    assert [goal.name for goal in followed.goals] == ["step", "blocks", "fullest_rank", "moved_bytes"]
    assert followed.goals[3].value == followed.moves.moved_bytes <= 2_000_000_000
    assert verify(followed, _usual()) == []


def test_moved_bytes_need_a_former_plan() -> None:
    """Without one nothing moves, and the goal is refused by name."""
    with pytest.raises(InputError, match="follows another"):
        _planned(["step", "moved_bytes"])


def test_goals_and_robust_exclude_each_other() -> None:
    """A robust plan gives up more of the step than goals allow."""
    with pytest.raises(ValueError, match="leave one of both out"):
        Policy.model_validate({"goals": ORDER, "robust": "p95"})
