"""What ranks move to and from their hosts, worked out by hand; equal to 0.1 %."""

from dataclasses import replace

import numpy as np
import pytest

from cost_models.coefficients import software_coefficients
from cost_models.kinds import rank_kinds
from cost_models.resources import FRONT_END
from cost_models.shards import MEMORY_DDR, MEMORY_SCM, MEMORY_TIERS, WORLD
from cost_models.simulator.collectives import Collectives
from cost_models.simulator.conditions import Conditions
from cost_models.simulator.engine import Engine
from cost_models.simulator.graph import Graph
from cost_models.simulator.network import OUT, SimulatedNetwork
from tests.oracles.instances import node_group, topology
from tests.oracles.simulated_steps import EXACT, kind_of, model_of, nothing, seconds, steps_of


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


@pytest.mark.parametrize("over_pcie", [True, False])
def test_misses_and_gradients_share_the_way_into_a_rank(over_pcie: bool) -> None:
    """A fetch of 100 MB and a card's 100 MB cross one link: at half its rate each, or as fast as the card is and the
    fetch with the rest. With lanes of its own neither slows down the other."""
    cluster, model = topology(node_group("a", nodes=2, ranks=1, cards_over_pcie=over_pcie)), model_of()
    kinds = rank_kinds(cluster, model)
    network = SimulatedNetwork(cluster, kinds, host_traffic=True)
    graph, collectives = Graph(), Collectives(network)
    (flow,) = (flow for transfer in collectives.all_to_all(network.extents[WORLD], np.full(2, 100e6), OUT)
               if not transfer.inside for flow in transfer.flows)  # fmt: skip
    exchanged = graph.move(flow.bytes, flow.uses, flow.hubs)
    fetched = graph.move(np.full(2, 100e6), network.fetch("ddr", np.zeros(2), 1.0))
    ends = Engine(graph, np.ones(network.count), collectives.hubs()).run().end
    pcie, card = kinds[0].pcie_bytes_per_s, kinds[0].nic_all_to_all
    assert pcie / 2 < card < pcie
    assert ends[exchanged] == pytest.approx(100e6 / (pcie / 2 if over_pcie else card))
    assert ends[fetched] == pytest.approx(100e6 / (pcie / 2 if over_pcie else pcie))


def test_data_arrive_before_they_are_copied_where_steps_wait_for_them() -> None:
    """4 MB of ids for both ranks over a front-end card of 12.5 GB/s, of which a tenth is left: 6.4 ms a step."""
    group = node_group("a", ranks=2)
    card = {"kind": "ethernet", "count": 1, "bandwidth": "12.5GB/s"}
    cluster = topology({**group, "links": {**group["links"], "front_end": card}})  # type: ignore[dict-item]
    demand = replace(nothing(2), raw_ids_per_sample_bytes=2000.0 - 4)
    late = Conditions(data_loading=True, slow_links={(FRONT_END, 0): 0.1})
    model = model_of()
    waits, hidden = (steps_of(cluster, model, demand, conditions) for conditions in (late, None))
    assert seconds(hidden, "data loading") == pytest.approx(4096 * 2000 / 12.5e9, rel=EXACT)
    assert seconds(waits, "data loading") == pytest.approx(4096 * 2000 / 1.25e9, rel=EXACT)
    assert waits.step_s > hidden.step_s + 6e-3


def test_rows_in_two_memories_are_read_at_once() -> None:
    """In place, from DDR and storage-class memory: the step waits for the later of them, then goes on."""
    cluster, model = topology(node_group("a", ranks=1, scm_bytes=1e11)), model_of()
    moved = np.zeros((len(MEMORY_TIERS), 1))
    moved[MEMORY_DDR], moved[MEMORY_SCM] = 10e6, 5e6
    busy = moved / 1e9
    simulation = steps_of(cluster, model, replace(nothing(1), forward_host_bytes=moved, forward_host_s=busy))
    named = {task.name: task for task in simulation.program.tasks if task.step == simulation.fill}
    ddr, scm = named["lookup (PCIe)"], named["lookup, SCM (PCIe)"]
    start, end = simulation.run.start, simulation.run.end
    assert start[ddr.first[0]] == start[scm.first[0]]
    assert seconds(simulation, "lookup (PCIe)") == pytest.approx(10e-3, rel=EXACT)
    assert seconds(simulation, "lookup, SCM (PCIe)") == pytest.approx(5e-3, rel=EXACT)
    assert start[named["embedding update (hbm)"].first[0]] >= max(end[ddr.last[0]], end[scm.last[0]])


def test_a_rank_alone_fetches_at_the_rate_of_its_links() -> None:
    """Its own link takes the software's passes, the switch one: the larger number binds."""
    cluster = topology(node_group("a", ranks=1))
    model = model_of()
    moved = np.zeros((len(MEMORY_TIERS), 1))
    moved[MEMORY_DDR] = 100e6
    simulation = steps_of(cluster, model, replace(nothing(1), fetched_bytes=moved))
    passes = software_coefficients("torchrec").cache_fetch_passes.value
    expected = max(passes, 1.0) * 100e6 / kind_of(cluster, model).pcie_bytes_per_s
    assert seconds(simulation, "cache fetch (DDR)") == pytest.approx(expected, rel=EXACT)
