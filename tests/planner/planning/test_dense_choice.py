"""Strategies of the dense part: chosen by the step, told in the plan, verified, simulated and exported."""

from typing import Any

import pytest

from cost_models.dense_size import dense_size
from cost_models.step import StepModel
from cost_models.workload.models import Workload
from planner.document.plan import Plan
from planner.exporters.formats import FORMATS, ExportRequest
from planner.exporters.torchrec import torchrec_constraints
from planner.formulation.dense_choices import DenseChoices, with_sharding
from planner.formulation.formulation import Formulation
from planner.formulation.policy import Policy
from planner.planning.planning import plan
from planner.reports.memory import of_plan
from planner.verification.verify import verify
from tests.oracles.brute_force import optimum
from tests.oracles.instances import node_group, topology, workload
from tests.oracles.wukong import dgx_h100, wukong
from topologies.cluster import Topology
from topologies.errors import InputError

ONE_NODE = topology(node_group("a", ranks=4, hbm_bytes=4e9))
TWO_NODES = topology(node_group("a", nodes=2, ranks=4, hbm_bytes=4e9))
EVERY = [{"strategy": "replicate"}, *({"strategy": word} for word in ("zero1", "zero2", "fsdp"))]


def _tiny(**dense: Any) -> Workload:
    fields = {
        "numerical_features": 8,
        "bottom_mlp": [512, 64],
        "top_mlp": [4096, 4096, 1],
        "optimizer": "adam",
        **dense,
    }
    return workload([{"rows": 20_000, "dim": 64}, {"rows": 90_000, "dim": 64}], dense=fields)


def _planned(cluster: Topology, model: Workload, dense: dict[str, str] | None) -> Plan:
    policy = Policy.model_validate({} if dense is None else {"dense": dense})
    return plan(cluster, model, policy=policy, effort=0, solver="search", simulate=False)


@pytest.mark.parametrize("cluster", [ONE_NODE, TWO_NODES], ids=["1", "2"])
def test_auto_is_the_best_of_all_strategies(cluster: Topology) -> None:
    """Planned one by one, none is faster, and the bound of each that is not planned is above its step."""
    chosen = _planned(cluster, _tiny(), {"strategy": "auto"})
    over = ("world", "node") if cluster.node_count > 1 else ("world",)
    asked = [EVERY[0], *({**each, "over": ranks} for each in EVERY[1:] for ranks in over)]
    steps = {str(each): _planned(cluster, _tiny(), each).objective.step_s for each in asked}  # type: ignore[union-attr]
    assert chosen.objective is not None
    assert chosen.dense is not None
    assert chosen.objective.step_s == min(steps.values())
    assert chosen.objective.lower_bound_s <= min(steps.values())
    assert len(chosen.dense.others) == len(steps) - 1
    assert all((other.lower_bound_s or 0) <= max(steps.values()) for other in chosen.dense.others)
    assert verify(chosen) == []


@pytest.mark.parametrize("hbm_bytes", [0.4e9, 1e9])
def test_auto_is_the_optimum_over_strategies_and_placements(hbm_bytes: float) -> None:
    """By brute force over every placement under every strategy; in the smaller memory not all of them fit."""
    cluster = topology(node_group("a", nodes=2, ranks=2, hbm_bytes=hbm_bytes))
    policy = Policy.model_validate({"tiers": ["hbm"], "shardings": ["table_wise", "row_wise"]})
    optima = []
    for sharding in DenseChoices().listed():
        model = StepModel(cluster, with_sharding(_tiny(), sharding))
        formulation = Formulation.of(model, policy)
        at_each = [optimum(formulation.at_protocols(lines).problem) for lines in model.all_protocols]
        optima += [model.whole_step_s(found.step_s) for found in at_each if found is not None]
    chosen = plan(cluster, _tiny(), policy=policy.model_copy(update={"dense": DenseChoices()}), gap=0.0, effort=1)
    assert chosen.objective is not None
    assert chosen.objective.step_s == pytest.approx(min(optima), rel=1e-9)
    assert chosen.objective.lower_bound_s <= min(optima) * (1 + 1e-9)


def test_a_policy_that_says_nothing_keeps_every_byte() -> None:
    """A plan without the key, and one that says replicate, differ in nothing but that word."""
    silent, said = _planned(TWO_NODES, _tiny(), None), _planned(TWO_NODES, _tiny(), {"strategy": "replicate"})
    assert silent.dense is None
    assert '"dense":{"strategy"' not in silent.to_json()
    assert (silent.tables, silent.ranks, silent.objective) == (said.tables, said.ranks, said.objective)


