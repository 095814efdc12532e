"""The proof of a bound: recomputed from the document alone, equal to the solver's, refused when it is tampered with."""

from collections.abc import Callable
from typing import Any

import pytest

from cost_models.registry import cost_model
from planner.document.plan import Plan
from planner.document.planned import planned_inputs
from planner.formulation.formulation import Formulation
from planner.formulation.policy import Policy
from planner.planning.planning import plan
from planner.verification.protocol_proofs import proven_s
from planner.verification.verify import verify
from tests.oracles.instances import node_group, tiny_instance, topology, workload
from tests.seeds import seeds


@pytest.fixture(scope="module")
def planned() -> Plan:
    """Two kinds of rank, memory scarce enough to have a price."""
    cluster = topology(
        node_group("a", ranks=4, hbm_bytes=0.55e9, ddr_bytes=20e9), node_group("b", ranks=2, hbm_bytes=0.3e9)
    )
    tables = [{"rows": 400_000 * (1 + i % 5), "dim": 64, "zipf_alpha": 1.05} for i in range(8)]
    return plan(cluster, workload(tables), effort=0, gap=0.0)


def with_changes(document: Plan, **changes: Any) -> Plan:
    return Plan.model_validate({**document.model_dump(mode="python"), **changes})


def violations(document: Plan) -> str:
    return "\n".join(verify(document))


def test_a_proof_is_recomputed_without_a_solver(planned: Plan) -> None:
    """The multipliers of the document prove its bound, and prices are among them; branch nodes that the search did not
    look at any more may prove a little more."""
    assert verify(planned) == []
    assert planned.proof is not None
    assert planned.objective is not None
    assert planned.proof.memory_multipliers
    formulation = Formulation.of(cost_model("physical", *planned_inputs(planned)), Policy())
    found = proven_s(planned.proof, formulation)
    stated = planned.objective.lower_bound_s
    assert stated * (1 - 1e-9) <= found <= stated * 1.001
    assert found <= planned.objective.step_s


@pytest.mark.parametrize("model", ["torchrec", "hugectr"])
def test_every_cost_model_proves_its_bound(model: str) -> None:
    """Ratings have bounds with proofs, too, thresholds included."""
    cluster = topology(node_group("a", ranks=4, hbm_bytes=20e9))
    tables = [{"rows": 10_000 * (i + 1), "dim": 128, "pooling_factor": 3 * i + 1} for i in range(9)]
    found = plan(cluster, workload(tables), cost_model=model, effort=1, gap=0.0)
    assert found.proof is not None
    assert verify(found) == []


@pytest.mark.parametrize("seed", seeds((0, 12, 24, 36), (6, 30, 42, 48, 54)))
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


def test_nodes_hand_down_multipliers_as_they_are() -> None:
    """Ranks that are equal at one node need not be so at the nodes below it: what was found of these holds there."""
    found = plan("dgx-h100", "dlrm-dcnv2", cost_model="hugectr", effort=1, gap=1e-4)
    assert found.proof is not None
    assert found.proof.branching is not None
    assert verify(found) == []


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
    negative = [{**price, "seconds_per_byte": -1.0} for price in proof["memory_multipliers"]]
    assert "above 1" in violations(with_changes(planned, proof={**proof, "weights": heavier}))
    assert "does not exist" in violations(with_changes(planned, proof={**proof, "weights": unknown}))
    assert "negative" in violations(with_changes(planned, proof={**proof, "memory_multipliers": negative}))
    assert "without one" in violations(with_changes(planned, proof=None))


def test_a_claim_of_infeasibility_is_checked() -> None:
    """Its prices prove it; without them, or for tables that fit, it is refused."""
    cluster = topology(node_group("a", ranks=2, hbm_bytes=0.1e9, ddr_bytes=0.2e9))
    found = plan(cluster, workload([{"rows": 1_000_000, "dim": 64}] * 3))
    assert found.status == "infeasible"
    assert found.infeasibility is not None
    assert verify(found) == []
    reason = found.infeasibility.model_dump()
    assert "do not prove" in violations(with_changes(found, infeasibility={**reason, "memory_multipliers": []}))


def test_other_coefficients_are_named(planned: Plan) -> None:
    """A plan that was costed with numbers that this planner no longer has is not taken for its own."""
    origin = planned.provenance.model_dump()
    origin["coefficients"]["fingerprint"] = "sha256:other"
    assert "coefficients" in violations(with_changes(planned, provenance=origin))


