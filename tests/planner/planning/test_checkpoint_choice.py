"""Activation checkpointing as a choice: taken where it pays, told in the plan, verified, simulated."""

import itertools
from typing import Any

import pytest

from cost_models.workload.models import Workload
from planner.document.plan import Plan
from planner.document.planned import planned_model
from planner.exporters.formats import FORMATS, ExportRequest
from planner.exporters.torchrec import torchrec_constraints
from planner.formulation.policy import Policy
from planner.planning.planning import plan
from planner.verification.verify import verify
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology
from topologies.errors import InputError


def _cluster(hbm_bytes: float) -> Topology:
    return topology(node_group("a", ranks=4, hbm_bytes=hbm_bytes))


def _deep(**dense: Any) -> Workload:
    """Half a dozen blocks, whose activations are most of the memory."""
    blocks = [{"kind": "mlp", "name": f"b{number}", "sizes": [512, 512, 64]} for number in range(6)]
    layers = [{"kind": "embeddings", "tables": "*"}, *blocks, {"kind": "linear", "name": "head", "out": 1}]
    return workload([{"rows": 20_000, "dim": 64}, {"rows": 90_000, "dim": 64}], dense={"layers": layers, **dense})


def _planned(cluster: Topology, model: Workload, **policy: Any) -> Plan:
    return plan(cluster, model, policy=Policy.model_validate(policy), effort=0, solver="search", simulate=False)


def _kept(of: Plan) -> float:
    model = planned_model(of)
    return float(model.base_bytes[0])


def test_auto_computes_again_only_where_it_must() -> None:
    """With room for everything it keeps activations; where these do not fit it computes layers again, and says that
    the other way does not fit."""
    roomy = _planned(_cluster(4e9), _deep(), checkpointing="auto")
    full = _planned(_cluster(4e9), _deep(), checkpointing="full")
    assert roomy.dense is not None
    assert roomy.dense.checkpointing is None
    assert [other.checkpointing for other in roomy.dense.others] == ["full"]
    assert roomy.objective is not None
    assert full.objective is not None
    assert roomy.objective.step_s < full.objective.step_s
    assert _kept(full) < _kept(roomy)
    tight = _planned(_cluster((max(rank.bytes["hbm"] for rank in full.ranks) + _kept(roomy)) / 2), _deep(),
                     checkpointing="auto")  # fmt: skip
    for each in (roomy, full, tight):
        assert verify(each) == []
    assert tight.dense is not None
    assert tight.dense.checkpointing == "full"


def test_plans_without_it_say_nothing_of_it() -> None:
    """No key of a plan, nor of its workload or policy, is new."""
    assert '"checkpointing"' not in _planned(_cluster(4e9), _deep()).model_dump_json()


def test_a_stated_way_is_kept_and_another_policy_refused() -> None:
    """auto leaves what a workload states; none beside it is a contradiction."""
    stated = _deep(checkpointing=["b0", "b1"])
    found = _planned(_cluster(4e9), stated, checkpointing="auto")
    assert found.dense is not None
    assert found.dense.words == "replicate, checkpointing b0, b1"
    assert verify(found) == []
    with pytest.raises(InputError, match=r"the workload states b0, b1"):
        _planned(_cluster(4e9), stated, checkpointing="none")


def test_a_plan_that_claims_another_way_is_found_out() -> None:
    """A document whose strategy is not that of its workload, or of its policy."""
    found = _planned(_cluster(4e9), _deep(), checkpointing="full")
    assert found.dense is not None
    false = found.model_copy(update={"dense": found.dense.model_copy(update={"checkpointing": None})})
    assert any("checkpointing full" in fault for fault in verify(false))


def test_bytes_below_those_of_a_played_backward_pass_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """verify holds what is kept against its own account of each tensor's life."""
    found = _planned(_cluster(4e9), _deep(), checkpointing="full")
    monkeypatch.setattr("cost_models.peak.kept_elements", lambda _: 64.0)
    assert any("bytes for the backward pass" in fault for fault in verify(found))


def test_the_simulator_plays_layers_again() -> None:
    """Its step grows by about as much as the estimate."""
    plans = [
        plan(_cluster(4e9), _deep(), policy=Policy.model_validate({"checkpointing": word}), effort=0, solver="search")
        for word in ("none", "full")
    ]
    estimated, simulated = [], []
    for each in plans:
        assert each.objective is not None
        assert each.simulated is not None
        estimated.append(each.objective.step_s)
        simulated.append(each.simulated.step_s)
    assert simulated[1] - simulated[0] == pytest.approx(estimated[1] - estimated[0], rel=0.05)


