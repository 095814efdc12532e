"""Which ranks share an instance of a resource."""

import numpy as np
from numpy.typing import NDArray

from cost_models.shards import Ints
from topologies.cluster import NodeGroup
from topologies.fabric import Fabric

RAIL = "rail"
"""Who shares the way down to a leaf, where each rail has its own."""


def instances_of_ranks(fabric: Fabric, tower_of_rank: Ints) -> dict[str | int, Ints]:
    """[W] which instance of a resource each rank uses, numbered from 0; by who shares it (`ResourceKind.shared_by`), of
    uplinks by their level, and of those down to leaves of rails by `RAIL`. They ascend along the ranks, but for
    these."""
    instances: dict[str | int, Ints] = {
        "rank": np.arange(len(tower_of_rank)),
        "card": np.asarray(fabric.nic_of_rank),
        "pcie_switch": np.asarray(fabric.pcie_switch_of_rank),
        "node": np.asarray(fabric.node_of_rank),
        "tower": tower_of_rank,
        "group": np.asarray(fabric.group_of_rank),
        **{level: above[fabric.node_of_rank] for level, above in enumerate(fabric.switch_of_node)},
    }
    if fabric.rails_are_apart:
        instances[RAIL] = np.asarray(fabric.leaf_of_nic[fabric.nic_of_rank])
    return {who: np.unique(each, return_inverse=True)[1].astype(np.int64) for who, each in instances.items()}


def most_sharing(instance: Ints, own: NDArray[np.bool_]) -> int:
    """The most ranks that use the instance of a resource [W] which one of their `own` [W] uses."""
    return int(np.bincount(instance)[instance[own]].max())


def share_of_card(group: NodeGroup) -> float:
    """Share of a card's time that one of its ranks stands for; several ranks exchange beside each other."""
    cards = group.links.scale_out.count if group.links.scale_out else group.accelerators.count
    return min(1.0, cards / group.accelerators.count)
