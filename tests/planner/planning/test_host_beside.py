"""The host of one rank, which works beside its device: estimate, bound, simulator and reports."""

import io
from functools import cache
from itertools import product

import numpy as np
import pytest
from rich.console import Console

from benchmarks.validation.ranking import random_shards
from cost_models.floor import BATCH_COPY, HOST
from cost_models.shards import (
    DDR_CACHED,
    HBM,
    IS_CACHED,
    MEMORY_HBM,
    PLACEMENT_TIERS,
    TABLE_WISE,
    USUAL_SHARDINGS,
    Blocks,
    PlacedShards,
)
from cost_models.simulator.simulation import HOST_OVERHEAD, simulate
from cost_models.software import software_of
from cost_models.step import StepModel
from cost_models.workload.models import Workload
from planner import plan, verify
from planner.capacity.size_floor import size_floor
from planner.diagnosis.explanation import Explainer
from planner.document.plan import Plan
from planner.document.planned import planned_model
from planner.formulation.policy import Policy
from planner.reports import plan_summary
from planner.reports.words import floor_words, render_beyond
from planner.verification.simulation import simulate_plan
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology
from topologies.loading import load_topology
from topologies.units import format_seconds

PIPELINES = ("none", "sparse-dist", "prefetch")
LONG, SHORT = "20ms", "100us"
"""A host that is longer than the devices of these tests, and one that is shorter."""
TABLES = [{"rows": 200_000, "dim": 64, "pooling_factor": 30}, {"rows": 400_000, "dim": 32, "pooling_factor": 10}]
TIERS = (HBM, PLACEMENT_TIERS.index("ddr"), DDR_CACHED)


def one(**fields: object) -> Topology:
    return topology(node_group("a", ranks=1, **fields))  # type: ignore[arg-type]


def asked(pipeline: str, **fields: object) -> Workload:
    dense = {"macs_per_sample": 1_000_000, "parameters": 1_000_000}
    return workload(TABLES, **{"pipeline": pipeline, "dense": dense, **fields})


def in_tiers(tiers: tuple[int, ...], cached: float = 0.1) -> PlacedShards:
    """The tables, each whole on the one rank and in a tier."""
    tier, count = np.array(tiers), len(TABLES)
    columns = np.array([int(str(table["dim"])) for table in TABLES])
    fraction = np.where(IS_CACHED[tier], cached, 0.0)
    blocks = Blocks(np.arange(count), np.full(count, TABLE_WISE), tier, columns, fraction)
    rows = np.array([int(str(table["rows"])) for table in TABLES])
    return PlacedShards(blocks, np.zeros(count, dtype=int), rows, np.ones(count, dtype=bool))


@cache
def planned(pipeline: str, host: str) -> Plan:
    """The tables on one rank beside such a host."""
    return plan(one(), asked(pipeline, overhead=host))


@cache
def half_in_hbm(pipeline: str) -> tuple[Topology, float]:
    """One rank whose HBM takes half of the rows, and the shortest step of its device: of all ways to hold the tables
    whole in HBM, host memory or a cache."""
    needed = sum(4 * int(str(table["rows"])) * int(str(table["dim"])) for table in TABLES)
    base_bytes = StepModel(one(), asked(pipeline, overhead="0us")).base_bytes
    cluster = one(hbm_bytes=float(base_bytes[MEMORY_HBM]) + 0.5 * needed)
    alone, best_s = StepModel(cluster, asked(pipeline, overhead="0us")), np.inf
    for tiers in product(TIERS, repeat=2):
        for cached in (0.01, 0.05, 0.1, 0.2, 0.4):
            evaluation = alone.evaluate(in_tiers(tiers, cached))
            if (evaluation.rank_bytes <= [float(pool[0]) for pool in alone.memory_capacity]).all():
                best_s = min(best_s, evaluation.step_s)
    return cluster, best_s


def seconds(found: Plan) -> dict[str, float]:
    return {stage.name: stage.seconds for stage in found.stages}


@pytest.mark.parametrize(("pipeline", "host"), [*product(PIPELINES, ("5ms", LONG, SHORT))])
def test_a_step_is_the_longer_of_both(pipeline: str, host: str) -> None:
    """The host, or what the device takes without one, wherever tables are; played as estimated."""
    cluster, model = one(), StepModel(one(), asked(pipeline, overhead=host))
    alone, host_s = StepModel(cluster, asked(pipeline, overhead="0us")), software_of(model.workload).step_overhead_s
    for tiers in product(TIERS, repeat=2):
        placed = in_tiers(tiers)
        device_s = alone.evaluate(placed).step_s
        assert model.evaluate(placed).step_s == pytest.approx(max(device_s, host_s.value), rel=1e-12)
        played_s = simulate(cluster, alone.workload, placed).step_s
        together_s = simulate(cluster, model.workload, placed).step_s
        assert together_s == pytest.approx(max(played_s, host_s.value), rel=1e-9)