def test_ratings_refuse_it() -> None:
    """A cost model of tables alone does not ignore it."""
    with pytest.raises(InputError, match="rates tables alone"):
        plan(_cluster(4e9), _deep(checkpointing="full"), cost_model="torchrec", effort=0, solver="search")


def test_exports_name_what_is_checkpointed_or_refuse() -> None:
    """PyTorch's strategy lists the blocks, a ShardingPlan points there, and TorchRec's constraints refuse."""
    found = _planned(_cluster(4e9), _deep(checkpointing=["b0", "b1"]))
    tables, held = (FORMATS[name].export(ExportRequest(found, "plan")) for name in ("torchrec", "fsdp2"))
    assert held.document["checkpointed"] == ["b0", "b1"]
    assert any("torch.utils.checkpoint" in note for note in held.notes)
    assert any("checkpointing b0, b1" in note for note in tables.notes)
    with pytest.raises(InputError, match="checkpointing b0, b1 is nothing that a file of constraints says"):
        torchrec_constraints(found)


def test_functions_without_a_module_are_named_apart() -> None:
    """A sum of two layers has no module that a loader could wrap."""
    layers = [
        {"kind": "embeddings", "tables": "*"},
        {"kind": "linear", "name": "a", "out": 64},
        {"kind": "linear", "name": "b", "out": 64},
        {"kind": "add", "name": "sum", "inputs": ["a", "b"]},
        {"kind": "linear", "name": "head", "out": 1},
    ]
    model = workload([{"rows": 20_000, "dim": 64}], dense={"layers": layers, "checkpointing": "full"})
    held = FORMATS["fsdp2"].export(ExportRequest(_planned(_cluster(4e9), model), "plan"))
    assert held.document["checkpointed"] == ["a", "b", "head"]
    assert any("around sum: functions without parameters" in note for note in held.notes)


@pytest.mark.parametrize(
    ("stated", "policy", "flags"),
    [
        (None, {}, "--checkpointing full"),
        (None, {"checkpointing": "none"}, "--checkpointing full"),
        (["b0"], {}, "--set workload.dense.checkpointing=full"),
    ],
)
def test_a_plan_that_does_not_fit_names_the_flag(stated: list[str] | None, policy: dict[str, str], flags: str) -> None:
    """Where layers that are computed again leave room, and then there is a plan; not where auto has tried it."""
    kept, full = (_planned(_cluster(4e9), _deep(checkpointing=way)) for way in (stated, "full"))
    cluster = _cluster((max(rank.bytes["hbm"] for rank in full.ranks) + _kept(kept)) / 2)
    short = _planned(cluster, _deep(checkpointing=stated), **policy)
    assert short.infeasibility is not None
    assert [each.flags for each in short.infeasibility.remedies if each.change == "checkpointing"] == [flags]
    assert verify(short) == []
    assert _planned(cluster, _deep(checkpointing="full")).objective is not None


def _between() -> Topology:
    """A cluster on which only what is computed again fits."""
    full = _planned(_cluster(4e9), _deep(), checkpointing="full")
    none = _planned(_cluster(4e9), _deep(), checkpointing="none")
    return _cluster((max(rank.bytes["hbm"] for rank in full.ranks) + _kept(none)) / 2)


def test_auto_beside_replicas() -> None:
    """Each way with each number of copies: the shortest step of all four questions, as asked one by one."""
    replicas = {"replicas": {"factor": [1, 2]}}
    for where in (_cluster(4e9), _between()):
        found = _planned(where, _deep(), checkpointing="auto", **replicas)
        assert verify(found) == []
        steps = []
        for way, factor in itertools.product(("none", "full"), (1, 2)):
            alone = _planned(where, _deep(), checkpointing=way, replicas={"factor": factor})
            steps += [] if alone.objective is None else [alone.objective.step_s]
        assert found.objective is not None
        assert found.objective.step_s == min(steps)
        assert found.replicas is not None
        assert len(found.replicas.others) == 1
        assert found.dense is not None
        assert len(found.dense.others) == 1


@pytest.mark.slow
def test_auto_beside_a_robust_aim() -> None:
    """Both ways are planned, and the smaller quantile is taken; the other is told with its step."""
    aim = {"robust": {"quantile": "p90", "scenarios": 20, "simulated": 0}}
    for where, taken in ((_cluster(4e9), None), (_between(), "full")):
        found = _planned(where, _deep(), checkpointing="auto", **aim)
        alone = _planned(where, _deep(), checkpointing=taken or "none", **aim)
        assert verify(found) == []
        assert found.dense is not None
        assert found.dense.checkpointing == taken
        assert found.robust is not None
        assert found.robust == alone.robust
        (other,) = found.dense.others
        assert other.rejected == ("plan" if taken is None else "infeasible")
