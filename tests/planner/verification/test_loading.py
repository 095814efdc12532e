"""Plans that were edited by hand are refused before anything is computed of them, with what is wrong."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner import plan
from planner.errors import UnsoundPlanError
from planner.verification.loading import expect_sound, load_plan
from tests.oracles.instances import node_group, topology, workload

Document = dict[str, Any]


@pytest.fixture(scope="module")
def text() -> str:
    tables = [{"rows": 1001, "dim": 64}, {"rows": 5003, "dim": 32}]
    return plan(topology(node_group("a", nodes=2)), workload(tables), tiers=["hbm"], effort=0).to_json()


def _dropped(document: Document) -> None:
    del document["tables"][0]


def _doubled(document: Document) -> None:
    document["tables"].append(document["tables"][0])


def _renamed(document: Document) -> None:
    document["tables"][0]["name"] = "ghost"


def _no_such_rank(document: Document) -> None:
    document["tables"][0]["shards"][0]["rank"] = 99


def _half_covered(document: Document) -> None:
    document["tables"][0]["shards"][0]["rows"] -= 1


def _cache_of_twice_the_rows(document: Document) -> None:
    document["tables"][0] |= {"tier": "ddr_cached", "cache_fraction": 2.0}


def _a_rank_less(document: Document) -> None:
    del document["ranks"][0]


def _a_stage_less(document: Document) -> None:
    del document["stages"][0]


def _no_such_critical_rank(document: Document) -> None:
    document["stages"][0]["critical_rank"] = -1


def _seconds_of_a_ghost(document: Document) -> None:
    document["ranks"][0]["seconds"]["ghost"] = 1.0


def _no_objective(document: Document) -> None:
    document["objective"] = None


EDITS = (
    (_dropped, "tables: missing ['t0']"),
    (_doubled, "tables: "),
    (_renamed, "tables: missing ['t0']"),
    (_no_such_rank, "table t0: has no shards, or one on a rank that does not exist"),
    (_half_covered, "table t0: "),
    (_cache_of_twice_the_rows, "table t0: its cache fraction 2.0 is no share"),
    (_a_rank_less, "ranks: not 0 to 3 in order"),
    (_a_stage_less, "stages: "),
    (_no_such_critical_rank, "there is no rank -1"),
    (_seconds_of_a_ghost, "rank 0: has seconds of"),
    (_no_objective, "status: "),
)


@pytest.mark.parametrize(("edit", "said"), EDITS, ids=[edit.__name__ for edit, _ in EDITS])
def test_what_is_no_plan_of_its_own_inputs_is_refused(
    text: str, edit: Callable[[Document], None], said: str, tmp_path: Path
) -> None:
    """With the file and all that is wrong in it."""
    document = json.loads(text)
    edit(document)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    with pytest.raises(UnsoundPlanError) as caught:
        load_plan(path)
    assert all(fault.source == str(path) for fault in caught.value.faults)
    assert any(said in fault.message for fault in caught.value.faults), caught.value
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), again.faults) == (UnsoundPlanError, caught.value.faults)


def test_a_right_plan_is_read_as_it_is(text: str, tmp_path: Path) -> None:
    """Also one that was changed in its figures alone, which `verify` looks at."""
    path = tmp_path / "plan.json"
    document = json.loads(text)
    document["objective"]["step_s"] *= 2
    path.write_text(json.dumps(document))
    found = load_plan(path)
    assert found.objective is not None
    assert found.objective.step_s == document["objective"]["step_s"]
    assert expect_sound(found, "x") is found