@pytest.mark.parametrize("mode", [None, "eager", "graph"])
def test_whatever_says_how_long_the_host_works(mode: str | None) -> None:
    """The profile, a mode or a stated overhead."""
    model = StepModel(one(), asked("none", software_mode=mode, global_batch=64))
    host_s = software_of(model.workload).step_overhead_s.value
    assert host_s > 0
    assert model.evaluate(in_tiers((HBM, HBM))).step_s == pytest.approx(host_s)


def test_the_dense_optimizer_is_the_devices_work() -> None:
    """The measured overhead of many ranks has it in it; beside a host it is as long as it is."""
    parameters = 100_000_000
    model = StepModel(one(), asked("none", overhead=LONG, dense={"macs_per_sample": 0, "parameters": parameters}))
    moved_s = parameters * 3 * 4 / model.kinds[0].hbm_bytes_per_s
    found = model.evaluate(in_tiers((HBM, HBM)))
    stages = dict(zip(model.stages, found.stage_seconds.tolist(), strict=True))
    assert stages["overhead"] == pytest.approx(moved_s)
    assert stages[HOST] == pytest.approx(0.02 - sum(value for name, value in stages.items() if name != HOST))


@pytest.mark.parametrize("fields", [{"overhead": "0us"}, {"software": "hugectr"}, {"mode": "inference"}], ids=str)
def test_others_have_no_such_host(fields: dict[str, object]) -> None:
    """Without overhead; with graphs of steps, whose host was measured with them; without training."""
    assert HOST not in StepModel(one(), asked("none", **fields)).stages


def test_other_clusters_have_no_such_host() -> None:
    """Many ranks wait for sizes of each other; a processor is its own host."""
    processor = load_topology("cpu", overrides=["nodes.0.accelerators.count=1"])
    for cluster in (topology(node_group("a", ranks=2)), topology(node_group("a", nodes=2, ranks=1)), processor):
        model = StepModel(cluster, asked("none", overhead=LONG))
        assert HOST not in model.stages
        assert float(model.constants[model.stages.index("overhead")]) >= 0.02


def test_the_longest_of_what_goes_on_beside_a_step_counts() -> None:
    """The copy of a batch and the host are not added up."""
    tables = [{"rows": 100_000, "dim": 4, "pooling_factor": 200} for _ in range(8)]
    fields: dict[str, object] = {"global_batch": 65_536, "pipeline": "sparse-dist"}
    copied = StepModel(one(hbm_bytes=40e9), workload(tables, overhead="0us", **fields)).batch_copy
    copied_s = float(copied.seconds(8 * (200 * 8 + 4)).max())
    for host_s, stage in ((copied_s / 2, BATCH_COPY), (copied_s * 1.5, HOST)):
        found = plan(one(hbm_bytes=40e9), workload(tables, overhead=f"{host_s}s", **fields), effort=0)
        assert found.objective is not None
        assert found.simulated is not None
        assert found.objective.step_s == pytest.approx(max(copied_s, host_s))
        assert found.simulated.step_s == pytest.approx(max(copied_s, host_s), rel=0.01)
        assert [name for name in seconds(found) if name in (BATCH_COPY, HOST)] == [stage]
        assert verify(found) == []


@pytest.mark.parametrize("host", ["1500us", "3ms", LONG, SHORT])
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_no_placement_is_below_the_bound(pipeline: str, host: str) -> None:
    """Of all ways to hold these tables whole in HBM, host memory or a cache; half of the rows fit into HBM."""
    cluster, device_s = half_in_hbm(pipeline)
    policy = Policy.model_validate({"shardings": ["table_wise"], "tiers": ["hbm", "ddr", "ddr_cached"]})
    found = plan(cluster, asked(pipeline, overhead=host), policy=policy)
    assert found.objective is not None
    assert verify(found) == []
    host_s = software_of(asked(pipeline, overhead=host)).step_overhead_s.value
    assert np.isfinite(device_s)
    assert found.objective.lower_bound_s <= max(device_s, host_s) * (1 + 1e-9)
    assert found.objective.step_s >= host_s * (1 - 1e-9)
    if host == LONG:
        assert (found.status, found.objective.gap) == ("optimal", 0.0)


