"""Neighbouring node groups that nothing but their names tells apart, as one group for costs.

Ranks of two groups are of two kinds to a search, even where every cost of them is the same: it then has more
multipliers to find, and fewer plans are equal to others. Nodes, and the order of the ranks, stay as they are.
"""

from topologies.cluster import NodeGroup, Topology


def with_alike_joined(topology: Topology) -> Topology:
    """The same cluster with neighbouring node groups that are alike as one; itself where there are none."""
    groups: list[NodeGroup] = []
    for group in topology.nodes:
        joined = _joined(groups[-1], group) if groups else None
        if joined is None:
            groups.append(group)
        else:
            groups[-1] = joined
    return topology if len(groups) == len(topology.nodes) else topology.model_copy(update={"nodes": tuple(groups)})


def _joined(one: NodeGroup, other: NodeGroup) -> NodeGroup | None:
    """Two groups as one, named after both; None where they are unlike, each shares remote hosts, or each is a part of a
    scale-up domain."""
    if one.remote is not None or other.model_copy(update={"name": one.name, "count": one.count}) != one:
        return None
    both = one.model_copy(update={"name": f"{one.name} and {other.name}", "count": one.count + other.count})
    return both if one.domain_ranks == other.domain_ranks == both.domain_ranks else None
