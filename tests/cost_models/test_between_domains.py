"""Collectives between scale-up domains: never above the wire, slower with peers and doublings, by algorithm."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models.between_domains import all_to_all_rate, between_domains, rail_peers
from cost_models.coefficients import link_coefficients
from cost_models.collective_laws import wire_bytes
from cost_models.groups import RankGroup, all_reduce
from cost_models.kinds import RankKind, rank_kinds
from cost_models.registry import cost_model
from cost_models.shards import HBM, TABLE_ROW_WISE, TABLE_WISE, Blocks, PlacedShards
from cost_models.simulator.simulation import simulate
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology
from topologies.errors import InputError
from topologies.loading import TOPOLOGIES, load_topology

LINKS = ("infiniband", "roce", "ethernet", "a new kind")
LINE = 50e9
PUBLISHED_BUS_BYTES_PER_S = {16: 38e9, 32: 24e9, 128: 16e9, 256: 15e9}
"""DMT (arXiv:2403.00877), figure 5: all-to-all of 256 MB among A100, eight a node with a RoCE card of 25 GB/s each."""


def reached(link: str, domains: int, each: int, *, in_phases: bool = False, in_network: bool = False):
    """What a card achieves among so many domains of so many ranks."""
    found = link_coefficients(link, "default-scale-out")
    world = RankGroup(each, each, domains * each)
    return between_domains(found, LINE, world, 3e11, in_phases=in_phases, in_network=in_network)


def kind_of(cluster: Topology, software: str) -> RankKind:
    return rank_kinds(cluster, workload([{"rows": 1000, "dim": 64, "pooling_factor": 4}], software=software))[0]


def a_step(cluster: Topology, **fields) -> tuple[float, float]:
    """Seconds estimated and simulated of one table on every rank."""
    given = workload(
        [{"rows": 100_000, "dim": 64, "pooling_factor": 4}] * cluster.world_size,
        global_batch=512 * cluster.world_size,
        **fields,
    )
    n = cluster.world_size
    zeros = np.zeros(n, dtype=np.int64)
    blocks = Blocks(np.arange(n), zeros + TABLE_WISE, zeros + HBM, zeros + 64, np.zeros(n))
    placed = PlacedShards(blocks, np.arange(n), np.full(n, 100_000), np.ones(n, dtype=bool))
    return cost_model("physical", cluster, given).evaluate(placed).step_s, simulate(cluster, given, placed).step_s


@given(
    st.sampled_from(LINKS), st.integers(2, 4096), st.sampled_from([1, 2, 4, 8, 72]), st.booleans(), st.floats(1e9, 9e11)
)
def test_no_collective_between_domains_is_above_the_wire(
    link: str, domains: int, each: int, in_phases: bool, inside: float
) -> None:
    """Among any number of domains of any number of ranks, in phases or not, no card carries more than its line rate."""
    world = RankGroup(each, each, domains * each)
    found = link_coefficients(link, "default-scale-out")
    card = between_domains(found, LINE, world, inside, in_phases=in_phases, in_network=False)
    assert 0 < card.all_to_all_bytes_per_s <= LINE
    assert 0 < card.all_reduce_bytes_per_s <= LINE


@pytest.mark.parametrize("name", sorted(TOPOLOGIES.names()))
@pytest.mark.parametrize("nodes", [1, 2, 16])
def test_no_collective_inside_a_domain_is_above_its_port(name: str, nodes: int) -> None:
    """In no topology of the catalog, whatever the protocol; with one rank a node, neither."""
    whole = load_topology(name, nodes=nodes if nodes > 1 and load_topology(name).nodes[0].links.scale_out else None)
    for group, kind in zip(whole.nodes, rank_kinds(whole, workload([{"rows": 9, "dim": 8}])), strict=True):
        up = group.links.scale_up
        port = up.bandwidth if up else group.links.pcie.bandwidth
        for protocol in (*kind.exchange_protocols, *kind.reduction_protocols):
            assert protocol.bytes_per_s <= port


@pytest.mark.parametrize("link", LINKS)
def test_a_flat_exchange_decays_with_scale_and_one_along_the_rails_hardly_does(link: str) -> None:
    """From 2 to 128 domains of 8: a flat one loses a quarter and more; one in phases has 127 peers in place of 1,016,
    and at 8 domains it has lost nothing."""
    flat = [reached(link, domains, 8).all_to_all_bytes_per_s for domains in (2, 8, 16, 128)]
    rails = [reached(link, domains, 8, in_phases=True).all_to_all_bytes_per_s for domains in (2, 8, 16, 128)]
    assert flat == sorted(flat, reverse=True)
    assert flat[-1] < 0.75 * flat[0]
    assert rails[0] == rails[1] == flat[0]
    assert rails[-1] > flat[-1]
    assert reached(link, 128, 8).exchange_s > reached(link, 128, 8, in_phases=True).exchange_s


@pytest.mark.parametrize(("ranks", "bus"), PUBLISHED_BUS_BYTES_PER_S.items())
def test_published_all_to_alls(ranks: int, bus: float) -> None:
    """38, 24, 16 and 15 GB/s among 16 to 256 A100 over RoCE, each within 5 %."""
    card = between_domains(
        link_coefficients("roce", "default-scale-out"),
        25e9,
        RankGroup(8, 8, ranks),
        2e11,
        in_phases=False,
        in_network=False,
    )
    seconds = card.exchange_s + 256e6 * (1 - 8 / ranks) / card.all_to_all_bytes_per_s
    assert float(wire_bytes("all_to_all", 256e6, ranks)) / seconds == pytest.approx(bus, rel=0.05)


def test_the_software_decides_on_the_peers_of_a_card() -> None:
    """On one cluster TorchRec's card has the ranks of all other nodes as peers, HugeCTR's one of each."""
    cluster = load_topology("dgx-h100", nodes=64)
    flat, phased = kind_of(cluster, "torchrec"), kind_of(cluster, "hugectr")
    link = link_coefficients("infiniband", "default-scale-out")
    assert flat.nic_all_to_all == pytest.approx(all_to_all_rate(link, LINE, 63 * 8))
    assert phased.nic_all_to_all == pytest.approx(all_to_all_rate(link, LINE, 63))


@pytest.mark.parametrize(("per_domain", "peers"), [(8, 15), (16, 14), (64, 8)])
def test_sums_of_nodes_have_one_peer_a_node(per_domain: int, peers: int) -> None:
    """Among 16 nodes of 8 ranks: one in each other node, less those in the domain of several nodes."""
    assert rail_peers(RankGroup(8, per_domain, 128)) == peers


@pytest.mark.parametrize("oversubscription", [1.0, 16.0])
def test_sums_of_nodes_take_the_rate_of_few_peers_in_torchrec(oversubscription: float) -> None:
    """A table on each of 32 nodes of 4, its rows cut over the ranks: each sends a quarter of the sums of the samples
    elsewhere at the rate of 31 peers, not 124; or over the node's switch. By hand, estimated and simulated."""
    nodes, each, samples, dim = 32, 4, 2048, 256
    cluster = topology(node_group("a", nodes=nodes, ranks=each), oversubscription=oversubscription)
    world = nodes * each
    model = workload([{"rows": 4000, "dim": dim}] * nodes, global_batch=world * samples, software="torchrec", dense={})
    table, rank = np.repeat(np.arange(nodes), each), np.arange(world)
    alike = np.zeros(world, dtype=np.int64)
    blocks = Blocks(table, alike + TABLE_ROW_WISE, alike + HBM, alike + dim, np.zeros(world))
    placed = PlacedShards(blocks, rank, np.full(world, 1000), rank % each == 0)
    costs = cost_model("physical", cluster, model)
    evaluation = costs.evaluate(placed)
    stage = costs.stages.index("output_dist")
    link = link_coefficients("roce", "default-scale-out")
    rate = min(all_to_all_rate(link, 25e9, nodes - 1), 25e9 / oversubscription)
    expected = float(costs.constants[stage]) + (nodes - 1) * each * samples * dim * 4 / each / rate
    assert all_to_all_rate(link, 25e9, nodes - 1) > 1.1 * all_to_all_rate(link, 25e9, world - each)
    assert evaluation.stage_seconds[stage] == pytest.approx(expected)
    assert simulate(cluster, model, placed).step_s == pytest.approx(evaluation.step_s, rel=0.01)


