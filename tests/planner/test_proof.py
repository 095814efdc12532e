"""The proof of a bound: recomputed from the document alone, equal to the solver's, refused when it is tampered with."""

from typing import Any

import pytest

from cost_models.registry import cost_model
from planner.api import plan
from planner.document import Plan
from planner.options import build_problem, enumerate_options
from planner.policy import Policy
from planner.proof import recomputed_bound_s
from planner.verification import planned_inputs, verify
from tests.oracles.instances import node_group, tiny_instance, topology, workload


@pytest.fixture(scope="module")
def planned() -> Plan:
    """Two kinds of rank, memory scarce enough to have a price."""
    cluster = topology(
        node_group("a", ranks=4, hbm_bytes=0.9e9, ddr_bytes=20e9), node_group("b", ranks=2, hbm_bytes=0.5e9)
    )
    tables = [{"rows": 400_000 * (1 + i % 5), "dim": 64, "zipf_alpha": 1.05} for i in range(14)]
    return plan(cluster, workload(tables), effort=1, gap=0.0)


def with_changes(document: Plan, **changes: Any) -> Plan:
    return Plan.model_validate({**document.model_dump(mode="python"), **changes})


def violations(document: Plan) -> str:
    return "\n".join(verify(document))


def test_a_proof_is_recomputed_without_a_solver(planned: Plan) -> None:
    """The multipliers of the document prove its bound, and prices are among them."""
    assert verify(planned) == []
    assert planned.proof is not None
    assert planned.objective is not None
    assert planned.proof.byte_prices
    model = cost_model("physical", *planned_inputs(planned))
    problem = build_problem(model, enumerate_options(model, Policy()))
    found = recomputed_bound_s(planned.proof, model, problem)
    assert found == pytest.approx(planned.objective.lower_bound_s, rel=1e-6)
    assert found <= planned.objective.step_s


@pytest.mark.parametrize("model", ["torchrec", "hugectr"])
def test_every_cost_model_proves_its_bound(model: str) -> None:
    """Ratings have bounds with proofs, too, thresholds included."""
    cluster = topology(node_group("a", ranks=4, hbm_bytes=20e9))
    tables = [{"rows": 10_000 * (i + 1), "dim": 128, "pooling_factor": 3 * i + 1} for i in range(9)]
    found = plan(cluster, workload(tables), cost_model=model, effort=1, gap=0.0)
    assert found.proof is not None
    assert verify(found) == []


@pytest.mark.parametrize("seed", range(0, 60, 4))
def test_proofs_of_tiny_instances_hold(seed: int) -> None:
    """Any cluster, any policy, feasible or not: what the planner claims, `verify` accepts."""
    instance = tiny_instance(seed)
    found = plan(
        instance.model.topology,
        instance.model.workload,
        tiers=instance.policy.tiers,
        shardings=instance.policy.shardings,
        effort=1,
    )
    assert verify(found) == [], instance.description


def test_a_bound_above_what_is_proven_is_refused(planned: Plan) -> None:
    """Raising the bound to the step, with a gap to match, does not go unnoticed."""
    assert planned.objective is not None
    step_s = planned.objective.step_s
    raised = with_changes(planned, objective={"step_s": step_s, "lower_bound_s": step_s, "gap": 0.0})
    assert "its multipliers prove" in violations(raised)


def test_multipliers_that_are_no_proof_are_refused(planned: Plan) -> None:
    """Too much weight, negative prices, unknown resources, or no proof at all."""
    assert planned.proof is not None
    proof = planned.proof.model_dump()
    heavier = [{**weight, "share": 2.0 * weight["share"]} for weight in proof["weights"]]
    unknown = [{**proof["weights"][0], "resource": "magic"}, *proof["weights"][1:]]
    negative = [{**price, "seconds_per_byte": -1.0} for price in proof["byte_prices"]]
    assert "above 1" in violations(with_changes(planned, proof={**proof, "weights": heavier}))
    assert "does not exist" in violations(with_changes(planned, proof={**proof, "weights": unknown}))
    assert "negative" in violations(with_changes(planned, proof={**proof, "byte_prices": negative}))
    assert "without one" in violations(with_changes(planned, proof=None))


def test_a_claim_of_infeasibility_is_checked() -> None:
    """Its prices prove it; without them, or for tables that fit, it is refused."""
    cluster = topology(node_group("a", ranks=2, hbm_bytes=0.1e9, ddr_bytes=0.2e9))
    found = plan(cluster, workload([{"rows": 1_000_000, "dim": 64}] * 3))
    assert found.status == "infeasible"
    assert found.infeasibility is not None
    assert verify(found) == []
    reason = found.infeasibility.model_dump()
    assert "do not prove" in violations(with_changes(found, infeasibility={**reason, "byte_prices": []}))


def test_other_coefficients_are_named(planned: Plan) -> None:
    """A plan that was costed with numbers that this planner no longer has is not taken for its own."""
    origin = planned.provenance.model_dump()
    origin["coefficients"]["fingerprint"] = "sha256:other"
    assert "coefficients" in violations(with_changes(planned, provenance=origin))
