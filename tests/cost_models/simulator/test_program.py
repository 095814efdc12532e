"""Steps of a few ranks whose times can be worked out by hand; equal to 0.1 %."""

import itertools
from dataclasses import fields, replace

import numpy as np
import pytest

from cost_models.coefficients import software_coefficients
from cost_models.kinds import RankKind, rank_kinds
from cost_models.resources import Resource
from cost_models.shards import MEMORY_DDR, MEMORY_TIERS, NODE, RANK, WORLD
from cost_models.simulator.builder import Builder
from cost_models.simulator.conditions import Conditions
from cost_models.simulator.demand import Demand
from cost_models.simulator.engine import Engine
from cost_models.simulator.graph import Floats
from cost_models.simulator.network import SimulatedNetwork
from cost_models.simulator.pipelines import ahead_of
from cost_models.simulator.simulation import Simulation
from cost_models.workload.models import Workload
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology

TABLES = [{"rows": 1000, "dim": 64}]
EXACT = 1e-3


def nothing(world: int) -> Demand:
    zero = Demand(**{one.name: np.zeros(world) for one in fields(Demand)})  # type: ignore[arg-type]
    per_memory = {
        f"{name}_{what}": np.zeros((len(MEMORY_TIERS), world))
        for name, what in itertools.product(("forward_host", "backward_host", "fetched"), ("bytes", "s"))
    }
    by_tier = {"forward_s": in_hbm(np.zeros(world)), "backward_s": in_hbm(np.zeros(world))}
    sums = in_extent(WORLD, np.zeros(world))
    return replace(zero, **by_tier, **per_memory, sums_bytes=sums, raw_ids_per_sample_bytes=0.0)


def in_extent(extent: int, sums_bytes: Floats) -> Floats:
    """[extents, W]"""
    return np.stack([np.where(each == extent, sums_bytes, 0.0) for each in (RANK, NODE, WORLD)])


def in_hbm(seconds: Floats) -> Floats:
    """[tiers, W]"""
    return np.stack([seconds, *[np.zeros(len(seconds))] * 3])


def steps_of(
    cluster: Topology, model: Workload, demand: Demand, conditions: Conditions | None = None, steps: int = 2
) -> Simulation:
    """The same demand step after step."""
    conditions = conditions or Conditions()
    network = SimulatedNetwork(cluster, rank_kinds(cluster, model), conditions.lost_cards)
    fill = ahead_of(model).fill_steps
    played = fill + steps + fill
    builder = Builder(network, model, software_coefficients(model.software), waits_for_data=conditions.data_loading)
    program = builder.build([demand] * played, conditions.slowness(network.world, played))
    run = Engine(program.graph, conditions.capacity(network), program.hubs).run()
    return Simulation(network, program, run, model, fill, steps)


def model_of(**given: object) -> Workload:
    return workload(TABLES, **{"pipeline": "none", "dense": {}, **given})


def kind_of(cluster: Topology, model: Workload) -> RankKind:
    return rank_kinds(cluster, model)[0]


def seconds(found: Simulation, name: str, rank: int = 0) -> float:
    """Of the first counted step."""
    (task,) = (each for each in found.program.tasks if each.name == name and each.step == found.fill)
    return float(found.run.end[task.last[rank]] - found.run.start[task.first[rank]])


def test_an_empty_step_is_its_overhead() -> None:
    cluster, model = topology(node_group("a", ranks=1)), model_of()
    software = software_coefficients(model.software)
    constants = software.step_overhead_s.value + software.forward_launch_s.value + software.backward_launch_s.value
    found = steps_of(cluster, model, nothing(1))
    copied = seconds(found, "copy to device")
    assert found.step_seconds == pytest.approx([constants + copied] * 2, rel=EXACT)


def test_two_ranks_and_one_link() -> None:
    """Vectors for the other rank leave over the sender's port: latency, then bytes over its rate."""
    cluster, model = topology(node_group("a", ranks=2)), model_of()
    kind = kind_of(cluster, model)
    demand = replace(nothing(2), vectors_to_each_bytes=np.array([30e6, 10e6]))
    found = steps_of(cluster, model, demand)
    latency = kind.link_all_to_all_latency_s or 0.0
    assert seconds(found, "output dist (table-wise)") == pytest.approx(latency + 30e6 / kind.link_all_to_all, rel=EXACT)
    assert seconds(found, "gradient dist (table-wise)") == pytest.approx(
        latency + 30e6 / kind.link_all_to_all, rel=EXACT
    )


