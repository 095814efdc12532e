"""The fabric: index arrays, paths, and the bottleneck of a group against brute force over all pairs."""

import itertools
import math
import subprocess
import sys
import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.oracles.fabric_flows import all_to_all_bottleneck
from tests.oracles.fabric_graph import FabricGraph, Link
from topologies.cluster import Topology
from topologies.fabric import Fabric
from topologies.loading import load_topology


def _brute_force(fabric: Fabric, ranks: list[int]) -> float:
    """Bytes/s of each rank in an all-to-all, by walking the path of every ordered pair."""
    crossing: Counter[Link] = Counter()
    graph = FabricGraph(fabric)
    for a, b in itertools.permutations(ranks, 2):
        crossing.update(graph.path(a, b))
    bounds = [link.bandwidth_bytes_per_s * (len(ranks) - 1) / pairs for link, pairs in crossing.items()]
    return min(bounds, default=math.inf)


def _divisors(number: int) -> st.SearchStrategy[int]:
    return st.sampled_from([d for d in range(1, number + 1) if number % d == 0])


@st.composite
def _groups(draw: st.DrawFn, name: str) -> dict[str, object]:
    accelerators, count = draw(st.sampled_from([1, 2, 3, 4, 6])), draw(st.integers(1, 4))
    speed = st.integers(1, 400).map(lambda gigabytes: f"{gigabytes}GB/s")
    links: dict[str, object] = {
        "pcie": {
            "bandwidth": draw(speed),
            "accelerators_per_switch": draw(_divisors(accelerators)),
            "carries_scale_out": draw(st.booleans()),
        }
    }
    links["scale_out"] = {
        "kind": "roce",
        "bandwidth": draw(speed),
        "count": draw(st.one_of(_divisors(accelerators), st.just(2 * accelerators))),
    }
    if draw(st.booleans()):
        domains = [None, *(d for d in range(1, accelerators + 1) if accelerators % d == 0)]
        domains += [accelerators * k for k in range(2, count + 1) if count % k == 0]
        up = {"kind": "nvlink3", "bandwidth": draw(speed), "domain": draw(st.sampled_from(domains))}
        links["scale_up"] = up
    hbm = {"capacity": "40GB", "bandwidth": "1555GB/s"}
    device = {"count": accelerators, "device": "A100", "hbm": hbm, "flops": {"fp32": "19.5TFLOP/s"}}
    return {"name": name, "count": count, "accelerators": device, "links": links}


@st.composite
def _topologies(draw: st.DrawFn) -> Topology:
    groups = [draw(_groups(name)) for name in draw(st.sampled_from([["a"], ["a", "b"]]))]
    size, levels = 1, []
    for index in range(draw(st.integers(0, 2))):
        size *= draw(st.integers(2, 3))
        levels.append({"name": f"l{index}", "nodes": size, "oversubscription": draw(st.sampled_from([1, 1.5, 4]))})
    network = {"levels": levels, "rails": draw(st.booleans())}
    return Topology.model_validate({"name": "t", "nodes": groups, "network": network})


@settings(max_examples=150, deadline=None)
@given(_topologies(), st.data())
def test_bottleneck_equals_walking_all_pairs(topology: Topology, data: st.DataObject) -> None:
    """The closed form gives what counting the path of every pair gives, for any group and cluster."""
    fabric = Fabric(topology)
    world = topology.world_size
    ranks = data.draw(st.lists(st.integers(0, world - 1), min_size=1, max_size=12, unique=True))
    expected = _brute_force(fabric, ranks)
    assert all_to_all_bottleneck(fabric, ranks).bytes_per_s == pytest.approx(expected, rel=1e-12)
    bottleneck = all_to_all_bottleneck(fabric, ranks)
    assert bottleneck.bytes_per_s == pytest.approx(expected, rel=1e-12)
    assert (bottleneck.ends is None) == (len(ranks) == 1)


@settings(max_examples=60, deadline=None)
@given(_topologies(), st.data())
def test_paths_are_never_relayed_and_follow_the_order(topology: Topology, data: st.DataObject) -> None:
    """No path crosses a third rank; scale-up wins in a domain, PCIe in a node, own cards elsewhere."""
    fabric = Fabric(topology)
    assume(topology.world_size > 1)
    a, b = data.draw(st.lists(st.integers(0, topology.world_size - 1), min_size=2, max_size=2, unique=True))
    path = FabricGraph(fabric).path(a, b)
    assert path[0].start == ("rank", a)
    assert path[-1].end == ("rank", b)
    between = [link.end for link in path[:-1]]
    assert not [vertex for vertex in between if vertex[0] == "rank"]
    nics = [vertex[1] for vertex in between if vertex[0] == "nic"]
    if fabric.domain_of_rank[a] == fabric.domain_of_rank[b] and fabric.scale_up_bytes_per_s[a]:
        assert between == [("scale-up", fabric.domain_of_rank[a])]
    elif fabric.node_of_rank[a] == fabric.node_of_rank[b]:
        assert not nics
    else:
        assert nics == [fabric.nic_of_rank[a], fabric.nic_of_rank[b]]


