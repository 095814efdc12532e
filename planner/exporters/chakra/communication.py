"""The exchanges of a step as what ASTRA-sim knows: messages between two ranks, and collectives of equal shares."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cost_models.shards import Floats, Ints
from cost_models.simulator.calls import CollectiveCall
from cost_models.simulator.process_groups import ProcessGroups, numbered, position
from planner.exporters.chakra.network import ReplayNetwork
from planner.exporters.chakra.wire import CollectiveType
from topologies.errors import InputError

AllToAll = Literal["pairs", "collectives"]
MOST_PAIRED_RANKS = 16
"""The largest world whose all-to-alls are pairs unless asked for: a rank sends its messages one after the other, and
the latencies add up (docs/how-to/astra-sim.md)."""


@dataclass(frozen=True)
class Messages:
    """Messages of any sizes: what rank s sends to rank r."""

    call: CollectiveCall

    def sent(self, rank: int) -> list[tuple[int, int]]:
        """Receivers and whole bytes of what a rank sends, the next rank first, as all senders take turns."""
        return self._with(rank, self.call.way == "out")

    def received(self, rank: int) -> list[tuple[int, int]]:
        """Senders and whole bytes of what a rank gets."""
        return self._with(rank, self.call.way == "in")

    def _with(self, rank: int, decides: bool) -> list[tuple[int, int]]:
        """Partners, and bytes; the rank itself `decides` of how many, or each partner does."""
        call, world = self.call, len(self.call.size)
        partners = (rank + np.arange(1, world)) % world
        group = call.groups.group_of_rank
        meet = group[partners] == group[rank]
        if call.beyond is not None:
            near = call.beyond.group_of_rank
            meet &= near[partners] != near[rank]
        partners = partners[meet]
        sizes = np.broadcast_to(call.size[rank], partners.shape) if decides else call.size[partners]
        return [(int(each), _whole(size)) for each, size in zip(partners, sizes, strict=True) if size > 0]


@dataclass(frozen=True)
class Collective:
    """A collective of the ranks with one label, in which all of them have as many bytes."""

    type: CollectiveType
    label_of_rank: Ints
    size: Floats
    """[W] bytes, of an all-gather those of one share."""

    def members(self, rank: int) -> Ints:
        """The ranks that take part in it with this one."""
        return np.flatnonzero(self.label_of_rank == self.label_of_rank[rank])

    def dimensions(self, rank: int, network: ReplayNetwork) -> list[bool] | None:
        """Which of them it involves, for collectives that all ranks have; None for those of groups of ranks."""
        members = self.members(rank)
        is_everywhere = self.type == CollectiveType.ALL_TO_ALL or len(members) == len(self.size)
        return network.involved(members) if is_everywhere else None

    def bytes(self, rank: int) -> int:
        """Of each of them."""
        return _whole(self.size[rank]) if self.size[rank] > 0 else 0


Piece = Messages | Collective


def pieces(call: CollectiveCall, network: ReplayNetwork, all_to_all: AllToAll) -> Iterator[Piece]:
    """What a call consists of, in order. Raises InputError for groups that have more ranks in one domain than in
    another."""
    groups = call.groups
    part, whole = groups.part_size, groups.size
    most = _largest(part, groups.group_of_rank)
    if (part != most).any():
        raise InputError.at("--chakra", "a group of ranks has more of them in one scale-up domain than in another")
    if call.operation == "all-to-all":
        collectives = list(_all_to_all(call))
        if all_to_all == "pairs" or not all(_is_dimension(each, network) for each in collectives):
            yield Messages(call)
        else:
            yield from collectives
        return
    size = _largest(call.size, groups.group_of_rank)
    domains = whole // part
    inside, across = groups.part_of_rank, _rails(groups)
    scatter = Collective(CollectiveType.REDUCE_SCATTER, inside, np.where(part > 1, size, 0.0))
    gather = Collective(CollectiveType.ALL_GATHER, inside, np.where(part > 1, size / part, 0.0))
    share = np.where(domains > 1, size / part, 0.0)
    if call.operation == "reduce-scatter":
        yield from (scatter, Collective(CollectiveType.REDUCE_SCATTER, across, share))
    elif call.operation == "all-gather":
        yield from (Collective(CollectiveType.ALL_GATHER, across, share / domains), gather)
    elif not groups.leave_domains:
        yield Collective(CollectiveType.ALL_REDUCE, inside, scatter.size)
    else:
        yield from (scatter, Collective(CollectiveType.ALL_REDUCE, across, share), gather)


def _all_to_all(call: CollectiveCall) -> Iterator[Collective]:
    """Inside domains, then between them, each with the share of the rank of all that has most: ASTRA-sim counts the
    collectives of dimensions on every rank, so that all ranks must have the same ones."""
    groups = call.groups
    apart = np.arange(len(call.size)) if call.beyond is None else call.beyond.group_of_rank
    near, near_inside = groups.sharing(apart)
    part, domains = groups.part_size, groups.size // groups.part_size
    there = {True: part - near_inside, False: groups.size - part - near + near_inside}
    for inside, label, count in ((True, groups.part_of_rank, part), (False, _rails(groups), domains)):
        most = (call.size.max() * there[inside] * count / np.maximum(count - 1, 1)).max()
        yield Collective(CollectiveType.ALL_TO_ALL, label, np.full(len(label), most))


def _is_dimension(collective: Collective, network: ReplayNetwork) -> bool:
    """Whether ASTRA-sim exchanges it directly: among ranks that are no whole dimension it takes a ring, in which every
    message passes through all ranks on its way."""
    if not collective.size.any():
        return True
    firsts = np.unique(collective.label_of_rank, return_index=True)[1]
    return all(network.involved(collective.members(int(rank))) is not None for rank in firsts)


def _rails(groups: ProcessGroups) -> Ints:
    """[W] the ranks at one place of each part of a group."""
    return numbered(groups.group_of_rank, position(groups.part_of_rank))


def _largest(values: Floats | Ints, label_of_rank: Ints) -> Floats:
    """[W] of all ranks with a rank's label."""
    most = np.zeros(int(label_of_rank.max()) + 1)
    np.maximum.at(most, label_of_rank, values)
    return np.asarray(most[label_of_rank])


def _whole(size: float) -> int:
    """Bytes of a message, of which there is at least one."""
    return max(1, round(float(size)))
