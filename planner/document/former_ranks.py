"""Which ranks of a changed cluster are those of the cluster before."""

from collections.abc import Container

import numpy as np

from cost_models.shards import Ints
from topologies.cluster import Topology


def rank_after(before: Topology, after: Topology, lost_nodes: Container[int]) -> Ints:
    """[ranks before] the rank that each one is now; -1 where it is gone.

    The i-th node that is left of a node group is the i-th node of the group of that name, or, where no name is the
    same, of the group at its position; ranks follow their number on the node.
    """
    new_rank = np.full(before.world_size, -1, dtype=np.int64)
    group_of = _same_groups(before, after)
    first_rank, first_node = _firsts(after), 0
    rank = 0
    for group in before.nodes:
        position = 0
        twin = group_of.get(group.name)
        for node in range(first_node, first_node + group.count):
            ranks = group.accelerators.count
            if node not in lost_nodes:
                if twin is not None and position < after.nodes[twin].count:
                    there = min(ranks, after.nodes[twin].accelerators.count)
                    begin = first_rank[twin] + position * after.nodes[twin].accelerators.count
                    new_rank[rank : rank + there] = np.arange(begin, begin + there)
                position += 1
            rank += ranks
        first_node += group.count
    return new_rank


def _same_groups(before: Topology, after: Topology) -> dict[str, int]:
    """The position of the new node group that each old one is, by the name of the old one."""
    names = [group.name for group in after.nodes]
    if not set(names) & {group.name for group in before.nodes}:
        return {group.name: i for i, group in enumerate(before.nodes) if i < len(names)}
    return {group.name: names.index(group.name) for group in before.nodes if group.name in names}


def _firsts(topology: Topology) -> list[int]:
    """The first rank of each node group."""
    ranks = [group.count * group.accelerators.count for group in topology.nodes]
    return [sum(ranks[:i]) for i in range(len(ranks))]
