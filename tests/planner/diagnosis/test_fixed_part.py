"""What no placement changes of a step, part by part."""

from typing import Any

import pytest

from cost_models.step import StepModel
from planner.diagnosis.fixed_part import fixed_seconds, host_beside
from tests.oracles.instances import node_group, topology, workload

DLRM = {"numerical_features": 13, "bottom_mlp": [512, 256, 128], "top_mlp": [1024, 1024, 512, 256, 1]}
TABLES = [{"name": f"t{i}", "rows": 1000, "dim": 16} for i in range(4)]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"software_mode": "compiled"},
        {"software": "hugectr"},
        {"overhead": "2ms"},
        {"pipeline": "none"},
        {"pipeline": "prefetch"},
        {"mode": "inference"},
        {"dense": {"macs_per_sample": 1e6, "parameters": 10**9, "optimizer": "adam"}},
    ],
    ids=str,
)
@pytest.mark.parametrize("nodes", [1, 3])
def test_the_origin_of_every_second_is_told(fields: dict[str, Any], nodes: int) -> None:
    """The parts of the fixed part add up to it, stage by stage."""
    model = StepModel(
        topology(node_group("a", nodes=nodes, ranks=2, ssd_bytes=1e12)), workload(TABLES, **{"dense": DLRM, **fields})
    )
    parts = fixed_seconds(model)
    assert sum(part.seconds for part in parts) == pytest.approx(model.fixed_step_s, rel=1e-12)
    stages = dict(zip(model.stages, model.evaluate_nothing().stage_seconds.tolist(), strict=True))
    for stage, seconds in stages.items():
        assert sum(part.seconds for part in parts if part.stage == stage) == pytest.approx(seconds, abs=1e-15)
    assert len({(part.stage, part.what) for part in parts}) == len(parts)


def test_products_and_activations_of_the_dense_part_are_told_apart() -> None:
    """Activations kernel by kernel, of which compiled steps have fewer, where no sums of gradients are waited for: on
    one rank. Without a mode, with how often they cross memory."""
    seconds = {}
    for mode, name in (
        ("eager", "kernel by kernel"),
        ("compiled", "kernel by kernel"),
        (None, "2.28 times through memory"),
    ):
        asked = workload(TABLES, dense=DLRM, software_mode=mode)
        parts = fixed_seconds(StepModel(topology(node_group("a", ranks=1)), asked))
        told = {part.what: part.seconds for part in parts if part.stage == "dense"}
        seconds[mode] = told[f"activations, {name}"], told["matrix products"]
    assert 0 < seconds["compiled"][0] < seconds["eager"][0]
    assert seconds["eager"][1] == pytest.approx(seconds[None][1])


@pytest.mark.parametrize("fields", [{}, {"software_mode": "eager"}, {"overhead": "2ms"}, {"overhead": "1us"}], ids=str)
def test_parts_of_the_host_of_one_rank_add_up_to_its_time(fields: dict[str, Any]) -> None:
    """Whether it or the device is the longer; on several ranks they are parts of the step."""
    asked = workload(TABLES, dense=DLRM, **fields)
    model = StepModel(topology(node_group("a", ranks=1)), asked)
    host = model.coefficients.host_beside
    assert host is not None
    assert sum(part.seconds for part in host_beside(model)) == pytest.approx(host.value, rel=1e-12)
    assert (len(host_beside(model)) > 1) == ("overhead" not in fields)
    assert host_beside(StepModel(topology(node_group("a", ranks=2)), asked)) == ()
