"""Training steps as activities of the engine: what every rank does, on which stream, and what it waits for.

A stream runs its activities in order, as a CUDA stream does. `compute` is the default stream; exchanges have streams of
their own, so that they run beside each other and share the links. An exchange starts when all ranks of its scope are
there and ends, for a rank, when all that it sends and gets has arrived.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from cost_models.coefficients import SoftwareCoefficients
from cost_models.dense_size import FORWARD_FLOPS_PER_MAC, DenseSize, PartName, dense_parts, dense_size
from cost_models.shards import MEMORY_TIERS, PLACEMENT_TIERS, Floats, Ints
from cost_models.simulator.demand import Demand
from cost_models.simulator.engine import Graph, Use
from cost_models.simulator.network import IN, OUT, SimulatedNetwork
from cost_models.tables import NUMBER_BYTES
from cost_models.workload.formats import sum_bytes, wire_bytes
from cost_models.workload.models import COMPUTE_DTYPE_BYTES, Workload
from cost_models.workload.optimizers import STATE

COMPUTE, COPY, DATA, IDS, PREFETCH, REDUCE = "compute", "copy", "data", "input dist", "prefetch", "all-reduce"
HOST = "host"
"""No stream: the device waits for what the host does between its kernels."""

BUCKET_BYTES = 25e6
"""Of dense gradients that one all-reduce takes (`bucket_cap_mb` of DistributedDataParallel)."""
MOST_BUCKETS = 16
BACKWARD_OVER_FORWARD = 2.0
"""Dense part: gradients of the inputs and of the weights, 2 FLOPs each per multiply-accumulate."""
ACTIVATIONS_FORWARD = 1 / 3
"""Share of the activations' traffic of a training step that its forward pass makes."""


@dataclass(frozen=True)
class Ahead:
    """How many steps before its use a batch is copied, its ids are exchanged, its cache misses are fetched."""

    copy: int
    ids: int
    fetch: int


AHEAD = {"none": Ahead(0, 0, 0), "sparse-dist": Ahead(2, 1, 0), "prefetch": Ahead(3, 2, 1)}
"""As TorchRec's train_pipeline does: TrainPipelineSparseDist, PrefetchTrainPipelineSparseDist."""


@dataclass(frozen=True)
class Task:
    """The same thing done by n ranks in one step."""

    name: str
    stream: str
    step: int
    ranks: Ints
    """[n]"""
    first: Ints
    """[n] activity whose start is the start of the task."""
    last: Ints
    """[n] activity whose end is its end."""
    sent_bytes: Floats | None = None
    """[n] over links, of exchanges."""

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


@dataclass(frozen=True)
class Transfer:
    """What every rank moves in one exchange: inside its domain, or between domains."""

    bytes: Floats
    """[W]"""
    uses: list[Use]
    hubs: list[Use]
    inside: bool
    reduction: bool = False


