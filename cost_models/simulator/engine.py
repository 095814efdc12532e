"""A small event engine: activities that wait for each other, and transfers that share resources fairly.

An activity either takes a fixed time or moves an amount over resources. What moves at the same time shares each
resource max-min fairly: nobody can get more without somebody slower getting less (Bertsekas & Gallager, Data
Networks, section 6.5.2; progressive filling). A *hub* stands for traffic that spreads evenly over many resources, so
that the transfers from one point to n others are one object, not n.

Nothing here knows what the activities mean. Why it is our own: docs/decisions/0012-event-engine.md.
"""

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

SAME_TIME_S = 1e-13
"""Completions this close together are one event."""
SATURATED = 1e-9
"""Share of a capacity that rounding may leave over."""
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
        own = np.arange(self._count, self._count + len(seconds))
        self._count += len(seconds)
        self._seconds.append(seconds)
        self._amount.append(amount)
        for before in after:
            if before is not None:
                first, second = np.broadcast_arrays(before, own)
                self._edges.append((first, second))
        return own

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
        own = self._new(np.zeros(len(amount)), np.asarray(amount, dtype=np.float64), after)
        self._uses.append((own, tuple(uses), tuple(hubs), yields))
        return own

    def join(self, groups: Ints, members: Ints) -> Ints:
        """[n] one activity of no length per group, after all its members; `groups` [m] counts from 0."""
        own = self._new(np.zeros(int(groups.max()) + 1), np.zeros(int(groups.max()) + 1), ())
        self._edges.append((members, own[groups]))
        return own

    def arrays(self) -> "Arrays":
        """All of it, ready to run."""
        width = max((len(uses) for _, uses, _, _ in self._uses), default=0)
        depth = max((len(hubs) for _, _, hubs, _ in self._uses), default=0)
        resource = np.full((self._count, width), NONE, dtype=np.int64)
        weight = np.zeros((self._count, width))
        hub = np.full((self._count, depth), NONE, dtype=np.int64)
        share = np.zeros((self._count, depth))
        yields = np.zeros(self._count, dtype=bool)
        for own, uses, hubs, late in self._uses:
            yields[own] = late
            for i, use in enumerate(uses):
                resource[own, i], weight[own, i] = use.of, use.weight
            for i, use in enumerate(hubs):
                hub[own, i], share[own, i] = use.of, use.weight
        seconds = np.concatenate(self._seconds) if self._seconds else np.zeros(0)
        amount = np.concatenate(self._amount) if self._amount else np.zeros(0)
        none = np.zeros(0, dtype=np.int64)
        before, after = (np.concatenate([none, *(edge[side] for edge in self._edges)]) for side in (0, 1))
        return Arrays(seconds, amount, before, after, resource, weight, hub, share, yields)


@dataclass(frozen=True)
class Arrays:
    """N activities: what a graph holds."""

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


@dataclass(frozen=True)
class Run:
    """When everything happened."""

    start: Floats
    """[N]"""
    end: Floats
    """[N]"""
    released_by: Ints
    """[N] the activity whose end let this one start; NONE for those that waited for nothing."""

    def critical_path(self, last: int | None = None) -> list[int]:
        """Activities without a pause from the start of the run to the end of `last` (that ends last)."""
        at = int(self.end.argmax()) if last is None else last
        path = [at]
        while (at := int(self.released_by[at])) != NONE:
            path.append(at)
        return path[::-1]


Observer = Callable[[float, Ints, Floats], None]
"""Hears (time, resources, share of the capacity of each that is in use) whenever rates change."""


@dataclass
class _Pool:
    """Transfers that may share resources with each other, and with no others; resources are numbered within it."""

    resources: Ints
    capacity: Floats
    hub: Ints
    """Of the hubs' entries: hub, resource (both within the pool), weight."""
    hub_resource: Ints
    hub_weight: Floats
    hub_count: int
    active: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    finish: Floats = field(default_factory=lambda: np.zeros(0))
    rate: Floats = field(default_factory=lambda: np.zeros(0))
    remaining: Floats = field(default_factory=lambda: np.zeros(0))
    """At the time `since`."""
    since: float = 0.0
    load: Floats = field(default_factory=lambda: np.zeros(0))
    starting: list[int] = field(default_factory=list)
    version: int = 0