def test_a_slow_receiver_holds_everybody_up() -> None:
    """At a tenth of its port, what rank 1 gets takes ten times as long, for both."""
    cluster, model = topology(node_group("a", ranks=2)), model_of()
    kind = kind_of(cluster, model)
    demand = replace(nothing(2), vectors_to_each_bytes=np.array([30e6, 30e6]))
    found = steps_of(cluster, model, demand, Conditions(slow_links={(Resource("link"), 1): 0.1}))
    latency = kind.link_all_to_all_latency_s or 0.0
    expected = latency + 300e6 / kind.link_all_to_all
    assert seconds(found, "output dist (table-wise)", 0) == pytest.approx(expected, rel=EXACT)
    assert seconds(found, "output dist (table-wise)", 1) == pytest.approx(expected, rel=EXACT)


def test_two_ranks_share_a_card() -> None:
    """Both ranks of a node send to both of the other over one card: four times what one sends to one."""
    cluster, model = topology(node_group("a", nodes=2, ranks=2, cards=1)), model_of()
    kind = kind_of(cluster, model)
    software = software_coefficients(model.software)
    demand = replace(nothing(4), vectors_to_each_bytes=np.array([5e6, 5e6, 0.0, 0.0]))
    found = steps_of(cluster, model, demand)
    latency = max(kind.link_all_to_all_latency_s or 0.0, software.collective_latency_s.value + 2e-6)
    assert seconds(found, "output dist (table-wise)") == pytest.approx(latency + 20e6 / kind.nic_all_to_all, rel=EXACT)


def test_a_lost_card_doubles_the_load_of_the_other() -> None:
    cluster, model = topology(node_group("a", nodes=2, ranks=2, cards=2)), model_of()
    demand = replace(nothing(4), vectors_to_each_bytes=np.full(4, 5e6))
    kind = kind_of(cluster, model)
    whole = steps_of(cluster, model, demand)
    lost = steps_of(cluster, model, demand, Conditions(lost_cards=(1,)))
    more = seconds(lost, "output dist (table-wise)") - seconds(whole, "output dist (table-wise)")
    assert more == pytest.approx(10e6 / kind.nic_all_to_all, rel=EXACT)


def test_a_ring_uses_both_directions() -> None:
    """Row-wise sums: (D - 1) / D of all samples' bytes leave and enter every port."""
    cluster, model = topology(node_group("a", ranks=4)), model_of()
    kind = kind_of(cluster, model)
    found = steps_of(cluster, model, replace(nothing(4), sums_bytes=in_extent(WORLD, np.full(4, 80e6))))
    latency = kind.link_all_to_all_latency_s or 0.0
    assert seconds(found, "output dist (row-wise)") == pytest.approx(latency + 60e6 / kind.link_all_to_all, rel=EXACT)


def test_phases_follow_each_other() -> None:
    """HugeCTR: the exchange inside the node first, then the one between nodes."""
    cluster = topology(node_group("a", nodes=2, ranks=2, cards=2))
    demand = replace(nothing(4), vectors_to_each_bytes=np.full(4, 5e6))
    found = {}
    for software in ("torchrec", "hugectr"):
        model = model_of(software=software)
        found[software] = seconds(steps_of(cluster, model, demand), "output dist (table-wise)")
    kind = kind_of(cluster, model_of())
    inside = (kind.link_all_to_all_latency_s or 0.0) + 5e6 / kind.link_all_to_all
    assert found["hugectr"] - found["torchrec"] == pytest.approx(inside, rel=EXACT)


