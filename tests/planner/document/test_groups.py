"""Plans in groups of ranks, where only one world is known."""

import pytest

from planner.document.replicas import PlannedReplicas, expect_one_world
from topologies.errors import InputError

ONE = {"factor": 1, "layout": None, "strategy": None, "sync_every": None, "state_every": None, "group_ranks": 16}
GROUPS = {"factor": 4, "layout": "intra", "strategy": "default", "sync_every": 1, "state_every": None, "group_ranks": 4}
COPIES = {**GROUPS, "factor": 1, "group_ranks": 16, "rules": [{"tables": ["user_*"], "factor": 2}]}


@pytest.mark.parametrize("replicas", [None, ONE])
def test_one_world_is_let_through(replicas: dict[str, object] | None) -> None:
    """A plan from before there were groups, and one of a single group without copies."""
    expect_one_world(None if replicas is None else PlannedReplicas.model_validate(replicas), "plan.json", "it has none")


@pytest.mark.parametrize(
    ("replicas", "has"), [(GROUPS, "has 4 groups of 4 ranks"), (COPIES, r"has copies of tables \(.*user_\*.*\)")]
)
def test_groups_and_copies_are_refused_by_name(replicas: dict[str, object], has: str) -> None:
    """With the file, what it has, and what knows one world only."""
    with pytest.raises(InputError, match=f"^plan.json: {has}, and HugeCTR trains one world"):
        expect_one_world(PlannedReplicas.model_validate(replicas), "plan.json", "HugeCTR trains one world")
