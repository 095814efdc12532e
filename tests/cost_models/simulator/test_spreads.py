"""All-to-alls of ranks that are not alike, against one transfer for each message; half-rate cards by hand."""

import itertools

import numpy as np
import pytest

from cost_models.kinds import rank_kinds
from cost_models.resources import NIC_IN, Resource, Way
from cost_models.shards import NODE, WORLD, Floats
from cost_models.simulator import spreads
from cost_models.simulator.collectives import Collectives
from cost_models.simulator.conditions import Conditions
from cost_models.simulator.engine import Engine
from cost_models.simulator.graph import Graph, Use
from cost_models.simulator.network import IN, OUT, SimulatedNetwork
from tests.oracles.instances import node_group, topology, workload

MODEL = workload([{"rows": 1000, "dim": 64}], dense={})
BYTES = 1e9


def mixed(nodes: int = 1) -> SimulatedNetwork:
    """Nodes of two ranks with a card each, half of them with cards of half the rate."""
    groups = [node_group(name, nodes=nodes, nic_bytes_per_s=rate) for name, rate in (("fast", 25e9), ("slow", 12.5e9))]
    cluster = topology(*groups)
    return SimulatedNetwork(cluster, rank_kinds(cluster, MODEL))


def ends_s(network: SimulatedNetwork, to_each: Floats, way: Way, conditions: Conditions | None = None) -> Floats:
    """[W] when all bytes of each rank are there."""
    capacity = (conditions or Conditions()).capacity(network)
    collectives = Collectives(network, capacity)
    graph, moved = Graph(), []
    for each in collectives.all_to_all(network.extents[WORLD], to_each, way):
        for flow in each.flows:
            moving = np.flatnonzero(flow.bytes > 0)
            uses, hubs = ([Use(use.of[moving], use.weight[moving]) for use in of] for of in (flow.uses, flow.hubs))
            moved.append((moving, graph.move(flow.bytes[moving], uses, hubs)))
    run = Engine(graph, capacity, collectives.hubs()).run()
    ends: Floats = np.zeros(network.world)
    for moving, activities in moved:
        np.maximum.at(ends, moving, run.end[activities])
    return ends


def messages_s(network: SimulatedNetwork, to_each: Floats, way: Way, conditions: Conditions) -> Floats:
    """The same of one transfer for each pair of ranks over the ports, or cards, of both."""
    graph, pairs = Graph(), [(a, b) for a, b in itertools.permutations(range(network.world), 2) if to_each[a]]
    own, other = np.array(pairs).T
    inside = network.domain_of_rank[own] == network.domain_of_rank[other]
    uses = []
    for rank, end in ((own, way), (other, IN if way == OUT else OUT)):
        kinds = [network.kinds[kind] for kind in network.kind_of_rank[rank]]
        rate = np.array(
            [k.link_all_to_all if near else k.nic_all_to_all for k, near in zip(kinds, inside, strict=True)]
        )
        port, card = (
            network.number(Resource("link", end), rank),
            network.number(Resource("nic", end), network.card_of_rank[rank]),
        )
        uses.append(Use(np.where(inside, port, card), 1 / rate))
    moves = graph.move(to_each[own], uses)
    run = Engine(graph, conditions.capacity(network)).run()
    ends: Floats = np.zeros(network.world)
    np.maximum.at(ends, own, run.end[moves])
    return ends


def test_a_slow_domain_receives_at_its_own_rate() -> None:
    """What the ranks of the fast node send takes as long as the slow node's cards need: twice as long as over their
    own; and the other way round as long, since the slow ones send no faster."""
    network = mixed()
    fast, slow = (kind.nic_all_to_all for kind in network.kinds)
    assert fast == pytest.approx(2 * slow)
    only_fast, only_slow = np.array([BYTES, BYTES, 0, 0]), np.array([0, 0, BYTES, BYTES])
    assert ends_s(network, only_fast, OUT)[:2] == pytest.approx([2 * BYTES / slow] * 2)
    assert ends_s(network, only_slow, OUT)[2:] == pytest.approx([2 * BYTES / slow] * 2)
    assert ends_s(network, only_slow, IN)[2:] == pytest.approx([2 * BYTES / slow] * 2)


@pytest.mark.parametrize("way", [OUT, IN])
@pytest.mark.parametrize("seed", range(6))
def test_every_rank_is_done_when_its_messages_are(seed: int, way: Way) -> None:
    """Mixed cards, a slow card and a slow port, any bytes: nobody waits for a receiver that others wait for."""
    random, network = np.random.default_rng(seed), mixed(nodes=2)
    conditions = Conditions(slow_links={(NIC_IN, seed): 0.3, (Resource("link"), 7 - seed): 0.01})
    to_each = np.where(random.random(8) < 0.2, 0.0, random.uniform(0.1, 1, 8) * BYTES)
    assert ends_s(network, to_each, way, conditions) == pytest.approx(messages_s(network, to_each, way, conditions))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("way", [OUT, IN])
def test_full_links_of_the_sending_node_hold_up_no_sender(seed: int, way: Way) -> None:
    """Where nodes are alike one flow stands for all messages of a rank. What its own node receives, it does not send:
    while that fills the node's cards, its ranks send on, and are done when their messages are."""
    cluster, random = topology(node_group("a", nodes=2, cards=1)), np.random.default_rng(seed)
    network, to_each = SimulatedNetwork(cluster, rank_kinds(cluster, MODEL)), random.uniform(0.1, 1.0, 4) * BYTES
    conditions = Conditions()
    assert ends_s(network, to_each, way) == pytest.approx(messages_s(network, to_each, way, conditions), rel=1e-9)


def test_receivers_told_apart_by_their_links_alone_end_nearly_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in clusters that are too large to tell them apart one by one: within 5 %."""
    monkeypatch.setattr(spreads, "MOST_FLOWS", 0)
    for seed in range(6):
        network, to_each = mixed(nodes=4), np.random.default_rng(seed).uniform(0.5, 1, 16) * BYTES
        messages = messages_s(network, to_each, OUT, Conditions())
        assert ends_s(network, to_each, OUT) == pytest.approx(messages, rel=0.05)


def test_links_are_as_busy_as_their_bytes_make_them() -> None:
    """What one rank sends loads each other rank's card, and not those of its own node: no rank gets its own bytes."""
    network = mixed(nodes=2)
    collectives = Collectives(network)
    _, outside = collectives.all_to_all(network.extents[WORLD], np.eye(8)[0] * BYTES, OUT, network.extents[NODE])
    hubs = collectives.hubs()
    load = np.zeros(network.count)
    for flow in outside.flows:
        for use in flow.hubs:
            here = (hubs.hub[:, None] == use.of) * flow.bytes * use.weight
            np.add.at(load, hubs.resource, hubs.weight * here.sum(axis=1))
    rates = network.of_kind([kind.nic_all_to_all for kind in network.kinds])
    received = load[network.number(NIC_IN, network.card_of_rank)] * rates
    assert received == pytest.approx([0, 0] + [BYTES] * 6)
