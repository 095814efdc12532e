"""Pools of transfers that share resources, and their max-min fair rates.

What moves at the same time shares each resource max-min fairly: nobody can get more without somebody slower getting
less (Bertsekas & Gallager, Data Networks, section 6.5.2; progressive filling). Transfers that share nothing, not even
through others, are in different pools, so that an event changes the rates of one pool alone.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from cost_models.simulator.graph import NONE, Arrays, Flags, Floats, Hubs, Ints

SAME_TIME_S = 1e-13
"""Completions this close together are one event."""
SATURATED = 1e-9
"""Share of a capacity that rounding may leave over."""
MOST_KEPT = 1 << 20
"""Numbers of rates, and of what they follow from, that alike pools keep at most: 8 MiB."""


@dataclass(frozen=True)
class Transfers:
    """What N activities move and over what; resources and hubs are numbered within the pool of each."""

    amount: Floats
    """[N]"""
    resource: Ints
    """[U, N] 0 for padding."""
    weight: Floats
    """[U, N] 0 for padding."""
    hub: Ints
    """[H, N] 0 for padding."""
    share: Floats
    """[H, N] 0 for padding."""
    yields: Flags
    """[N]"""

    def of(self, some: Ints) -> "Moving":
        """Those that are moving."""
        return Moving(
            self.resource.take(some, axis=1),
            self.weight.take(some, axis=1),
            self.hub.take(some, axis=1),
            self.share.take(some, axis=1),
        )


@dataclass(frozen=True)
class Moving:
    """The same of those that are moving; [U, a] and [H, a], row after row in memory: most of a simulation goes into
    what is computed along the rows (`take` keeps them so, an index would not)."""

    resource: Ints
    weight: Floats
    hub: Ints
    share: Floats

    @cached_property
    def uses(self) -> Flags:
        """[U, a] what each takes some of."""
        return self.weight > 0

    def take(self, index: Ints) -> "Moving":
        """Those at these positions."""
        return Moving(
            self.resource.take(index, axis=1),
            self.weight.take(index, axis=1),
            self.hub.take(index, axis=1),
            self.share.take(index, axis=1),
        )


class KnownRates:
    """The rates of transfers that shared the same before, in alike pools: steps, passes and nodes repeat themselves."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, ...], tuple[Floats, Floats]] = {}
        self._numbers = 0

    def of(self, moving: Moving, late: Flags, make: Callable[[], tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
        """Rates [a] and loads [r] of what is moving, of which some is `late` [a]; made where they are not known."""
        parts = (moving.resource, moving.weight, moving.hub, moving.share, late)
        key = tuple(part.tobytes() for part in parts)
        if key not in self._known:
            made = make()
            self._numbers += sum(part.size for part in (*parts, *made))
            if self._numbers > MOST_KEPT:
                self._known, self._numbers = {}, 0
            self._known[key] = made
        return self._known[key]


@dataclass
class Pool:
    """Transfers that may share resources with each other, and with no others; resources are numbered within it."""

    transfers: Transfers
    """The transfers of all pools."""
    resources: Ints
    """[r] numbers in the whole cluster."""
    capacity: Floats
    """[r]"""
    hub: Ints
    """[e] hub of each entry of the hubs, numbered within the pool."""
    hub_resource: Ints
    """[e] resource behind it, numbered within the pool."""
    hub_weight: Floats
    """[e]"""
    hub_count: int
    known: KnownRates
    """Shared with pools of the same capacities and hubs."""
    active: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """[a] transfers that are moving."""
    finish: Floats = field(default_factory=lambda: np.zeros(0))
    """[a] when each ends if nothing changes."""
    rate: Floats = field(default_factory=lambda: np.zeros(0))
    """[a]"""
    remaining: Floats = field(default_factory=lambda: np.zeros(0))
    """[a] at the time `since`."""
    since: float = 0.0
    load: Floats = field(default_factory=lambda: np.zeros(0))
    """[r] capacity in use."""
    starting: list[int] = field(default_factory=list)
    """Transfers that start at the next `advance`."""
    version: int = 0
    """How often rates were looked at; a completion that was foreseen for an older version is void."""

    def advance(self, now: float) -> None:
        """Take out what has ended, take in what starts, share anew where that changes anything."""
        kept = self.finish > now + SAME_TIME_S
        if not self.starting and not kept.any():
            self._empty()
            return
        must_share, freed = bool(self.starting), None
        if not must_share and not kept.all():
            freed = self._load_of(self.transfers.of(self.active[~kept]), self.rate[~kept])
            must_share = self._frees(freed, kept)
        remaining = (self.remaining - (now - self.since) * self.rate)[kept]
        self.active, self.rate, self.finish = self.active[kept], self.rate[kept], self.finish[kept]
        self.remaining = self.remaining[kept]
        if must_share:
            new = np.array(self.starting, dtype=np.int64)
            self.active = np.concatenate([self.active, new])
            remaining = np.concatenate([remaining, self.transfers.amount[new]])
            self.starting, self.since = [], now
            self.rate, self.load = self._fair_rates()
            self.remaining = remaining
            with np.errstate(divide="ignore"):
                self.finish = now + remaining / self.rate  # never, for those that get nothing
        elif freed is not None:
            self.load = self.load - freed
        self.version += 1

    def _empty(self) -> None:
        """Take out everything."""
        self.active, self.load = self.active[:0], np.zeros(len(self.capacity))
        self.rate, self.finish, self.remaining = self.rate[:0], self.finish[:0], self.remaining[:0]
        self.version += 1

    def _frees(self, freed: Floats, kept: Flags) -> bool:
        """Whether what ends leaves room on a resource that others, which are `kept`, were held up by."""
        if self.transfers.yields[self.active[kept]].any():
            return True
        full = self.load >= self.capacity * (1 - SATURATED)
        return bool((full & (freed > 0) & (self.load - freed > self.capacity * SATURATED)).any())

    def _load_of(self, moving: Moving, rate: Floats) -> Floats:
        """[r] what transfers at these rates take of each resource of the pool."""
        size = len(self.capacity)
        if not len(rate):
            return np.zeros(size)
        weights = (moving.weight * rate).ravel()
        load = np.bincount(moving.resource.ravel(), weights=weights, minlength=size)
        if self.hub_count:
            weights = (moving.share * rate).ravel()
            entering = np.bincount(moving.hub.ravel(), weights=weights, minlength=self.hub_count)
            load += np.bincount(self.hub_resource, weights=self.hub_weight * entering[self.hub], minlength=size)
        return np.asarray(load, dtype=np.float64)

    def _fair_rates(self) -> tuple[Floats, Floats]:
        """[a] max-min fair rates, first of those that do not yield, then of the others from what is left; and [r] the
        load that they make."""
        moving, late = self.transfers.of(self.active), self.transfers.yields[self.active]
        return self.known.of(moving, late, lambda: self._filled(moving, late))

    def _filled(self, moving: Moving, late: Flags) -> tuple[Floats, Floats]:
        """The same by filling."""
        rate, slack = np.zeros(len(late)), self.capacity.copy()
        for growing in (~late, late):
            if growing.any():
                self._fill(moving, growing, rate, slack)
        return rate, self.capacity - slack

    def _fill(self, moving: Moving, growing: Flags, rate: Floats, slack: Floats) -> None:
        """Progressive filling: all that are `growing` grow together until a resource is full; who uses it stops, and
        the others go on. Changes `growing` [a], `rate` [a] and `slack` [r]."""
        nothing = self.capacity * SATURATED
        full = slack <= nothing
        growth = self._load_of(moving, growing.astype(np.float64))
        while True:
            held = (full[moving.resource] & moving.uses).any(axis=0)
            if self.hub_count:
                weights = self.hub_weight * full[self.hub_resource]
                behind = np.bincount(self.hub, weights=weights, minlength=self.hub_count)
                asked = moving.share * behind[moving.hub]  # less what is taken back, of full resources alone
                held |= asked.sum(axis=0) > SATURATED * np.abs(asked).sum(axis=0)
            stopped = np.flatnonzero(growing & held)
            growing[stopped] = False
            if not growing.any():
                return
            growth -= self._load_of(moving.take(stopped), np.ones(len(stopped)))
            loaded = (growth > 0) & ~full  # nothing grows on what is full
            step = float((slack[loaded] / growth[loaded]).min())
            rate[growing] += step
            slack -= step * np.where(full, 0.0, growth)
            full |= loaded & (slack <= nothing)


def divided(arrays: Arrays, capacity: Floats, hubs: Hubs) -> tuple[list[Pool], Ints]:
    """The pools of a graph's transfers, and [N] the pool of each activity, NONE where it moves nothing.

    Raises ValueError for a transfer that uses no resource.
    """
    pool_of: Ints = np.full(len(arrays.amount), NONE, dtype=np.int64)
    moving = np.flatnonzero(arrays.amount > 0)
    if not len(moving):
        return [], pool_of
    resources = len(capacity)
    label, first = _components(arrays, moving, resources, hubs)
    used = np.unique(label[first])
    pool_of[moving] = np.searchsorted(used, label[first])
    local = np.zeros(len(label), dtype=np.int64)
    for number in used:
        members = np.flatnonzero(label == number)
        for alike in (members[members < resources], members[members >= resources]):
            local[alike] = np.arange(len(alike))
    transfers = Transfers(
        arrays.amount,
        np.where(arrays.resource == NONE, 0, local[arrays.resource]).T.copy(),
        np.where(arrays.resource == NONE, 0.0, arrays.weight).T.copy(),
        np.where(arrays.hub == NONE, 0, local[arrays.hub + resources]).T.copy(),
        np.where(arrays.hub == NONE, 0.0, arrays.share).T.copy(),
        arrays.yields,
    )
    pools, known = [], dict[tuple[bytes, ...], KnownRates]()
    for number in used:
        members = np.flatnonzero(label[:resources] == number)
        entries = np.flatnonzero(label[hubs.hub + resources] == number)
        own, entry, behind = capacity[members], local[hubs.hub[entries] + resources], local[hubs.resource[entries]]
        weight, hub_count = hubs.weight[entries], int((label[resources:] == number).sum())
        shared = known.setdefault(tuple(part.tobytes() for part in (own, entry, behind, weight)), KnownRates())
        pools.append(Pool(transfers, members, own, entry, behind, weight, hub_count, shared))
    return pools, pool_of


def _components(arrays: Arrays, moving: Ints, resources: int, hubs: Hubs) -> tuple[Ints, Ints]:
    """Labels of the connected components of resources and hubs, and [moving] one resource or hub of each transfer.

    Resources and hubs are the vertices, hubs numbered after the resources; a transfer joins all that it uses, a hub
    all that stands behind it.
    """
    vertices = np.concatenate([arrays.resource[moving], arrays.hub[moving] + resources], axis=1)
    absent = np.concatenate([arrays.resource[moving] == NONE, arrays.hub[moving] == NONE], axis=1)
    if absent.all(axis=1).any():
        raise ValueError("a transfer uses no resource: it would take no time")
    first = vertices[np.arange(len(moving)), (~absent).argmax(axis=1)]
    joined = np.unique(np.where(absent, first[:, None], vertices), axis=0)
    behind = np.stack([hubs.hub + resources, hubs.resource], axis=1)
    label = np.arange(resources + hubs.count)
    while True:  # the least label of what is connected, until nothing changes
        before = label.copy()
        for edges in (joined, behind):
            if len(edges):
                np.minimum.at(label, edges, label[edges].min(axis=1, keepdims=True))
        label = label[label]
        if np.array_equal(before, label):
            return label, first
