"""The exchanges of a step: who waits for whom, and what is sent, worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from cost_models.coefficients import software_coefficients
from cost_models.kinds import RankKind, rank_kinds
from cost_models.resources import Resource
from cost_models.shards import NODE, RANK, WORLD, Floats
from cost_models.simulator.collectives import Collectives
from cost_models.simulator.conditions import Conditions
from cost_models.simulator.demand import Demand
from cost_models.simulator.engine import Engine, Run
from cost_models.simulator.exchanges import Exchanges
from cost_models.simulator.network import IN, OUT, SimulatedNetwork
from cost_models.simulator.program import COMPUTE, Label, Streams, Task
from tests.oracles.instances import node_group, topology, workload
from tests.oracles.simulated_steps import EXACT, in_extent, kind_of, law_s, model_of, nothing, seconds, steps_of
from topologies.cluster import Topology

MODEL = workload([{"rows": 1000, "dim": 64}], dense={})
SUMS = 4e6


def cluster(nodes: int, domain: int = 4) -> Topology:
    """Nodes of four ranks."""
    group = node_group("a", nodes=nodes, ranks=4)
    group["links"] = {**group["links"], "scale_up": {"kind": "nvlink3", "bandwidth": "300GB/s", "domain": domain}}  # type: ignore[dict-item]
    return topology(group)


class Stage:
    """The exchanges of one stage, on ranks that come to it at given times."""

    def __init__(
        self,
        topology: Topology,
        demand: Demand,
        comes_s: Floats,
        way: str = OUT,
        kinds: tuple[RankKind, ...] | None = None,
    ) -> None:
        self.network = SimulatedNetwork(topology, kinds or rank_kinds(topology, MODEL))
        streams, collectives = Streams(self.network.world), Collectives(self.network)
        exchanges = Exchanges(streams, self.network, collectives, software_coefficients("torchrec"))
        there = streams.run(Label("before", "lookup", COMPUTE, 0), comes_s)
        exchanges.outputs(0, demand, (1.0, 1.0), "dist", way, there)
        self.tasks = {task.name: task for task in streams.program.tasks}
        self.run: Run = Engine(streams.graph, np.ones(self.network.count), collectives.hubs()).run()

    def sent(self, name: str) -> Floats:
        """[W] bytes."""
        sent = self.tasks[name].sent_bytes
        assert sent is not None
        return sent

    def end(self, name: str) -> Floats:
        """[W]"""
        task: Task = self.tasks[name]
        return self.run.end[task.last]


def demand(world: int, **fields: Floats) -> Demand:
    return replace(nothing(world), **fields)


@pytest.mark.parametrize("domain", [1, 2, 4, 8])
@pytest.mark.parametrize("way", [OUT, IN])
def test_sums_of_a_node_are_reduced_and_sent_to_the_other_nodes(domain: int, way: str) -> None:
    """Each of n ranks sends (n - 1) / n of its sums to its node, and a share to every rank beyond, however many
    accelerators the scale-up fabric joins."""
    world = 8
    stage = Stage(cluster(2, domain), demand(world, sums_bytes=in_extent(NODE, np.full(world, SUMS))), np.zeros(8), way)
    slower = stage.network.kinds[0].sums_slowdown
    expected = slower * SUMS * (3 / 4 + 1 / 4 * (world - 4) / world)
    assert stage.sent("dist (node)") == pytest.approx(np.full(world, expected))
    assert set(stage.tasks) == {"before", "dist (node)"}


def test_a_kind_of_sharding_that_no_table_has_is_not_exchanged() -> None:
    """Nothing is recorded, and nobody waits for anybody."""
    stage = Stage(cluster(1), nothing(4), np.array([0.0, 0.0, 1.0, 0.0]))
    assert set(stage.tasks) == {"before"}
    assert sorted(stage.run.end)[-1] == 1.0


def test_all_wait_for_the_last() -> None:
    """Sums of all ranks are complete nowhere before everybody is there, on either node."""
    comes = np.array([0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    sums = demand(8, sums_bytes=in_extent(WORLD, np.full(8, SUMS)))
    assert Stage(cluster(2), sums, comes).end("dist (row-wise)").min() > 2.0
    assert Stage(cluster(2), sums, comes * 0).end("dist (row-wise)").max() < 2.0


def test_groups_do_not_wait_for_each_other() -> None:
    """Ranks of one half that come late hold up the all-reduce of their half alone; and it moves as many bytes."""
    network = SimulatedNetwork(cluster(2), rank_kinds(cluster(2), MODEL))
    streams, collectives = Streams(8), Collectives(network)
    exchanges = Exchanges(streams, network, collectives, software_coefficients("torchrec"))
    comes = streams.run(Label("before", "dense backward", COMPUTE, 0), np.array([0.0] * 7 + [2.0]))
    ends = exchanges.all_reduce(0, network.extents[NODE], SUMS, comes)
    run = Engine(streams.graph, np.ones(network.count), collectives.hubs()).run()
    kind = network.kinds[0]
    lasts = law_s(kind.reduction_protocols, 2 * SUMS * 3 / 4)
    assert run.end[ends] == pytest.approx([lasts] * 4 + [2.0 + lasts] * 4)


def test_extents_have_the_ranks_of_their_blocks() -> None:
    """One rank, the ranks of a node, all ranks."""
    network = SimulatedNetwork(cluster(2), rank_kinds(cluster(2), MODEL))
    assert [int(network.extents[extent].size[0]) for extent in (RANK, NODE, WORLD)] == [1, 4, 8]


def test_two_ranks_and_one_link() -> None:
    """Vectors for the other rank leave over the sender's port: latency, then bytes over its rate."""
    cluster, model = topology(node_group("a", ranks=2)), model_of()
    kind = kind_of(cluster, model)
    demand = replace(nothing(2), vectors_to_each_bytes=np.array([30e6, 10e6]))
    steps = steps_of(cluster, model, demand)
    for name in ("output dist (table-wise)", "gradient dist (table-wise)"):
        assert seconds(steps, name) == pytest.approx(law_s(kind.exchange_protocols, 30e6), rel=EXACT)