@pytest.fixture(scope="module")
def by_branching() -> Plan:
    """Few tables, many ways to cut them: the bound is proven by branching."""
    cluster = topology(node_group("a", ranks=4), node_group("b", ranks=2, hbm_bytes=0.5e9))
    tables = [{"rows": 20_000 * (1 + i * i % 5), "dim": 64, "pooling_factor": 1 + 3 * i % 11} for i in range(4)]
    found = plan(cluster, workload(tables), gap=0.0, effort=0, simulate=False)
    assert found.proof is not None
    assert found.proof.branching is not None
    assert verify(found) == []
    return found


def with_nodes(document: Plan, change: Callable[[list[dict[str, Any]]], None]) -> Plan:
    """The plan with its nodes, as plain data, changed."""
    data = document.model_dump(mode="python")
    nodes = list(data["proof"]["branching"]["nodes"])
    change(nodes)
    data["proof"]["branching"]["nodes"] = nodes
    return Plan.model_validate(data)


def test_nodes_that_leave_something_out_are_refused(by_branching: Plan) -> None:
    """Without its last node, which is a leaf, the tree has a gap."""
    assert "left out" in violations(with_nodes(by_branching, lambda nodes: nodes.pop() and None))


def test_nodes_with_too_much_weight_are_refused(by_branching: Plan) -> None:
    """Weights above one in all would prove more than is true."""

    def heavier(nodes: list[dict[str, Any]]) -> None:
        stage, resource, _, _ = max(nodes[0]["weights"], key=lambda entry: entry[3])
        added = tuple((*entry[:3], entry[3] + (entry[:2] == (stage, resource))) for entry in nodes[0]["weights"])
        nodes[0] = {**nodes[0], "weights": added}

    assert "sum to more than 1" in violations(with_nodes(by_branching, heavier))


def test_nodes_of_another_table_are_refused(by_branching: Plan) -> None:
    """Branching on a table that does not exist, and by another one than the parts are of."""
    for name in ("nobody", "t0", "t1", "t2", "t3"):

        def divide(nodes: list[dict[str, Any]], name: str = name) -> None:
            nodes[0] = {**nodes[0], "branches_on": {**nodes[0]["branches_on"], "table": name}}

        assert by_branching.proof is not None
        assert by_branching.proof.branching is not None
        own = by_branching.proof.branching.nodes[0].branches_on
        assert own is not None
        assert ("proof: " in violations(with_nodes(by_branching, divide))) == (name != own.table)


def test_a_bound_above_what_the_nodes_prove_is_refused(by_branching: Plan) -> None:
    """Where the document says that the plan is optimal, and its nodes prove less."""
    assert by_branching.objective is not None
    step_s = by_branching.objective.step_s
    claim = {**by_branching.objective.model_dump(), "lower_bound_s": step_s, "gap": 0.0}
    assert "its multipliers prove" in violations(with_changes(by_branching, objective=claim))


def whole_tables(count: int, room: float) -> Plan:
    """So many like tables on three ranks, held whole in HBM, which takes `room` of them on each."""
    cluster = topology(node_group("a", ranks=3, hbm_bytes=room * 40_000 * 64 * 4, ddr_bytes=1e9))
    tables = [{"rows": 40_000, "dim": 64, "pooling_factor": 1 + i} for i in range(count)]
    trained = workload(tables, global_batch=48, embedding={"optimizer": "sgd"})
    return plan(cluster, trained, tiers=["hbm"], shardings=["table_wise"], gap=0.0)


def test_a_plan_below_what_was_tried_is_found() -> None:
    """Of a small problem every faster plan is tried again; one that is faster than the claim refutes it."""
    found = whole_tables(7, 10)
    assert found.status == "optimal"
    assert found.proof is not None
    assert found.objective is not None
    assert found.proof.exhaustive_search_s == pytest.approx(found.objective.step_s)
    assert verify(found) == []
    higher = found.proof.model_copy(update={"exhaustive_search_s": found.objective.step_s * 1.01})
    assert "are said to be tried" in violations(with_changes(found, proof=higher.model_dump()))


def test_nothing_fits_as_trying_everything_shows() -> None:
    """Five tables on three ranks with room for one and a half each: the memory suffices, the pieces do not pack."""
    found = whole_tables(5, 1.7)
    assert found.status == "infeasible"
    assert found.infeasibility is not None
    assert found.infeasibility.exhaustive_search
    assert "every way to place their pieces was tried" in found.infeasibility.summary
    assert verify(found) == []
    fits = whole_tables(5, 10)
    wrong = {**found.model_dump(mode="python"), "provenance": fits.provenance.model_dump(mode="python")}
    assert "does not show that none fits" in violations(Plan.model_validate(wrong))
