"""Sizes and points of studies where checkpointing is left open: the better of both ways, as each is by itself."""

from pathlib import Path
from typing import Any

import yaml

from cost_models.workload.models import Workload
from planner import plan
from planner.capacity.sizing import Sizing, size
from planner.document.plan import Plan
from planner.formulation.policy import Policy
from planner.studies.run import run_study
from planner.studies.runners import Serial
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology


def cluster(hbm_bytes: float) -> Topology:
    return topology(node_group("a", ranks=4, hbm_bytes=hbm_bytes))


def deep() -> Workload:
    """Half a dozen blocks, whose activations are most of the memory."""
    blocks = [{"kind": "mlp", "name": f"b{number}", "sizes": [512, 512, 64]} for number in range(6)]
    layers = [{"kind": "embeddings", "tables": "*"}, *blocks, {"kind": "linear", "name": "head", "out": 1}]
    tables = [{"rows": 20_000, "dim": 64}, {"rows": 90_000, "dim": 64}]
    return workload(tables, dense={"layers": layers}, batch_per_rank=1024, global_batch=None)


def planned(way: str) -> Plan:
    policy = Policy.model_validate({"checkpointing": way})
    return plan(cluster(4e9), deep(), policy=policy, effort=0, solver="search", simulate=False)


def between() -> int:
    """Bytes of HBM that suffice for what is computed again alone."""
    fullest = [max(rank.bytes["hbm"] for rank in planned(way).ranks) for way in ("none", "full")]
    return sum(fullest) // 2


def sized(hbm_bytes: float, way: str, **given: Any) -> Sizing:
    policy = Policy.model_validate({"checkpointing": way, "tiers": ["hbm"]})
    return size(cluster(hbm_bytes), deep(), policy=policy, max_nodes=2, each_tier=False, effort=0, **given)[0]


def test_sizes_take_the_way_that_does() -> None:
    """None where there is room, full where there is not; what neither reaches is rejected for both."""
    tight, roomy = between(), 4e9
    assert sized(tight, "none").answer is None
    full, auto = (sized(tight, way) for way in ("full", "auto"))
    assert full.answer is not None
    assert auto.answer is not None
    assert (auto.answer.nodes, auto.answer.step_s) == (full.answer.nodes, full.answer.step_s)
    assert "checkpointing auto: full at the answer" in auto.notes
    open_one, none = (sized(roomy, way) for way in ("auto", "none"))
    assert open_one.answer is not None
    assert none.answer is not None
    assert open_one.answer.step_s == none.answer.step_s
    assert "checkpointing auto: none at the answer" in open_one.notes
    beyond = sized(tight, "auto", max_step_s=none.answer.step_s / 2)
    assert beyond.answer is None
    assert all(candidate.judged_by == "bound" for candidate in beyond.candidates)


def test_points_of_studies_take_the_shorter_step(tmp_path: Path) -> None:
    """An axis of all three: auto is the better of the others, and a column says which."""
    for name, content in (("top", cluster(4e9)), ("model", deep())):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(content.model_dump(mode="json", exclude_unset=True)))
    hbm = "topology.nodes.0.accelerators.hbm.capacity"
    study = {
        "name": "ways",
        "topology": "top.yaml",
        "workload": "model.yaml",
        "policy": "hbm.yaml",
        "axes": {hbm: ["4GB", f"{between()}B"], "policy.checkpointing": ["none", "full", "auto"]},
        "search": {"effort": 0},
    }
    (tmp_path / "hbm.yaml").write_text("tiers: hbm")
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    rows = run_study(tmp_path / "study.yaml", runner=Serial(), cache=False).rows
    assert len(rows) == 6
    for none, full, auto in (rows[::2], rows[1::2]):
        steps = [row["step_s"] for row in (none, full) if row["step_s"] is not None]
        assert auto["step_s"] == min(steps)  # type: ignore[type-var]
        assert auto["checkpointing"] == ("none" if len(steps) == 2 else "full")
    assert [row["status"] == "infeasible" for row in rows] == [False, True, False, False, False, False]
