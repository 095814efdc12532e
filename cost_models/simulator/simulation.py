"""Plays a placement: consecutive training steps until they repeat, and what they show."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from cost_models.host_beside import works_beside
from cost_models.kinds import rank_kinds
from cost_models.replicas import Replicas
from cost_models.resources import DEVICE, Resource
from cost_models.shards import HOME, IS_STASHED, MEMORY_HBM, Floats, Ints, PlacedShards, state_memory
from cost_models.simulator.builder import Builder
from cost_models.simulator.conditions import Conditions
from cost_models.simulator.demand import Counter, Demand, JointDemand
from cost_models.simulator.engine import Engine, Observer, Run
from cost_models.simulator.network import SimulatedNetwork
from cost_models.simulator.pipelines import ahead_of
from cost_models.simulator.program import COMPUTE, HOST, Program, Task
from cost_models.simulator.replica_groups import SimulatedGroups, groups_by_copies
from cost_models.simulator.sampled_counts import SampledCounts
from cost_models.simulator.shard_counts import ShardCounts
from cost_models.simulator.two_parts import TwoPartDemand
from cost_models.software import software_of
from cost_models.stages import VectorExchange
from cost_models.tables import Tables
from cost_models.workload.models import Workload
from topologies.cluster import Topology
from topologies.sentences import counted

HOST_OVERHEAD = Resource("host")


@dataclass(frozen=True)
class Share:
    """What one kind of task adds to the critical path of a step."""

    task: str
    rank: int | None
    """The rank on which its longest piece lies; None for what all ranks wait for."""
    seconds: float


@dataclass(frozen=True)
class Piece:
    """A stretch of the critical path."""

    task: Task
    rank: int | None
    """None within an exchange, for which all ranks wait."""
    start: float
    end: float


class Simulation:
    """Steps that were simulated; the first few, in which the pipeline fills, are not counted."""

    def __init__(
        self,
        network: SimulatedNetwork,
        program: Program,
        run: Run,
        workload: Workload,
        fill: int,
        steps: int,
        capacity: Floats | None = None,
    ) -> None:
        self.network, self.program, self.run, self.workload = network, program, run, workload
        self.capacity = np.ones(network.count) if capacity is None else capacity
        """[R] of each resource, 1 for what is healthy."""
        self.fill, self.last = fill, fill + steps

    def replay(self, observe: Observer) -> None:
        """Play the same steps again, for whoever wants to hear the load of links."""
        Engine(self.program.graph, self.capacity, self.program.hubs).run(observe)

    @cached_property
    def ends(self) -> Floats:
        """[steps + 1] when each step ended on its last rank; the first number is 0."""
        return np.array([0.0, *(float(self.run.end[done].max()) for done in self.program.done)])

    @cached_property
    def step_seconds(self) -> Floats:
        """[steps counted]"""
        return np.diff(self.ends)[self.fill : self.last]

    @property
    def step_s(self) -> float:
        """The mean of the counted steps."""
        return float(self.step_seconds.mean())

    @property
    def samples_per_s(self) -> float:
        """Throughput of the whole cluster."""
        return float(self.workload.batch(self.network.world) / self.step_s)

    @property
    def window(self) -> tuple[float, float]:
        """The first and the last counted moment."""
        return float(self.ends[self.fill]), float(self.ends[self.last])

    def intervals(self, tasks: list[Task]) -> Floats:
        """[W, n, 2] start and end of each on every rank."""
        spans = [np.stack([self.run.start[task.first], self.run.end[task.last]], axis=1) for task in tasks]
        return np.stack(spans, axis=1) if spans else np.zeros((self.network.world, 0, 2))

    @cached_property
    def exposed_comm(self) -> Floats:
        """[W] share of the counted time in which a rank exchanges and does not compute."""
        compute = self.intervals([task for task in self.program.tasks if task.stream == COMPUTE])
        exchange = self.intervals([task for task in self.program.tasks if task.is_exchange])
        low, high = self.window
        both = np.clip(np.concatenate([compute, exchange], axis=1), low, high)
        return (covered(both) - covered(np.clip(compute, low, high))) / (high - low)

    @cached_property
    def comm(self) -> Floats:
        """[W] share of the counted time in which a rank exchanges, hidden or not."""
        low, high = self.window
        exchange = self.intervals([task for task in self.program.tasks if task.is_exchange])
        return covered(np.clip(exchange, low, high)) / (high - low)

    @property
    def exposed_share_of_comm(self) -> float:
        """Of the time in which ranks exchange, the share in which they do not compute, mean over ranks; 0 where nothing
        is exchanged. MAD-Max (arXiv:2310.02784) gives this one, not the share of the step."""
        return float(self.exposed_comm.mean() / self.comm.mean()) if self.comm.any() else 0.0

    def busy(self) -> dict[Resource, Floats]:
        """Per resource, [instances] share of the counted time that each is in use; ranks as DEVICE, and as
        HOST_OVERHEAD while the fixed overhead keeps them waiting or, of one rank, the host works."""
        low, high = self.window
        compute = self.intervals([task for task in self.program.tasks if task.stream == COMPUTE])
        host = self.intervals([task for task in self.program.tasks if task.stream == HOST])
        use = self._used_seconds() / self.capacity / (high - low)
        shares = {
            DEVICE: covered(np.clip(compute, low, high)) / (high - low),
            HOST_OVERHEAD: covered(np.clip(host, low, high)) / (high - low),
        }
        instances = np.split(use, list(self.network.first.values())[1:])
        return shares | {
            resource: of_resource
            for resource, of_resource in zip(self.network.first, instances, strict=True)
            if of_resource.any()
        }

    def _used_seconds(self) -> Floats:
        """[R] seconds of work that the transfers of the counted steps put on each resource."""
        arrays, hubs = self.program.graph.arrays(), self.program.hubs
        low, high = self.window
        lasting = np.maximum(self.run.end - self.run.start, 1e-300)
        within = np.clip(self.run.end, low, high) - np.clip(self.run.start, low, high)
        moved = arrays.amount * within / lasting
        used = np.zeros(self.network.count)
        there = arrays.resource >= 0
        np.add.at(used, arrays.resource[there], (arrays.weight * moved[:, None])[there])
        entering = np.zeros(hubs.count)
        there = arrays.hub >= 0
        np.add.at(entering, arrays.hub[there], (arrays.share * moved[:, None])[there])
        np.add.at(used, hubs.resource, hubs.weight * entering[hubs.hub])
        return used

    @cached_property
    def _meaning(self) -> tuple[Ints, Ints]:
        """[N] task and place among its ranks of each activity that starts or ends one; -1 for the rest."""
        task = np.full(len(self.program.graph), -1)
        place = np.full(len(self.program.graph), -1)
        for number, named in enumerate(self.program.tasks):
            for activities in (named.first, named.last):
                task[activities], place[activities] = number, np.arange(len(activities))
        return task, place

    def path(self) -> list[Piece]:
        """What the end of the last counted step waited for, piece by piece without a pause, from the first on.

        Within an exchange the chain passes through the rank that came last; what follows is the exchange's time.
        """
        last = self.program.done[self.last - 1]
        path = self.run.critical_path(int(last[self.run.end[last].argmax()]))
        task_of, place_of = self._meaning
        low, _ = self.window
        pieces: list[Piece] = []
        task: Task | None = None
        # An activity without a meaning of its own belongs to the exchange that ends after it.
        for activity in reversed(path):
            start, end = max(float(self.run.start[activity]), low), float(self.run.end[activity])
            rank = None
            if task_of[activity] >= 0:
                task = self.program.tasks[task_of[activity]]
                rank = int(task.ranks[place_of[activity]])
            if end > start and task:
                pieces.append(Piece(task, rank, start, end))
        return pieces[::-1]

    def critical_path(self) -> list[Share]:
        """What makes a step as long as it is: seconds by task along the path, per counted step, longest first."""
        seconds: dict[str, float] = defaultdict(float)
        longest: dict[str, tuple[float, int | None]] = {}
        for piece in reversed(self.path()):
            name, lasts = piece.task.name, piece.end - piece.start
            seconds[name] += lasts
            longest[name] = max(longest.get(name, (0.0, None)), (lasts, piece.rank), key=lambda pair: pair[0])
        steps = len(self.step_seconds)
        shares = [Share(name, longest[name][1], value / steps) for name, value in seconds.items()]
        return sorted(shares, key=lambda share: -share.seconds)


def covered(intervals: Floats) -> Floats:
    """[W] length of the union of the intervals [W, n, 2] of each row."""
    if not intervals.shape[1]:
        return np.zeros(len(intervals))
    order = np.argsort(intervals[:, :, 0], axis=1, kind="stable")
    start = np.take_along_axis(intervals[:, :, 0], order, axis=1)
    end = np.take_along_axis(intervals[:, :, 1], order, axis=1)
    reached = np.maximum.accumulate(end, axis=1)
    before = np.concatenate([start[:, :1], reached[:, :-1]], axis=1)
    return np.asarray(np.maximum(end - np.maximum(start, before), 0.0).sum(axis=1))


def _counts(workload: Workload, placed: PlacedShards, world: int, conditions: Conditions) -> ShardCounts:
    if conditions.draws_rows:
        return SampledCounts(workload, placed, world, conditions.seed)
    prefetched = ahead_of(workload).fetch > 0
    return ShardCounts(Tables.of(workload, world), placed, world, workload.batch(world), is_prefetched=prefetched)


def _reads_below_hbm(placed: PlacedShards) -> bool:
    """Whether rows, or their optimizer state, are in another memory than HBM, or leave it between the passes."""
    homes = HOME[placed.blocks.tier], state_memory(placed.blocks)
    return bool(IS_STASHED[placed.blocks.tier].any()) or any(bool((home != MEMORY_HBM).any()) for home in homes)


def simulate(
    topology: Topology,
    workload: Workload,
    placed: PlacedShards,
    *,
    replicas: Replicas | None = None,
    steps: int = 2,
    exchange: VectorExchange = "flat",
    conditions: Conditions | None = None,
    progress: Callable[[str], None] | None = None,
) -> Simulation:
    """Play `steps` steps after those in which the pipeline fills, with vectors that are exchanged so; `progress` hears
    what is being done.

    With `replicas`, `placed` are the shards of one group of ranks, and all groups are played.

    Raises ValueError where `conditions` name what does not exist.
    """
    tell = progress or (lambda _words: None)
    conditions = conditions or Conditions()
    if conditions.with_roots and workload.trained_by_shampoo is None:
        raise ValueError("no step takes inverse roots: shampoo does not train the dense part")
    without = [group.name for group in topology.nodes if group.links.front_end is None]
    if conditions.data_loading and without:
        raise ValueError(f"no step waits for training data: the nodes {without[0]} have no links.front_end")
    kinds, software = rank_kinds(topology, workload), software_of(workload)
    parts = groups_by_copies(topology, workload, replicas, placed)
    groups = [of_part for of_part, _ in parts]
    network = SimulatedNetwork(
        topology,
        kinds,
        conditions.lost_cards,
        host_traffic=_reads_below_hbm(placed),
        group_of_rank=None if groups[0] is None else groups[0].group_of_rank,
        towers=workload.towers.count if workload.towers else None,
    )
    ahead = ahead_of(workload)
    # Ranks that are done early begin the step after the last counted one, with all that it brings for later ones.
    fill, simulated = ahead.fill_steps, ahead.fill_steps + steps + 1 + ahead.copy
    counts = [_counting(network, workload, shards, conditions, of_part) for of_part, shards in parts]

    def count(ids: Floats | None) -> Demand:
        return JointDemand.of([each(ids) for each in counts])

    tell(f"drawing the ids of {counted(simulated, 'step')}")
    lengths = conditions.lengths(workload, network.world, simulated)
    drawn = conditions.ids(workload, network.world, simulated, lengths)
    mean = count(None)
    demands = []
    for number, ids in enumerate(drawn, start=1):
        demands.append(mean if ids is None else count(ids))
        tell(f"counting the work of step {number:,} of {simulated:,}")
    capacity = conditions.capacity(network)
    builder = Builder(
        network,
        workload,
        software,
        waits_for_data=conditions.data_loading,
        capacity=capacity,
        groups=groups,
        through_towers=exchange == "sptt" and network.has_towers,
        with_roots=conditions.with_roots,
        host_beside=works_beside(topology, workload),
    )
    program = builder.build(demands, conditions.slowness(network.world, simulated), tell, lengths)
    tell(f"simulating {counted(simulated, 'step')} of {counted(network.world, 'rank')}")
    run = Engine(program.graph, capacity, program.hubs).run()
    return Simulation(network, program, run, workload, fill, steps, capacity)


def _counting(
    network: SimulatedNetwork,
    workload: Workload,
    placed: PlacedShards,
    conditions: Conditions,
    groups: SimulatedGroups | None,
) -> Callable[[Floats | None], Demand]:
    """Counts the demand of a step from the ids [W, tables] of all ranks over their mean, or from the mean."""
    software = software_of(workload)
    if groups is None:
        counts = _counts(workload, placed, network.world, conditions)
        counter = Counter(counts, network.kinds, network.kind_of_rank, software)
        if not any(each.has_two_parts for each in workload.compressors):
            return counter.count
        parts = partial(_counts, world=network.world, conditions=conditions)
        return TwoPartDemand(counter, workload, placed, parts, network, software).count
    kind_of_rank, world = network.kind_of_rank[groups.members[0]], groups.members.shape[1]
    draws = range(len(groups.members)) if conditions.draws_rows else range(1)
    counters = [
        Counter(
            _counts(groups.workload, placed, world, replace(conditions, seed=conditions.seed + draw)),
            groups.exchanging_kinds,
            kind_of_rank,
            software,
        )
        for draw in draws
    ]
    return partial(groups.dealt_out, lambda number, ids: counters[number % len(counters)].count(ids))
