"""Plans for groups of ranks: chosen, written, verified, and refused with a reason."""

import json
from typing import Any

import pytest

import planner
from cost_models.workload.models import Workload
from planner.document.all_ranks import on_all_ranks
from planner.document.migration import migration_from
from planner.document.plan import Plan
from planner.document.planned import planned_model
from planner.document.traffic import moved_bytes_of_tables
from planner.formulation.policy import Policy
from planner.formulation.replica_choices import candidates
from planner.planning.planning import plan
from planner.verification.verify import verify
from tests.oracles.instances import workload
from topologies.cluster import Topology
from topologies.errors import InputError
from topologies.loading import load_topology


def cluster(nodes: int = 2) -> Topology:
    return load_topology("dgx-h100", nodes=nodes)


def trained(**fields: Any) -> Workload:
    profiles = [{"rows": 200_000 * (i + 1), "dim": 64} for i in range(12)]
    return workload(profiles, **{"software": "torchrec", "global_batch": 16384, **fields})


def planned(replicas: dict[str, Any] | None, nodes: int = 2, **more: Any) -> Plan:
    policy = Policy.model_validate({"runtime": "torchrec"} | ({} if replicas is None else {"replicas": replicas}))
    return plan(cluster(nodes), trained(), policy=policy, effort=0, simulate=False, **more)


def test_one_world_by_a_policy_is_one_world() -> None:
    """`factor: 1` gives the placement, figures and proof of a policy without replicas."""
    without, one = planned(None), planned({"factor": 1})
    assert one.replicas is not None
    assert one.replicas.factor == 1
    assert (one.objective, one.tables, one.stages, one.proof) == (
        without.objective,
        without.tables,
        without.stages,
        without.proof,
    )
    assert without.replicas is None
    assert '"replicas"' not in without.to_json()


def test_what_means_nothing_to_one_world_is_said() -> None:
    """A warning, as a study may vary the factor beside one interval."""
    found = planned({"factor": 1, "sync_every": 50})
    assert verify(found) == []
    (warning,) = found.provenance.warnings
    assert warning == "replicas: factor 1 is one world of ranks, which sync_every does not concern"
    assert planned({"factor": 1}).provenance.warnings == ()


def test_the_best_choice_is_taken_and_the_others_say_why_not() -> None:
    """As planning each choice apart finds; a bound that rejects another is one on that choice's own plan."""
    chosen = planned({"factor": [1, 2, 4], "sync_every": 1000})
    assert chosen.replicas is not None
    assert verify(chosen) == []
    apart = {
        (factor, layout): planned({"factor": factor, "layout": layout, "sync_every": 1000})
        for factor, layout in [(1, "intra"), (2, "intra"), (2, "inter"), (4, "intra")]
    }
    steps = {key: each.objective.step_s for key, each in apart.items() if each.objective is not None}
    assert chosen.objective is not None
    assert chosen.objective.step_s == min(steps.values())
    others = {(each.factor, each.layout or "intra"): each for each in chosen.replicas.others}
    assert set(others) == set(steps) - {(chosen.replicas.factor, chosen.replicas.layout or "intra")}
    for key, other in others.items():
        assert other.lower_bound_s is not None
        assert other.lower_bound_s <= steps[key]
        if other.rejected == "bound":
            assert other.lower_bound_s >= chosen.objective.step_s
        else:
            assert other.step_s == steps[key]


def test_a_long_interval_makes_copies_worth_their_averaging() -> None:
    """Averaged each step they lose, averaged never so often they win what exchanges save, or nothing."""
    often, seldom = (
        planned({"factor": 2, "layout": "intra"}),
        planned({"factor": 2, "layout": "intra", "sync_every": 10**6}),
    )
    assert often.objective is not None
    assert seldom.objective is not None
    assert seldom.objective.step_s < often.objective.step_s


def test_a_plan_of_groups_survives_its_file_and_tampering_does_not() -> None:
    """Read back it verifies; other groups, intervals or layouts than the policy's or the figures' do not."""
    whole = planned({"factor": [1, 2], "layout": "intra", "sync_every": 10**6})
    assert whole.replicas is not None
    assert verify(Plan.model_validate_json(whole.to_json())) == []

    def faults(**changes: Any) -> list[str]:
        document = json.loads(whole.to_json())
        document["replicas"] |= changes
        return verify(Plan.model_validate(document))

    if whole.replicas.factor == 2:
        assert faults(layout="inter")
        assert faults(sync_every=7, state_every=7)
        assert faults(factor=4)
    assert faults(group_ranks=3)
    assert faults(others=[])
    document = json.loads(whole.to_json())
    del document["replicas"]
    with_none = Plan.model_validate(document)
    assert verify(with_none)