@pytest.mark.parametrize("size", [1e2, 1e4, 1e5, 1e6, 4e6, 1e7, 1e9])
@pytest.mark.parametrize("ranks", [2, 4])
def test_every_exchange_takes_the_fastest_protocol_for_its_bytes(size: float, ranks: int) -> None:
    """Small and large exchanges of one step each take the least of their protocols, whatever the others move."""
    cluster, model = topology(node_group("a", ranks=ranks)), model_of()
    kind = kind_of(cluster, model)
    demand = replace(nothing(ranks), vectors_to_each_bytes=np.full(ranks, size / (ranks - 1)))
    steps = steps_of(cluster, model, replace(demand, ids_received_bytes=np.full(ranks, 3e7)))
    assert seconds(steps, "output dist (table-wise)") == pytest.approx(law_s(kind.exchange_protocols, size), rel=EXACT)
    ids = law_s(kind.exchange_protocols, 3e7 * (ranks - 1) / ranks)
    assert seconds(steps, "input dist") == pytest.approx(ids, rel=EXACT)


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("held", ["by one", "by all alike"])
def test_ports_that_take_turns(ranks: int, held: str) -> None:
    """Each is busy for half of what it sends and gets: that of a holder of all vectors, or of any of alike ranks."""
    cluster = topology(node_group("a", ranks=ranks))
    kinds = tuple(replace(kind, link_takes_turns=True) for kind in rank_kinds(cluster, MODEL))
    to_each = np.where(np.arange(ranks) == 0, 30e6, 0.0) if held == "by one" else np.full(ranks, 30e6)
    stage = Stage(cluster, demand(ranks, vectors_to_each_bytes=to_each), np.zeros(ranks), kinds=kinds)
    sent, got = to_each * (ranks - 1), to_each.sum() - to_each
    busiest = float((sent + got).max()) / 2
    expected = law_s(kinds[0].exchange_protocols, busiest)
    assert stage.end("dist (table-wise)").max() == pytest.approx(expected, rel=1e-5)


def test_sums_take_as_long_over_ports_that_take_turns() -> None:
    """All ranks send as much as they get, as in the measurement."""
    sums, ends = demand(4, sums_bytes=in_extent(WORLD, np.full(4, SUMS))), []
    for turns in (False, True):
        kinds = tuple(replace(kind, link_takes_turns=turns) for kind in rank_kinds(cluster(1), MODEL))
        ends.append(Stage(cluster(1), sums, np.zeros(4), kinds=kinds).end("dist (row-wise)"))
    assert ends[0] == pytest.approx(ends[1])


def test_a_slow_receiver_holds_everybody_up() -> None:
    """At a tenth of its port, what rank 1 gets takes ten times as long as at the rate of many bytes, for both."""
    cluster, model = topology(node_group("a", ranks=2)), model_of()
    kind = kind_of(cluster, model)
    demand = replace(nothing(2), vectors_to_each_bytes=np.array([30e6, 30e6]))
    steps = steps_of(cluster, model, demand, Conditions(slow_links={(Resource("link"), 1): 0.1}))
    expected = (kind.exchange_protocols[0].latency_s or 0.0) + 300e6 / kind.link_all_to_all
    assert seconds(steps, "output dist (table-wise)", 0) == pytest.approx(expected, rel=EXACT)
    assert seconds(steps, "output dist (table-wise)", 1) == pytest.approx(expected, rel=EXACT)


def test_two_ranks_share_a_card() -> None:
    """Both ranks of a node send to both of the other over one card: four times what one sends to one."""
    cluster, model = topology(node_group("a", nodes=2, ranks=2, cards=1)), model_of()
    kind = kind_of(cluster, model)
    software = software_coefficients(model.software)
    demand = replace(nothing(4), vectors_to_each_bytes=np.array([5e6, 5e6, 0.0, 0.0]))
    steps = steps_of(cluster, model, demand)
    latency = max(
        kind.exchange_protocols[0].latency_s or 0.0, software.collective_latency_s.value + 2e-6 + kind.exchange_hops_s
    )
    assert seconds(steps, "output dist (table-wise)") == pytest.approx(latency + 20e6 / kind.nic_all_to_all, rel=EXACT)


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
    steps = steps_of(cluster, model, replace(nothing(4), sums_bytes=in_extent(WORLD, np.full(4, 80e6))))
    assert seconds(steps, "output dist (row-wise)") == pytest.approx(law_s(kind.exchange_protocols, 60e6), rel=EXACT)


def test_phases_follow_each_other() -> None:
    """HugeCTR: the exchange inside the node first, then the one between nodes."""
    cluster = topology(node_group("a", nodes=2, ranks=2, cards=2))
    demand = replace(nothing(4), vectors_to_each_bytes=np.full(4, 5e6))
    exchange_s = {}
    for software in ("torchrec", "hugectr"):
        model = model_of(software=software)
        exchange_s[software] = seconds(steps_of(cluster, model, demand), "output dist (table-wise)")
    kind, along_rails = kind_of(cluster, model_of()), kind_of(cluster, model_of(software="hugectr"))
    inside = law_s(kind.exchange_protocols, 5e6)
    fewer_peers = kind.exchange_hops_s - along_rails.exchange_hops_s
    assert exchange_s["hugectr"] - exchange_s["torchrec"] == pytest.approx(inside - fewer_peers, rel=EXACT)
