"""Where a cluster's parts are so unlike that the estimate of exchanges between domains is far from what is simulated.

What a rank receives is estimated as that of holders spread evenly over all ranks, and an oversubscribed switch as what
is narrowest of its level for the ranks of a node group. Both hold where parts are alike (decision 82).
"""

from collections.abc import Iterator

import numpy as np

from cost_models.uplinks import oversubscribed_levels
from topologies.cluster import NodeGroup, Topology
from topologies.fabric import Fabric

SIMULATED = "the simulated step counts what each of them has"


def unlike_parts(topology: Topology) -> Iterator[str]:
    """What a reader must know of estimates on this cluster; mostly nothing."""
    if topology.is_one_domain:
        return
    if len({(group.domain_ranks, _card_bytes_per_s(group)) for group in topology.nodes}) > 1:
        yield (
            "node groups have unlike cards or domains, and ranks are estimated to receive as if tables were spread"
            f" evenly over them; {SIMULATED}"
        )
    fabric = Fabric(topology)
    for level in oversubscribed_levels(topology):
        nodes = np.bincount(fabric.switch_of_node[level])
        of_groups = [
            set(nodes[fabric.switch_of_node[level][fabric.group_of_node == number]].tolist())
            for number in range(len(topology.nodes))
        ]
        if any(len(of_group) > 1 for of_group in of_groups):
            name, sizes = topology.network.levels[level].name, " and ".join(map(str, sorted(set(nodes.tolist()))))
            yield (
                f"switches of level {name} have {sizes} nodes, and all uplinks are estimated by the busiest of a node"
                f" group; {SIMULATED}; make the nodes under the smaller switch a node group of their own"
            )


def _card_bytes_per_s(group: NodeGroup) -> float:
    """Of each accelerator, where all of a node exchange."""
    cards = group.links.scale_out
    return 0.0 if cards is None else cards.count * cards.bandwidth / group.accelerators.count
