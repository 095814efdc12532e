"""What one rank does in the counted steps, cut at their beginning and their end, and how loaded its links are."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from cost_models.resources import DEVICE, Resource
from cost_models.shards import WORLD, Floats, Ints
from cost_models.simulator.graph import NONE, Use
from cost_models.simulator.network import IN, OUT
from cost_models.simulator.program import Task
from cost_models.simulator.simulation import Simulation
from cost_models.simulator.traffic import LinkTraffic


@dataclass(frozen=True)
class Slice:
    """A task of one rank within the counted time; seconds from its beginning."""

    number: int
    """The number of the task in its program."""
    task: Task
    place: int
    """The position of the rank among those of the task."""
    start: float
    end: float


@dataclass(frozen=True)
class Load:
    """The use of one link of a rank as a step function: each value holds until the next time."""

    name: str
    """Resource and number, as in `nic_out 4`."""
    time: Floats
    """[n] seconds from the beginning of the counted time."""
    share: Floats
    """[n] shares of the capacity that are in use."""


def slices(simulation: Simulation, rank: int) -> list[Slice]:
    """What a rank does, in order of time, on each stream without overlap; tasks that take no time are left out."""
    low, high = simulation.window
    of_rank = []
    for number, task in enumerate(simulation.program.tasks):
        for place in np.flatnonzero(task.ranks == rank):
            start = max(float(simulation.run.start[task.first[place]]), low)
            end = min(float(simulation.run.end[task.last[place]]), high)
            if end > start:
                of_rank.append(Slice(number, task, int(place), start - low, end - low))
    return sorted(of_rank, key=lambda work: (work.start, work.number))


def streams(simulation: Simulation) -> list[str]:
    """All streams, in the order in which they are first used."""
    return list(dict.fromkeys(task.stream for task in simulation.program.tasks))


def critical_rank(simulation: Simulation) -> int:
    """The rank on which most of the critical path lies; the lowest of several."""
    seconds = np.zeros(simulation.network.world)
    for piece in simulation.path():
        if piece.rank is not None:
            seconds[piece.rank] += piece.end - piece.start
    return int(seconds.argmax())


def sample(simulation: Simulation, most: int) -> list[int]:
    """All ranks where they are few, else the critical one and the first of evenly spread nodes."""
    network = simulation.network
    if network.world <= most:
        return list(range(network.world))
    firsts = np.unique(network.node_of_rank, return_index=True)[1]
    spread = np.unique(np.linspace(0, len(firsts) - 1, min(most - 1, len(firsts))).round().astype(int))
    return sorted({critical_rank(simulation), *(int(rank) for rank in firsts[spread])})


def resources(simulation: Simulation, rank: int) -> list[int]:
    """Numbers of the links, switches and tiers that serve a rank."""
    return list(dict.fromkeys(int(use.of[rank]) for use in _uses(simulation) if use.of[rank] != NONE))


def _uses(simulation: Simulation) -> list[Use]:
    """What ranks may ask of links, switches and tiers."""
    network = simulation.network
    traffic, everyone = LinkTraffic(network), network.extents[WORLD]
    uses = [*traffic.port(OUT), *traffic.port(IN)]
    if everyone.leave_domains:
        uses += [*traffic.card(everyone, OUT), *traffic.card(everyone, IN)]
    return [*uses, *network.host(sent=1.0), *network.memories(), *(network.front_end() or [])]


def use_by_rank(simulation: Simulation) -> dict[Resource, Floats]:
    """[W] share of the counted time in which what serves each rank is in use, by kind of resource, the busier way of
    two; 0 where nothing of the kind serves it."""
    network, busy = simulation.network, simulation.busy()
    share = np.zeros(network.count)
    for resource, first in network.first.items():
        if resource in busy:
            share[first : first + len(busy[resource])] = busy[resource]
    found = {DEVICE: busy[DEVICE]}
    for use in _uses(simulation):
        served = np.flatnonzero(use.of != NONE)
        own = np.zeros(network.world)
        own[served] = share[use.of[served]]
        if own.any():
            kind = replace(network.instances[int(use.of[served[0]])][0], way=None)
            found[kind] = np.maximum(found.get(kind, 0.0), own)
    return found


def loads(simulation: Simulation, ranks: Iterable[int]) -> dict[int, list[Load]]:
    """The loads of every link that is used in the counted steps, by rank. Simulates the steps again."""
    of_rank = {rank: resources(simulation, rank) for rank in ranks}
    record = _Record(sorted({number for numbers in of_rank.values() for number in numbers}))
    simulation.replay(record)
    low, high = simulation.window
    loads_of: dict[int, list[Load]] = {rank: [] for rank in of_rank}
    for rank, numbers in of_rank.items():
        for number in numbers:
            time, share = record.of(number)
            kept = time < high
            kept[:-1] &= time[1:] > low  # what was over before the first counted moment
            if share[kept].any():
                named, instance = simulation.network.instances[number]
                loads_of[rank].append(Load(f"{named} {instance}", np.maximum(time[kept], low) - low, share[kept]))
    return loads_of


class _Record:
    """Hears the engine and keeps what concerns some resources."""

    def __init__(self, wanted: list[int]) -> None:
        self._wanted = wanted
        self._kept: dict[int, Ints] = {}  # by the first resource of those that the engine tells of together
        self._last: dict[int, float] = {}
        self._time: dict[int, list[float]] = defaultdict(list)
        self._share: dict[int, list[float]] = defaultdict(list)

    def __call__(self, time: float, resources: Ints, share: Floats) -> None:
        first = int(resources[0])
        if first not in self._kept:
            self._kept[first] = np.flatnonzero(np.isin(resources, self._wanted))
        kept = self._kept[first]
        for resource, value in zip(resources[kept].tolist(), share[kept].tolist(), strict=True):
            if self._last.get(resource, 0.0) != value:
                self._last[resource] = value
                self._time[resource].append(time)
                self._share[resource].append(value)

    def of(self, resource: int) -> tuple[Floats, Floats]:
        """Times and shares; rounding of the engine may exceed the capacity by a trace, which is cut."""
        return np.array(self._time[resource]), np.minimum(np.array(self._share[resource]), 1.0)