def hiding(ids_s: float, update_s: float) -> tuple[float, float]:
    """(step, step without ids) when the next batch's ids take `ids_s` and the update `update_s`."""
    cluster, model = topology(node_group("a", ranks=2)), model_of(pipeline="sparse-dist")
    kind = kind_of(cluster, model)
    latency = kind.link_all_to_all_latency_s or 0.0
    update = replace(nothing(2), backward_s=in_hbm(np.full(2, update_s)))
    received = (ids_s - latency) * kind.link_all_to_all * 2  # half of them from the other rank
    with_ids = replace(update, ids_received_bytes=np.full(2, received))
    return tuple(steps_of(cluster, model, each, steps=4).step_s for each in (with_ids, update))  # type: ignore[return-value]


def test_ids_that_just_fit_and_that_just_do_not() -> None:
    """Ids leave after one forward pass and are needed by the next one: update, launches and overhead hide them."""
    software = software_coefficients("torchrec")
    hidden = software.backward_launch_s.value + 0.010 + software.step_overhead_s.value
    fits, without = hiding(hidden * 0.999, 0.010)
    assert fits == pytest.approx(without, rel=EXACT)
    late, without = hiding(hidden + 0.002, 0.010)
    assert late - without == pytest.approx(0.002, rel=EXACT)


def test_cache_misses_share_the_switch() -> None:
    """Two ranks behind one PCIe switch fetch at half the rate, unless their own links are what holds them up."""
    model = model_of()
    times = []
    for ranks_per_switch in (1, 2):
        cluster = topology(node_group("a", ranks=2, ranks_per_switch=ranks_per_switch))
        rate = kind_of(cluster, model).memories["ddr"].read_bytes_per_s
        moved = np.zeros((len(MEMORY_TIERS), 2))
        moved[MEMORY_DDR] = 100e6
        demand = replace(nothing(2), fetched_bytes=moved, fetched_s=2 * moved / rate)
        times.append(seconds(steps_of(cluster, model, demand), "cache fetch (DDR)"))
    kind = kind_of(cluster, model)
    passes = software_coefficients("torchrec").cache_fetch_passes.value
    host = 2 * 2 * 100e6 / kind.memories["ddr"].read_bytes_per_s  # both ranks, both directions
    assert times[0] == pytest.approx(max(100e6 / kind.pcie_bytes_per_s, host), rel=EXACT)
    assert times[1] == pytest.approx(max(200e6 / kind.pcie_bytes_per_s, host), rel=EXACT)
    assert passes < 1


def test_a_straggler_makes_everybody_wait() -> None:
    cluster, model = topology(node_group("a", ranks=2)), model_of()
    demand = replace(nothing(2), forward_s=in_hbm(np.full(2, 0.020)))
    slow = steps_of(cluster, model, demand, Conditions(slow_ranks={1: 1.5}))
    usual = steps_of(cluster, model, demand)
    launches = [software_coefficients("torchrec").forward_launch_s.value]
    launches += [software_coefficients("torchrec").backward_launch_s.value]
    assert slow.step_s - usual.step_s == pytest.approx(0.5 * (0.020 + sum(launches)), rel=EXACT)


def test_inference_has_no_backward_pass() -> None:
    cluster, model = topology(node_group("a", ranks=2)), model_of(mode="inference")
    found = steps_of(cluster, model, replace(nothing(2), forward_s=in_hbm(np.full(2, 0.020))))
    names = {task.name for task in found.program.tasks}
    assert not {"embedding update (hbm)", "all-reduce", "dense optimizer"} & names
    assert found.step_s > 0.020


def test_unknown_hardware_is_named() -> None:
    cluster, model = topology(node_group("a", ranks=2)), model_of()
    demand = nothing(2)
    with pytest.raises(ValueError, match="no rank 7"):
        steps_of(cluster, model, demand, Conditions(slow_ranks={7: 2.0}))
    with pytest.raises(ValueError, match="no uplink0 0; sorts of links are ddr, "):
        steps_of(cluster, model, demand, Conditions(slow_links={(Resource("uplink", level=0), 0): 0.5}))
    with pytest.raises(ValueError, match="no scale-out card 9"):
        steps_of(cluster, model, demand, Conditions(lost_cards=(9,)))
    with pytest.raises(ValueError, match="no scale-out card left"):
        steps_of(cluster, model, demand, Conditions(lost_cards=(0, 1)))
