"""Models with towers: planned on the hosts of their towers, verified, refused where the cluster or the exchange lacks
them."""

from typing import Any

import pytest

from planner import plan
from planner.diagnosis.explanation import Explainer
from planner.document.plan import Plan
from planner.formulation.policy import Policy
from planner.reports.memory import of_inputs, of_plan
from planner.verification.verify import verify
from tests.oracles.agreement import expect_near_simulation
from tests.oracles.instances import node_group, topology, workload
from topologies.errors import InputError

TABLES = [{"rows": 50_000 * (i + 1), "dim": 64, "pooling_factor": 5.0} for i in range(6)]
DENSE = {"numerical_features": 13, "bottom_mlp": [64], "top_mlp": [256, 1], "interaction": "dcn"}
HOSTS, RANKS = 3, 2
CLUSTER = topology(node_group("a", nodes=HOSTS, ranks=RANKS))
MODULES: dict[str, Any] = {"count": HOSTS, "module": "dcn", "width": 32, "group": {"t0": 2}}


def planned(towers: dict[str, Any] | None, policy: Policy, **given: Any) -> Plan:
    fields = {"towers": towers} if towers else {}
    trained = workload(TABLES, dense=DENSE, global_batch=16_384, **fields)
    return plan(CLUSTER, trained, policy=policy, effort=0, gap=0.05, **given)


@pytest.fixture(scope="module")
def found() -> Plan:
    """With modules, the exchange left open."""
    return planned(MODULES, Policy(exchange="auto"))


def test_modules_are_planned_through_towers(found: Plan) -> None:
    """`auto` means SPTT; the plan verifies, and the simulated step is near."""
    assert found.provenance.exchange == "sptt"
    assert found.other_exchange is None
    assert verify(found) == []
    expect_near_simulation(found, 0.05)
    assert {"tower_forward", "tower_backward"} < {stage.name for stage in found.stages}
    reasons = Explainer(found).plan().exchange
    assert reasons is not None
    assert reasons.only == "modules of towers work between its two exchanges"


def test_tables_stay_in_their_towers(found: Plan) -> None:
    """All shards of a table on one host, the tables of a tower on the same one; a table that is told goes where."""
    hosts = [set((table.shards.rank // RANKS).tolist()) for table in found.tables]
    assert all(len(of_table) == 1 for of_table in hosts)
    assert hosts[0] == {2}
    parts = workload(TABLES, towers=MODULES, dense=DENSE).tower_parts
    assert [hosts[table] for part in parts for table in part.tables] == [
        {number} for number, part in enumerate(parts) for _ in part.tables
    ]


def test_a_table_of_another_host_is_found(found: Plan) -> None:
    """By `verify`, with the tower."""
    document = found.model_dump(mode="json")
    for shard in document["tables"][0]["shards"]:
        shard["rank"] = (shard["rank"] + RANKS) % (HOSTS * RANKS)
    assert any("tower 2 of the workload" in text for text in verify(Plan.model_validate(document)))


def test_towers_without_modules_keep_the_model() -> None:
    """Any exchange will do; tables stay on their hosts, and no step is shorter for it."""
    free = planned(None, Policy(), simulate=False)
    kept = planned({"count": HOSTS}, Policy(), simulate=False)
    assert verify(kept) == []
    assert kept.objective is not None
    assert free.objective is not None
    assert kept.objective.step_s >= free.objective.lower_bound_s * (1 - 1e-9)
    assert all(len(set((table.shards.rank // RANKS).tolist())) == 1 for table in kept.tables)


def test_modules_shorten_the_exchange_among_peers(found: Plan) -> None:
    """A sixth of the columns leave a host."""
    without = planned({"count": HOSTS}, Policy(exchange="sptt"), simulate=False)
    seconds = [{stage.name: stage.seconds for stage in each.stages} for each in (found, without)]
    assert seconds[0]["output_dist"] < seconds[1]["output_dist"]


@pytest.mark.parametrize(
    ("towers", "policy", "given", "words"),
    [
        (MODULES, Policy(), {}, "plan with --exchange sptt"),
        (MODULES | {"count": 2}, Policy(exchange="sptt"), {}, "give a count of towers that divides 3"),
        ({"count": 2}, Policy(), {}, "3 scale-up domains, no multiple of 2"),
        (MODULES, Policy(exchange="sptt", replicas={"factor": 2}), {}, "gradients of modules over groups of ranks"),
        (MODULES, Policy(), {"cost_model": "torchrec"}, "knows no modules"),
        (MODULES, Policy(runtime="torchrec", exchange="auto"), {}, "plan with --exchange sptt"),
    ],
)
def test_what_cannot_be_is_refused(towers: dict[str, Any], policy: Policy, given: dict[str, Any], words: str) -> None:
    """Modules and the flat exchange, towers of unequal hosts, groups of ranks, ratings, runtimes."""
    groupless = {key: value for key, value in towers.items() if key != "group"}
    with pytest.raises(InputError, match=words):
        planned(groupless, policy, simulate=False, **given)


def test_memory_has_the_modules(found: Plan) -> None:
    """Parameters of a module are on every rank; the same question before anything is planned has an answer, too."""
    plain = workload(TABLES, dense=DENSE, global_batch=16_384)
    towers = workload(TABLES, dense=DENSE, global_batch=16_384, towers=MODULES)
    assert of_inputs(CLUSTER, towers) != of_inputs(CLUSTER, plain)
    assert of_plan(found)


def test_nothing_fits_has_remedies_that_keep_the_towers() -> None:
    """More hosts are one where each tower gets as many more."""
    small = topology(node_group("a", nodes=HOSTS, ranks=RANKS, hbm_bytes=2e7))
    trained = workload(TABLES, dense=DENSE, global_batch=16_384, towers=MODULES)
    none = plan(small, trained, policy=Policy(exchange="sptt"), tiers=["hbm"], effort=0, simulate=False)
    assert none.status == "infeasible"
    assert none.infeasibility is not None
    flags = [remedy.flags or "" for remedy in none.infeasibility.remedies]
    (more,) = (int(each.removeprefix("--nodes ")) for each in flags if each.startswith("--nodes"))
    assert more > HOSTS
    assert more % HOSTS == 0
