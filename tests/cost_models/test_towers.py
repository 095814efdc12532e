"""Vectors through towers: loads worked out by hand, one tower, and what can only make a step shorter."""

from dataclasses import replace

import numpy as np
import pytest

from cost_models.registry import cost_model
from cost_models.resources import DEVICE, LINK_OUT, Resource
from cost_models.shards import COLUMN_WISE, NODE, RANK, ROW_WISE, TABLE_ROW_WISE, TABLE_WISE, WORLD, Blocks
from cost_models.step_costs import StepCosts
from cost_models.towers import why_no_towers
from tests.oracles.instances import node_group, topology, workload
from topologies.cluster import Topology
from topologies.errors import InputError

BATCH, DIM = 6144, 64
HOSTS, RANKS = 3, 2
RAILS_OUT, RAILS_IN = Resource("rails", "out"), Resource("rails", "in")


def cluster(hosts: int = HOSTS, **given: object) -> Topology:
    return topology(node_group("a", nodes=hosts, ranks=RANKS, **given))  # type: ignore[arg-type]


def model_of(at: Topology, exchange: str = "sptt", **fields: object) -> StepCosts:
    given = {"pipeline": "none", "global_batch": BATCH, "communication": {"backward": "fp16"}, **fields}
    trained = workload([{"rows": 1000, "dim": DIM}] * 8, **given)
    model = cost_model("physical", at, trained, exchange=exchange)  # type: ignore[arg-type]
    assert isinstance(model, StepCosts)
    return model


def loads(model: StepCosts, sharding: int) -> dict[tuple[str, Resource], tuple[float, float]]:
    """Seconds of one whole table on its holder, and on every rank, by stage and resource."""
    one = np.array([0])
    blocks = Blocks(one, one + sharding, one, one + DIM, np.zeros(1))
    costs = model.block_costs(blocks, 0)
    return {
        (model.stages[column.stage], column.resource): (float(costs.fixed[0, c]), float(costs.everywhere[0, c]))
        for c, column in enumerate(model.columns)
    }


@pytest.mark.parametrize("cards", [1, 2])
def test_whole_vectors_go_inside_a_host_and_then_among_peers(cards: int) -> None:
    """The holder sends all samples' vectors but its own peers' inside its host; every card of the host, shared or not,
    the vectors of its ranks' peers to the other hosts. Gradients have half the bytes."""
    model = model_of(cluster(cards=cards))
    (kind,), found = model.kinds, loads(model, TABLE_WISE)
    rate = model.port_bytes_per_s("output_intra_host", 0)
    inside = BATCH * DIM * 4 * (RANKS - 1) / RANKS / rate
    assert found["output_intra_host", LINK_OUT][0] == pytest.approx(inside)
    per_card = RANKS / cards * (BATCH / (HOSTS * RANKS)) * DIM * 4 * (HOSTS - 1)
    transposed = 2 * BATCH / RANKS * DIM * 4 / kind.hbm_bytes_per_s
    assert found["output_dist", RAILS_OUT][0] == pytest.approx(per_card / kind.nic_peers + transposed)
    assert found["gradient_dist", RAILS_IN][0] == pytest.approx((per_card / kind.nic_peers + transposed) / 2)
    assert found["output_dist", LINK_OUT] == (0.0, 0.0)


def test_holders_put_vectors_in_the_order_of_peers() -> None:
    """Bytes of all samples, read and written once, before the exchange and after that of gradients."""
    flat, sptt = (loads(model_of(cluster(), exchange), TABLE_WISE) for exchange in ("flat", "sptt"))
    permuted = 2 * BATCH * DIM * 4 / model_of(cluster()).kinds[0].hbm_bytes_per_s
    for stage, of_fp32 in (("lookup_forward", 1.0), ("lookup_backward", 0.5)):
        assert sptt[stage, DEVICE][0] - flat[stage, DEVICE][0] == pytest.approx(permuted * of_fp32)


def test_sums_of_a_node_are_reduced_inside_and_sums_of_all_ranks_stay_flat() -> None:
    """A node's ranks reduce, and each sends its share to its peers; nothing is permuted. Sums of all ranks cross what
    they cross in the flat exchange: ports beside peers, cards as one of their tower."""
    flat, sptt = model_of(cluster(), "flat"), model_of(cluster())
    (kind,), node = sptt.kinds, loads(sptt, TABLE_ROW_WISE)
    whole = BATCH * DIM * 4 * kind.sums_slowdown
    rate = sptt.port_bytes_per_s("output_intra_host", 0)
    assert node["output_intra_host", LINK_OUT][0] == pytest.approx(whole * (RANKS - 1) / RANKS / rate)
    shares = RANKS * node["output_dist", RAILS_OUT][0]
    assert shares == pytest.approx(whole * (HOSTS - 1) / HOSTS / RANKS / kind.nic_peers)
    assert node["lookup_forward", DEVICE] == loads(flat, TABLE_ROW_WISE)["lookup_forward", DEVICE]
    world, before = loads(sptt, ROW_WISE), loads(flat, ROW_WISE)
    assert world["output_intra_host", LINK_OUT] == (0.0, 0.0)
    cards = RANKS * world["output_dist", RAILS_OUT][0]
    assert before["output_dist", Resource("nic", "out")][0] == pytest.approx(cards)