def test_dgx_a100_inside_a_node_is_bound_by_nvlink() -> None:
    """Eight accelerators of one node exchange at their NVLink rate, 300 GB/s."""
    bottleneck = all_to_all_bottleneck(Fabric(load_topology("dgx-a100-80")), range(8))
    assert bottleneck.bytes_per_s == 300e9
    assert bottleneck.ends is not None
    assert bottleneck.ends[0][0] == "rank"
    assert bottleneck.ends[1][0] == "scale-up"


def test_two_dgx_a100_are_bound_by_their_cards() -> None:
    """Of 15 peers 8 are behind the card of 25 GB/s, so each rank sends 25 x 15 / 8 GB/s."""
    fabric = Fabric(load_topology("dgx-a100-80", nodes=2))
    bottleneck = all_to_all_bottleneck(fabric, range(16))
    assert bottleneck.bytes_per_s == pytest.approx(25e9 * 15 / 8)
    assert bottleneck.ends is not None
    link = FabricGraph(fabric).link(*bottleneck.ends)
    assert (link.kind, link.start) == ("infiniband", ("nic", 0))
    assert str(link) == "infiniband (nic 0 → core)"


def test_cards_that_are_shared_halve_the_rate() -> None:
    """Two V100 share a card of 12.5 GB/s: both send 8 of 15 parts through it."""
    fabric = Fabric(load_topology("dgx1-v100", nodes=2))
    assert fabric.nic_of_rank.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7]
    assert all_to_all_bottleneck(fabric, range(16)).bytes_per_s == pytest.approx(12.5e9 * 15 / 16)


def test_pcie_server_is_bound_by_the_uplinks_of_its_switches() -> None:
    """Four A40 behind a switch send 4 of 7 parts each over one uplink of 31.5 GB/s."""
    fabric = Fabric(load_topology("a40-8"))
    bottleneck = all_to_all_bottleneck(fabric, range(8))
    assert bottleneck.bytes_per_s == pytest.approx(31.5e9 * 7 / 16)
    assert bottleneck.ends == (("pcie", 0), ("host", 0))
    assert all_to_all_bottleneck(fabric, range(4)).bytes_per_s == 31.5e9


def test_nvl72_is_one_domain_over_18_nodes() -> None:
    """The ranks of an NVL72 rack reach each other over NVLink alone, those of two racks over cards."""
    fabric = Fabric(load_topology("gb200-nvl72"))
    assert set(fabric.domain_of_rank) == {0}
    assert all_to_all_bottleneck(fabric, range(72)).bytes_per_s == 900e9
    two = Fabric(load_topology("gb200-nvl72", nodes=36))
    assert all_to_all_bottleneck(two, range(144)).bytes_per_s == pytest.approx(50e9 * 143 / 72)


@pytest.mark.parametrize("nodes", [1, 2, 7, 18])
def test_a_part_of_a_rack_is_one_domain(nodes: int) -> None:
    """Trays of an NVL72 are all of their domain that there is, and no exchange of theirs needs a card."""
    topology = load_topology("gb200-nvl72", nodes=nodes)
    fabric = Fabric(topology)
    assert set(fabric.domain_of_rank) == {0}
    assert topology.nodes[0].domain_ranks == 4 * nodes
    assert all_to_all_bottleneck(fabric, range(4 * nodes)).bytes_per_s == 900e9


def test_oversubscribed_leaves_bind() -> None:
    """Leaves of two nodes with 4:1 uplinks: 16 of 31 parts of 16 ranks leave over 2 x 8 x 25 / 4 GB/s."""
    overrides = ["network={levels: [{name: leaf, nodes: 2, oversubscription: 4}]}"]
    fabric = Fabric(load_topology("dgx-a100-80", nodes=4, overrides=overrides))
    bottleneck = all_to_all_bottleneck(fabric, range(32))
    assert bottleneck.bytes_per_s == pytest.approx(100e9 * 31 / (16 * 16))
    assert bottleneck.ends is not None
    assert FabricGraph(fabric).link(*bottleneck.ends).kind == "leaf"


