"""How long collectives among any groups of ranks take, all groups of a cluster at once.

Ports follow the law that was measured of the operation, and cards what they achieve between domains; both work at the
same time. A card, and a switch above it, carries what all groups send that it serves.
"""

from collections.abc import Iterable
from functools import cache
from typing import get_args

import numpy as np

from cost_models.coefficients import CollectiveOperation
from cost_models.collective_calls import CollectiveCall, Members
from cost_models.collective_laws import Protocol
from cost_models.exchange_lines import ExchangeLine, exchange_lines, fastest_line
from cost_models.kinds import RankKind, measured_law, rank_kinds, world_of
from cost_models.path_latency import leave_domains, path_latency_s
from cost_models.shards import Floats
from cost_models.software import software_of
from cost_models.uplinks import uplink_slowdown
from cost_models.workload.models import Workload
from topologies.cluster import NodeGroup, Topology
from topologies.fabric import Fabric

OPERATIONS: tuple[CollectiveOperation, ...] = get_args(CollectiveOperation)


class GroupLaws:
    """The laws of a cluster whose ranks run a workload; K kinds of rank."""

    def __init__(self, topology: Topology, workload: Workload) -> None:
        self._topology, self._workload = topology, workload
        self._among = cache(self._groups)

    def seconds(self, call: CollectiveCall) -> float:
        """Time of a call that all groups of its members make at once; 0 where nothing has to move."""
        if call.members.size == 1 or not call.buffer_bytes:
            return 0.0
        among = self._among(call.members)
        line, port_bytes, card_bytes = self._moved(call)
        port_s = port_bytes / np.array(line.port_bytes_per_s)
        return line.latency_s + float(np.maximum(port_s, card_bytes * among.card_s_per_byte(call.operation)).max())

    def latency_s(self, call: CollectiveCall) -> float:
        """The part of `seconds` in which nothing moves yet; 0 where nothing has to."""
        if call.members.size == 1 or not call.buffer_bytes:
            return 0.0
        return self._moved(call)[0].latency_s

    def busy_s(self, call: CollectiveCall) -> tuple[Floats, Floats]:
        """[K] seconds for which a call keeps the port of each rank busy, and its card with what the rank itself sends;
        zeros where nothing has to move."""
        if call.members.size == 1 or not call.buffer_bytes:
            none = np.zeros(len(self._topology.nodes))
            return none, none
        line, port_bytes, card_bytes = self._moved(call)
        rates = self._among(call.members).card_bytes_per_s(call.operation)
        return port_bytes / np.array(line.port_bytes_per_s), card_bytes / rates

    def _moved(self, call: CollectiveCall) -> tuple[ExchangeLine, Floats, Floats]:
        """The fastest line of a call, and the bytes [K] that it moves over each port, and over each card."""
        among = self._among(call.members)
        crossings = [call.crossing(kind.world, in_network=kind.reduces_in_network) for kind in among.kinds]
        port_bytes = np.array([float(crossing.port) for crossing in crossings])
        card_bytes = np.array([float(crossing.card) for crossing in crossings])
        lines = among.lines[call.operation]
        return lines[fastest_line(lines, port_bytes)], port_bytes, card_bytes

    def total_seconds(self, calls: Iterable[CollectiveCall]) -> float:
        """Time of several one after the other."""
        return sum(self.seconds(call) for call in calls)

    def _groups(self, members: Members) -> "_Groups":
        return _Groups(self._topology, self._workload, members)


class _Groups:
    """The same of groups of one size."""

    def __init__(self, topology: Topology, workload: Workload, members: Members) -> None:
        world = world_of(topology)
        self.kinds = rank_kinds(topology, workload, lambda group: members.group(world(group)))
        library_s = software_of(workload).collective_latency_s.value
        self.lines = {each: self._lines(topology, each, library_s) for each in OPERATIONS}
        fabric = Fabric(topology)
        rates = self.card_bytes_per_s("all_to_all"), self.card_bytes_per_s("all_reduce")
        groups = members.group_of_rank(topology.world_size)
        self._slowdowns = [uplink_slowdown(topology, groups, rate) for rate in rates]
        self._ranks_per_card = np.array([_ranks_per_card(fabric, kind) for kind in range(len(self.kinds))])

    def card_s_per_byte(self, operation: CollectiveOperation) -> Floats:
        """[K] time of a byte that each rank sends over its card, those that share it included."""
        slowdown = self._slowdowns[operation != "all_to_all"]
        return np.asarray(slowdown * self._ranks_per_card / self.card_bytes_per_s(operation))

    def card_bytes_per_s(self, operation: CollectiveOperation) -> Floats:
        """[K] of a whole card. Reduce-scatters and all-gathers are the halves of an all-reduce."""
        exchanges = operation == "all_to_all"
        return np.array([kind.nic_all_to_all if exchanges else kind.nic_all_reduce for kind in self.kinds])

    def _lines(self, topology: Topology, operation: CollectiveOperation, library_s: float) -> tuple[ExchangeLine, ...]:
        leaves, reduces = leave_domains(self.kinds), operation == "all_reduce"
        path_s = path_latency_s(topology, self.kinds, "reduction_hops_s" if reduces else "exchange_hops_s")
        if operation in ("reduce_scatter", "all_gather"):
            path_s += max(kind.ring_hops_s for kind in self.kinds)
        protocols = [_protocols(operation, group, kind) for group, kind in zip(topology.nodes, self.kinds, strict=True)]
        return exchange_lines(protocols, library_s + path_s, max if leaves else _inside)


def _inside(inside_s: float, _: float) -> float:
    """The latency of a collective that does not leave its domain."""
    return inside_s


def _protocols(operation: CollectiveOperation, group: NodeGroup, kind: RankKind) -> tuple[Protocol, ...]:
    """Those of an operation over the ports of a kind of rank: as measured, or those of an exchange or a reduction."""
    law = measured_law(operation, group, kind.domain_ranks)
    if law is not None:
        return law.protocols
    return kind.reduction_protocols if operation == "all_reduce" else kind.exchange_protocols


def _ranks_per_card(fabric: Fabric, kind: int) -> float:
    """Ranks that send over the card of a rank of a kind, it included."""
    cards = np.asarray(fabric.nic_of_rank)
    own = cards[np.asarray(fabric.group_of_rank) == kind]
    return float(np.bincount(cards[cards >= 0], minlength=1)[own].max()) if (own >= 0).all() else 1.0
