"""Exchanges through towers: what is sent, against every message written out one by one, and who waits for whom."""

from dataclasses import replace

import numpy as np
import pytest

from cost_models.kinds import rank_kinds
from cost_models.shards import HBM, NODE, TABLE_WISE, Blocks, Floats, PlacedShards
from cost_models.simulator.collectives import Collectives
from cost_models.simulator.network import SimulatedNetwork
from cost_models.simulator.program import Task
from cost_models.simulator.simulation import Simulation, simulate
from cost_models.simulator.tower_exchanges import TowerVectors
from tests.oracles.instances import node_group, topology, workload
from tests.oracles.simulated_steps import in_extent, nothing
from topologies.cluster import Topology
from topologies.replica_groups import LAYOUTS, Layout, ranks_of_groups

HOSTS, RANKS = 4, 4
WORLD = HOSTS * RANKS
CLUSTER = topology(node_group("a", nodes=HOSTS, ranks=RANKS))
MODEL = workload([{"rows": 1000, "dim": 64}], dense={})


def whole_tables(ranks: list[int]) -> PlacedShards:
    """A table of 1,000 rows and 64 columns on each of these ranks."""
    count = len(ranks)
    zeros = np.zeros(count, dtype=np.int64)
    blocks = Blocks(np.arange(count), zeros + TABLE_WISE, zeros + HBM, zeros + 64, np.zeros(count))
    return PlacedShards(blocks, np.array(ranks), zeros + 1000, np.ones(count, dtype=bool))


def network(cluster: Topology = CLUSTER, towers: int | None = None) -> SimulatedNetwork:
    return SimulatedNetwork(cluster, rank_kinds(cluster, MODEL), towers=towers)


def messages(columns: Floats, tower: int) -> tuple[Floats, Floats]:
    """[W] bytes that each rank sends inside its tower of so many ranks and to other towers, where rank r looks up
    `columns` [W] bytes of columns for each sample rank: every vector is followed from its holder to its sample, one by
    one."""
    inside, beyond = np.zeros(WORLD), np.zeros(WORLD)
    for holder in range(WORLD):
        for sample in range(WORLD):
            relay = holder // tower * tower + sample % tower
            inside[holder] += columns[holder] * (relay != holder)
            beyond[relay] += columns[holder] * (sample != relay)
    return inside, beyond


