"""Collectives among process groups: bytes and times against messages that are counted one by one."""

import itertools
from collections import defaultdict

import numpy as np
import pytest

from cost_models.kinds import rank_kinds
from cost_models.shards import NODE, WORLD, Floats
from cost_models.simulator.collectives import Collectives, Transfer
from cost_models.simulator.engine import Engine
from cost_models.simulator.graph import Graph, Use
from cost_models.simulator.network import IN, OUT, SimulatedNetwork
from cost_models.simulator.process_groups import ProcessGroups
from tests.oracles.instances import node_group, topology, workload

MODEL = workload([{"rows": 1000, "dim": 64}], dense={})
BYTES = 3e6


def network(*, domain: int = 4, oversubscription: float | None = None) -> SimulatedNetwork:
    """Four nodes of four ranks."""
    group = node_group("a", nodes=4, ranks=4)
    group["links"] = {**group["links"], "scale_up": {"kind": "nvlink3", "bandwidth": "300GB/s", "domain": domain}}  # type: ignore[dict-item]
    more = {} if oversubscription is None else {"oversubscription": oversubscription}
    cluster = topology(group, **more)
    return SimulatedNetwork(cluster, rank_kinds(cluster, MODEL))


def grouped(cluster: SimulatedNetwork, name: str) -> ProcessGroups:
    """All ranks, the ranks of each node, or the groups of two or four replicas, interleaved or in halves."""
    ranks = np.arange(16)
    numbers = {
        "world": ranks * 0,
        "nodes": ranks // 4,
        "interleaved": ranks % 2,
        "halves": ranks // 8,
        "peers": ranks % 4,
    }
    return ProcessGroups(numbers[name], cluster.domain_of_rank)


GROUPS = ("world", "nodes", "interleaved", "halves", "peers")
CLUSTERS = [(4, None), (2, None), (8, None), (4, 3.0)]


def seconds(cluster: SimulatedNetwork, laws: Collectives, transfers: list[Transfer]) -> float:
    """When everything has arrived that moves at once on otherwise idle links."""
    graph = Graph()
    for each in (flow for transfer in transfers for flow in transfer.flows):
        moving = np.flatnonzero(each.bytes > 0)
        uses, hubs = ([Use(use.of[moving], use.weight[moving]) for use in of] for of in (each.uses, each.hubs))
        graph.move(each.bytes[moving], uses, hubs)
    return float(Engine(graph, np.ones(cluster.count), laws.hubs()).run().end.max())


def busiest(cluster: SimulatedNetwork, pairs: list[tuple[int, int]]) -> float:
    """Seconds of the busiest link when the first rank of every pair sends BYTES to the second."""
    (kind,) = cluster.kinds
    load: dict[tuple[object, ...], float] = defaultdict(float)
    for sender, receiver in pairs:
        if cluster.domain_of_rank[sender] == cluster.domain_of_rank[receiver]:
            ends, rate = ("link", sender, receiver), kind.link_all_to_all
            load[ends[0], OUT, sender] += BYTES / rate
            load[ends[0], IN, receiver] += BYTES / rate
            continue
        for way, rank in ((OUT, sender), (IN, receiver)):
            load["nic", way, rank] += BYTES / kind.nic_all_to_all
        for level in cluster.oversubscribed:
            switch = cluster.switch_of_rank(level)
            if switch[sender] != switch[receiver]:
                rates = cluster.fabric.switch_bytes_per_s[level]
                load[level, OUT, switch[sender]] += BYTES / rates[switch[sender]]
                load[level, IN, switch[receiver]] += BYTES / rates[switch[receiver]]
    return max(load.values(), default=0.0)


@pytest.mark.parametrize(("domain", "oversubscription"), CLUSTERS)
@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("way", [OUT, IN])
def test_an_all_to_all_is_its_messages(name: str, way: str, domain: int, oversubscription: float | None) -> None:
    """Among any groups it takes as long as the busiest link needs for the messages of all pairs of ranks."""
    cluster = network(domain=domain, oversubscription=oversubscription)
    groups, laws = grouped(cluster, name), Collectives(cluster)
    number = groups.group_of_rank
    pairs = [(a, b) for a, b in itertools.permutations(range(16), 2) if number[a] == number[b]]
    transfers = laws.all_to_all(groups, np.full(16, BYTES), way)
    assert sum(float(each.sent.sum()) for each in transfers) == pytest.approx(len(pairs) * BYTES)
    assert seconds(cluster, laws, transfers) == pytest.approx(busiest(cluster, pairs))


@pytest.mark.parametrize("domain", [2, 4, 8])
def test_an_all_to_all_beyond_smaller_groups(domain: int) -> None:
    """Ranks send nothing to those of their own node, whether scale-up domains are smaller or larger than nodes."""
    cluster = network(domain=domain)
    everyone, nodes, laws = cluster.extents[WORLD], cluster.extents[NODE], Collectives(cluster)
    pairs = [(a, b) for a, b in itertools.permutations(range(16), 2) if a // 4 != b // 4]
    transfers = laws.all_to_all(everyone, np.full(16, BYTES), OUT, beyond=nodes)
    inside = sum(cluster.domain_of_rank[a] == cluster.domain_of_rank[b] for a, b in pairs)
    assert transfers[0].sent.sum() == pytest.approx(inside * BYTES)
    assert sum(float(each.sent.sum()) for each in transfers) == pytest.approx(len(pairs) * BYTES)
    assert seconds(cluster, laws, transfers) == pytest.approx(busiest(cluster, pairs))


def sent(transfers: list[Transfer]) -> Floats:
    """[W]"""
    return np.sum([each.sent for each in transfers], axis=0)


@pytest.mark.parametrize("domain", [2, 4, 8])
@pytest.mark.parametrize("name", GROUPS)
def test_sums_are_sent_once_to_reduce_and_twice_to_have_them_everywhere(name: str, domain: int) -> None:
    """Each of k ranks sends (k - 1) / k of its bytes; a share of 1/d is reduced between domains that have d of them."""
    cluster = network(domain=domain)
    groups, laws = grouped(cluster, name), Collectives(cluster)
    members = groups.size
    group, domain_of_rank = groups.group_of_rank, cluster.domain_of_rank
    own = np.array([np.sum((group == group[r]) & (domain_of_rank == domain_of_rank[r])) for r in range(16)])
    size = np.linspace(1e6, 2e6, 16)
    scattered, reduced = laws.reduce_scatter(groups, size), laws.all_reduce(groups, size)
    assert sent(scattered) == pytest.approx(size * (members - 1) / members)
    assert sent(reduced) == pytest.approx(2 * size * (members - 1) / members)
    across = sent([each for each in scattered if not each.inside])
    assert across == pytest.approx(size / own * (1 - own / members))


def test_reductions_take_the_rate_of_reductions() -> None:
    """An all-reduce inside a node lasts as long as 2 (d - 1) / d of the bytes at the measured rate of one."""
    cluster = network()
    laws = Collectives(cluster)
    transfers = laws.all_reduce(cluster.extents[NODE], np.full(16, BYTES))
    (kind,) = cluster.kinds
    assert seconds(cluster, laws, transfers) == pytest.approx(2 * BYTES * 3 / 4 / kind.link_all_reduce)