class Builder:
    """Builds the program of some consecutive steps."""

    def __init__(
        self, network: SimulatedNetwork, workload: Workload, software: SoftwareCoefficients, *, waits_for_data: bool
    ) -> None:
        self._waits_for_data = waits_for_data
        self._network, self._workload, self._software = network, workload, software
        self._world = network.world
        self._program = Program()
        self._last: dict[str, Ints] = {}
        self._ranks = np.arange(self._world)
        self._samples = workload.batch(self._world) / self._world
        overhead = software.collective_latency_s.value
        self._latency = {each: network.latency_s(overhead, reduction=each) for each in (False, True)}
        self._launch_s = (
            network.of_kind([kind.lookup_launch_s for kind in network.kinds]),
            network.of_kind([kind.update_launch_s for kind in network.kinds]),
        )
        training = workload.mode == "training"
        self._ahead = AHEAD[workload.pipeline] if training else Ahead(1, 0, 0)
        self._training = training
        self._demands: Sequence[Demand] = ()
        self._slowness: Sequence[Floats] = ()
        self._copied: list[Ints | None] = []
        self._given: list[Ints | None] = []
        self._fetched: list[Ints | None] = []

    def build(
        self,
        demands: Sequence[Demand],
        slowness: Sequence[Floats],
        tell: Callable[[str], None] = lambda _words: None,
    ) -> Program:
        """One step per demand; `slowness` [W] stretches each rank's device time; `tell` hears of each step."""
        self._demands, self._slowness = demands, slowness
        start: Ints | None = None
        for step in range(len(demands)):
            tell(f"laying out step {step + 1:,} of {len(demands):,}")
            self._bring(step + self._ahead.copy, self._copied, self._copy, start)
            if not step or not self._ahead.ids:
                self._bring(step + self._ahead.ids, self._given, self._exchange_ids, start)
            if self._ahead.fetch:
                self._bring(step + self._ahead.fetch, self._fetched, self._prefetch, start)
            start = self._step(step)
            self._program.done.append(start)
        return self._program

    def _bring(
        self,
        batch: int,
        there: list[Ints | None],
        bring: Callable[[int, Ints | None], Ints | None],
        after: Ints | None,
    ) -> None:
        """Whatever is not `there` up to this batch."""
        while len(there) <= min(batch, len(self._demands) - 1):
            there.append(bring(len(there), after))

    # --- pieces of a program ---------------------------------------------------------------------------------------

    def _record(self, name: str, stream: str, step: int, first: Ints, last: Ints, sent: Floats | None = None) -> None:
        self._program.tasks.append(Task(name, stream, step, self._ranks, first, last, sent))

    def _run(self, stream: str, name: str, step: int, seconds: Floats, after: Sequence[Ints | None] = ()) -> Ints:
        """Every rank is busy for so long, on its stream."""
        own = self._program.graph.add(seconds, [self._last.get(stream), *after])
        self._last[stream] = own
        self._record(name, stream, step, own, own)
        return own

    def _wait_for_host(self, step: int, seconds: Floats, after: Sequence[Ints | None]) -> None:
        """The compute stream has nothing to do for so long."""
        own = self._program.graph.add(seconds, [self._last.get(COMPUTE), *after])
        self._last[COMPUTE] = own
        self._record("overhead", HOST, step, own, own)

    def _move(
        self,
        stream: str,
        name: str,
        step: int,
        amount: Floats,
        uses: list[Use],
        after: Sequence[Ints | None] = (),
        *,
        yields: bool = False,
    ) -> Ints:
        """Every rank moves something of its own, on its stream."""
        graph = self._program.graph
        begin = graph.add(np.zeros(self._world), [self._last.get(stream), *after])
        end = begin.copy()
        moving = np.flatnonzero(amount > 0)
        if len(moving):
            taken = [Use(use.of[moving], use.weight[moving]) for use in uses]
            end[moving] = graph.move(amount[moving], taken, (), [begin[moving]], yields=yields)
            self._record(name, stream, step, begin, end)
        self._last[stream] = end
        return end

    def _exchange(
        self,
        stream: str,
        name: str,
        step: int,
        transfers: Sequence[Transfer],
        after: Sequence[Ints | None],
        phases: tuple[bool, ...] = (),
        *,
        yields: bool = False,
    ) -> Ints:
        """Ranks meet, move, and part. In `phases` (True: inside the domain) one after the other, else at once."""
        if not any(transfer.bytes.any() for transfer in transfers):
            return self._joined(stream, after)
        graph = self._program.graph
        first = reached = graph.add(np.zeros(self._world), [self._last.get(stream), *after])
        if phases:
            for inside in phases:
                reached = self._meet([each for each in transfers if each.inside == inside], reached, yields)
        else:
            reached = self._meet(transfers, reached, yields)
        self._last[stream] = reached
        self._record(name, stream, step, first, reached, np.sum([each.bytes for each in transfers], axis=0))
        return reached

    def _meet(self, transfers: Sequence[Transfer], reached: Ints, yields: bool) -> Ints:
        """[W] when each rank has what it waits for."""
        graph, network = self._program.graph, self._network
        domain, world = network.domain_of_rank, np.zeros(self._world, dtype=np.int64)
        ends: list[Ints] = []
        for inside, group in ((True, domain), (False, world)):
            own = [each for each in transfers if each.inside == inside and each.bytes.any()]
            if not own:
                continue
            ready = graph.join(group, reached)
            inside_s, across_s = self._latency[own[0].reduction]
            latency = inside_s[np.unique(group, return_index=True)[1]] if inside else np.array([across_s])
            ready = graph.add(latency, [ready])
            moves, of = [ready], [np.arange(len(ready))]
            for each in own:
                moving = np.flatnonzero(each.bytes > 0)
                uses, hubs = (
                    [Use(use.of[moving], use.weight[moving]) for use in listed] for listed in (each.uses, each.hubs)
                )
                moves.append(graph.move(each.bytes[moving], uses, hubs, [ready[group[moving]]], yields=yields))
                of.append(group[moving])
            ends.append(graph.join(np.concatenate(of), np.concatenate(moves))[group])
        return graph.add(np.zeros(self._world), ends or [reached])

    def _joined(self, stream: str, after: Sequence[Ints | None]) -> Ints:
        """Nothing to do but to wait."""
        own = self._program.graph.add(np.zeros(self._world), [self._last.get(stream), *after])
        self._last[stream] = own
        return own

    # --- before the step -------------------------------------------------------------------------------------------

    def _copy(self, batch: int, after: Ints | None) -> Ints:
        """A batch comes over the front-end network and then to the device."""
        workload, network = self._workload, self._network
        if self._software.ids_arrive_sharded:  # the ranks that hold the tables read their ids themselves
            return self._joined(COPY, [after])
        numbers = (workload.dense.numerical_features + 1) * NUMBER_BYTES
        per_sample = self._demands[batch].raw_ids_per_sample_bytes + numbers
        amount = np.full(self._world, self._samples * per_sample)
        arrived = None
        if (front_end := network.front_end()) is not None:
            loaded = self._move(DATA, "data loading", batch, amount, front_end, [after], yields=True)
            arrived = loaded if self._waits_for_data else None
        return self._move(COPY, "copy to device", batch, amount, network.host(), [arrived, after])

    def _exchange_ids(self, batch: int, after: Ints | None) -> Ints:
        waits = [self._copied[batch], after]
        if self._software.ids_arrive_sharded:
            return self._joined(IDS, waits)
        to_each = self._demands[batch].ids_received_bytes / self._world
        return self._exchange(IDS, "input dist", batch, self._spread(to_each, IN), waits, yields=self._ahead.ids > 0)

    def _prefetch(self, batch: int, after: Ints | None) -> Ints | None:
        return self._fetch(PREFETCH, batch, [self._given[batch], after])

    def _fetch(self, stream: str, batch: int, after: Sequence[Ints | None]) -> Ints | None:
        """Cache misses, brought from one memory after the other while evicted rows go back."""
        waited = self._software.cache_fetch_passes.value
        network, end = self._network, None
        demand = self._demands[batch]
        for m in np.flatnonzero(demand.fetched_bytes.any(axis=1)).tolist():
            tier, amount = MEMORY_TIERS[m], demand.fetched_bytes[m]
            name = f"cache fetch ({tier.upper()})"
            if (first_s := network.first_answer_s(tier)).any():
                after = [self._run(stream, name, batch, np.where(amount > 0, first_s, 0.0), after)]
            uses = network.fetch(tier, _per_byte(demand.fetched_s[m], amount), waited)
            end = self._move(stream, name, batch, amount, uses, after)
        return end

    def _in_place(self, name: str, step: int, amount: Floats, busy_s: Floats) -> Ints:
        """Kernels read and write memories of the node, [memories, W] bytes, all of them at once."""
        before, ends = self._last[COMPUTE], [self._last[COMPUTE]]
        for m in np.flatnonzero(amount.any(axis=1)).tolist():
            self._last[COMPUTE] = before
            uses = self._network.in_place(MEMORY_TIERS[m], _per_byte(busy_s[m], amount[m]))
            words = name if MEMORY_TIERS[m] == "ddr" else f"{name}, {MEMORY_TIERS[m].upper()}"
            ends.append(self._move(COMPUTE, f"{words} (PCIe)", step, amount[m], uses))
        return ends[-1] if len(ends) <= 2 else self._joined(COMPUTE, ends)

    # --- the step --------------------------------------------------------------------------------------------------

    def _step(self, step: int) -> Ints:
        demand, slow = self._demands[step], self._slowness[step]
        parts = dense_parts(self._workload)
        # Without a pipeline the host waits for the ids too, and only then goes on launching kernels.
        self._wait_for_host(step, self._overhead_s(slow), [] if self._ahead.ids else [self._given[step]])
        self._joined(COMPUTE, [self._given[step]])
        if self._ahead.fetch:
            self._joined(COMPUTE, [self._fetched[step]])
        else:
            self._fetch(COMPUTE, step, ())
        self._kernels("lookup", step, self._launch_s[0], demand.forward_s, slow, [])
        looked_up = self._in_place("lookup", step, demand.forward_host_bytes, demand.forward_host_s)
        outputs = self._outputs(step, demand, (1.0, 1.0), "output dist", OUT, looked_up)
        if "bottom_mlp" in parts:
            self._dense("bottom_mlp", "forward", step, parts, slow, [])
        for number, part in enumerate(each for each in parts if each != "bottom_mlp"):
            self._dense(part, "forward", step, parts, slow, [] if number else outputs)
        if not parts:
            self._joined(COMPUTE, outputs)
        if not self._training:
            return self._last[COMPUTE]
        # TorchRec's pipeline sends the sizes of the next batch before the forward pass, and its ids after it.
        if self._ahead.ids:
            self._bring(step + self._ahead.ids, self._given, self._exchange_ids, self._last[COMPUTE])
        return self._backward(step, demand, slow, parts)

    def _kernels(
        self, name: str, step: int, launch_s: Floats, by_tier: Floats, slow: Floats, after: Sequence[Ints]
    ) -> Ints:
        """One after the other, a kernel for the tables of each tier; the first one has the launch."""
        for tier in np.flatnonzero(by_tier.any(axis=1)).tolist() or [0]:
            seconds = (launch_s + by_tier[tier]) * slow
            last = self._run(COMPUTE, f"{name} ({PLACEMENT_TIERS[tier]})", step, seconds, after)
            launch_s, after = np.zeros(self._world), []
        return last

    def _backward(self, step: int, demand: Demand, slow: Floats, parts: dict[PartName, DenseSize]) -> Ints:
        software, workload = self._software, self._workload
        buckets: list[tuple[Ints, float]] = []
        for part in [each for each in reversed(parts) if each != "bottom_mlp"]:
            buckets += self._dense(part, "backward", step, parts, slow, [])
        forward, backward = workload.communication.forward, workload.communication.backward
        ratios = wire_bytes(backward) / wire_bytes(forward), sum_bytes(backward) / sum_bytes(forward)
        gradients = self._outputs(step, demand, ratios, "gradient dist", IN, self._last[COMPUTE])
        if "bottom_mlp" in parts:
            buckets += self._dense("bottom_mlp", "backward", step, parts, slow, [])
        reduced: Ints | None = None
        replicas = float(demand.replica_gradient_bytes.max())
        if software.all_reduce_overlaps_dense:
            for ready, size in [*buckets, (self._last[COMPUTE], replicas)]:
                reduced = self._all_reduce(step, size, ready)
        self._kernels("embedding update", step, self._launch_s[1], demand.backward_s, slow, gradients)
        self._in_place("embedding update", step, demand.backward_host_bytes, demand.backward_host_s)
        if not software.all_reduce_overlaps_dense:
            total = sum(size for _, size in buckets) + replicas
            reduced = self._all_reduce(step, total, self._last[COMPUTE])
        whole = self._network.of_kind([kind.dense_update_s for kind in self._network.kinds])
        seconds = self._optimizer_s(slow) + whole * demand.replica_gradient_bytes * slow
        return self._run(COMPUTE, "dense optimizer", step, seconds, [reduced])

    def _outputs(
        self, step: int, demand: Demand, ratios: tuple[float, float], name: str, way: str, after: Ints
    ) -> list[Ints]:
        """Vectors to the samples (`way` OUT) or their gradients back (IN), one exchange per kind of sharding.

        `ratios` are bytes over those of the outputs: of whole vectors, and of sums.
        """
        network, world = self._network, self._world
        domain, node = network.domain_size, network.node_size
        phases = ((True, False) if way == OUT else (False, True)) if self._software.exchange_in_phases else ()
        slower = ratios[1] * network.of_kind([kind.sums_slowdown for kind in network.kinds])
        sums, node_sums = demand.world_sums_bytes * slower, demand.node_sums_bytes * slower
        kinds = {
            "table-wise": self._spread(demand.vectors_to_each_bytes * ratios[0], way),
            "node": [
                self._ring(node_sums * (node - 1) / node, inside=True),
                *self._spread_beyond(node_sums / node / world, way, node),
            ],
            "row-wise": [
                self._ring(sums * (domain - 1) / domain, inside=True),
                self._ring(sums / domain * (1 - domain / world), inside=False),
            ],
        }
        return [
            self._exchange(f"{name}, {kind}", f"{name} ({kind})", step, transfers, [after], phases)
            for kind, transfers in kinds.items()
        ]

    def _spread(self, to_each: Floats, way: str) -> list[Transfer]:
        """Every rank sends (OUT) or gets (IN) so much to or from every other rank."""
        return self._spread_beyond(to_each, way, np.ones(self._world, dtype=np.int64))

    def _spread_beyond(self, to_each: Floats, way: str, near: Ints) -> list[Transfer]:
        """The same, but for the `near` [W] ranks around it, of its domain."""
        network, other = self._network, IN if way == OUT else OUT
        beyond = self._world - network.domain_size
        found = [Transfer(to_each * (network.domain_size - near), network.port(way), network.inside(other), True)]
        if network.leaves_domain:
            found.append(Transfer(to_each * beyond, network.card(way), network.outside(other), False))
        return found

    def _ring(self, amount: Floats, *, inside: bool, reduction: bool = False) -> Transfer:
        """Every rank sends so much, and gets as much."""
        network = self._network
        if not inside and not network.leaves_domain:
            return Transfer(np.zeros(self._world), [], [], False, reduction)
        ends = network.port if inside else network.card
        return Transfer(
            amount, [*ends(OUT, reduction=reduction), *ends(IN, reduction=reduction)], [], inside, reduction
        )

    def _all_reduce(self, step: int, size: float, ready: Ints) -> Ints:
        """Ring inside the domains, then across them with the shares."""
        domain = self._network.domain_size
        transfers = [
            self._ring(2 * size * (domain - 1) / domain, inside=True, reduction=True),
            self._ring(2 * size / domain * (1 - domain / self._world), inside=False, reduction=True),
        ]
        return self._exchange(REDUCE, "all-reduce", step, transfers, [ready])

    def _dense(
        self,
        part: PartName,
        way: str,
        step: int,
        parts: dict[PartName, DenseSize],
        slow: Floats,
        after: Sequence[Ints],
    ) -> list[tuple[Ints, float]]:
        """One part of the dense model; its backward pass bucket by bucket: (done, gradient bytes) of each."""
        size, network = parts[part], self._network
        flops = network.of_kind([kind.flops_per_s for kind in network.kinds])
        hbm = network.of_kind([kind.hbm_bytes_per_s for kind in network.kinds])
        crossings = self._software.activation_passes.value * ACTIVATIONS_FORWARD
        moved = size.activation_elements * COMPUTE_DTYPE_BYTES[self._workload.dense.dtype] * crossings
        seconds = self._samples * (FORWARD_FLOPS_PER_MAC * size.macs / flops + moved / hbm) * slow
        name = f"{part.replace('_', ' ')} {way}"
        if way == "forward":
            self._run(COMPUTE, name, step, seconds, after)
            return []
        gradient = size.parameters * self._software.gradient_bytes.value
        count = max(1, min(MOST_BUCKETS, math.ceil(gradient / BUCKET_BYTES)))
        chunk = BACKWARD_OVER_FORWARD * seconds / count
        return [(self._run(COMPUTE, name, step, chunk, after), gradient / count) for _ in range(count)]

    def _optimizer_s(self, slow: Floats) -> Floats:
        """Weights, gradients and state of the dense part read, weights and state written, in fp32."""
        network = self._network
        hbm = network.of_kind([kind.hbm_bytes_per_s for kind in network.kinds])
        passes = 3 + 2 * STATE[self._workload.dense.optimizer].dense_arrays
        return passes * 4 * dense_size(self._workload).parameters / hbm * slow

    def _overhead_s(self, slow: Floats) -> Floats:
        """The step's fixed overhead; the dense optimizer, which was measured as a part of it, has its own task."""
        own = self._optimizer_s(slow) if self._training else 0.0
        return np.maximum(self._software.step_overhead_s.value - own, 0.0) * np.ones(self._world)


def _per_byte(seconds: Floats, amount: Floats) -> Floats:
    """[W] 0 where nothing moves."""
    return np.asarray(seconds / np.where(amount > 0, amount, 1.0))