@pytest.mark.parametrize("strategy", ["zero1", "zero2", "fsdp"])
def test_ranks_hold_what_zero_says(strategy: str) -> None:
    """Adam in fp32 beside tf32: 16 bytes a parameter, of which the stages of ZeRO shard 8, 12 and 16 over the ranks."""
    model = _tiny()
    found = _planned(TWO_NODES, model, {"strategy": strategy})
    parameters = dense_size(model).parameters
    sharded = {"zero1": 8, "zero2": 12, "fsdp": 16}[strategy]
    (record,) = [each for each in of_plan(found) if each["part"] == "dense parameters, gradients, state"]
    assert record["hbm_bytes"] == pytest.approx(8 * parameters * (16 - sharded + sharded / 8), rel=1e-9)
    assert verify(found) == []
    assert found.dense is not None
    lied = found.model_copy(update={"dense": found.dense.model_copy(update={"strategy": "replicate"})})
    assert any("dense: is replicate" in fault for fault in verify(lied))


@pytest.mark.slow
def test_a_wukong_that_fills_hbm_is_refused_replicated_and_sharded_by_choice() -> None:
    """Five wide layers, of 120 GFLOP a training sample and 20 B parameters, on 128 H100: replicated it is proven
    not to fit, with the flag that helps; auto takes fsdp, and the step is the dense part's."""
    cluster, model = dgx_h100(16), wukong((32_768,) * 4, count=5)
    assert dense_size(model).parameters == pytest.approx(20e9, rel=0.01)
    replicated = _planned(cluster, model, {"strategy": "replicate"})
    assert replicated.infeasibility is not None
    assert "--dense fsdp" in {remedy.flags for remedy in replicated.infeasibility.remedies}
    chosen = _planned(cluster, model, {"strategy": "auto"})
    assert chosen.objective is not None
    assert chosen.dense is not None
    assert chosen.dense.strategy == "fsdp"
    assert {other.rejected for other in chosen.dense.others if other.strategy == "replicate"} == {"infeasible"}
    stages = {stage.name: stage.seconds for stage in chosen.stages}
    assert stages["dense"] > 0.8 * chosen.objective.step_s
    assert verify(chosen) == []


def test_a_plan_that_does_not_fit_names_the_flag() -> None:
    """Tables fit nowhere beside 3 GB of dense states; sharded they do."""
    model = _tiny(top_mlp=[16_384, 16_384, 1])
    short = plan(ONE_NODE, model, effort=0, solver="search")
    assert short.infeasibility is not None
    assert "--dense" in {(remedy.flags or "").split(" ")[0] for remedy in short.infeasibility.remedies}
    assert _planned(ONE_NODE, model, {"strategy": "fsdp"}).objective is not None


@pytest.mark.parametrize(
    ("hbm_bytes", "asked", "stated", "flags"),
    [
        (4e9, {"strategy": "replicate"}, None, "--dense zero1"),
        (2.7e9, {"strategy": "zero1", "over": "node"}, None, "--dense zero1"),
        (2.7e9, None, {"strategy": "fsdp"}, "--set workload.dense.sharding.strategy=zero1"),
        (2.7e9, {"strategy": "auto"}, {"strategy": "fsdp"}, "--set workload.dense.sharding.strategy=zero1"),
        (
            3e9,
            None,
            {"strategy": "fsdp", "over": "node"},
            "--set workload.dense.sharding.strategy=zero1 --set workload.dense.sharding.over=world",
        ),
    ],
)
def test_a_strategy_that_does_not_fit_names_one_that_does(
    hbm_bytes: float, asked: dict[str, str] | None, stated: dict[str, str] | None, flags: str
) -> None:
    """One that takes fewer bytes, by a flag instead of the policy's, or in the workload where that states it. A dense
    part of one unit takes fewest as ZeRO-1: what is gathered is all of it."""
    model = _tiny(top_mlp=[16_384, 16_384, 1], sharding=stated)
    short = _planned(topology(node_group("a", nodes=2, ranks=4, hbm_bytes=hbm_bytes)), model, asked)
    assert short.infeasibility is not None
    assert [each.flags for each in short.infeasibility.remedies if each.change == "dense"] == [flags]
    assert verify(short) == []


def test_where_no_strategy_fits_the_leanest_says_what_would() -> None:
    """Remedies are those of the strategy that takes the fewest bytes, and what they name makes auto fit. Layers
    that may be cut fit without."""
    model, cluster = _tiny(top_mlp=[16_384, 16_384, 1]), topology(node_group("a", ranks=4, hbm_bytes=2e9))
    short = _planned(cluster, model, {"strategy": "auto", "by": "whole"})
    cut = _planned(cluster, model, {"strategy": "auto"})
    assert cut.dense is not None
    assert {rule.cut for rule in cut.dense.layers} & {"columns", "rows"}
    assert [other.rejected for other in cut.dense.others] == ["infeasible"] * 4
    assert verify(cut) == []
    assert short.dense is not None
    assert short.dense.strategy == "zero1"
    assert [other.rejected for other in short.dense.others] == ["infeasible"] * 3
    assert short.infeasibility is not None
    (memory,) = (each for each in short.infeasibility.remedies if each.change == "hbm")
    assert memory.value is not None
    enough = float(memory.value.removesuffix("MiB")) * 2**20
    roomier = topology(node_group("a", ranks=4, hbm_bytes=enough))
    helped = _planned(roomier, model, {"strategy": "auto", "by": "whole"})
    assert helped.objective is not None
    assert verify(short) == []


