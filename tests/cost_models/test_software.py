"""A workload's software profile: what it states, and what its host does in a step."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cost_models.coefficients import host_coefficients, software_coefficients
from cost_models.kinds import rank_kinds
from cost_models.shards import HBM, TABLE_WISE, Blocks, PlacedShards
from cost_models.simulator.simulation import simulate
from cost_models.software import (
    EAGER_LAYERS,
    EAGER_TABLES,
    HostPart,
    dense_layers,
    host_counts,
    host_parts,
    host_work,
    software_of,
)
from cost_models.step import StepModel
from cost_models.workload.models import Workload
from planner import plan
from tests.oracles.agreement import expect_near_simulation
from tests.oracles.instances import node_group, topology, workload
from topologies.loading import load_topology

MEASURED = Path(__file__).parents[2] / "benchmarks" / "data" / "measured_h100"
OWN_S = software_coefficients("torchrec").step_overhead_s.value
DLRM = {"numerical_features": 13, "bottom_mlp": [512, 256, 128], "top_mlp": [1024, 1024, 512, 256, 1]}


def model_of(modules: int = 1, tables: int = EAGER_TABLES, **fields: object) -> Workload:
    """A DLRM whose tables are in so many modules."""
    profiles = [{"name": f"m{i % modules}.t{i}", "rows": 1000, "dim": 16} for i in range(tables)]
    return workload(profiles, **{"dense": DLRM, **fields})


def overhead_s(asked: Workload) -> float:
    return software_of(asked).step_overhead_s.value


def test_without_a_word_the_profile_holds() -> None:
    """One number whatever the model; its parts add up to it."""
    for asked in (model_of(), model_of(modules=4), model_of(dense={})):
        assert software_of(asked) is software_coefficients("torchrec")
        assert sum(part.seconds for part in host_work(asked)) == pytest.approx(OWN_S, rel=1e-12)


def test_an_eager_step_of_the_model_that_was_measured_takes_what_was_measured() -> None:
    """The speed of the host is that of DLRM's published throughputs."""
    assert dense_layers(model_of()) == EAGER_LAYERS
    assert overhead_s(model_of(software_mode="eager")) == pytest.approx(OWN_S, rel=1e-12)


def test_the_host_has_more_to_do_for_more_of_anything() -> None:
    """Modules, layers, their optimizer state, tables; a further module adds more than a further layer or table."""
    first = overhead_s(model_of(software_mode="eager"))
    more = [
        model_of(modules=2, software_mode="eager"),
        model_of(dense={**DLRM, "top_mlp": [1024] * 12 + [1]}, software_mode="eager"),
        model_of(dense={**DLRM, "optimizer": "adam"}, software_mode="eager"),
        model_of(tables=10 * EAGER_TABLES, software_mode="eager"),
    ]
    modules, layers, state, tables = (overhead_s(each) - first for each in more)
    assert min(layers, state, tables) > 0
    assert modules > max(layers / 8, tables / (9 * EAGER_TABLES))


@pytest.mark.parametrize("layers", [1, 16])
def test_a_captured_dense_part_is_one_launch(layers: int) -> None:
    """Its layers and their optimizer no longer count; compiling saves little of them, and costs the step."""
    dense = {**DLRM, "top_mlp": [64] * layers + [1], "optimizer": "adam"}
    eager, compiled, graph = (
        overhead_s(model_of(dense=dense, software_mode=mode)) for mode in ("eager", "compiled", "graph")
    )
    none = overhead_s(model_of(dense={}, software_mode="eager"))
    assert none < graph < none + 2e-5
    assert graph < min(eager, compiled)
    assert compiled == pytest.approx(eager, rel=0.03)


def test_a_stated_overhead_is_the_overhead() -> None:
    """In the estimate, in the simulation and in the parts of a plan; also none at all, and of every profile."""
    for software in ("torchrec", "hugectr", "distributed-embeddings"):
        for seconds in ("0s", "3ms"):
            asked = model_of(software=software, overhead=seconds, dense={})  # no dense optimizer that takes longer
            assert overhead_s(asked) == asked.overhead
            model = StepModel(topology(node_group("a")), asked)
            assert (
                dict(zip(model.stages, model.evaluate_nothing().stage_seconds, strict=True))["overhead"]
                == asked.overhead
            )


def test_a_plan_is_simulated_with_what_is_stated() -> None:
    """Three milliseconds less in the estimate are three less in the simulation."""
    found = [plan(topology(node_group("a")), model_of(overhead=told), effort=0) for told in ("7ms", "4ms")]
    estimated, simulated = ([getattr(each, part).step_s for each in found] for part in ("objective", "simulated"))
    assert estimated[0] - estimated[1] == pytest.approx(3e-3, rel=1e-6)
    assert simulated[0] - simulated[1] == pytest.approx(3e-3, rel=0.02)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"software": "hugectr", "software_mode": "eager"}, "of hugectr only graph is known, not eager"),
        ({"software": "distributed-embeddings", "software_mode": "graph"}, "none is known"),
        ({"software_mode": "graph", "overhead": "1ms"}, "give one of the two"),
        ({"software_mode": "eager", "mode": "inference"}, "for inference give overhead"),
        ({"overhead": "-1ms"}, "overhead"),
    ],
)
def test_what_is_not_known_is_refused_by_name(fields: dict[str, str], words: str) -> None:
    """With what to give instead."""
    with pytest.raises(ValueError, match=words):
        model_of(**fields)