def test_of_equal_steps_the_shorter_device_is_planned() -> None:
    """All placements whose device the host outlasts take as long; the plan is none that wastes the device."""
    found, alone = (planned("none", host) for host in (LONG, "0us"))
    assert found.objective is not None
    assert alone.objective is not None
    device_s = sum(value for name, value in seconds(found).items() if name != HOST)
    assert device_s == pytest.approx(alone.objective.step_s)
    assert found.objective.step_s == found.objective.lower_bound_s == pytest.approx(0.02)


def test_a_document_that_leaves_it_out_is_refused() -> None:
    found = planned("none", LONG)
    assert found.objective is not None
    others_s = sum(value for name, value in seconds(found).items() if name != HOST)
    objective = found.objective.model_copy(update={"step_s": others_s, "lower_bound_s": others_s})
    stages = tuple(
        stage.model_copy(update={"seconds": 0.0, "critical_rank": None}) if stage.name == HOST else stage
        for stage in found.stages
    )
    faults = verify(found.model_copy(update={"objective": objective, "stages": stages}))
    assert any(fault.startswith(f"stage {HOST}: takes") for fault in faults)


def test_its_explanation_adds_up() -> None:
    """The bound is the sum of its parts, no memory and no other resource is worth anything, and its source is told."""
    found = planned("none", LONG)
    reasons = Explainer(found).plan()
    assert found.objective is not None
    last = reasons.stages[-1]
    assert (last.stage.name, last.resource, last.contributors) == (HOST, None, ())
    assert last.constant_s == last.stage.seconds
    parts = sum(each.bound_s or 0.0 for each in reasons.stages) + (reasons.memory_bound_s or 0.0)
    assert parts + (reasons.branching_bound_s or 0.0) == pytest.approx(found.objective.lower_bound_s)
    assert (reasons.memory, reasons.gains) == ((), ())
    assert [(cost.stage, cost.seconds) for cost in reasons.fixed] == [(HOST, 0.02)]
    causes = Explainer(found).stage(HOST).causes
    assert [(cause.name, cause.share) for cause in causes] == [("step_overhead_s of torchrec", 1.0)]


def test_the_plan_says_which_is_longer() -> None:
    texts = []
    for host in (LONG, SHORT):
        console = Console(width=120, record=True, file=io.StringIO())
        plan_summary.render(planned("none", host), console)
        texts.append(console.export_text())
    assert "The step is what the host does, 20.000 ms; all else takes" in texts[0]
    assert "The step is the device's; its host works at the same time, for 100.000 us." in texts[1]
    assert not any("Warning" in text for text in texts)


def test_nothing_moves_to_shorten_what_the_host_hides() -> None:
    """Tables stay in host memory, where they are, though HBM would be faster."""
    below = plan(one(), asked("none", overhead=LONG), policy=Policy.model_validate({"tiers": ["ddr"]}))
    again = plan(one(), asked("none", overhead=LONG), previous=below, pay_back_steps=10**12)
    assert again.moves is not None
    assert again.moves.moved_bytes == 0


def test_played_steps_show_both() -> None:
    """The host is busy for all of a step that it makes as long as it is, the device for its own part."""
    found = planned("sparse-dist", LONG)
    simulation = simulate_plan(found)
    assert simulation.busy()[HOST_OVERHEAD][0] == pytest.approx(1.0)
    assert [share.task for share in simulation.critical_path()] == ["host"]
    short = simulate_plan(planned("sparse-dist", SHORT))
    assert short.busy()[HOST_OVERHEAD][0] == pytest.approx(1e-4 / short.step_s)
    assert "host" not in [share.task for share in short.critical_path()]


def test_no_size_is_refuted_by_what_one_rank_does_at_once() -> None:
    """One node of one rank may be a size: no step is shorter than the longer of both, of two the sum."""
    batch = asked("none", global_batch=None, batch_per_rank=4096, overhead="5ms")
    alone, pair = (size_floor(topology(node_group("a", ranks=ranks)), batch).seconds for ranks in (1, 2))
    assert alone == 0.005
    assert pair > 0.005
    found = StepModel(one(), batch)
    assert found.evaluate(in_tiers((HBM, HBM))).step_s >= alone