def test_what_cannot_be_had_is_refused_by_name() -> None:
    """Workloads that answer, other software, one rank, copies of tables, and two strategies at once."""
    cases: list[tuple[Topology, dict[str, Any], dict[str, Any], str]] = [
        (TWO_NODES, {"mode": "inference"}, {}, "answers and does not train"),
        (TWO_NODES, {"software": "hugectr"}, {}, "reduces dense gradients after the backward pass"),
        (TWO_NODES, {}, {"replicas": {"factor": 2}}, "plans with replicas have a replicated dense part"),
    ]
    for cluster, changed, policy, words in cases:
        asked, model = Policy.model_validate({"dense": {"strategy": "fsdp"}} | policy), _tiny()
        with pytest.raises(InputError, match=words):
            plan(cluster, model.model_copy(update=changed), policy=asked)
    stated = _tiny(sharding={"strategy": "zero1"})
    with pytest.raises(InputError, match="the workload states zero1 over world"):
        _planned(TWO_NODES, stated, {"strategy": "fsdp"})
    with pytest.raises(InputError, match="torchrec rates tables alone"):
        plan(TWO_NODES, stated, cost_model="torchrec")


def test_torchrec_is_told_how_to_wrap_it() -> None:
    """FSDP2 with a mesh of nodes and ranks, in a document beside the ShardingPlan; constraints refuse it."""
    found = _planned(TWO_NODES, _tiny(), {"strategy": "fsdp", "over": "node"})
    tables, held = (FORMATS[name].export(ExportRequest(found, "plan")) for name in ("torchrec", "fsdp2"))
    assert any("planned as fsdp over node" in note for note in tables.notes)
    assert held.document is not None
    assert held.document["api"] == "fully_shard"
    assert held.document["mesh"] == {"shape": [2, 4], "dim_names": ["replicate", "shard"]}
    assert held.document["units"] == {"bottom_mlp": True, "top_mlp": True}
    with pytest.raises(InputError, match="nothing that a file of constraints says"):
        torchrec_constraints(found)
    kept = FORMATS["fsdp2"].export(ExportRequest(_planned(TWO_NODES, _tiny(), {"strategy": "zero2"}), "plan"))
    assert kept.document is not None
    assert set(kept.document["units"].values()) == {False}
    replicated = FORMATS["fsdp2"].export(ExportRequest(_planned(TWO_NODES, _tiny(), None), "plan"))
    assert replicated.document is not None
    assert replicated.document["api"] == "ddp"
    theirs = plan(TWO_NODES, _tiny().model_copy(update={"software": "hugectr"}), effort=0)
    with pytest.raises(InputError, match="hugectr, which trains the dense part itself"):
        FORMATS["fsdp2"].export(ExportRequest(theirs, "plan"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"software": "hugectr"}, "shards no dense part; use torchrec"),
        ({"mode": "inference"}, "answers and does not train"),
        ({"optimizer": "shampoo"}, "shampoo keeps blocks of whole matrices"),
    ],
)
def test_auto_says_where_there_is_one_strategy_alone(given: dict[str, Any], words: str) -> None:
    """By name and with a remedy, in the plan's warnings, which `verify` recomputes; of checkpointing, too."""
    layers = [{"kind": "embeddings", "tables": "*"}, {"kind": "mlp", "name": "m", "sizes": [64, 1]}]
    dense = {"layers": layers} | {key: given[key] for key in given if key == "optimizer"}
    more = {key: given[key] for key in given if key != "optimizer"}
    asked = workload([{"rows": 10_000, "dim": 32}] * 2, dense=dense, **more)
    policy = Policy.model_validate({"dense": {"strategy": "auto"}, "checkpointing": "auto"})
    found = plan(topology(node_group("a", ranks=2)), asked, policy=policy, effort=0, simulate=False)
    assert any("dense auto: every rank holds the whole" in each and words in each for each in found.provenance.warnings)
    of_checkpointing = [each for each in found.provenance.warnings if each.startswith("checkpointing auto: nothing")]
    assert bool(of_checkpointing) == ("optimizer" not in given)
    assert verify(found) == []


@pytest.mark.parametrize("key", ["dense", "checkpointing"])
def test_ratings_are_not_asked_to_choose(key: str) -> None:
    """A rating of tables alone refuses what it would ignore."""
    policy = Policy.model_validate({key: {"strategy": "auto"} if key == "dense" else "auto"})
    with pytest.raises(InputError, match="rates tables alone"):
        plan(topology(node_group("a")), workload([{"rows": 10, "dim": 8}]), policy=policy, cost_model="torchrec")