@pytest.mark.parametrize("towers", [None, 2])
def test_every_vector_takes_two_hops(towers: int | None) -> None:
    """From its holder to the rank of its tower, of one host or of two, at the sample's place, and on to the sample's
    rank."""
    columns = np.random.default_rng(1).uniform(1, 9, WORLD)
    ranks = network(towers=towers)
    vectors = TowerVectors(ranks, replace(nothing(WORLD), vectors_to_each_bytes=columns), (1.0, 1.0))
    inside, beyond = messages(columns, WORLD // (towers or HOSTS))
    collectives = Collectives(ranks)
    assert sum(each.sent for each in vectors.inside(collectives, "out")) == pytest.approx(inside)
    assert sum(each.sent for each in vectors.among_peers(collectives, "out")) == pytest.approx(beyond)
    assert sum(each.received for each in vectors.inside(collectives, "in")) == pytest.approx(inside)
    assert sum(each.received for each in vectors.among_peers(collectives, "in")) == pytest.approx(beyond)


def test_a_vector_crosses_a_card_where_its_tower_has_other_hosts() -> None:
    """Of what a rank sends inside a tower of two hosts, that to the other host's ranks."""
    columns = np.random.default_rng(2).uniform(1, 9, WORLD)
    ranks = network(towers=2)
    vectors = TowerVectors(ranks, replace(nothing(WORLD), vectors_to_each_bytes=columns), (1.0, 1.0))
    near, far = (
        sum(each.sent for each in vectors.inside(Collectives(ranks), "out") if each.inside == inside)
        for inside in (True, False)
    )
    assert near == pytest.approx(columns * 2 * (RANKS - 1))
    assert far == pytest.approx(columns * 2 * RANKS)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("towers", [None, 2])
def test_groups_have_towers_of_their_own(layout: Layout, towers: int | None) -> None:
    """A tower is what a group has of a host, or of so many hosts that it has as many towers; peers are those at one
    place in the towers of their group."""
    groups = ranks_of_groups(WORLD, 2, layout)
    group_of_rank = np.empty(WORLD, dtype=np.int64)
    group_of_rank[groups] = np.arange(2)[:, None]
    ranks = SimulatedNetwork(CLUSTER, rank_kinds(CLUSTER, MODEL), group_of_rank=group_of_rank, towers=towers)
    expected_towers, expected_peers = set(), set()
    for members in groups:
        hosts = np.unique(members // RANKS)
        for number in np.array_split(hosts, towers or len(hosts)):
            expected_towers.add(tuple(members[np.isin(members // RANKS, number)].tolist()))
        own = [tower for tower in sorted(expected_towers) if tower[0] in members]
        expected_peers |= set(zip(*own, strict=True))
    for found, expected in ((ranks.towers, expected_towers), (ranks.peers, expected_peers)):
        parts = {tuple(np.flatnonzero(found.group_of_rank == one).tolist()) for one in range(found.count)}
        assert parts == expected


def test_sums_of_a_node_are_reduced_on_the_way() -> None:
    """Each of n ranks sends (n - 1) / n of its sums inside, and its share for the peers of every sample it has."""
    sums = np.repeat([12.0, 24.0, 36.0, 48.0], RANKS)
    ranks = network()
    vectors = TowerVectors(ranks, replace(nothing(WORLD), sums_bytes=in_extent(NODE, sums)), (1.0, 1.0))
    collectives, slower = Collectives(ranks), ranks.kinds[0].sums_slowdown
    inside = sum(each.sent for each in vectors.inside(collectives, "out"))
    assert inside == pytest.approx(sums * slower * (RANKS - 1) / RANKS)
    beyond = sum(each.sent for each in vectors.among_peers(collectives, "out"))
    assert beyond == pytest.approx(sums * slower / RANKS * (HOSTS - 1) / HOSTS)


def played(exchange: str) -> Simulation:
    """Two tables on a rank of the first host, one on the second."""
    trained = workload([{"rows": 1000, "dim": 64}] * 3, dense={}, pipeline="none")
    placed = whole_tables([0, 0, RANKS])
    return simulate(CLUSTER, trained, placed, exchange=exchange, steps=1)  # type: ignore[arg-type]


def _task(simulation: Simulation, name: str) -> Task:
    return next(task for task in simulation.program.tasks if task.name == name and task.step == simulation.fill)


def test_the_timeline_names_every_hop_in_order() -> None:
    """Permute, intra-host, transpose, peers; gradients come back in the reverse order."""
    simulation = played("sptt")
    order = [
        "output dist (intra-host)",
        "output dist (transpose)",
        "output dist (peers)",
        "gradient dist (peers)",
        "gradient dist (transpose)",
        "gradient dist (intra-host)",
    ]
    tasks = [_task(simulation, name) for name in order]
    starts = [float(simulation.run.start[task.first].max()) for task in tasks]
    assert starts == sorted(starts)
    names = {task.name for task in simulation.program.tasks}
    assert {"permute", *order} <= names
    assert not names & {task.name for task in played("flat").program.tasks if task.is_exchange} - {"input dist"}


def test_hosts_do_not_wait_for_each_other_inside() -> None:
    """The second host, with one table, ends its exchange before the first, with two; peers then wait for both."""
    simulation = played("sptt")
    inside = simulation.run.end[_task(simulation, "output dist (intra-host)").last].reshape(HOSTS, RANKS)
    assert inside[1].max() < inside[0].max()
    peers = simulation.run.end[_task(simulation, "output dist (peers)").last]
    assert peers.min() > inside.max()


def test_one_host_plays_the_flat_exchange() -> None:
    """To the last event."""
    one, trained = topology(node_group("a", ranks=4)), workload([{"rows": 1000, "dim": 64}] * 2)
    placed = whole_tables([0, 3])
    flat, sptt = (simulate(one, trained, placed, exchange=exchange, steps=1) for exchange in ("flat", "sptt"))  # type: ignore[arg-type]
    assert flat.step_s == sptt.step_s
    assert [task.name for task in flat.program.tasks] == [task.name for task in sptt.program.tasks]