def test_candidates_are_those_that_the_cluster_divides_into() -> None:
    """auto: all of them, in each layout; a stated number that does not go in is refused with the numbers."""
    choices = Policy.model_validate({"replicas": {"factor": "auto"}}).replicas
    found = [
        (1, None) if each is None else (each.factor, each.layout) for each in candidates(choices, cluster(), trained())
    ]
    assert found == [(1, None), (2, "intra"), (2, "inter"), (4, "intra"), (8, "intra")]
    with pytest.raises(InputError, match="16 ranks are no multiple of 3"):
        planned({"factor": 3})


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"tiers": ["ddr"], "replicas": {"factor": 2, "layout": "intra"}}, "which are in HBM"),
        ({"runtime": "hugectr", "replicas": {"factor": 2}}, "HugeCTR"),
        ({"replicas": {"factor": 0}}, "greater than or equal to 1"),
        ({"replicas": {"factor": 2, "strategy": "fully_sharded", "sync_every": 3}}, "leave out sync_every"),
    ],
)
def test_what_copies_cannot_be_is_refused(policy: dict[str, Any], words: str) -> None:
    """By name, before anything is searched."""
    given = trained() if "runtime" not in policy else trained().model_copy(update={"software": "hugectr"})
    with pytest.raises((InputError, ValueError), match=words):
        plan(cluster(), given, policy=Policy.model_validate(policy), effort=0)


def test_an_optimizer_that_dmp_collection_cannot_average_is_refused() -> None:
    """Adam keeps no state called sum."""
    adam = trained(embedding={"optimizer": "adam"})
    policy = Policy.model_validate({"runtime": "torchrec", "replicas": {"factor": 2}})
    with pytest.raises(InputError, match="DMPCollection averages the optimizer state called sum, which adam has not"):
        plan(cluster(), adam, policy=policy, effort=0)


def test_other_cost_models_and_other_groups_do_not_compare() -> None:
    """They say so."""
    policy = Policy.model_validate({"replicas": {"factor": 2, "layout": "intra"}})
    with pytest.raises(InputError, match="knows one world of ranks"):
        plan(cluster(), trained(), policy=policy, cost_model="torchrec", effort=0)
    with pytest.raises(InputError, match=r"is for one world, the new one for 2 replicas \(intra\)"):
        plan(cluster(), trained(), policy=policy, previous=planned(None), effort=0)
    with pytest.raises(InputError, match=r"is for one world, the new one for 2 replicas \(intra\)"):
        planned({"factor": [2, 4]}, previous=planned(None))
    kept = planned({"factor": [2, 1]}, previous=planned(None))
    assert kept.replicas is not None
    assert kept.replicas.factor == 1
    assert verify(kept) == []
    assert planner.plan is plan


def test_groups_lose_a_node() -> None:
    """What moves is what moves on all ranks, and what no rank has any more is what both copies on that node were;
    where it is one group that lacks a node, that is refused."""
    groups = {"factor": 2, "layout": "intra", "sync_every": 20}
    before = planned(groups, nodes=4)
    after = planned(groups, nodes=2, previous=before, lost_nodes=[0, 2])
    assert after.moves is not None
    assert verify(after, before) == []
    whole = on_all_ranks(after)
    migration = migration_from(on_all_ranks(before), planned_model(whole), [0, 2])
    moved = moved_bytes_of_tables(migration, whole.tables).sum()
    assert 2 * after.moves.moved_bytes == pytest.approx(moved, abs=64)
    assert 0 < after.moves.lost_bytes <= after.moves.moved_bytes
    apart = groups | {"layout": "inter"}
    with pytest.raises(InputError, match=r"each of its groups is nodes of its own.*plan again"):
        planned(apart, nodes=2, previous=planned(apart, nodes=4), lost_nodes=[0])


def test_groups_are_planned_anew_within_what_may_move() -> None:
    """On twice the nodes, of every group as much: the limit is of all groups together."""
    groups = {"factor": 2, "layout": "intra", "sync_every": 20}
    before = planned(groups)
    limit = 400_000_000
    after = planned(groups, nodes=4, previous=before, max_move_bytes=limit)
    assert after.moves is not None
    assert after.moves.limit_bytes == limit // 2
    assert 0 < after.moves.moved_bytes <= limit // 2
    assert verify(after, before) == []
    free, anew = planned(groups, nodes=4, previous=before, max_move_bytes=10**12), planned(groups, nodes=4)
    assert free.objective is not None
    assert after.objective is not None
    assert anew.objective is not None
    assert anew.objective.lower_bound_s <= free.objective.step_s <= after.objective.step_s


def test_where_nothing_fits_every_choice_says_so() -> None:
    """The plan is that of the fewest copies, with its reason, and verifies."""
    small = load_topology("dgx-h100", nodes=2, overrides=["nodes.0.accelerators.hbm.capacity=60MB"])
    policy = Policy.model_validate({"runtime": "torchrec", "tiers": ["hbm"], "replicas": {"factor": [1, 2]}})
    found = plan(small, trained(), policy=policy, effort=0, simulate=False)
    assert found.status == "infeasible"
    assert found.replicas is not None
    assert found.replicas.factor == 1
    assert {each.rejected for each in found.replicas.others} == {"infeasible"}
    assert verify(found) == []


@pytest.mark.parametrize("by", ["workload", "policy"])
def test_a_precision_cache_is_refused(by: str) -> None:
    """Averaging would miss the rows that it has not written back."""
    rules: dict[str, Any] = {"replicas": {"factor": 2, "layout": "intra"}}
    tables = [{"rows": 100_000, "dim": 64, "dtype": "fp16"} for _ in range(4)]
    if by == "workload":
        tables[0]["precision_cache"] = 0.1
    else:
        rules["precision_caches"] = [0.1]
    given = workload(tables, software="torchrec", global_batch=16384)
    with pytest.raises(InputError, match="precision cache has not written back"):
        plan(cluster(), given, policy=Policy.model_validate(rules), effort=0)
