"""Sites of the extents that costs know: the same groups of ranks as costs and simulator have."""

import numpy as np

from cost_models.kinds import rank_kinds
from cost_models.shards import EXTENTS
from cost_models.simulator.network import SimulatedNetwork
from cost_models.workload.loading import load_workload
from planner.formulation.sites import sites_on
from topologies.loading import load_topology


def test_planner_costs_and_simulator_mean_the_same_groups() -> None:
    """Each extent's sites are as large as the group that costs know, and are the simulator's groups."""
    topology, workload = load_topology("zionex", nodes=3), load_workload("dlrm-dcnv2")
    kinds = rank_kinds(topology, workload)
    network = SimulatedNetwork(topology, kinds)
    sites = sites_on(network.node_of_rank)
    assert len(sites) == len(EXTENTS) == len(kinds[0].extents) == len(network.extents)
    for own, group, simulated in zip(sites, kinds[0].extents, network.extents, strict=True):
        assert set(own.sizes.tolist()) == {group.size}
        assert np.array_equal(own.of_rank, simulated.group_of_rank)


def test_nodes_of_unlike_sizes() -> None:
    """Two ranks, one rank: every rank a site, two nodes, all; and every rank for a part of rows on some ranks of a
    node, which is exchanged as within the node."""
    each = sites_on(np.array([0, 0, 1]))
    assert [sites.reach for sites in each] == ["rank", "group", "world", "group"]
    assert [sites.sizes.tolist() for sites in each] == [[1, 1, 1], [2, 1], [3], [1, 1, 1]]