@pytest.mark.parametrize("sharding", [TABLE_WISE, COLUMN_WISE, TABLE_ROW_WISE, ROW_WISE])
def test_within_one_host_or_without_one_nothing_changes(sharding: int) -> None:
    """Stages, loads and constants are those of the flat exchange, and where each rank is a host, too."""
    for at in (cluster(1), topology(node_group("a", nodes=4, ranks=1))):
        flat, sptt = model_of(at, "flat"), model_of(at)
        assert flat.stages == sptt.stages
        assert loads(flat, sharding) == loads(sptt, sharding)
        assert flat.constants.tolist() == sptt.constants.tolist()


def test_few_peers_reach_more_of_a_card_and_wait_less() -> None:
    """A card with one peer in each other host is no slower than one with all their ranks, and no later."""
    for hosts in (2, 8, 64):
        (kind,) = model_of(cluster(hosts), global_batch=2**18).kinds
        assert kind.nic_peers >= kind.nic_all_to_all
        assert kind.peers_hops_s <= kind.exchange_hops_s
    assert kind.nic_peers > kind.nic_all_to_all


def _faster(group: dict[str, object], link: str) -> dict[str, object]:
    links = dict(group["links"])  # type: ignore[call-overload]
    rate = {"scale_up": "600GB/s", "scale_out": "50GB/s"}[link]
    return {**group, "links": {**links, link: {**links[link], "bandwidth": rate}}}


@pytest.mark.parametrize("link", ["scale_up", "scale_out"])
def test_faster_links_never_lengthen_a_stage(link: str) -> None:
    """Of any sharding."""
    group = node_group("a", nodes=HOSTS, ranks=RANKS)
    slow, fast = model_of(topology(group)), model_of(topology(_faster(group, link)))
    for sharding in (TABLE_WISE, TABLE_ROW_WISE, ROW_WISE):
        after = loads(fast, sharding)
        assert all(after[place] <= before for place, before in loads(slow, sharding).items())


def test_more_bytes_take_longer() -> None:
    """Twice the batch, or vectors in fp32 instead of fp16, in every exchange of vectors."""
    exchanges = ("output_intra_host", "output_dist", "gradient_dist", "gradient_intra_host")
    usual = loads(model_of(cluster()), TABLE_WISE)
    for more in ({"global_batch": 2 * BATCH}, {"communication": {"forward": "fp32", "backward": "fp32"}}):
        larger = loads(model_of(cluster(), **more), TABLE_WISE)
        pairs = [(larger[place], usual[place]) for place in usual if place[0] in exchanges]
        assert all(after >= before for after, before in pairs)
        assert any(after > before for after, before in pairs)


def test_clusters_without_peers_are_refused_by_name() -> None:
    """Hosts of different sizes, hosts of several domains, ratings that know no such exchange; the remedy is said."""
    mixed = topology(node_group("a", nodes=2, ranks=2), node_group("b", nodes=1, ranks=4))
    split = node_group("a", nodes=2, ranks=4)
    split["links"] = {**split["links"], "scale_up": {"kind": "nvlink3", "bandwidth": "300GB/s", "domain": 2}}  # type: ignore[dict-item]
    one = model_of(cluster()).workload
    assert why_no_towers(cluster(), one) is None
    for at, words in ((mixed, "2 and 4 ranks"), (topology(split), "are not all in one scale-up domain")):
        assert words in (why_no_towers(at, one) or "")
        with pytest.raises(InputError, match="give flat"):
            model_of(at)
    with pytest.raises(InputError, match="knows the flat exchange alone; give flat"):
        cost_model("torchrec", cluster(), model_of(cluster()).workload, exchange="sptt")


@pytest.mark.parametrize("cards", [1, 2])
def test_a_tower_of_several_hosts_exchanges_over_their_cards_too(cards: int) -> None:
    """Two towers of two hosts: a holder sends a quarter of its vectors to each rank of its tower, over its port and its
    card; each of four ranks then sends a quarter of them, for the other tower's samples, over the tower's cards."""
    model = model_of(cluster(4, cards=cards), towers={"count": 2})
    (kind,), found, ranks = model.kinds, loads(model, TABLE_WISE), 4
    whole, port = BATCH * DIM * 4, model.port_bytes_per_s("output_intra_host", 0)
    assert found["output_intra_host", LINK_OUT][0] == pytest.approx(whole / ranks * (RANKS - 1) / port)
    for way in ("out", "in"):
        nic = found["output_intra_host", Resource("nic", way)][0]  # type: ignore[arg-type]
        assert nic == pytest.approx(whole / ranks * (ranks - RANKS) / kind.nic_in_tower)
    transposed = 2 * whole / ranks / kind.hbm_bytes_per_s
    per_card = whole / 2 / (2 * cards)
    assert found["output_dist", RAILS_OUT][0] == pytest.approx(per_card / kind.nic_peers + transposed)
    assert found["gradient_dist", RAILS_IN][0] == pytest.approx((per_card / kind.nic_peers + transposed) / 2)
    flat = loads(model_of(cluster(4, cards=cards), "flat"), TABLE_WISE)
    permuted = 2 * whole / kind.hbm_bytes_per_s
    assert found["lookup_forward", DEVICE][0] - flat["lookup_forward", DEVICE][0] == pytest.approx(permuted)


