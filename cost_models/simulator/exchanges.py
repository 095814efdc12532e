"""What ranks exchange in a step: ids, vectors and their gradients, partial sums, dense gradients.

An exchange inside a domain starts when all ranks of the group in that domain are there, one between domains when the
whole group is, and it ends for them when all that they send and get has arrived.
"""

from collections.abc import Sequence
from typing import get_args

import numpy as np

from cost_models.coefficients import SoftwareCoefficients
from cost_models.resources import Way
from cost_models.shards import EXTENTS, NODE, WORLD, Floats, Ints
from cost_models.simulator.collectives import Collectives, Transfer
from cost_models.simulator.demand import Demand
from cost_models.simulator.graph import Use
from cost_models.simulator.network import IN, OUT, SimulatedNetwork
from cost_models.simulator.process_groups import ProcessGroups
from cost_models.simulator.program import IDS, REDUCE, Label, Streams, TaskKind, Wait
from cost_models.simulator.traffic import CardRate


class Exchanges:
    """Puts exchanges on the streams of W ranks."""

    def __init__(
        self,
        streams: Streams,
        network: SimulatedNetwork,
        collectives: Collectives,
        software: SoftwareCoefficients,
        *,
        in_phases: bool | None = None,
        whose: str = "",
    ) -> None:
        """`in_phases` takes the place of what the software says of its exchanges; `whose` tells those of some tables
        apart, which have streams of their own."""
        self.whose = whose
        self._streams, self._network, self._software = streams, network, software
        self._collectives, self._everyone = collectives, network.extents[WORLD]
        overhead = software.collective_latency_s.value
        self._latency = {reduction: network.latency_s(overhead, reduction=reduction) for reduction in (False, True)}
        self._across_s = {rate: network.latency_s(overhead, rate=rate)[1] for rate in get_args(CardRate)}
        self._in_phases = software.exchange_in_phases if in_phases is None else in_phases

    def ids(self, batch: int, demand: Demand, after: Sequence[Wait], *, yields: bool) -> Ints:
        """Every rank gets the ids of the rows that it holds, from all ranks alike."""
        if self._software.ids_arrive_sharded:
            return self._streams.join(IDS + self.whose, after)
        to_each = demand.ids_received_bytes / self._everyone.size
        transfers = self._collectives.all_to_all(self._everyone, to_each, IN)
        label = Label(f"input dist{self.whose}", "all-to-all", IDS + self.whose, batch)
        return self.exchange(label, self._everyone, transfers, after, yields=yields)

    def outputs(
        self, step: int, demand: Demand, ratios: tuple[float, float], name: str, way: Way, after: Ints
    ) -> list[Ints]:
        """Vectors to the samples (`way` OUT) or their gradients back (IN), one exchange per kind of sharding. `ratios`
        are bytes over those of the outputs: of whole vectors, and of sums."""
        return [self.of_extent(number, step, demand, ratios, name, way, after) for number in range(len(EXTENTS))]

    def of_extent(
        self, number: int, step: int, demand: Demand, ratios: tuple[float, float], name: str, way: Way, after: Ints
    ) -> Ints:
        """The exchange of blocks of one extent: the ranks that hold a block reduce their partial sums, and send their
        shares to the ranks beyond."""
        network, collectives, everyone = self._network, self._collectives, self._everyone
        extent = EXTENTS[number]
        kind: TaskKind = "all-to-all"
        if extent.reach == "rank":
            transfers = collectives.all_to_all(everyone, demand.vectors_to_each_bytes * ratios[0], way)
        else:
            slower = ratios[1] * network.of_kind([each.sums_slowdown for each in network.kinds])
            holders, sums = network.extents[number], demand.sums_bytes[number] * slower
            to_each = sums / holders.size / everyone.size
            rate: CardRate = "nic_node_sums" if number == NODE else "nic_all_to_all"
            transfers = [
                *collectives.reduce_scatter(holders, sums, way),
                *collectives.all_to_all(everyone, to_each, way, beyond=holders, rate=rate),
            ]
            if extent.reach == "world":
                kind = "reduce-scatter" if way == OUT else "all-gather"
        phases = ((True, False) if way == OUT else (False, True)) if self._in_phases else ()
        words = f"{extent.exchange}{self.whose}"
        label = Label(f"{name} ({words})", kind, f"{name}, {words}", step)
        return self.exchange(label, everyone, transfers, [after], phases)

    def all_reduce(self, step: int, groups: ProcessGroups, size: Floats | float, ready: Ints) -> Ints:
        """The ranks of every group sum `size` [W] bytes of gradients, or one number for all."""
        transfers = self._collectives.all_reduce(groups, np.full(self._network.world, size))
        return self.exchange(Label("all-reduce", "all-reduce", REDUCE, step), groups, transfers, [ready])

    def average(self, label: Label, groups: ProcessGroups, size: Floats, ready: Ints, share: float) -> Ints:
        """The ranks of every group average `size` [W] bytes after a `share` of the steps; each step has that share."""
        transfers = self._collectives.all_reduce(groups, size * share)
        return self.exchange(label, groups, transfers, [ready], share=share)

    def cut(self, label: Label, groups: ProcessGroups, size: Floats, ready: Ints, way: Way = OUT) -> Ints:
        """The ranks of every group average `size` [W] bytes, and each keeps its part; read backwards, they gather."""
        transfers = self._collectives.reduce_scatter(groups, size, way, reduction=True)
        return self.exchange(label, groups, transfers, [ready])

    def gather(self, label: Label, groups: ProcessGroups, size: Floats, ready: Ints) -> Ints:
        """The ranks of every group get `size` [W] bytes, of which each has its part, at the rates of exchanges."""
        return self.exchange(label, groups, self._collectives.reduce_scatter(groups, size, IN), [ready])

    # --- how ranks wait for each other -----------------------------------------------------------------------------

    def exchange(
        self,
        label: Label,
        groups: ProcessGroups,
        transfers: Sequence[Transfer],
        after: Sequence[Wait],
        phases: tuple[bool, ...] = (),
        *,
        yields: bool = False,
        share: float = 1.0,
    ) -> Ints:
        """The ranks of every group meet, move, and part: in `phases` (True: inside the domain) one after the other, or
        at once. `transfers` are a `share` of those of one exchange, and take that share of its time. [W] activities
        that end it."""
        streams = self._streams
        if not any(transfer.sent.any() for transfer in transfers):
            return streams.join(label.stream, after)
        begin = end = streams.begin(label.stream, after)
        if phases:
            for inside in phases:
                end = self._meet(groups, [each for each in transfers if each.inside == inside], end, yields, share)
        else:
            end = self._meet(groups, transfers, end, yields, share)
        streams.turn_back(label.stream, end)
        calls = dict.fromkeys(transfer.call for transfer in transfers if transfer.call)
        streams.record(label, begin, end, np.sum([transfer.sent for transfer in transfers], axis=0), tuple(calls))
        return end

    def _of_port(self, transfer: Transfer) -> Floats:
        """[W] bytes for which the port of each rank is busy: half of both ways where they take turns, else the busier
        one's."""
        sent, received = transfer.sent, transfer.received
        return np.where(self._network.takes_turns, (sent + received) / 2, np.maximum(sent, received))

    def _meet(
        self, groups: ProcessGroups, transfers: Sequence[Transfer], reached: Ints, yields: bool, share: float
    ) -> Ints:
        """[W] when each rank has what it waits for: the ranks of its part, those of its whole group, or both."""
        graph = self._streams.graph
        ends: list[Ints] = []
        for inside, group in ((True, groups.part_of_rank), (False, groups.group_of_rank)):
            phase = [transfer for transfer in transfers if transfer.inside == inside and transfer.sent.any()]
            if not phase:
                continue
            ready = graph.join(group, reached)
            inside_s, across_s = self._latency[phase[0].reduction]
            if not phase[0].reduction:
                across_s = min(self._across_s[transfer.rate] for transfer in phase)
            if any(transfer.around for transfer in phase):
                across_s += max(kind.ring_hops_s for kind in self._network.kinds)
            latency = inside_s[np.unique(group, return_index=True)[1]] if inside else np.full(groups.count, across_s)
            ready = graph.add(latency * share, [ready])
            moves, group_of_move = [ready], [np.arange(len(ready))]
            for transfer in phase:
                for flow in transfer.flows:
                    moving = np.flatnonzero(flow.bytes > 0)
                    uses, hubs = (
                        [Use(use.of[moving], use.weight[moving]) for use in listed] for listed in (flow.uses, flow.hubs)
                    )
                    after = [ready[group[moving]]]
                    moves.append(graph.move(flow.bytes[moving], uses, hubs, after, yields=yields))
                    group_of_move.append(group[moving])
                if inside:  # bytes share the ports at the rate of many, and few take longer than that alone
                    alone_s = np.zeros(len(ready))
                    seconds = self._network.protocol_s(self._of_port(transfer) / share, reduction=transfer.reduction)
                    np.maximum.at(alone_s, group, seconds * share)
                    moves.append(graph.add(alone_s, [ready]))
                    group_of_move.append(np.arange(len(ready)))
            ends.append(graph.join(np.concatenate(group_of_move), np.concatenate(moves))[group])
        return graph.add(np.zeros(self._network.world), ends or [reached])
