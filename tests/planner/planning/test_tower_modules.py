"""Modules in towers are proposed where a plan with them is shorter, and nowhere else; they are never taken."""

import io

from rich.console import Console

from cost_models.workload.models import Workload
from planner import plan
from planner.diagnosis.explanation import Explainer
from planner.document.plan import Plan
from planner.formulation.policy import Policy
from planner.planning.tower_modules import with_tower_modules
from planner.reports.explanation import render_plan
from planner.reports.explanation_records import plan_document
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology

CLUSTER = topology(node_group("a", nodes=4, ranks=2, nic_bytes_per_s=5e9))
TABLES = [{"rows": 20_000 * (i + 1), "dim": 64, "pooling_factor": 5.0} for i in range(8)]


def trained(**given: object) -> Workload:
    return workload(TABLES, **{"global_batch": 2**17, "overhead": "100us", "pipeline": "none", **given})


def planned(exchange: str, at: Topology = CLUSTER, **given: object) -> Plan:
    policy = Policy(exchange=exchange, shardings=("table_wise", "table_row_wise"))  # type: ignore[arg-type]
    return plan(at, trained(**given), policy=policy, effort=0, gap=0.05, simulate=False)


def _step_s(found: Plan) -> float:
    assert found.objective is not None
    return found.objective.step_s


def test_what_is_told_is_the_step_of_a_plan_with_modules() -> None:
    """Planned by itself, the other model has that step or less, and the plan explained has no modules."""
    found = planned("auto")
    modules = with_tower_modules(found)
    assert modules is not None
    assert modules.step_s < _step_s(found)
    assert "towers" not in found.provenance.workload.content
    others = {
        count: _step_s(planned("sptt", towers={"count": count, "module": "linear", "compression": 2}))
        for count in (4, 2)
    }
    assert modules.towers == min(others, key=others.__getitem__)
    assert others[modules.towers] <= modules.step_s * 1.02
    console = Console(width=200, file=io.StringIO())
    reasons = Explainer(found).plan()
    render_plan(found, reasons, console, modules=modules)
    said = f"With a module in each tower (linear, compression 2, {modules.towers} towers) the step would be at most"
    assert said in console.file.getvalue()  # type: ignore[attr-defined]
    assert plan_document(found, reasons, modules=modules)["tower_modules"] == vars(modules)
    assert "tower_modules" not in plan_document(found, reasons)


def test_nothing_is_told_where_there_is_nothing_to_say() -> None:
    """Where the exchange is not open, on one node, of a model with towers, and where modules cost more than they
    save."""
    assert with_tower_modules(planned("flat")) is None
    assert with_tower_modules(planned("auto", topology(node_group("a")))) is None
    assert with_tower_modules(planned("auto", towers={"count": 4, "module": "none"})) is None
    assert with_tower_modules(planned("auto", global_batch=64)) is None
