"""What traffic between ranks asks of ports, cards, and switches above them."""

import numpy as np
import pytest

from cost_models.kinds import rank_kinds
from cost_models.shards import WORLD
from cost_models.simulator.network import OUT, SimulatedNetwork
from cost_models.simulator.process_groups import ProcessGroups
from cost_models.simulator.traffic import LinkTraffic
from tests.oracles.instances import node_group, topology, workload

MODEL = workload([{"rows": 1000, "dim": 64}], dense={})
CLUSTER = topology(node_group("a", nodes=4, ranks=2, cards=1), oversubscription=3.0)
NETWORK = SimulatedNetwork(CLUSTER, rank_kinds(CLUSTER, MODEL))


def test_ranks_that_share_a_card_name_the_same_one() -> None:
    """Ports are each rank's own; the card of a node is one resource for both of its ranks."""
    traffic, everyone = LinkTraffic(NETWORK), NETWORK.extents[WORLD]
    (port,) = traffic.port(OUT)
    assert len(set(port.of.tolist())) == 8
    card = traffic.card(everyone, OUT)[0]
    assert [int(np.sum(card.of == each)) for each in np.unique(card.of)] == [2] * 4


def test_only_traffic_beyond_a_switch_goes_up() -> None:
    """A rank's share is that of the ranks outside its node that other switches hold, counted one by one."""
    pairs = ProcessGroups(np.array([0, 1, 0, 1, 2, 3, 2, 3]), NETWORK.domain_of_rank)
    for groups in (NETWORK.extents[WORLD], pairs):
        _, uplink = LinkTraffic(NETWORK).card(groups, OUT)
        (level,) = NETWORK.oversubscribed
        switch, group = NETWORK.switch_of_rank(level), groups.group_of_rank
        for rank in range(8):
            away = (group == group[rank]) & (NETWORK.domain_of_rank != NETWORK.domain_of_rank[rank])
            above = away & (switch != switch[rank])
            rate = NETWORK.fabric.switch_bytes_per_s[level][switch[rank]]
            assert uplink.weight[rank] == pytest.approx(above.sum() / max(away.sum(), 1) / rate)