@pytest.mark.parametrize("link", LINKS)
def test_a_tree_grows_by_doublings_and_a_ring_by_members(link: str) -> None:
    """Each doubling of the domains adds as much to an all-reduce, each domain as much to a ring."""
    cards = [reached(link, domains, 8) for domains in (2, 4, 8, 16)]
    trees, rings = [card.reduction_s for card in cards], [card.ring_s for card in cards]
    assert np.diff(trees) == pytest.approx(trees[0])
    assert trees[0] > 0
    assert np.diff(rings) == pytest.approx([2 * rings[1] / 2, 4 * rings[1] / 2, 8 * rings[1] / 2])
    assert rings[0] == 0 < rings[1]


def test_messages_over_the_kernel_wait_longer_than_remote_memory_access() -> None:
    """Ethernet without RDMA has longer hops than RoCE; RoCE's all-reduce is slower than InfiniBand's."""
    ethernet, roce, infiniband = (reached(link, 8, 8) for link in ("ethernet", "roce", "infiniband"))
    assert ethernet.reduction_s > roce.reduction_s
    assert ethernet.all_to_all_bytes_per_s < roce.all_to_all_bytes_per_s
    assert roce.all_reduce_bytes_per_s < infiniband.all_reduce_bytes_per_s


@pytest.mark.parametrize("each", [1, 8])
@pytest.mark.parametrize("nodes", [2, 16])
def test_switches_that_reduce_take_each_share_once(each: int, nodes: int) -> None:
    """With SHARP the share of a rank crosses its card once each way, and the tree does not grow."""
    world = RankGroup(each, each, each * nodes)
    once, ring = all_reduce(world, 8e6, in_network=True), all_reduce(world, 8e6)
    assert once.card == pytest.approx(8e6 / each)
    assert ring.card == pytest.approx(2 * 8e6 / each * (1 - 1 / nodes))
    assert reached("infiniband", 64, 8, in_network=True).reduction_s == reached("infiniband", 2, 8).reduction_s


