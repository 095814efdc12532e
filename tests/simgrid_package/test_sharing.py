"""Max-min fair sharing, against SimGrid's: flows over random links, and all-to-alls as one message for each pair."""

import itertools

import numpy as np
import pytest

from cost_models.kinds import rank_kinds
from cost_models.resources import Resource, Way
from cost_models.shards import NODE, WORLD, Floats
from cost_models.simulator.collectives import Collectives
from cost_models.simulator.conditions import Conditions
from cost_models.simulator.engine import Engine
from cost_models.simulator.graph import NONE, Graph, Use
from cost_models.simulator.messages import messages as messages_of
from cost_models.simulator.network import IN, OUT, SimulatedNetwork
from tests.oracles.instances import node_group, topology, workload
from tests.simgrid_package.simgrid_flows import Flow, played
from tests.simgrid_package.simgrid_messages import simgrid_ends

EXACT = 1e-6
MODEL = workload([{"rows": 1000, "dim": 64}], dense={})


@pytest.mark.parametrize("seed", range(20))
def test_flows_over_random_links(seed: int) -> None:
    """Each ends when it does in SimGrid, whatever it shares with others, and whenever they start."""
    random = np.random.default_rng(seed)
    links, count = int(random.integers(1, 12)), int(random.integers(1, 40))
    rates = 10 ** random.uniform(8, 10, links)
    width = int(random.integers(1, min(links, 5) + 1))
    used = [random.choice(links, int(random.integers(1, width + 1)), replace=False) for _ in range(count)]
    sizes = random.integers(10**6, 10**10, count)
    starts = np.where(random.random(count) < 0.5, 0.0, random.uniform(0, 5, count))
    graph = Graph()
    ready = graph.add(starts)
    padded = np.array([np.pad(of, (0, width - len(of)), constant_values=NONE) for of in used])
    uses = [Use(of, np.ones(count)) for of in padded.T]
    ends = graph.move(sizes.astype(float), uses, after=[ready])
    run = Engine(graph, rates).run()
    flows = [Flow(int(size), of, float(start)) for size, of, start in zip(sizes, used, starts, strict=True)]
    assert run.end[ends] == pytest.approx(played(rates, flows), rel=EXACT)


def cluster(random: np.random.Generator, *, nodes: tuple[int, int], ranks: tuple[int, int]) -> SimulatedNetwork:
    """Two groups of nodes that differ in links, cards and scale-up domains, under switches of which some are narrow."""
    groups = []
    for name, count, size in zip("ab", nodes, ranks, strict=True):
        cards = int(random.choice([each for each in (1, 2, 4) if size % each == 0]))
        group = node_group(name, nodes=count, ranks=size, cards=cards)
        scale_out = {**group["links"]["scale_out"], "bandwidth": f"{random.choice([12.5, 25, 50])}GB/s"}  # type: ignore[index]
        domain = int(random.choice([each for each in (1, 2, 4) if size % each == 0]))
        scale_up = {"kind": "nvlink3", "bandwidth": f"{random.choice([150, 300])}GB/s", "domain": domain}
        group["links"] = {**group["links"], "scale_out": scale_out, "scale_up": scale_up}  # type: ignore[dict-item]
        groups.append(group)
    more = {"oversubscription": float(random.choice([2.0, 3.0]))} if random.random() < 0.5 else {}
    built = topology(*groups, **more)
    return SimulatedNetwork(built, rank_kinds(built, MODEL))


def all_to_all_s(
    network: SimulatedNetwork, capacity: Floats, to_each: Floats, way: Way, *, beyond_node: bool
) -> tuple[Floats, Floats]:
    """[W] when all bytes of each rank are there: of our flows, and of SimGrid's messages of all pairs."""
    collectives = Collectives(network, capacity)
    near = network.extents[NODE] if beyond_node else None
    transfers = collectives.all_to_all(network.extents[WORLD], to_each, way, near)
    graph, ends = Graph(), np.zeros(network.world)
    moved = []
    for flow in (flow for transfer in transfers for flow in transfer.flows):
        moving = np.flatnonzero(flow.bytes > 0)
        uses, hubs = ([Use(use.of[moving], use.weight[moving]) for use in of] for of in (flow.uses, flow.hubs))
        moved.append((moving, graph.move(flow.bytes[moving], uses, hubs)))
    run = Engine(graph, capacity, collectives.hubs()).run()
    for moving, activities in moved:
        np.maximum.at(ends, moving, run.end[activities])
    pairs = [
        (a, b)
        for a, b in itertools.permutations(range(network.world), 2)
        if to_each[a] > 0 and not (beyond_node and network.node_of_rank[a] == network.node_of_rank[b])
    ]
    messages = {((a, b) if way == OUT else (b, a)): int(to_each[a]) for a, b in pairs}
    theirs = np.zeros(network.world)
    np.maximum.at(theirs, [a for a, _ in pairs], simgrid_ends(network, capacity, messages))
    return ends, theirs


