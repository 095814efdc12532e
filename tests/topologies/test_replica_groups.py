"""Groups of ranks: who is in them, and the cluster that one of them has to itself."""

import numpy as np
import pytest

from topologies.cluster import Topology
from topologies.errors import InputError
from topologies.fabric import Fabric
from topologies.loading import load_topology
from topologies.replica_groups import Layout, group_of, groups_per_card, ranks_of_groups


def changed(name: str, **paths: object) -> Topology:
    """A topology of the catalog with other values at paths below its first node group."""
    document = load_topology(name).model_dump(mode="json", exclude_unset=True)
    for path, value in paths.items():
        here = document["nodes"][0]
        *above, last = path.split("__")
        for key in above:
            here = here[key]
        here[last] = value
    return Topology.model_validate(document)


def test_the_ranks_of_groups_are_those_of_torchrec() -> None:
    """Eight ranks in two groups, by TorchRec's own example (`DMPCollection`)."""
    assert ranks_of_groups(8, 2, "intra").tolist() == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert ranks_of_groups(8, 2, "inter").tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    replicas = ranks_of_groups(8, 2, "intra").T
    assert replicas.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]


@pytest.mark.parametrize("layout", ["intra", "inter"])
@pytest.mark.parametrize("name", ["dgx-h100", "zionex-16", "gb200-nvl72"])
def test_a_group_has_its_share_of_every_card_and_switch(name: str, layout: Layout) -> None:
    """What all groups have together is what the cluster has: cards, switches' uplinks where groups share them."""
    whole = changed(name, count=16) if name == "dgx-h100" else load_topology(name)
    factor = 2
    if layout == "inter" and name == "gb200-nvl72":
        factor = 1 if whole.node_count % 2 else 2
    group = group_of(whole, factor, layout)
    assert group.world_size * factor == whole.world_size
    assert Topology.model_validate(group.model_dump(mode="json"))
    ours, theirs = Fabric(group), Fabric(whole)
    shared = groups_per_card(whole.nodes[0], factor, layout)
    assert factor * ours.nic_bytes_per_s.sum() == pytest.approx(shared * theirs.nic_bytes_per_s.sum())
    members = ranks_of_groups(whole.world_size, factor, layout)[0]
    assert np.array_equal(
        np.unique(theirs.domain_of_rank[members], return_inverse=True)[1],
        np.unique(ours.domain_of_rank, return_inverse=True)[1],
    )
    assert np.array_equal(np.unique(theirs.node_of_rank[members], return_inverse=True)[1], ours.node_of_rank)


@pytest.mark.parametrize(
    ("cards", "factor", "shared"), [(8, 2, 1), (8, 8, 1), (16, 4, 1), (4, 2, 2), (4, 4, 2), (1, 2, 2)]
)
def test_a_card_serves_ranks_of_several_groups(cards: int, factor: int, shared: int) -> None:
    """Eight ranks of a node, in `factor` groups, each with the cards that serve its own."""
    whole = changed("dgx-h100", count=2, links__scale_out__count=cards)
    assert groups_per_card(whole.nodes[0], factor, "intra") == shared
    serving = Fabric(whole).nic_of_rank
    group_of_rank = np.arange(8) % factor
    groups = [len(set(group_of_rank[serving[:8] == card])) for card in np.unique(serving[:8])]
    assert set(groups) == {shared}


def test_host_memory_is_divided_where_groups_share_nodes() -> None:
    """In intra layout a node's DDR serves all groups; in inter layout a group has whole nodes."""
    whole = load_topology("zionex-16")
    ddr = whole.nodes[0].host.ddr
    assert ddr is not None
    intra, inter = (group_of(whole, 4, layout).nodes[0].host.ddr for layout in ("intra", "inter"))
    assert intra is not None
    assert inter == ddr
    assert intra.capacity == ddr.capacity // 4
    assert intra.bandwidth == ddr.bandwidth / 4


def test_one_group_is_the_cluster() -> None:
    """One group has everything to itself."""
    whole = load_topology("zionex-16")
    assert group_of(whole, 1, "intra") is whole


@pytest.mark.parametrize(
    ("factor", "layout", "words"),
    [
        (3, "intra", "128 ranks are no multiple of 3"),
        (16, "intra", "8 accelerators a node, no multiple of 16"),
        (32, "inter", "16 nodes cannot be dealt out to 32 groups of whole nodes; 4 ranks cut a node"),
    ],
)
def test_groups_that_are_not_alike_are_refused(factor: int, layout: Layout, words: str) -> None:
    """With the numbers that do not go into each other."""
    with pytest.raises(InputError, match=words):
        group_of(load_topology("zionex-16"), factor, layout)


def test_uneven_shares_are_refused() -> None:
    """Of domains, cards and switches, which groups would cut unevenly."""
    six = changed("dgx-h100", count=4, accelerators__count=6, links__scale_out__count=2)
    with pytest.raises(InputError, match="3 accelerators share a scale-out card"):
        group_of(six, 2, "intra")
    levels = load_topology("zionex-16").model_dump(mode="json", exclude_unset=True)
    levels["network"] = {"levels": [{"name": "leaf", "nodes": 3, "oversubscription": 2.0}]}
    with pytest.raises(InputError, match="8 nodes cut the 3 under a leaf"):
        group_of(Topology.model_validate(levels), 2, "inter")
