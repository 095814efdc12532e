"""What ranks exchange with each other: ids, vectors and their gradients, partial sums, dense gradients.

An exchange starts when all ranks of its scope are there and ends, for a rank, when all that it sends and gets has
arrived.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cost_models.coefficients import SoftwareCoefficients
from cost_models.shards import Floats, Ints
from cost_models.simulator.demand import Demand
from cost_models.simulator.graph import Use
from cost_models.simulator.network import IN, OUT, SimulatedNetwork
from cost_models.simulator.program import IDS, REDUCE, Streams, Wait


@dataclass(frozen=True)
class Transfer:
    """What every rank moves in one exchange: inside its domain, or between domains."""

    bytes: Floats
    """[W]"""
    uses: list[Use]
    hubs: list[Use]
    inside: bool
    reduction: bool = False


class Exchanges:
    """Puts exchanges on the streams of W ranks."""

    def __init__(self, streams: Streams, network: SimulatedNetwork, software: SoftwareCoefficients) -> None:
        self._streams, self._network, self._software = streams, network, software
        self._world = network.world
        overhead = software.collective_latency_s.value
        self._latency = {each: network.latency_s(overhead, reduction=each) for each in (False, True)}

    def ids(self, batch: int, demand: Demand, after: Sequence[Wait], *, yields: bool) -> Ints:
        """Every rank gets the ids of the rows that it holds, from all ranks alike."""
        if self._software.ids_arrive_sharded:
            return self._streams.join(IDS, after)
        to_each = demand.ids_received_bytes / self._world
        return self._exchange(IDS, "input dist", batch, self._spread(to_each, IN), after, yields=yields)

    def outputs(
        self, step: int, demand: Demand, ratios: tuple[float, float], name: str, way: str, after: Ints
    ) -> list[Ints]:
        """Vectors to the samples (`way` OUT) or their gradients back (IN), one exchange per kind of sharding.

        `ratios` are bytes over those of the outputs: of whole vectors, and of sums.
        """
        network, world = self._network, self._world
        domain, node = network.domain_size, network.node_size
        phases = ((True, False) if way == OUT else (False, True)) if self._software.exchange_in_phases else ()
        slower = ratios[1] * network.of_kind([kind.sums_slowdown for kind in network.kinds])
        sums, node_sums = demand.world_sums_bytes * slower, demand.node_sums_bytes * slower
        kinds = {
            "table-wise": self._spread(demand.vectors_to_each_bytes * ratios[0], way),
            "node": [
                self._ring(node_sums * (node - 1) / node, inside=True),
                *self._spread_beyond(node_sums / node / world, way, node),
            ],
            "row-wise": [
                self._ring(sums * (domain - 1) / domain, inside=True),
                self._ring(sums / domain * (1 - domain / world), inside=False),
            ],
        }
        return [
            self._exchange(f"{name}, {kind}", f"{name} ({kind})", step, transfers, [after], phases)
            for kind, transfers in kinds.items()
        ]

    def all_reduce(self, step: int, size: float, ready: Ints) -> Ints:
        """Ring inside the domains, then across them with the shares."""
        domain = self._network.domain_size
        transfers = [
            self._ring(2 * size * (domain - 1) / domain, inside=True, reduction=True),
            self._ring(2 * size / domain * (1 - domain / self._world), inside=False, reduction=True),
        ]
        return self._exchange(REDUCE, "all-reduce", step, transfers, [ready])

    # --- what moves ------------------------------------------------------------------------------------------------

    def _spread(self, to_each: Floats, way: str) -> list[Transfer]:
        """Every rank sends (OUT) or gets (IN) so much to or from every other rank."""
        return self._spread_beyond(to_each, way, np.ones(self._world, dtype=np.int64))

    def _spread_beyond(self, to_each: Floats, way: str, near: Ints) -> list[Transfer]:
        """The same, but for the `near` [W] ranks around it, of its domain."""
        network, other = self._network, IN if way == OUT else OUT
        beyond = self._world - network.domain_size
        transfers = [Transfer(to_each * (network.domain_size - near), network.port(way), network.inside(other), True)]
        if network.leaves_domain:
            transfers.append(Transfer(to_each * beyond, network.card(way), network.outside(other), False))
        return transfers

    def _ring(self, amount: Floats, *, inside: bool, reduction: bool = False) -> Transfer:
        """Every rank sends so much, and gets as much."""
        network = self._network
        if not inside and not network.leaves_domain:
            return Transfer(np.zeros(self._world), [], [], False, reduction)
        ends = network.port if inside else network.card
        return Transfer(
            amount, [*ends(OUT, reduction=reduction), *ends(IN, reduction=reduction)], [], inside, reduction
        )

    # --- how ranks wait for each other -----------------------------------------------------------------------------

    def _exchange(
        self,
        stream: str,
        name: str,
        step: int,
        transfers: Sequence[Transfer],
        after: Sequence[Wait],
        phases: tuple[bool, ...] = (),
        *,
        yields: bool = False,
    ) -> Ints:
        """Ranks meet, move, and part. In `phases` (True: inside the domain) one after the other, else at once."""
        streams = self._streams
        if not any(transfer.bytes.any() for transfer in transfers):
            return streams.join(stream, after)
        begin = end = streams.begin(stream, after)
        if phases:
            for inside in phases:
                end = self._meet([each for each in transfers if each.inside == inside], end, yields)
        else:
            end = self._meet(transfers, end, yields)
        streams.turn_back(stream, end)
        streams.record(name, stream, step, begin, end, np.sum([each.bytes for each in transfers], axis=0))
        return end

    def _meet(self, transfers: Sequence[Transfer], reached: Ints, yields: bool) -> Ints:
        """[W] when each rank has what it waits for."""
        graph, network = self._streams.graph, self._network
        domain, world = network.domain_of_rank, np.zeros(self._world, dtype=np.int64)
        ends: list[Ints] = []
        for inside, group in ((True, domain), (False, world)):
            own = [each for each in transfers if each.inside == inside and each.bytes.any()]
            if not own:
                continue
            ready = graph.join(group, reached)
            inside_s, across_s = self._latency[own[0].reduction]
            latency = inside_s[np.unique(group, return_index=True)[1]] if inside else np.array([across_s])
            ready = graph.add(latency, [ready])
            moves, of = [ready], [np.arange(len(ready))]
            for each in own:
                moving = np.flatnonzero(each.bytes > 0)
                uses, hubs = (
                    [Use(use.of[moving], use.weight[moving]) for use in listed] for listed in (each.uses, each.hubs)
                )
                moves.append(graph.move(each.bytes[moving], uses, hubs, [ready[group[moving]]], yields=yields))
                of.append(group[moving])
            ends.append(graph.join(np.concatenate(of), np.concatenate(moves))[group])
        return graph.add(np.zeros(self._world), ends or [reached])
