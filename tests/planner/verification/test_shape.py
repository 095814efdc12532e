"""A document that is no plan of its own inputs, whatever its figures are."""

from types import SimpleNamespace
from typing import Any

import pytest

from cost_models.model import CostModel
from planner import plan
from planner.document.plan import Plan
from planner.document.planned import planned_model
from planner.verification.shape import shape_faults
from tests.oracles.instances import node_group, topology, workload


@pytest.fixture(scope="module")
def placed() -> tuple[Plan, CostModel]:
    found = plan(topology(node_group("a")), workload([{"rows": 1000, "dim": 64}]), tiers=["hbm"], simulate=False)
    return found, planned_model(found)


def changed(found: Plan, **values: Any) -> Plan:
    return found.model_copy(update=values)


def test_what_is_whole_has_no_fault(placed: tuple[Plan, CostModel]) -> None:
    """Each table, rank and stage once."""
    assert shape_faults(*placed) == []


@pytest.mark.parametrize(
    ("what", "fault"),
    [
        (lambda p: {"ranks": p.ranks[:-1]}, "ranks: not 0 to 1 in order"),
        (lambda p: {"ranks": p.ranks[::-1]}, "ranks: not 0 to 1 in order"),
        (lambda _: {"tables": ()}, "t0"),
        (lambda p: {"stages": p.stages[1:]}, "stages: ["),
        (
            lambda p: {"stages": (p.stages[0].model_copy(update={"critical_rank": 2}), *p.stages[1:])},
            ": there is no rank 2",
        ),
        (
            lambda p: {"ranks": (p.ranks[0].model_copy(update={"seconds": {"dense": 1.0}}), *p.ranks[1:])},
            "rank 0: has seconds of ['dense'], not of [",
        ),
        (lambda _: {"objective": None}, "status: optimal without an objective"),
        (lambda _: {"objective": None}, "status: stages, tables or ranks without an objective"),
        (
            lambda _: {"objective": None, "proof": "some"},
            "status: a simulated step or the proof of a bound without an objective",
        ),
        (lambda _: {"status": "infeasible"}, "status: infeasible with an objective"),
        (lambda _: {"status": "infeasible"}, "status: infeasible without infeasibility"),
        (lambda _: {"status": "timeout"}, "status: timeout without unplaced"),
        (lambda _: {"infeasibility": SimpleNamespace()}, "status: optimal with infeasibility"),
        (lambda _: {"unplaced": SimpleNamespace()}, "status: optimal with unplaced"),
        (
            lambda p: {"objective": p.objective.model_copy(update={"gap": 0.25})},
            "status: optimal, with a gap of 0.25",
        ),
    ],
)
def test_what_is_missing_or_too_much_is_said(placed: tuple[Plan, CostModel], what: Any, fault: str) -> None:
    """By its name, among what else follows from it."""
    found, model = placed
    assert found.status == "optimal"
    faults = shape_faults(changed(found, **what(found)), model)
    assert any(fault in each for each in faults), faults