def test_sums_of_a_node_go_on_to_the_other_hosts_of_its_tower() -> None:
    """Reduced in the node; of its half of the sums each rank keeps a half for its node's peers, which have it, and
    sends the rest to the ranks of the other host; both hosts' cards send what peers get."""
    model = model_of(cluster(4), towers={"count": 2})
    (kind,), found = model.kinds, loads(model, TABLE_ROW_WISE)
    whole = BATCH * DIM * 4 * kind.sums_slowdown
    rate = model.port_bytes_per_s("output_intra_host", 0)
    assert found["output_intra_host", LINK_OUT][0] == pytest.approx(whole / 2 / rate)
    assert found["output_intra_host", Resource("nic", "out")][0] == pytest.approx(whole / 2 / 2 / kind.nic_in_tower)
    # a sum is held by the two ranks of a node, and sent by the four cards of their tower
    assert 2 * found["output_dist", RAILS_OUT][0] == pytest.approx(whole / 2 / 4 / kind.nic_peers)


def test_rates_in_a_tower_are_those_of_as_many_peers() -> None:
    """Of 32 hosts in towers of 4: six ranks beyond the host in an exchange inside, seven towers beside, as in a cluster
    that has no more; and as many towers as hosts change nothing."""
    (kind,), (small,) = model_of(cluster(32), towers={"count": 8}).kinds, model_of(cluster(4)).kinds
    assert (kind.nic_in_tower, kind.tower_hops_s) == (small.nic_all_to_all, small.exchange_hops_s)
    assert kind.in_tower.all_reduce_bytes_per_s == small.nic_all_reduce
    (eight,) = model_of(cluster(8)).kinds
    assert (kind.nic_peers, kind.peers_hops_s) == (eight.nic_peers, eight.peers_hops_s)
    usual, named = model_of(cluster()), model_of(cluster(), towers={"count": HOSTS})
    for sharding in (TABLE_WISE, TABLE_ROW_WISE, ROW_WISE):
        assert loads(usual, sharding) == loads(named, sharding)
    assert usual.constants.tolist() == named.constants.tolist()


@pytest.mark.parametrize(
    ("hosts", "count", "below", "words"),
    [
        (4, 3, 0, "has 4 scale-up domains, no multiple of 3; give a count of towers that divides 4"),
        (8, 2, 2, r"towers of 4 nodes begin or end among the 2 under .* \(towers.count 4 or 8 is\); give flat"),
        (12, 4, 4, r"towers of 3 nodes begin or end among the 4 under .* \(towers.count 3 or 6 or 12 is\); give flat"),
    ],
)
def test_uneven_towers_are_refused_by_name(hosts: int, count: int, below: int, words: str) -> None:
    """Hosts that towers do not divide; switches that towers cut, where these are oversubscribed. Two groups of nodes
    may not be in one tower."""
    document = cluster(hosts).model_dump(mode="json", exclude_unset=True)
    if below:
        document["network"]["levels"] = [{"name": "leaf", "nodes": below, "oversubscription": 2.0}]
    with pytest.raises(InputError, match=words):
        model_of(Topology.model_validate(document), towers={"count": count})
    mixed = topology(node_group("a", nodes=1, ranks=2), node_group("b", nodes=3, ranks=2, hbm_bytes_per_s=3e12))
    with pytest.raises(InputError, match="1 nodes of a do not fill whole towers of 2 scale-up domains"):
        model_of(mixed, towers={"count": 2})


def test_a_domain_of_several_nodes_is_one_tower() -> None:
    """Racks of two nodes: four ranks exchange inside, and each has one peer in the other rack."""
    group = node_group("a", nodes=4, ranks=2)
    group["links"] = {**group["links"], "scale_up": {"kind": "nvlink3", "bandwidth": "300GB/s", "domain": 4}}  # type: ignore[dict-item]
    model = model_of(topology(group))
    (kind,), found = model.kinds, loads(model, TABLE_ROW_WISE)
    whole = BATCH * DIM * 4 * kind.sums_slowdown
    inside = whole / 2 + whole / 2 / 4 * 2  # half of the sums to the other rank; of its share half to the other node
    rate = model.port_bytes_per_s("output_intra_host", 0)
    assert found["output_intra_host", LINK_OUT][0] == pytest.approx(inside / rate)
    assert [extent.size for extent in kind.extents] == [1, 2, 8, 1]
    assert (RANK, NODE, WORLD) == (0, 1, 2)
    assert replace(kind).tower.size == 4