def test_a_graph_takes_no_launches_of_the_device() -> None:
    """Where the software captures kernels in a graph, launching them is part of its overhead, whatever the device."""
    cluster = load_topology("hgx-b200")
    of = {name: rank_kinds(cluster, model_of(software=name))[0] for name in ("torchrec", "hugectr")}
    assert (of["torchrec"].lookup_launch_s, of["torchrec"].update_launch_s) == pytest.approx((24e-6, 109e-6), rel=0.02)
    assert (of["hugectr"].lookup_launch_s, of["hugectr"].update_launch_s) == (0.0, 0.0)


@pytest.mark.parametrize(("mode", "passes"), [(None, 2.28), ("eager", 1.15), ("compiled", 1.15), ("graph", 1.15)])
def test_a_mode_counts_kernels(mode: str | None, passes: float) -> None:
    """Of what these read and write; without a mode activations cross memory as often as the profile says. Estimate and
    simulation count them alike."""
    asked = model_of(software_mode=mode, pipeline="none")
    assert software_of(asked).activation_passes.value == passes
    found = plan(topology(node_group("a", ranks=2)), asked, effort=0)
    expect_near_simulation(found, 0.05)


def test_hugectr_keeps_the_passes_that_were_fitted() -> None:
    """Its steps were measured as graphs, with or without a mode."""
    alike = [software_of(model_of(software="hugectr", software_mode=mode)) for mode in (None, "graph")]
    assert [each.activation_passes for each in alike] == [software_coefficients("hugectr").activation_passes] * 2


STACK = [
    {"kind": "embeddings", "name": "bags", "tables": ["*"]},
    {"kind": "linear", "name": "l0", "inputs": "numerical", "out": 64},
    *({"kind": "linear", "name": f"l{number}", "inputs": f"l{number - 1}", "out": 64} for number in range(1, 4)),
    {"kind": "linear", "name": "l4", "inputs": ["l3", "bags"], "out": 64},
]
"""Five blocks of one layer each."""
BLOCK_S, LAYER_S = 73e-6, 53e-6
"""What torch.utils.checkpoint takes of a block and of a layer on the profile's processor (checkpointing_cpu.csv)."""


@pytest.mark.parametrize(
    ("checkpointing", "blocks"), [("none", 0), ("full", 5), (["l1"], 1), (["l[02]", "l4"], 3)], ids=str
)
def test_the_host_launches_checkpointed_layers_once_more(checkpointing: object, blocks: int) -> None:
    """In an eager step, in the estimate and as simulated: each block, and each of its products with weights; not in
    compiled or captured ones, nor where one number holds for all."""
    dense = {"numerical_features": 13, "layers": STACK}
    plain, again = (dense | given for given in ({}, {"checkpointing": checkpointing}))
    speed = overhead_s(model_of(software_mode="eager")) / sum(
        part.seconds for part in host_parts_of(model_of(software_mode="eager"))
    )
    expected = blocks * (BLOCK_S + LAYER_S) * speed
    asked, before = (model_of(dense=each, software_mode="eager") for each in (again, plain))
    assert overhead_s(asked) - overhead_s(before) == pytest.approx(expected, rel=1e-6, abs=1e-12)
    for mode in ("compiled", "graph", None):
        first, second = (model_of(dense=each, software_mode=mode) for each in (plain, again))
        assert overhead_s(first) == overhead_s(second)


def host_parts_of(asked: Workload) -> tuple[HostPart, ...]:
    """What the host does on the processor that it was measured on."""
    host = host_coefficients("torchrec")
    assert host is not None
    return host_parts(host, host_counts(asked))


def test_a_checkpointed_step_is_simulated_with_the_hosts_launches() -> None:
    """What computing blocks again adds to an eager step is the same in the estimate and in the simulator, beyond what
    devices compute."""
    where = topology(node_group("a", ranks=2))
    longer = {}
    for mode in ("eager", "graph"):
        steps = []
        for given in ({}, {"checkpointing": "full"}):
            asked = model_of(tables=2, dense={"numerical_features": 13, "layers": STACK, **given}, software_mode=mode)
            model = StepModel(where, asked)
            table = np.arange(2)
            blocks = Blocks(table, table * 0 + TABLE_WISE, table * 0 + HBM, model.tables.dim, np.zeros(2))
            placed = PlacedShards(blocks, table, model.tables.rows, np.ones(2, dtype=bool))
            steps.append((model.evaluate(placed).step_s, simulate(where, asked, placed).step_s))
        longer[mode] = np.subtract(steps[1], steps[0])
    of_host = longer["eager"] - longer["graph"]
    assert of_host[0] > 1e-3
    assert of_host[1] == pytest.approx(of_host[0], rel=0.02)


def test_what_checkpointing_costs_a_host_that_was_not_fitted_to() -> None:
    """Eight blocks on an H100's host, as fast as its own layers say (144 us, SGD): the median of four runs within a
    tenth, the furthest takes 34 % longer."""
    rows = pd.read_csv(MEASURED / "passes.csv")
    rows = rows[(rows["mode"] == "eager") & (rows.model == "mlp")]
    host = rows.pivot_table(index=["dtype", "batch", "optimizer"], columns="checkpointed", values="host_s").dropna()
    measured = (host[1] - host[0]).to_numpy()
    predicted = 8 * (BLOCK_S + LAYER_S) * 144e-6 / 32.27e-6
    assert len(measured) == 4
    assert np.median(measured) == pytest.approx(predicted, rel=0.1)
    assert measured == pytest.approx(predicted, rel=0.34)