@pytest.mark.parametrize("seed", range(12))
def test_more_work_is_no_shorter(seed: int) -> None:
    """A slower device or a larger batch, at any host: steps of random placements, estimated and played."""
    random = np.random.default_rng(seed)
    cluster, pipeline = one(), PIPELINES[seed % 3]
    host = random.choice(["100us", "1ms", "3ms"])
    model = StepModel(cluster, asked(pipeline, overhead=str(host)))
    placed = random_shards(model, random, tuple(range(len(USUAL_SHARDINGS))))
    least = model.evaluate(placed).step_s, simulate(cluster, model.workload, placed).step_s
    for other, fields in ((one(hbm_bytes_per_s=0.5e12), {}), (cluster, {"global_batch": 16_384})):
        worse = StepModel(other, asked(pipeline, overhead=str(host), **fields))
        assert worse.evaluate(placed).step_s >= least[0] * (1 - 1e-12)
        assert simulate(other, worse.workload, placed).step_s >= least[1] * (1 - 1e-12)


@pytest.mark.parametrize("share", [-2.0, -0.5, 0.5])
def test_work_beyond_the_step_is_said_as_far_as_it_shows(share: float) -> None:
    """Joining vectors of several kinds of sharding is the device's work: its host hides what it outlasts it by. Whose
    the launch of searches is, was not measured, so that both are said."""
    device_s = StepModel(one(), asked("none", overhead="0us")).evaluate(in_tiers((HBM, HBM))).step_s
    more_s = device_s / 4
    host_s = device_s - share * more_s  # the device is so much longer, in what it is to do more
    found = plan(one(), asked("none", overhead=f"{host_s}s"), effort=0, policy=Policy(tiers=("hbm",)), simulate=False)
    assert found.objective is not None
    beyond = {"mixing_s": more_s, "cache_launch_s": more_s}
    found = found.model_copy(update={"objective": found.objective.model_copy(update=beyond)})
    console = Console(width=400, record=True, file=io.StringIO())
    render_beyond(found, planned_model(found), console)
    launch, mixing = [line for line in console.export_text().splitlines() if line]
    own_s = max(device_s, host_s)
    of_device, of_host = max(device_s + more_s, host_s) - own_s, max(device_s, host_s + more_s) - own_s
    longer = [f"{format_seconds(each)} longer" if each > 0 else "no longer" for each in (of_host, of_device)]
    assert launch.endswith(f"leave out: the step is {longer[0]} if it is the host's, {longer[1]} if the device's.")
    ends = {-2.0: ": what the host does hides it.", 0.5: "leave out."}
    all_but = f": what the host does hides all but {format_seconds(of_device)} of it."
    assert mixing.endswith(ends.get(share, all_but))


def test_nothing_hides_what_many_ranks_do_beyond_the_step() -> None:
    """Host and device are added up there."""
    found = plan(topology(node_group("a", ranks=2)), asked("none", overhead=LONG), effort=0, simulate=False)
    assert found.objective is not None
    beyond = {"mixing_s": 1e-3, "cache_launch_s": 1e-3, "length_imbalance_s": 1e-3}
    found = found.model_copy(update={"objective": found.objective.model_copy(update=beyond)})
    console = Console(width=400, record=True, file=io.StringIO())
    render_beyond(found, planned_model(found), console)
    lines = [line for line in console.export_text().splitlines() if line]
    assert [line.endswith("leave out.") for line in lines] == [True] * 3


@pytest.mark.parametrize(
    ("nodes", "ranks", "host", "is_said"), [(1, 2, "1ms", True), (1, 2, "0us", False), (2, 1, "1ms", False)]
)
def test_what_few_ranks_might_hide_is_said(nodes: int, ranks: int, host: str, is_said: bool) -> None:
    """The longer of the host and the rest, where that is much shorter than the sum; between nodes nothing is."""
    found = plan(topology(node_group("a", nodes=nodes, ranks=ranks)), asked("none", overhead=host), effort=0)
    words = floor_words(found, planned_model(found))
    assert (words is not None) == is_said
    if words is not None:
        assert found.objective is not None
        assert words.endswith(f"would be {format_seconds(max(1e-3, found.objective.step_s - 1e-3))}")


def test_a_host_that_hides_next_to_nothing_is_not_said_of_several_ranks() -> None:
    """Of a sum of 20 ms and a device that is a hundredth of that."""
    found = plan(topology(node_group("a", ranks=2)), asked("none", overhead=LONG), effort=0, simulate=False)
    assert found.objective is not None
    assert found.objective.step_s < 0.022
    assert floor_words(found, planned_model(found)) is None