def test_sharp_is_stated_by_the_system_and_shortens_its_step() -> None:
    """Off unless a file says so; then estimate and simulation are shorter by about as much."""
    plain = load_topology("dgx-h100", nodes=16)
    sharp = load_topology("dgx-h100", nodes=16, overrides=["network.in_network_reduction=sharp"])
    assert not plain.network.reduces
    fields = {"software": "hugectr", "dense": {"macs_per_sample": 10**6, "parameters": 16 * 10**6}}
    estimates, played = zip(a_step(plain, **fields), a_step(sharp, **fields), strict=True)
    assert estimates[1] < estimates[0]
    assert played[0] - played[1] == pytest.approx(estimates[0] - estimates[1], rel=0.1)


def test_sharp_inside_one_node_changes_nothing() -> None:
    """Nothing crosses a card."""
    plain, sharp = (
        a_step(load_topology("dgx-h100", nodes=1, overrides=overrides))
        for overrides in ([], ["network.in_network_reduction=sharp"])
    )
    assert plain == sharp


def test_switches_that_reduce_are_of_infiniband() -> None:
    """On other networks SHARP is refused, with the node group that has another."""
    overrides = ["network.in_network_reduction=sharp", "nodes.0.links.scale_out.kind=roce"]
    with pytest.raises(InputError, match=r"InfiniBand.*'roce'"):
        load_topology("dgx-h100", nodes=4, overrides=overrides)


def test_a_topology_that_does_not_mention_it_keeps_its_fingerprint() -> None:
    """The field is left out of the hash where switches do not reduce."""
    cluster = load_topology("dgx-h100", nodes=2)
    stated = load_topology("dgx-h100", nodes=2, overrides=["network.in_network_reduction=none"])
    assert cluster.fingerprint() == stated.fingerprint()
    assert "in_network_reduction" not in cluster.model_dump(mode="json")["network"]


def test_one_rank_a_node_reduces_no_faster_than_its_wire() -> None:
    """Two to sixteen nodes of one rank over RoCE: at most 0.95 of the line rate, in the estimate's own record."""
    for nodes in (2, 4, 16):
        cluster = topology(node_group("a", nodes=nodes, ranks=1, nic_bytes_per_s=25e9))
        group = cluster.nodes[0]
        assert group.links.scale_out is not None
        cards = group.links.scale_out.model_copy(update={"kind": "roce"})
        links = group.links.model_copy(update={"scale_out": cards})
        roce = cluster.model_copy(update={"nodes": (group.model_copy(update={"links": links}),)})
        assert kind_of(roce, "torchrec").nic_all_reduce <= 0.95 * 25e9


def test_records_are_of_seconds_and_bytes() -> None:
    """Nothing is negative, also of one domain."""
    for value in dataclasses.asdict(reached("infiniband", 1, 8)).values():
        assert value >= 0
