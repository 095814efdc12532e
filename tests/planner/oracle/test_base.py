"""What plans candidates are costed beside, and which are refused by name."""

import pytest

from planner import Policy, plan
from planner.document.planned import placed_shards, planned_model
from planner.errors import UnsoundPlanError
from planner.formulation.option_space import EVERY_CUT, EVERY_CUT_IN_HBM
from planner.oracle import Oracle
from tests.oracles.instances import node_group, topology, workload
from tests.planner.oracle.conftest import TABLES, case_of
from topologies.errors import InputError

SMALL = ((EVERY_CUT, 200), (EVERY_CUT_IN_HBM, 250))
"""Block types up to which spaces are searched, small enough for a test."""
GROUPS = {
    "kinds": [node_group("a"), node_group("b", hbm_bytes=2e9)],
    "cramped": [node_group("a", hbm_bytes=1e7, ddr_bytes=None)],
}


@pytest.mark.parametrize(
    ("groups", "asked", "words"),
    [
        ("kinds", {}, "nodes of several kinds"),
        ("cramped", {}, "places nothing"),
        ("", {"cost_model": "torchrec"}, "rated by torchrec"),
        ("", {"policy": Policy.model_validate({"replicas": {"factor": [2]}})}, "groups of ranks"),
        ("", {"policy": Policy.model_validate({"tables": [{"match": "t1", "ranks": "0-1"}]})}, "confines tables"),
        ("", {"policy": Policy.model_validate({"exchange": "auto"})}, "leaves it open"),
        ("", {"policy": Policy.model_validate({"dense": {"strategy": "auto"}})}, "may shard the dense part"),
    ],
)
def test_other_plans_are_refused(groups, asked, words):
    """By what they are, with what to plan instead."""
    cluster = topology(*GROUPS.get(groups, [node_group("a", nodes=2)]))
    made = plan(cluster, workload(TABLES[:3]), effort=0, simulate=False, **asked)
    with pytest.raises(InputError, match=words):
        Oracle(made)


def test_mixed_dimensions_are_refused():
    """A width that follows from all tables is no field of one; what to state instead is said."""
    tables = [table | {"dim": 64} for table in TABLES[:3]]
    rule = {"mixed_dimensions": {"alpha": 0.3}}
    made = plan(topology(node_group("a")), workload(tables, embedding=rule), effort=0, simulate=False)
    with pytest.raises(InputError, match=r"has mixed_dimensions, .* as the compressor of each table \(dim:D\)"):
        Oracle(made)


def test_multipliers_that_prove_nothing_are_refused():
    """Weights of a stage that sum to more than one are no proof, of the plan or of a candidate."""
    made = case_of("torchrec").plan
    weights = tuple(each.model_copy(update={"share": 2 * each.share}) for each in made.proof.weights)
    forged = made.model_copy(update={"proof": made.proof.model_copy(update={"weights": weights})})
    with pytest.raises(UnsoundPlanError, match="above 1"):
        Oracle(forged)


def test_a_candidate_with_more_ways_to_cut_is_refused(monkeypatch):
    """Where bounds are of few cuts, a model that is small enough for more of them is no candidate."""
    monkeypatch.setattr("planner.oracle.base.WIDEST_BLOCKS", 0)
    monkeypatch.setattr("planner.formulation.options.MOST_BLOCKS", SMALL)
    monkeypatch.setattr("planner.oracle.base.MOST_BLOCKS", SMALL)
    made = plan(topology(node_group("a", nodes=2)), workload(TABLES), effort=0, simulate=False)
    oracle = Oracle(made)
    assert oracle.cost({"t0.rows": [1_000]}).lower_bound_s[0] > 0
    with pytest.raises(InputError, match="more ways to cut"):
        oracle.cost({"t0.present": [False], "t2.present": [False], "t4.present": [False]})


def test_proofs_of_plans_with_and_without_sums_around_all_ranks_are_used():
    """Beside proofs at every choice of protocols that a plan of four nodes may take, bounds stay below what is proven
    of the same tables planned anew."""
    made = plan(topology(node_group("a", nodes=4)), workload(TABLES), effort=0, simulate=False)
    stages = made.proof.protocols
    model = planned_model(made)
    assert model.exchanged.rings
    others = [
        made.proof.model_copy(update={"protocols": dict(zip(stages, numbers, strict=True)), "at_other_protocols": ()})
        for numbers in model.all_protocols
        if numbers != model.linearised_at(placed_shards(made)).protocols
    ]
    proven = made.model_copy(update={"proof": made.proof.model_copy(update={"at_other_protocols": tuple(others)})})
    (bound,) = Oracle(proven).cost({"name": ["same"]}).lower_bound_s
    assert 0.9 * made.objective.lower_bound_s <= bound <= made.objective.lower_bound_s
