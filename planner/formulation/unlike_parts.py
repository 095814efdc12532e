"""Where a cluster's parts are so unlike that what is estimated of one cannot be held against another.

What a rank receives is estimated as that of holders spread evenly over all ranks, and an oversubscribed switch, where a
node group cannot be taken apart by what is under the switches above it, as what is narrowest of its level. Both hold
where parts are alike (decision 82). What leaves the leaves of a plane of rails is estimated as if these were one
switch, which holds where messages can change rails inside a node (decision 99); so is what comes in where nodes have
unlike numbers of rails (decision 121). What leaves either of two switches enters the other, however unlike they are;
of three or more, holders outside of a small one load it more than is estimated (decision 124).

Where a software's kernels were measured on some of the devices alone, those of the others look better than they are
(decision 106).
"""

from collections.abc import Iterator

import numpy as np

from cost_models.coefficients import device_coefficients
from cost_models.switch_fill import by_switch_fill, unlike_fills
from cost_models.uplinks import oversubscribed_levels
from cost_models.workload.models import Workload
from topologies.cluster import NodeGroup, Topology
from topologies.fabric import Fabric

SIMULATED = "the simulated step counts what each of them has"


def unlike_parts(topology: Topology, *, in_groups: bool = False) -> Iterator[str]:
    """What a reader must know of estimates on this cluster; mostly nothing. `in_groups`: whether its ranks are in
    groups with copies of the tables, whose costs do not tell switches apart."""
    if topology.is_one_domain:
        return
    if len({(group.domain_ranks, _card_bytes_per_s(group)) for group in topology.nodes}) > 1:
        of_cards = {(group.domain_ranks, _card_bytes_per_s(group, alone=True)) for group in topology.nodes}
        what = "unlike cards or domains" if len(of_cards) > 1 else "unlike links to their cards"
        yield (
            f"node groups have {what}, and ranks are estimated to receive as if tables were spread"
            f" evenly over them; {SIMULATED}"
        )
    by_busiest = dict(unlike_fills(topology if in_groups else by_switch_fill(topology)))
    for level, nodes in by_busiest.items():
        yield (
            f"{_switches(topology, level, nodes)}, and all uplinks are estimated by the busiest of a node"
            f" group; {SIMULATED}; make the nodes under the smaller switch a node group of their own"
        )
    for level in sorted(set(oversubscribed_levels(topology)) - by_busiest.keys()):
        nodes_of_switch = np.bincount(Fabric(topology).switch_of_node[level]).tolist()
        if len(nodes_of_switch) > 2 and len(nodes := sorted(set(nodes_of_switch))) > 1:
            yield (
                f"{_switches(topology, level, nodes)}, and what the others exchange with the smallest is estimated as"
                f" if tables were spread evenly; {SIMULATED}, up to a third more of random placements"
            )
    lonely = [group.name for group in topology.nodes if group.links.scale_up is None and _cards(group) > 1]
    if topology.network.rails and lonely and 0 in oversubscribed_levels(topology):
        yield (
            f"the nodes {lonely[0]} have no scale-up fabric over which messages could change rails, and those between"
            f" rails are estimated to stay below a leaf's uplinks; {SIMULATED}"
        )
    rails = sorted({_cards(group) for group in topology.nodes})
    if topology.network.rails and len(rails) > 1 and 0 in oversubscribed_levels(topology):
        yield (
            f"nodes have {' and '.join(map(str, rails))} rails, and leaves of all rails are estimated as one switch;"
            f" {SIMULATED}"
        )


def _switches(topology: Topology, level: int, nodes: list[int]) -> str:
    return f"switches of level {topology.network.levels[level].name} have {' and '.join(map(str, nodes))} nodes"


def unlike_kernels(topology: Topology, workload: Workload) -> Iterator[str]:
    """What a reader must know of lookups on devices side by side; mostly nothing."""
    devices = dict.fromkeys(group.accelerators.device for group in topology.nodes)
    of_software = {each: device_coefficients(each, workload.software) != device_coefficients(each) for each in devices}
    if any(table.pooled for table in workload.tables) and len(set(of_software.values())) > 1:
        known, others = (", ".join(each for each in devices if of_software[each] == are) for are in (True, False))
        yield (
            f"lookups of {workload.software} were measured on {known}, and on {others} those of other kernels: blocks"
            " and short rows take longer there than estimated; planner calibrate measures them"
        )


def _cards(group: NodeGroup) -> int:
    """Rails of a node: its cards, where ranks share them, else its ranks."""
    cards = group.links.scale_out
    return 0 if cards is None else min(cards.count, group.accelerators.count)


def _card_bytes_per_s(group: NodeGroup, *, alone: bool = False) -> float:
    """Of each accelerator, where all of a node exchange: no more than its own link, where that carries it; of the cards
    `alone` whatever they hang on."""
    cards = group.links.scale_out
    if cards is None:
        return 0.0
    if alone:
        return cards.count * cards.bandwidth / group.accelerators.count
    return group.scale_out_bytes_per_s / max(1, group.accelerators.count // cards.count)
