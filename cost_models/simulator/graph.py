"""Activities that wait for each other: what the event engine runs.

An activity either takes a fixed time or moves an amount over resources. A *hub* stands for traffic that spreads evenly
over many resources, so that the transfers from one point to n others are one object, not n. Nothing here knows what
the activities mean.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

NONE = -1


@dataclass(frozen=True)
class Use:
    """What a unit of each of n transfers asks of one resource, or of all resources behind a hub."""

    of: Ints
    """[n] resource or hub; NONE for nothing."""
    weight: Floats
    """[n] capacity taken by a rate of 1."""


@dataclass(frozen=True)
class Hubs:
    """Which resources stand behind each hub, as parallel arrays: what enters hub h takes `weight` of `resource`."""

    hub: Ints
    resource: Ints
    weight: Floats

    @classmethod
    def none(cls) -> "Hubs":
        """No hub at all."""
        return cls(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0))

    @property
    def count(self) -> int:
        """How many hubs there are."""
        return int(self.hub.max(initial=-1)) + 1


class Graph:
    """Activities, numbered in the order in which they are added, and what each waits for."""

    def __init__(self) -> None:
        self._count = 0
        self._seconds: list[Floats] = []
        self._amount: list[Floats] = []
        self._edges: list[tuple[Ints, Ints]] = []
        self._uses: list[tuple[Ints, tuple[Use, ...], tuple[Use, ...], bool]] = []

    def __len__(self) -> int:
        return self._count

    def _new(self, seconds: Floats, amount: Floats, after: Iterable[Ints | None]) -> Ints:
        new = np.arange(self._count, self._count + len(seconds))
        self._count += len(seconds)
        self._seconds.append(seconds)
        self._amount.append(amount)
        for before in after:
            if before is not None:
                first, second = np.broadcast_arrays(before, new)
                self._edges.append((first, second))
        return new

    def add(self, seconds: Floats, after: Iterable[Ints | None] = ()) -> Ints:
        """[n] activities of fixed length. `after` holds arrays of [n] (or [1]) activities that each waits for."""
        return self._new(np.asarray(seconds, dtype=np.float64), np.zeros(len(seconds)), after)

    def move(
        self,
        amount: Floats,
        uses: Sequence[Use],
        hubs: Sequence[Use] = (),
        after: Iterable[Ints | None] = (),
        *,
        yields: bool = False,
    ) -> Ints:
        """[n] transfers of an amount each over resources and hubs; those that yield get what others leave."""
        transfers = self._new(np.zeros(len(amount)), np.asarray(amount, dtype=np.float64), after)
        self._uses.append((transfers, tuple(uses), tuple(hubs), yields))
        return transfers

    def join(self, groups: Ints, members: Ints) -> Ints:
        """[n] one activity of no length per group, after all its members; `groups` [m] counts from 0."""
        joined = self._new(np.zeros(int(groups.max()) + 1), np.zeros(int(groups.max()) + 1), ())
        self._edges.append((members, joined[groups]))
        return joined

    def arrays(self) -> "Arrays":
        """The whole graph as arrays, ready to run."""
        width = max((len(uses) for _, uses, _, _ in self._uses), default=0)
        depth = max((len(hubs) for _, _, hubs, _ in self._uses), default=0)
        resource = np.full((self._count, width), NONE, dtype=np.int64)
        weight = np.zeros((self._count, width))
        hub = np.full((self._count, depth), NONE, dtype=np.int64)
        share = np.zeros((self._count, depth))
        yields = np.zeros(self._count, dtype=bool)
        for transfers, uses, hubs, is_late in self._uses:
            yields[transfers] = is_late
            for i, use in enumerate(uses):
                resource[transfers, i], weight[transfers, i] = use.of, use.weight
            for i, use in enumerate(hubs):
                hub[transfers, i], share[transfers, i] = use.of, use.weight
        seconds = np.concatenate(self._seconds) if self._seconds else np.zeros(0)
        amount = np.concatenate(self._amount) if self._amount else np.zeros(0)
        none = np.zeros(0, dtype=np.int64)
        before, after = (np.concatenate([none, *(edge[side] for edge in self._edges)]) for side in (0, 1))
        return Arrays(seconds, amount, before, after, resource, weight, hub, share, yields)


@dataclass(frozen=True)
class Arrays:
    """What a graph holds: N activities, E pairs of which one waits for the other."""

    seconds: Floats
    """[N]"""
    amount: Floats
    """[N] 0 for activities of fixed length."""
    before: Ints
    """[E]"""
    after: Ints
    """[E] waits for `before`."""
    resource: Ints
    """[N, U] resources of a transfer; NONE for padding."""
    weight: Floats
    """[N, U]"""
    hub: Ints
    """[N, H]"""
    share: Floats
    """[N, H] what a unit of the transfer puts into the hub."""
    yields: Flags
    """[N] whether the transfer gets only what others leave."""