@pytest.mark.parametrize("way", [OUT, IN])
@pytest.mark.parametrize("seed", range(10))
def test_an_all_to_all_of_unlike_ranks_is_its_messages(seed: int, way: Way) -> None:
    """Mixed kinds of rank in a cluster, cards of half the rate, slow links, a lost card, narrow switches, and ranks
    that have more for each other rank than others have: every rank is done when SimGrid's messages are."""
    random = np.random.default_rng(seed)
    network = cluster(random, nodes=(int(random.integers(1, 3)), int(random.integers(1, 3))), ranks=(4, 2))
    slow = {(network.instances[i][0], network.instances[i][1]): 0.5 for i in random.choice(2 * network.world, 2)}
    capacity = Conditions(slow_links=slow if seed % 2 else {}).capacity(network)
    to_each = np.where(random.random(network.world) < 0.2, 0, random.integers(10**8, 10**9, network.world))
    ours, theirs = all_to_all_s(network, capacity, to_each.astype(float), way, beyond_node=seed % 3 == 0)
    assert ours == pytest.approx(theirs, rel=EXACT)


@pytest.mark.parametrize("way", [OUT, IN])
@pytest.mark.parametrize("seed", range(4))
def test_an_all_to_all_of_two_alike_nodes_is_its_messages(seed: int, way: Way) -> None:
    """Ranks that share cards, and have more for others than some do: one flow stands for all messages of each."""
    random = np.random.default_rng(seed)
    built = topology(node_group("a", nodes=2, ranks=4, cards=int(random.choice([1, 2, 4]))))
    network = SimulatedNetwork(built, rank_kinds(built, MODEL))
    to_each = random.integers(10**8, 10**9, network.world).astype(float)
    ours, theirs = all_to_all_s(network, np.ones(network.count), to_each, way, beyond_node=False)
    assert ours == pytest.approx(theirs, rel=EXACT)


@pytest.mark.parametrize("seed", range(10))
def test_messages_meet_what_ranks_fetch_from_their_hosts(seed: int) -> None:
    """Over links of PCIe that lead to cards, or to the other ranks of a node, and to the host, beside links that lead
    to the host alone: each message and each fetch ends when it does in SimGrid."""
    random = np.random.default_rng(seed)
    groups = [
        node_group(
            name,
            nodes=2,
            ranks=2,
            has_scale_up=bool(random.random() < 0.5),
            ranks_per_switch=int(random.integers(1, 3)),
            nic_bytes_per_s=float(random.choice([12.5e9, 25e9])),
            cards_over_pcie=bool(random.random() < 0.7),
        )
        for name in "ab"
    ]
    built = topology(*groups)
    network = SimulatedNetwork(built, rank_kinds(built, MODEL), host_traffic=True)
    slow = {(Resource("host_link"), 1): 0.5} if seed % 2 else {}
    capacity = Conditions(slow_links=slow).capacity(network)
    sizes, fetched = (random.integers(10**8, 10**9, shape) for shape in ((network.world,) * 2, network.world))
    graph, sent, ends = Graph(), {}, []
    for sender, receiver in itertools.permutations(range(network.world), 2):
        alone = np.zeros_like(sizes, dtype=float)
        alone[sender, receiver] = sizes[sender, receiver]
        (flow,) = (flow for transfer in messages_of(network, alone) for flow in transfer.flows)
        one = np.array([sender])
        ends.append(graph.move(flow.bytes[one], [Use(use.of[one], use.weight[one]) for use in flow.uses]))
        sent[sender, receiver] = int(sizes[sender, receiver])
    ends.append(graph.move(fetched.astype(float), network.host(sent=1.0)))
    run = Engine(graph, capacity).run()
    theirs = simgrid_ends(network, capacity, sent, fetched.tolist())
    assert run.end[np.concatenate(ends)] == pytest.approx(theirs, rel=EXACT)