def test_rails_join_equal_cards_on_one_leaf() -> None:
    """With rails, cards of equal place share a leaf; another card is reached over the leaf's uplink."""
    overrides = ["network={levels: [{name: leaf, nodes: 4, oversubscription: 2}], rails: true}"]
    fabric = Fabric(load_topology("dgx-a100-80", nodes=4, overrides=overrides))
    assert fabric.rails == 8
    assert fabric.leaf_of_nic.tolist() == list(range(8)) * 4
    assert [link.end for link in FabricGraph(fabric).path(0, 8)][2:5] == [("switch", 0, 0), ("nic", 8), ("port", 8)]
    assert ("core",) in [link.end for link in FabricGraph(fabric).path(0, 9)]
    assert all_to_all_bottleneck(fabric, [0, 8, 16, 24]).bytes_per_s == 25e9


def test_several_cards_of_one_rank_are_one() -> None:
    """Four cards for two ranks are two of double bandwidth, or as much as the links of the ranks carry."""
    overrides = ["nodes.0.accelerators.count=2", "nodes.0.links.scale_out.count=4"]
    for carries, rate in (("false", 100e9), ("true", 63e9)):
        more = [f"nodes.0.links.pcie.carries_scale_out={carries}", "nodes.0.links.pcie.bandwidth=63GB/s"]
        fabric = Fabric(load_topology("h100-sxm-4", nodes=2, overrides=overrides + more))
        assert fabric.nic_of_rank.tolist() == [0, 1, 2, 3]
        assert fabric.nic_bytes_per_s.tolist() == [rate] * 4


def test_latency_of_a_path_counts_every_fabric_once() -> None:
    """PCIe, the card and the one leaf that is crossed."""
    overrides = ["network={levels: [{name: leaf, nodes: 2, latency: 3us}]}"]
    fabric = Fabric(load_topology("dgx-a100-80", nodes=2, overrides=overrides))
    assert sum(link.latency_s for link in FabricGraph(fabric).path(0, 8)) == pytest.approx(1e-6 + 2e-6 + 3e-6)
    assert sum(link.latency_s for link in FabricGraph(fabric).path(0, 1)) == pytest.approx(1e-6)


def test_host_tiers_hang_on_the_host() -> None:
    """DDR, SSD (reads and writes apart) and the front-end cards are links of the host."""
    fabric = Fabric(load_topology("zionex"))
    assert FabricGraph(fabric).link(("ddr", 0), ("host", 0)).bandwidth_bytes_per_s == 200e9
    assert FabricGraph(fabric).link(("ssd", 0), ("host", 0)).bandwidth_bytes_per_s == 6.4e9
    assert FabricGraph(fabric).link(("host", 0), ("ssd", 0)).bandwidth_bytes_per_s == 4e9
    assert FabricGraph(fabric).link(("front-end", 0), ("host", 0)).bandwidth_bytes_per_s == 50e9


def test_a_single_rank_sends_nothing_and_bad_groups_are_refused() -> None:
    """A group of one has no bound; an empty group and a rank given twice are errors."""
    fabric = Fabric(load_topology("zionex"))
    assert all_to_all_bottleneck(fabric, [3]).ends is None
    assert FabricGraph(fabric).path(3, 3) == ()
    for ranks in ([], [1, 1]):
        with pytest.raises(ValueError, match="at least one rank"):
            all_to_all_bottleneck(fabric, ranks)


def test_4096_ranks_are_fast() -> None:
    """Arrays and bottleneck of 512 nodes take a fraction of a second."""
    levels = "network={levels: [{name: leaf, nodes: 32, oversubscription: 2}], rails: true}"
    topology = load_topology("dgx-h100", nodes=512, overrides=[levels])
    all_to_all_bottleneck(Fabric(load_topology("zionex")), range(8))  # imports
    start = time.perf_counter()
    rate = all_to_all_bottleneck(Fabric(topology), np.arange(4096)).bytes_per_s
    assert time.perf_counter() - start < 0.5
    # 8 ranks of 32 nodes share 32 cards below a leaf with half their bandwidth above it
    assert rate == pytest.approx(32 * 50e9 / 2 * 4095 / (32 * (4096 - 8 - 31)))


def test_arrays_do_not_import_networkx() -> None:
    """Nor pandas."""
    code = (
        "import sys; from topologies import Fabric, load_topology; Fabric(load_topology('zionex-16'));"
        " sys.exit('networkx' in sys.modules or 'pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
