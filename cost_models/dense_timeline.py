"""When the units of a sharded dense part work, are gathered and summed, on one rank.

Gathers are asked for when the unit before begins, sums when the unit has ended, each kind one after the other. What is
asked for first has the links first; whoever waits for its first byte leaves them to others. Between layers that are
cut, units wait for what they read and for its gradients: nothing is ahead of these, which share ports evenly with what
is on its way.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Transfer:
    """A collective: seconds until its first byte is there, and those for which it keeps the links busy."""

    latency_s: float = 0.0
    busy_s: float = 0.0
    port_s: float | None = None
    """For which it keeps the port of its rank busy; unset: as long as the links."""


@dataclass(frozen=True)
class TimedUnit:
    """A unit on a kind of rank: what it computes, and what it waits for."""

    forward_s: float
    backward_s: float
    gather: Transfer
    scatter: Transfer
    reduce: Transfer
    """Sums of what was scattered among the ranks that have the same shard, over cards alone."""
    enter: tuple[Transfer, ...] = ()
    """What it waits for once it has begun to go forward."""
    back: tuple[Transfer, ...] = ()
    """What follows before the next unit, once it has gone backward."""
    answer: tuple[Transfer, ...] = ()
    """What it waits for once it has begun to go backward."""


@dataclass
class _Links:
    """What carries gathers and scatters, from the beginning of the dense part on."""

    free_s: float = 0.0
    moved: list[tuple[float, float]] = field(default_factory=list)
    """Beginning and end of all that was carried."""
    ports: list[tuple[float, float]] = field(default_factory=list)
    """Beginning and end of what was carried over ports, but for what somebody waited for."""
    late_s: float = 0.0
    """By how much all that was awaited has delayed what was carried."""

    def carry(self, asked_s: float, transfer: Transfer) -> float:
        """When a transfer has ended."""
        if not transfer.busy_s:
            return asked_s + transfer.latency_s
        begin_s = max(asked_s + transfer.latency_s, self.free_s)
        self.free_s = begin_s + transfer.busy_s
        self.moved.append((begin_s, self.free_s))
        self.ports.append((begin_s, begin_s + (transfer.busy_s if transfer.port_s is None else transfer.port_s)))
        return self.free_s

    def carry_beside(self, asked_s: float, transfer: Transfer) -> float:
        """The same over cards that gathers do not use."""
        end_s = asked_s + transfer.latency_s + transfer.busy_s
        self.moved.append((end_s - transfer.busy_s, end_s))
        return end_s

    def awaited(self, asked_s: float, transfers: Iterable[Transfer]) -> float:
        """When transfers over ports have ended, one after the other, that somebody waits for. What is on its way has
        half of the port meanwhile, and ends later for it (`late_s`)."""
        for transfer in transfers:
            at_s = begin_s = asked_s + transfer.latency_s
            left_s, free_s = transfer.busy_s, self.free_s
            for number, (since_s, until_s) in enumerate(self.ports):
                alone_s = min(max(since_s - at_s, 0.0), left_s)
                at_s, left_s = at_s + alone_s, left_s - alone_s
                shared_s = min(max(until_s - at_s, 0.0), left_s)
                at_s, left_s = at_s + 2 * shared_s, left_s - shared_s
                self.ports[number] = since_s, until_s + shared_s
                self.free_s = max(self.free_s, until_s + shared_s)
            self.late_s += self.free_s - free_s
            asked_s = at_s + left_s
            self.moved.append((begin_s, asked_s))
        return asked_s

    def busy_after_s(self, when_s: float) -> float:
        """For how long anything is carried after some time."""
        return _length((max(begin_s, when_s), end_s) for begin_s, end_s in self.moved if end_s > when_s)


@dataclass(frozen=True)
class Ends:
    """Seconds of a dense part from its begin."""

    forward_s: float
    """Until its forward pass ends."""
    rest_s: float
    """Until the backward pass has gradients of vectors."""
    sums_s: float
    """Until all gradients are summed."""
    busy_after_s: float
    """For which links are busy between the last two."""


def forward_end_s(units: Sequence[TimedUnit]) -> float:
    """When the forward pass of some units ends: the first is gathered before, each other while the one before works."""
    links, begun_s, ended_s = _Links(), 0.0, 0.0
    gathered_s = links.carry(0.0, units[0].gather) if units else 0.0
    for number, unit in enumerate(units):
        begun_s, late_s = max(ended_s, gathered_s), links.late_s
        if number + 1 < len(units):
            gathered_s = links.carry(begun_s, units[number + 1].gather)
        ended_s = links.awaited(begun_s, unit.enter) + unit.forward_s
        gathered_s += links.late_s - late_s if gathered_s > begun_s else 0.0
    return ended_s


def ends_of(first: Sequence[TimedUnit], rest: Sequence[TimedUnit]) -> Ends:
    """Those of units that need the vectors of tables (`rest`), beside the `first`, which do not and have gone forward
    before. The last of all is whole when the backward pass begins."""
    forward_s = forward_end_s(rest)
    links, units = _Links(forward_s), [*first, *rest][::-1]
    summed_s = ended_s = gathered_s = rest_s = forward_s
    for number, unit in enumerate(units):
        begun_s, late_s = max(ended_s, gathered_s), links.late_s
        if number + 1 < len(units):
            gathered_s = links.carry(begun_s, units[number + 1].gather)
        ended_s = links.awaited(links.awaited(begun_s, unit.answer) + unit.backward_s, unit.back)
        gathered_s += links.late_s - late_s if gathered_s > begun_s else 0.0
        summed_s += links.late_s - late_s if summed_s > begun_s else 0.0
        scattered_s = links.carry(max(summed_s, ended_s), unit.scatter)
        summed_s = links.carry_beside(scattered_s, unit.reduce)
        if number < len(rest):
            rest_s = ended_s
    return Ends(forward_s, rest_s, summed_s, links.busy_after_s(rest_s))


def _length(spans: Iterable[tuple[float, float]]) -> float:
    """Seconds that are in any of these spans."""
    covered, reached_s = 0.0, 0.0
    for begin_s, end_s in sorted(spans):
        covered += max(end_s - max(begin_s, reached_s), 0.0)
        reached_s = max(reached_s, end_s)
    return covered
