"""A cluster as ASTRA-sim's analytical network: dimensions of equal switches, and the number that each rank has there.

A message goes over the first dimension in which its two ends differ. So the dimension between scale-up domains comes
first, and ranks are numbered across domains: what leaves a domain then crosses its card, whoever it is for.
"""

import json
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cost_models.resources import LINK_IN, LINK_OUT, NIC_IN, NIC_OUT, Resource
from cost_models.shards import Ints
from cost_models.simulator.network import SimulatedNetwork
from cost_models.simulator.process_groups import position
from cost_models.simulator.simulation import Simulation
from topologies.errors import InputError

GIB = 2**30
"""Bytes of the backend's GB."""
ENDPOINT_DELAY_NS = 10
"""That of ASTRA-sim's own examples; with 0 it never ends."""


@dataclass(frozen=True)
class Dimension:
    """Ranks on equal switches: a rank's rate in one direction, and the latency of each of the two links of a path."""

    ranks: int
    bytes_per_s: float
    latency_s: float


class ReplayNetwork:
    """The network that a simulation ran on, as the analytical backend takes it; W ranks."""

    def __init__(self, simulation: Simulation) -> None:
        """Raises InputError, by name, for what the backend cannot express."""
        self._network = network = simulation.network
        _expect_expressible(simulation)
        self.domains = len(np.unique(network.domain_of_rank))
        self.domain_ranks = network.world // self.domains

    @cached_property
    def number_of_rank(self) -> Ints:
        """[W] the number of each rank in ASTRA-sim."""
        network = self._network
        return position(network.domain_of_rank) * self.domains + network.domain_of_rank

    @cached_property
    def dimensions(self) -> tuple[Dimension, ...]:
        """Between domains, then inside them; dimensions of one rank are left out."""
        network = self._network
        kind, links = network.kinds[0], network.topology.nodes[0].links
        inside_rate = kind.link_all_to_all * (0.5 if kind.link_takes_turns else 1.0)
        inside = Dimension(self.domain_ranks, inside_rate, (links.scale_up or links.pcie).latency / 2)
        listed = [inside]
        if self.domains > 1 and links.scale_out:
            sharing = int(np.bincount(network.card_of_rank).max())
            latency = links.scale_out.latency + sum(level.latency for level in network.topology.network.levels)
            listed.insert(0, Dimension(self.domains, kind.nic_all_to_all / sharing, latency / 2))
        return tuple(each for each in listed if each.ranks > 1)

    def involved(self, ranks: Ints) -> list[bool] | None:
        """Which dimensions an exchange among these ranks involves; None if they are no whole dimensions."""
        domain, place = self.number_of_rank[ranks] % self.domains, self.number_of_rank[ranks] // self.domains
        if len(ranks) == self._network.world and len(self.dimensions) == 1:
            return [True]
        if len(ranks) == self.domain_ranks > 1 and (domain == domain[0]).all():
            return [False, True]
        if len(ranks) == self.domains > 1 and (place == place[0]).all():
            return [True, False]
        return None

    def files(self) -> dict[str, str]:
        """What ASTRA-sim asks for beside the traces, but for the groups of ranks: text by file name."""
        dimensions, network = self.dimensions, self._network
        rates, waits = (
            ", ".join(f"{value:.6g}" for value in values)
            for values in (
                [each.bytes_per_s / GIB for each in dimensions],
                [each.latency_s * 1e9 for each in dimensions],
            )
        )
        collectives = {
            "all-reduce": "ring", "all-gather": "ring", "reduce-scatter": "ring", "all-to-all": "direct"
        }  # fmt: skip
        system = {
            "scheduling-policy": "FIFO",
            "endpoint-delay": ENDPOINT_DELAY_NS,
            "active-chunks-per-dimension": 1,
            "preferred-dataset-splits": 1,
            **{f"{name}-implementation": [how] * len(dimensions) for name, how in collectives.items()},
            "collective-optimization": "baseline",
            "local-mem-bw": network.kinds[0].hbm_bytes_per_s / 1e9,
            "boost-mode": 0,
        }
        rows = zip(self.number_of_rank.tolist(), range(network.world), network.node_of_rank.tolist(), strict=True)
        return {
            "network.yml": (
                f"# {network.topology.name}: what exchanges achieve, not data sheets; one number per dimension\n"
                f"topology: [ {', '.join(['Switch'] * len(dimensions))} ]\n"
                f"npus_count: [ {', '.join(str(each.ranks) for each in dimensions)} ]\n"
                f"bandwidth: [ {rates} ]  # GB/s of 2^30 bytes, one direction\n"
                f"latency: [ {waits} ]  # ns, of each of the two links of a path\n"
            ),
            "system.json": json.dumps(system, indent=2) + "\n",
            "memory.json": json.dumps({"memory-type": "NO_MEMORY_EXPANSION"}, indent=2) + "\n",
            "ranks.csv": "npu,rank,node\n" + "".join(f"{npu},{rank},{node}\n" for npu, rank, node in sorted(rows)),
        }


def _expect_expressible(simulation: Simulation) -> None:
    network = simulation.network
    where = "--chakra"
    if network.world == 1:
        raise InputError.at(where, "one rank exchanges nothing; ASTRA-sim takes two or more")
    if len(set(np.bincount(network.domain_of_rank).tolist())) > 1:
        raise InputError.at(where, "scale-up domains differ in size; dimensions of ASTRA-sim's network do not")
    rates = {(kind.link_all_to_all, kind.nic_all_to_all) for kind in network.kinds}
    if len(rates) > 1:
        raise InputError.at(where, "node groups have links of different rates; ASTRA-sim has one rate for a dimension")
    if network.oversubscribed:
        raise InputError.at(where, "ASTRA-sim's network has no switches above the cards, and some are oversubscribed")
    if (network.card_of_rank != network.fabric.nic_of_rank).any():
        raise InputError.at(where, "ASTRA-sim's network cannot lose a card; leave out --lost-card")
    for resource in (LINK_OUT, LINK_IN, NIC_OUT, NIC_IN):
        if (_capacity(simulation, resource) != 1).any():
            raise InputError.at(where, f"all links of a dimension have one rate; leave out --slow-link {resource}:…")


def _capacity(simulation: Simulation, resource: Resource) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    network: SimulatedNetwork = simulation.network
    own = [number for number, (each, _) in enumerate(network.instances) if each == resource]
    return np.asarray(simulation.capacity[own], dtype=np.float64)
