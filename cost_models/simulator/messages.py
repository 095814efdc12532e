"""Messages of any sizes between pairs of ranks, each a flow of its own."""

import numpy as np

from cost_models.resources import Resource
from cost_models.shards import Floats, Ints
from cost_models.simulator.collectives import Flow, Transfer
from cost_models.simulator.graph import NONE, Use
from cost_models.simulator.network import IN, OUT, SimulatedNetwork
from cost_models.simulator.traffic import LinkTraffic


def messages(network: SimulatedNetwork, sizes: Floats) -> list[Transfer]:
    """What rank s sends to rank r: `sizes` [s, r] bytes; what a rank has for itself stays with it."""
    ranks, domain, traffic = np.arange(network.world), network.domain_of_rank, LinkTraffic(network)
    transfers = []
    for inside in (True, False):
        ends = [traffic.port(OUT), traffic.port(IN)] if inside else [traffic.own_card(OUT), traffic.own_card(IN)]
        flows, kept = [], np.where((domain[:, None] == domain) == inside, sizes, 0.0)
        np.fill_diagonal(kept, 0.0)
        for further in range(1, network.world):
            to = (ranks + further) % network.world
            if not (size := kept[ranks, to]).any():
                continue
            uses = [*ends[0], *(Use(use.of[to], use.weight[to]) for use in ends[1])]
            flows.append(Flow(size, uses if inside else [*uses, *_above(network, to)], []))
        transfers.append(Transfer(kept.sum(axis=1), kept.sum(axis=0), flows, inside))
    return transfers


def _above(network: SimulatedNetwork, to: Ints) -> list[Use]:
    """What a message of every rank `to` [W] another takes of oversubscribed switches above both."""
    uses = []
    for level in network.oversubscribed:
        switch, rates = network.switch_of_rank(level), network.fabric.switch_bytes_per_s[level]
        plane = network.plane_of_rank(level)
        apart = (plane != plane[to]) & (switch != NONE) & (switch[to] != NONE)
        changes = level == 0 and network.changes_rails
        up = network.leaf_of_rank(network.rail_of_rank[to]) if changes else switch
        for way, each in ((OUT, up), (IN, switch[to])):
            of = np.where(apart, network.number(Resource("uplink", way, level), each), NONE)
            uses.append(Use(of, np.where(apart, 1 / rates[each], 0.0)))
    return uses
