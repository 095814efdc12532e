"""Messages between the ranks of a simulated cluster, handed to SimGrid over the links that they take."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from cost_models.resources import PCIE, WAYS, Resource, Way
from cost_models.shards import Floats
from cost_models.simulator.network import IN, OUT, SimulatedNetwork
from tests.simgrid_package.simgrid_flows import Flow, played


def simgrid_ends(
    network: SimulatedNetwork, capacity: Floats, messages: dict[tuple[int, int], int], fetched: Sequence[int] = ()
) -> Floats:
    """[messages, then ranks] when each message from one rank to another ends, over the links that it takes, and the
    bytes that each rank has `fetched` from its host while as many go back."""
    numbers: dict[tuple[object, ...], int] = defaultdict(lambda: len(numbers))
    rates: dict[int, float] = {}

    def link(resource: Resource, instance: int, bytes_per_s: float) -> int:
        left = capacity[network.number(resource, np.array([instance]))[0]]
        number = numbers[resource, instance]
        rates[number] = bytes_per_s * left
        return number

    flows = []
    for (sender, receiver), size in messages.items():
        ends: list[tuple[Way, int]] = [(OUT, sender), (IN, receiver)]
        kinds = {rank: network.kinds[network.kind_of_rank[rank]] for rank in (sender, receiver)}
        if network.domain_of_rank[sender] == network.domain_of_rank[receiver]:
            used = [link(Resource("link", way), rank, kinds[rank].link_all_to_all) for way, rank in ends]
            over_pcie = [end for end in ends if kinds[end[1]].exchanges_over_pcie]
        else:
            cards = network.card_of_rank
            used = [link(Resource("nic", way), int(cards[rank]), kinds[rank].nic_all_to_all) for way, rank in ends]
            over_pcie = [end for end in ends if kinds[end[1]].cards_over_pcie]
            for level in network.oversubscribed:
                switch, rate = network.switch_of_rank(level), network.fabric.switch_bytes_per_s[level]
                if switch[sender] != switch[receiver]:
                    above = ((way, int(switch[rank])) for way, rank in ends)
                    used += [link(Resource("uplink", way, level), each, rate[each]) for way, each in above]
        if network.host_traffic:
            used += [link(Resource("host_link", way), rank, kinds[rank].pcie_bytes_per_s) for way, rank in over_pcie]
        flows.append(Flow(size, used))
    for rank, size in enumerate(fetched):
        kind, switch = network.kinds[network.kind_of_rank[rank]], int(network.fabric.pcie_switch_of_rank[rank])
        ways = [link(Resource("host_link", way), rank, kind.pcie_bytes_per_s) for way in WAYS]
        flows.append(Flow(size, [*ways, link(PCIE, switch, kind.pcie_bytes_per_s)]))
    return played([rates[i] for i in range(len(rates))], flows)
