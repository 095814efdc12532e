"""A small event engine: it runs activities that wait for each other, and transfers that share resources fairly.

Nothing here knows what the activities mean. Why it is our own: docs/decisions/0012-event-engine.md.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cost_models.simulator.graph import NONE, Arrays, Floats, Graph, Hubs, Ints
from cost_models.simulator.pools import SAME_TIME_S, divided


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
        """Everything that happened. Raises ValueError if something has never started."""
        if self._left:
            raise ValueError(f"{self._left} of {len(self._end)} activities wait for each other")
        return Run(np.array(self.start), np.array(self._end), np.array(self._released, dtype=np.int64))


Event = tuple[float, int, int]
"""(time, activity, NONE) for the end of an activity of fixed length, (time, pool, version) for one of a transfer."""


class Engine:
    """Runs a graph on resources of a capacity each."""

    def __init__(self, graph: Graph, capacity: Floats, hubs: Hubs | None = None) -> None:
        self._arrays = graph.arrays()
        self._pools, self._pool_of = divided(self._arrays, capacity, hubs or Hubs.none())

    def run(self, observe: Observer | None = None) -> Run:
        """Play everything from time 0. Raises ValueError where activities wait for each other in a circle."""
        play = _Play(self._arrays)
        seconds, pool_of = self._arrays.seconds.tolist(), self._pool_of.tolist()
        events: list[Event] = []
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
                self._advance(number, now, events, observe)
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

    def _advance(self, number: int, now: float, events: list[Event], observe: Observer | None) -> None:
        """Bring a pool up to date, tell of its load, and foresee its next completion."""
        pool = self._pools[number]
        pool.advance(now)
        if observe:
            observe(now, pool.resources, pool.load / pool.capacity)
        soonest = float(pool.finish.min(initial=np.inf))
        if soonest < np.inf:
            heapq.heappush(events, (soonest, number, pool.version))