class _Play:
    """Who waits for whom, and what has happened so far."""

    def __init__(self, arrays: Arrays) -> None:
        count = len(arrays.seconds)
        order = np.argsort(arrays.before, kind="stable")
        self._followers: list[int] = arrays.after[order].tolist()
        self._first: list[int] = np.searchsorted(arrays.before[order], np.arange(count + 1)).tolist()
        self._waiting: list[int] = np.bincount(arrays.after, minlength=count).tolist()
        self.ready = [i for i in range(count) if not self._waiting[i]]
        self.start, self._end = [np.nan] * count, [np.nan] * count
        self._released = [NONE] * count
        self._left = count

    def finish(self, i: int, now: float) -> None:
        """Activity `i` has ended."""
        self._end[i] = now
        self._left -= 1
        for j in self._followers[self._first[i] : self._first[i + 1]]:
            self._waiting[j] -= 1
            if not self._waiting[j]:
                self._released[j] = i
                self.ready.append(j)

    def result(self) -> Run:
        """All of it. Raises ValueError if something has never started."""
        if self._left:
            raise ValueError(f"{self._left} of {len(self._end)} activities wait for each other")
        return Run(np.array(self.start), np.array(self._end), np.array(self._released, dtype=np.int64))


class Engine:
    """Runs a graph on resources of a capacity each."""

    def __init__(self, graph: Graph, capacity: Floats, hubs: Hubs | None = None) -> None:
        self._all = graph.arrays()
        self._capacity = capacity
        self._hubs = hubs or Hubs.none()
        self._pools: list[_Pool] = []
        self._pool_of: Ints = np.full(len(self._all.amount), NONE, dtype=np.int64)
        self._resource = self._all.resource.copy()
        self._hub = self._all.hub.copy()
        self._weight = np.where(self._all.resource == NONE, 0.0, self._all.weight)
        self._share = np.where(self._all.hub == NONE, 0.0, self._all.share)
        self._divide()

    def _divide(self) -> None:
        """Transfers that share nothing, not even through others, go to different pools."""
        moving = np.flatnonzero(self._all.amount > 0)
        if not len(moving):
            return
        resources, hubs = len(self._capacity), self._hubs.count
        label = np.arange(resources + hubs)
        nodes = np.concatenate([self._all.resource[moving], self._all.hub[moving] + resources], axis=1)
        absent = np.concatenate([self._all.resource[moving] == NONE, self._all.hub[moving] == NONE], axis=1)
        if absent.all(axis=1).any():
            raise ValueError("a transfer uses no resource: it would take no time")
        first = nodes[np.arange(len(moving)), (~absent).argmax(axis=1)]
        nodes = np.where(absent, first[:, None], nodes)
        nodes = np.unique(nodes, axis=0)
        hub_ends = np.stack([self._hubs.hub + resources, self._hubs.resource], axis=1)
        while True:  # the least label of what is connected, until nothing changes
            before = label.copy()
            for edges in (nodes, hub_ends):
                if len(edges):
                    np.minimum.at(label, edges, label[edges].min(axis=1, keepdims=True))
            label = label[label]
            if np.array_equal(before, label):
                break
        used = np.unique(label[first])
        self._pool_of[moving] = np.searchsorted(used, label[first])
        local = np.zeros(resources + hubs, dtype=np.int64)
        for number in used:
            members = np.flatnonzero(label == number)
            of_resources, of_hubs = members[members < resources], members[members >= resources]
            local[of_resources], local[of_hubs] = np.arange(len(of_resources)), np.arange(len(of_hubs))
        for number in used:
            members = np.flatnonzero(label[:resources] == number)
            entries = np.flatnonzero(label[self._hubs.hub + resources] == number) if hubs else np.zeros(0, dtype=int)
            own_hubs = int((label[resources:] == number).sum())
            self._pools.append(
                _Pool(
                    members,
                    self._capacity[members],
                    local[self._hubs.hub[entries] + resources],
                    local[self._hubs.resource[entries]],
                    self._hubs.weight[entries],
                    own_hubs,
                )
            )
        self._resource = np.where(self._resource == NONE, 0, local[self._resource])
        self._hub = np.where(self._hub == NONE, 0, local[self._hub + resources])

    def run(self, observe: Observer | None = None) -> Run:
        """Play everything from time 0. Raises ValueError where activities wait for each other in a circle."""
        play = _Play(self._all)
        seconds, pool_of = self._all.seconds.tolist(), self._pool_of.tolist()
        events: list[tuple[float, int, int]] = []  # (time, activity, -1) or (time, pool, version of the pool)
        touched: set[int] = set()  # pools in which something starts or ends now
        now = 0.0
        while True:
            while play.ready:
                i = play.ready.pop()
                play.start[i] = now
                if pool_of[i] != NONE:
                    self._pools[pool_of[i]].starting.append(i)
                    touched.add(pool_of[i])
                elif seconds[i] > 0:
                    heapq.heappush(events, (now + seconds[i], i, NONE))
                else:
                    play.finish(i, now)
            for number in sorted(touched):
                self._update(number, now, events, observe)
            touched.clear()
            if not events:
                return play.result()
            now = events[0][0]
            while events and events[0][0] <= now + SAME_TIME_S:
                _, number, version = heapq.heappop(events)
                if version == NONE:
                    play.finish(number, now)
                elif (pool := self._pools[number]).version == version:
                    touched.add(number)
                    for i in pool.active[pool.finish <= now + SAME_TIME_S].tolist():
                        play.finish(i, now)

    def _update(self, number: int, now: float, events: list[tuple[float, int, int]], observe: Observer | None) -> None:
        """Take out what has ended, take in what starts, share anew where that changes anything."""
        pool = self._pools[number]
        kept = pool.finish > now + SAME_TIME_S
        out = pool.active[~kept]
        must_share = bool(pool.starting) or (len(out) > 0 and self._frees(pool, out, pool.rate[~kept]))
        remaining = (pool.remaining - (now - pool.since) * pool.rate)[kept]
        pool.active, pool.rate, pool.finish = pool.active[kept], pool.rate[kept], pool.finish[kept]
        pool.remaining = pool.remaining[kept]
        if must_share:
            new = np.array(pool.starting, dtype=np.int64)
            pool.active = np.concatenate([pool.active, new])
            remaining = np.concatenate([remaining, self._all.amount[new]])
            pool.starting, pool.since = [], now
            pool.rate = self._share_out(pool)
            pool.remaining = remaining
            with np.errstate(divide="ignore"):
                pool.finish = now + remaining / pool.rate  # never, for those that get nothing
        pool.load = self._load(pool, pool.active, pool.rate)
        if observe:
            observe(now, pool.resources, pool.load / pool.capacity)
        pool.version += 1
        if np.isfinite(pool.finish).any():
            heapq.heappush(events, (float(pool.finish.min()), number, pool.version))

    def _frees(self, pool: _Pool, out: Ints, rate: Floats) -> bool:
        """Whether what ends leaves room on a resource that others were held up by."""
        if self._all.yields[pool.active].any():
            return True
        own = self._load(pool, out, rate)
        full = pool.load >= pool.capacity * (1 - SATURATED)
        return bool((full & (own > 0) & (pool.load - own > pool.capacity * SATURATED)).any())

    def _load(self, pool: _Pool, active: Ints, rate: Floats) -> Floats:
        """What these transfers at these rates take of each resource of the pool."""
        size = len(pool.capacity)
        if not len(active):
            return np.zeros(size)
        load = np.bincount(
            self._resource[active].ravel(), weights=(self._weight[active] * rate[:, None]).ravel(), minlength=size
        )
        if pool.hub_count:
            entering = np.bincount(
                self._hub[active].ravel(),
                weights=(self._share[active] * rate[:, None]).ravel(),
                minlength=pool.hub_count,
            )
            load += np.bincount(pool.hub_resource, weights=pool.hub_weight * entering[pool.hub], minlength=size)
        return np.asarray(load, dtype=np.float64)

    def _share_out(self, pool: _Pool) -> Floats:
        """Max-min fair rates, first of those that do not yield, then of the others from what is left."""
        rate, slack = np.zeros(len(pool.active)), pool.capacity.copy()
        late = self._all.yields[pool.active]
        for growing in (~late, late):
            if growing.any():
                self._fill(pool, growing, rate, slack)
        return rate

    def _fill(self, pool: _Pool, growing: Flags, rate: Floats, slack: Floats) -> None:
        """All that are `growing` grow together until a resource is full; who uses it stops; the others go on."""
        active = pool.active
        resource, hub = self._resource[active], self._hub[active]
        uses, enters = self._weight[active] > 0, self._share[active] > 0
        full = slack <= pool.capacity * SATURATED
        while True:
            held = (full[resource] & uses).any(axis=1)
            if pool.hub_count:
                blocked = np.bincount(pool.hub, weights=full[pool.hub_resource], minlength=pool.hub_count) > 0
                held |= (blocked[hub] & enters).any(axis=1)
            growing &= ~held
            if not growing.any():
                return
            growth = self._load(pool, active, growing.astype(np.float64))
            loaded = growth > 0
            step = float((slack[loaded] / growth[loaded]).min())
            rate[growing] += step
            slack -= step * growth
            full |= loaded & (slack <= pool.capacity * SATURATED)
