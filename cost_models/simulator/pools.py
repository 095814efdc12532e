"""Pools of transfers that share resources, and their max-min fair rates.

What moves at the same time shares each resource max-min fairly: nobody can get more without somebody slower getting
less (Bertsekas & Gallager, Data Networks, section 6.5.2; progressive filling). Transfers that share nothing, not even
through others, are in different pools, so that an event changes the rates of one pool alone.
"""

from dataclasses import dataclass, field

import numpy as np

from cost_models.simulator.graph import NONE, Arrays, Flags, Floats, Hubs, Ints

SAME_TIME_S = 1e-13
"""Completions this close together are one event."""
SATURATED = 1e-9
"""Share of a capacity that rounding may leave over."""


@dataclass(frozen=True)
class Transfers:
    """What N activities move and over what; resources and hubs are numbered within the pool of each."""

    amount: Floats
    """[N]"""
    resource: Ints
    """[N, U] 0 for padding."""
    weight: Floats
    """[N, U] 0 for padding."""
    hub: Ints
    """[N, H] 0 for padding."""
    share: Floats
    """[N, H] 0 for padding."""
    yields: Flags
    """[N]"""


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
        ended = self.active[~kept]
        must_share = bool(self.starting) or (len(ended) > 0 and self._frees(ended, self.rate[~kept]))
        remaining = (self.remaining - (now - self.since) * self.rate)[kept]
        self.active, self.rate, self.finish = self.active[kept], self.rate[kept], self.finish[kept]
        self.remaining = self.remaining[kept]
        if must_share:
            new = np.array(self.starting, dtype=np.int64)
            self.active = np.concatenate([self.active, new])
            remaining = np.concatenate([remaining, self.transfers.amount[new]])
            self.starting, self.since = [], now
            self.rate = self._fair_rates()
            self.remaining = remaining
            with np.errstate(divide="ignore"):
                self.finish = now + remaining / self.rate  # never, for those that get nothing
        self.load = self._load_of(self.active, self.rate)
        self.version += 1

    def _frees(self, ended: Ints, rate: Floats) -> bool:
        """Whether what ends leaves room on a resource that others were held up by."""
        if self.transfers.yields[self.active].any():
            return True
        freed = self._load_of(ended, rate)
        full = self.load >= self.capacity * (1 - SATURATED)
        return bool((full & (freed > 0) & (self.load - freed > self.capacity * SATURATED)).any())

    def _load_of(self, active: Ints, rate: Floats) -> Floats:
        """[r] what these transfers at these rates take of each resource of the pool."""
        size = len(self.capacity)
        if not len(active):
            return np.zeros(size)
        transfers = self.transfers
        load = np.bincount(
            transfers.resource[active].ravel(),
            weights=(transfers.weight[active] * rate[:, None]).ravel(),
            minlength=size,
        )
        if self.hub_count:
            entering = np.bincount(
                transfers.hub[active].ravel(),
                weights=(transfers.share[active] * rate[:, None]).ravel(),
                minlength=self.hub_count,
            )
            load += np.bincount(self.hub_resource, weights=self.hub_weight * entering[self.hub], minlength=size)
        return np.asarray(load, dtype=np.float64)

    def _fair_rates(self) -> Floats:
        """[a] max-min fair rates, first of those that do not yield, then of the others from what is left."""
        rate, slack = np.zeros(len(self.active)), self.capacity.copy()
        late = self.transfers.yields[self.active]
        for growing in (~late, late):
            if growing.any():
                self._fill(growing, rate, slack)
        return rate

    def _fill(self, growing: Flags, rate: Floats, slack: Floats) -> None:
        """Progressive filling: all that are `growing` grow together until a resource is full; who uses it stops, and
        the others go on. Changes `rate` [a] and `slack` [r]."""
        active, transfers = self.active, self.transfers
        resource, hub = transfers.resource[active], transfers.hub[active]
        uses, enters = transfers.weight[active] > 0, transfers.share[active] > 0
        nothing = self.capacity * SATURATED
        full = slack <= nothing
        while True:
            stopped = (full[resource] & uses).any(axis=1)
            if self.hub_count:
                blocked = np.bincount(self.hub, weights=full[self.hub_resource], minlength=self.hub_count) > 0
                stopped |= (blocked[hub] & enters).any(axis=1)
            growing &= ~stopped
            if not growing.any():
                return
            growth = self._load_of(active, growing.astype(np.float64))
            loaded = growth > 0
            step = float((slack[loaded] / growth[loaded]).min())
            rate[growing] += step
            slack -= step * growth
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
        np.where(arrays.resource == NONE, 0, local[arrays.resource]),
        np.where(arrays.resource == NONE, 0.0, arrays.weight),
        np.where(arrays.hub == NONE, 0, local[arrays.hub + resources]),
        np.where(arrays.hub == NONE, 0.0, arrays.share),
        arrays.yields,
    )
    pools = []
    for number in used:
        members = np.flatnonzero(label[:resources] == number)
        entries = np.flatnonzero(label[hubs.hub + resources] == number)
        pools.append(
            Pool(
                transfers,
                members,
                capacity[members],
                local[hubs.hub[entries] + resources],
                local[hubs.resource[entries]],
                hubs.weight[entries],
                int((label[resources:] == number).sum()),
            )
        )
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
