"""Training steps as activities of the engine: what every rank does, on which stream, and what it waits for.

A stream runs its activities in order, as a CUDA stream does. `compute` is the default stream; exchanges have streams of
their own, so that they run beside each other and share the links.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from cost_models.shards import Floats, Ints
from cost_models.simulator.calls import CollectiveCall
from cost_models.simulator.graph import Graph, Hubs, Use
from cost_models.simulator.spreads import KnownHubs

COMPUTE, COPY, DATA, IDS, PREFETCH, REDUCE = "compute", "copy", "data", "input dist", "prefetch", "all-reduce"
STASH = "stash"
HOST = "host"
"""The device waits for what the host does between its kernels: no stream, but on one rank, where both work at the same
time."""

TaskKind = Literal[
    "overhead",
    "lookup",
    "update",
    "permute",
    "dense forward",
    "dense backward",
    "dense optimizer",
    "transfer",
    "all-to-all",
    "reduce-scatter",
    "all-gather",
    "all-reduce",
]
Wait = Ints | None
"""[W] (or [1]) activities that something waits for; None for nothing."""


@dataclass(frozen=True)
class Label:
    """What ranks do, on which stream and for which step."""

    name: str
    kind: TaskKind
    stream: str
    step: int


@dataclass(frozen=True)
class Task(Label):
    """The same thing done by n ranks in one step."""

    ranks: Ints
    """[n]"""
    first: Ints
    """[n] activity whose start is the start of the task."""
    last: Ints
    """[n] activity whose end is its end."""
    sent_bytes: Floats | None = None
    """[n] over links, of exchanges."""
    calls: tuple[CollectiveCall, ...] = ()
    """The collectives of an exchange."""

    @property
    def is_exchange(self) -> bool:
        """Whether ranks wait for each other in it."""
        return self.sent_bytes is not None


@dataclass
class Program:
    """A graph, and what its activities mean."""

    graph: Graph = field(default_factory=Graph)
    tasks: list[Task] = field(default_factory=list)
    done: list[Ints] = field(default_factory=list)
    """[steps] activities whose ends end the step."""
    hubs: Hubs = field(default_factory=Hubs.none)
    """The hubs that its transfers go through."""


class Streams:
    """The streams of W ranks, which write a program: what is put on a stream follows what was last put there."""

    def __init__(self, world: int) -> None:
        """`hubs` are those that all-to-alls of the program go through."""
        self.world = world
        self.program, self.hubs = Program(), KnownHubs()
        self._ranks = np.arange(world)
        self._last: dict[str, Ints] = {}

    @property
    def graph(self) -> Graph:
        """The activities so far."""
        return self.program.graph

    def last(self, stream: str) -> Ints:
        """[W] the activities that a stream ends with so far."""
        return self._last[stream]

    def turn_back(self, stream: str, last: Ints) -> None:
        """What is put on the stream next follows `last` [W], beside whatever has been put there since."""
        self._last[stream] = last

    def begin(self, stream: str, after: Sequence[Wait]) -> Ints:
        """[W] activities of no length that wait for the stream and for others, without a place on the stream."""
        return self.graph.add(np.zeros(self.world), [self._last.get(stream), *after])

    def record(
        self,
        label: Label,
        first: Ints,
        last: Ints,
        sent: Floats | None = None,
        calls: tuple[CollectiveCall, ...] = (),
    ) -> None:
        """Name what lies between these activities."""
        task = Task(label.name, label.kind, label.stream, label.step, self._ranks, first, last, sent, calls)
        self.program.tasks.append(task)

    def run(self, label: Label, seconds: Floats, after: Sequence[Wait] = ()) -> Ints:
        """Every rank is busy for so long, on the stream of the label."""
        busy = self.graph.add(seconds, [self._last.get(label.stream), *after])
        self._last[label.stream] = busy
        self.record(label, busy, busy)
        return busy

    def wait_for_host(self, step: int, seconds: Floats, after: Sequence[Wait]) -> None:
        """The compute stream has nothing to do for so long."""
        idle = self.graph.add(seconds, [self._last.get(COMPUTE), *after])
        self._last[COMPUTE] = idle
        self.record(Label("overhead", "overhead", HOST, step), idle, idle)

    def let_host_work(self, step: int, seconds: Floats, after: Wait) -> None:
        """The host works for so long beside the device."""
        self.run(Label("host", "overhead", HOST, step), seconds, [after])

    def move(
        self, label: Label, amount: Floats, uses: list[Use], after: Sequence[Wait] = (), *, yields: bool = False
    ) -> Ints:
        """Every rank moves something of its own, on the stream of the label."""
        begin = self.begin(label.stream, after)
        end = begin.copy()
        moving = np.flatnonzero(amount > 0)
        if len(moving):
            taken = [Use(use.of[moving], use.weight[moving]) for use in uses]
            end[moving] = self.graph.move(amount[moving], taken, (), [begin[moving]], yields=yields)
            self.record(label, begin, end)
        self._last[label.stream] = end
        return end

    def join(self, stream: str, after: Sequence[Wait]) -> Ints:
        """The stream has nothing to do but to wait."""
        joined = self.begin(stream, after)
        self._last[stream] = joined
        return joined
