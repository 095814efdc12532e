"""The links of a cluster as resources: which instance serves which rank, and what a byte takes of it."""

import numpy as np
import pytest

from cost_models.kinds import rank_kinds
from cost_models.resources import HOST_LINK, LINK_OUT, PCIE, Resource
from cost_models.simulator.graph import NONE
from cost_models.simulator.network import SimulatedNetwork
from tests.oracles.instances import node_group, topology, workload

MODEL = workload([{"rows": 1000, "dim": 64}], dense={})


def network(*groups: dict[str, object], lost_cards: tuple[int, ...] = ()) -> SimulatedNetwork:
    cluster = topology(*groups)
    return SimulatedNetwork(cluster, rank_kinds(cluster, MODEL), lost_cards)


def test_every_instance_has_a_number_of_its_own() -> None:
    """`number` finds what `instances` lists, resource by resource; what serves nobody stays NONE."""
    links = network(node_group("a", nodes=2, ranks=4, ranks_per_switch=2, ssd_bytes=1e12, scm_bytes=1e12))
    assert len(links.instances) == len(set(links.instances)) == links.count
    for number, (resource, instance) in enumerate(links.instances):
        assert links.number(resource, np.array([instance, NONE])).tolist() == [number, NONE]
    counts = {resource: sum(each == resource for each, _ in links.instances) for resource in links.first}
    assert counts[LINK_OUT] == counts[HOST_LINK] == 8
    assert counts[PCIE] == 4
    assert counts[Resource("scm")] == counts[Resource("ddr")] == 2
    assert Resource("remote") not in counts


def test_ranks_of_a_lost_card_use_another_of_their_node() -> None:
    links = network(node_group("a", nodes=2, ranks=4, cards=2), lost_cards=(0,))
    assert links.card_of_rank.tolist() == [1, 1, 1, 1, 2, 2, 3, 3]


def test_hosts_of_a_node_group_serve_all_its_nodes() -> None:
    """Remote memory is one for each group that has it, DDR one for each node."""
    links = network(node_group("a", nodes=2, remote_bytes=1e12), node_group("b", nodes=1, remote_bytes=1e12))
    assert links.pool_of_rank("remote").tolist() == [0, 0, 0, 0, 1, 1]
    assert links.pool_of_rank("ddr").tolist() == [0, 0, 1, 1, 2, 2]


def test_a_byte_crosses_its_own_link_and_the_switch() -> None:
    """At PCIe's rate on both; passes that wait for each other take the rank's link, and not the switch, that much."""
    links = network(node_group("a", ranks=2, ranks_per_switch=2))
    rate = links.kinds[0].pcie_bytes_per_s
    link, switch = links.host(waited=3.0)
    assert link.weight == pytest.approx([3 / rate] * 2)
    assert switch.weight == pytest.approx([1 / rate] * 2)
    assert switch.of[0] == switch.of[1]
    assert link.of[0] != link.of[1]


@pytest.mark.parametrize("domain", [2, 4, 8])
def test_extents_are_those_of_the_estimate(domain: int) -> None:
    """As many ranks in each group, and in each domain of it, counted here and stated there."""
    group = node_group("a", nodes=2, ranks=4)
    group["links"] = {**group["links"], "scale_up": {"kind": "nvlink3", "bandwidth": "300GB/s", "domain": domain}}  # type: ignore[dict-item]
    links = network(group)
    (kind,) = links.kinds
    for groups, stated in zip(links.extents, kind.extents, strict=True):
        assert set(groups.size.tolist()) == {stated.size}
        assert set(groups.part_size.tolist()) == {stated.per_domain}
