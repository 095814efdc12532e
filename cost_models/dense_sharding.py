"""What sharding the dense part over ranks costs a step: bytes on each rank, seconds of collectives, and of waits.

Each layer may be held in a way of its own, and its work be cut over the ranks of a node (see `cut_layers`). Gradients
are reduce-scattered unit by unit (see `dense_units`) while the next unit works. Under ZeRO's stages 1 and 2
whole weights are gathered once the update has ended; under FSDP those of each unit before its forward and its backward
pass, while the unit before works (PyTorch's FSDP2 prefetches one unit). The last unit stays whole from its forward to
its backward pass, as torchtitan has it. Gathers and sums of gradients take the links in the order in which they are
asked for, gathers first.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cost_models.collective_calls import CollectiveCall, Phase
from cost_models.cut_layers import UnitCalls, calls_of_units, expect_held_layers, strategy_of
from cost_models.dense import DensePass, SumsEnd, optimizer_seconds, parameter_bytes, size_seconds
from cost_models.dense_size import DenseSize, dense_size
from cost_models.dense_strategies import DenseStrategy, NumberBytes, TrainedLayer, held_bytes, layer_calls
from cost_models.dense_timeline import TimedUnit, Transfer, ends_of, forward_end_s
from cost_models.dense_units import DenseUnit, dense_units
from cost_models.group_laws import GroupLaws
from cost_models.kinds import RankKind
from cost_models.shards import Floats
from cost_models.shared_work import Ring, size_on_rank
from cost_models.software import software_of
from cost_models.workload.dense_sharding import REPLICATED, DenseSharding
from cost_models.workload.formats import codec_bytes
from cost_models.workload.models import Workload
from topologies.cluster import Topology
from topologies.errors import InputError

GATHERED_ELEMENTS = 5e8
"""Weights that are gathered at once after an update (`allgather_bucket_size` of DeepSpeed's ZeRO, its default)."""
DENSE_GATHER = "dense_gather"
"""The stage in which whole weights are gathered after their update."""


def sharding_of(workload: Workload) -> DenseSharding:
    """How ranks hold the dense part."""
    return workload.dense.sharding or REPLICATED


def expect_shardable(topology: Topology, workload: Workload) -> None:
    """Raise InputError for a dense part that cannot be sharded as the workload says, by the reason."""
    sharding, ranks = sharding_of(workload), {group.accelerators.count for group in topology.nodes}
    over_node = sharding.over == "node" or any(rule.over == "node" for rule in sharding.layers)
    if (reason := why_replicated(workload)) is not None:
        raise InputError.at("dense", f"{sharding.words}: {reason}", path="strategy")
    refusals = {
        "one rank has nobody to share with": topology.world_size == 1,
        "nodes have different numbers of ranks; use over: world": over_node and len(ranks) > 1,
        "nodes have one rank each; use over: world": over_node and ranks == {1},
    }
    for words, is_refused in refusals.items():
        if is_refused:
            raise InputError.at("dense", f"{sharding.words}: {words}", path="strategy")
    expect_held_layers(topology, workload)


def why_replicated(workload: Workload) -> str | None:
    """Why every rank holds the whole dense part of a workload, on any cluster; None where it may be sharded."""
    refusals = {
        f"{workload.name} answers and does not train; leave the strategy out": workload.mode != "training",
        "towers with modules are planned with a replicated dense part": bool(workload.tower_modules),
        f"{workload.software} reduces dense gradients after the backward pass and shards no dense part; use torchrec": (
            not software_of(workload).all_reduce_overlaps_dense
        ),
        f"gradients in {workload.dense.gradient_format} are encoded to be all-reduced; give fp32, fp16 or bf16": (
            codec_bytes(workload.dense.gradient_format) > 0
        ),
        "shampoo keeps blocks of whole matrices, and divides them over groups of ranks itself (dense.shampoo.group)": (
            workload.dense.optimizer == "shampoo"
        ),
        f"{workload.name} has no dense parameters to shard": not dense_size(workload).parameters,
    }
    return next((words for words, is_refused in refusals.items() if is_refused), None)


def is_shardable(topology: Topology, workload: Workload) -> bool:
    """Whether a dense part can be sharded as the workload says."""
    try:
        expect_shardable(topology, workload)
    except InputError:
        return False
    return True


@dataclass(frozen=True)
class ShardedBytes:
    """What every rank has of the dense part."""

    held: float
    """Bytes of weights, gradients and optimizer state, and of what else is there."""
    gathered: float
    """Bytes of whole weights and gradients of two units at most: of the one that works, and of the one gathered
    ahead."""
    more_activations: float
    """Numbers for each of its samples that layers which are cut keep beyond those that it would keep of whole ones."""


def sharded_bytes(topology: Topology, workload: Workload) -> ShardedBytes:
    """Those of a sharded dense part. Raises InputError as `expect_shardable`."""
    expect_shardable(topology, workload)
    units, numbers = held_units(topology, workload), NumberBytes.of(workload.dense)
    gathered = [held_bytes(unit.strategy, TrainedLayer(unit.parameters, 0, 0), numbers, 0).gathered for unit in units]
    two = [sum(gathered[first : first + 2]) for first in range(len(gathered))]
    of_ways = _by_strategy(units).items()
    held = [held_bytes(strategy, TrainedLayer(count, 0, 0), numbers, 0).kept for strategy, count in of_ways]
    more = _more_activations(units) + _ring_elements(topology, workload, units)
    return ShardedBytes(sum(held) + workload.dense.extra_bytes, max(two, default=0.0), more)


def _ring_elements(topology: Topology, workload: Workload, units: Iterable["HeldUnit"]) -> float:
    """Numbers of a sample that the messages of the largest ring take, which goes around at a time."""
    world = topology.world_size
    number_bytes = workload.dense.activation_bytes * workload.batch(world) / world
    return max((each.calls.ring.buffer_bytes for each in units if each.calls.ring), default=0.0) / number_bytes


def _more_activations(units: Iterable["HeldUnit"]) -> float:
    """Numbers of a sample that cut layers keep beyond those of whole ones: all of them, and of blocks that are computed
    again those of one."""
    kept, again = 0.0, dict[str, float]()
    for unit in units:
        more = unit.size.activation_elements - unit.unit.size.activation_elements
        if unit.size.recomputed is None or unit.unit.held.cut is None:
            kept += more
        else:
            block = unit.unit.layers[0].block
            again[block] = again.get(block, 0.0) + more
    return kept + max(again.values(), default=0.0)


def dense_bytes(topology: Topology, workload: Workload) -> float:
    """Bytes of the dense part on a rank as the workload says that it is held, activations aside. Raises InputError as
    `expect_shardable`."""
    if not sharding_of(workload).is_sharded:
        return parameter_bytes(workload)
    of = sharded_bytes(topology, workload)
    return of.held + of.gathered


def update_seconds(topology: Topology, workload: Workload, hbm_bytes_per_s: float) -> float:
    """Time of the dense optimizer on a rank, for its share of the parameters."""
    seconds = optimizer_seconds(workload, hbm_bytes_per_s)
    if not sharding_of(workload).is_sharded:
        return seconds
    of_ways = _by_strategy(held_units(topology, workload))
    own = sum(count / each.weight_parts / each.shard_ranks for each, count in of_ways.items())
    return seconds * own / sum(of_ways.values())


@dataclass(frozen=True)
class HeldUnit:
    """A unit as the ranks of a cluster hold it."""

    unit: DenseUnit
    strategy: DenseStrategy
    calls: UnitCalls

    @property
    def parameters(self) -> int:
        """Those of the whole unit."""
        return self.unit.size.parameters

    @cached_property
    def size(self) -> DenseSize:
        """What a rank computes of it, for each of its samples."""
        return size_on_rank(self.unit, self.strategy.cut_ranks)

    @property
    def around_forward(self) -> tuple[CollectiveCall, ...]:
        """Messages that go around while it goes forward."""
        ring = self.calls.ring
        return () if ring is None else (ring.forward,) * ring.steps

    @property
    def around_backward(self) -> tuple[CollectiveCall, ...]:
        """The same of the backward pass, with those of the forward pass that is computed again."""
        ring = self.calls.ring
        again = self.around_forward * (self.size.recomputed is not None)
        return () if ring is None else (*again, *(ring.backward,) * ring.steps)


def ring_waits_s(
    workload: Workload, size: DenseSize, ring: Ring, laws: GroupLaws, samples: float, kind: RankKind
) -> tuple[float, float]:
    """Seconds for which attention of some size waits, in the forward and the backward pass, for what goes around."""
    attention = DenseSize(within_samples=size.within_samples)
    forward_s = size_seconds(workload, attention, samples, kind, 0.0, forward_only=True)
    both_s = size_seconds(workload, attention, samples, kind, 0.0, forward_only=False)
    waits_s = ring.waits_s((forward_s, both_s - forward_s), laws.seconds)
    return waits_s[0], waits_s[1] + waits_s[0] * (size.recomputed is not None)


def held_units(topology: Topology, workload: Workload) -> tuple[HeldUnit, ...]:
    """The units of a dense part on a cluster."""
    units, per_node = dense_units(workload), topology.nodes[0].accelerators.count
    calls = calls_of_units(workload, units, topology.world_size, per_node)
    strategies = [strategy_of(unit.held, topology.world_size, per_node) for unit in units]
    return tuple(HeldUnit(*each) for each in zip(units, strategies, calls, strict=True))


def _by_strategy(units: Iterable[HeldUnit]) -> dict[DenseStrategy, int]:
    """Parameters that are held in each way."""
    found: dict[DenseStrategy, int] = {}
    for unit in units:
        found[unit.strategy] = found.get(unit.strategy, 0) + unit.parameters
    return found


@dataclass(frozen=True)
class ShardedDense:
    """The collectives of one sharded dense part on one cluster; K kinds of rank."""

    topology: Topology
    workload: Workload

    @cached_property
    def units(self) -> tuple[HeldUnit, ...]:
        """Those of the dense part."""
        return held_units(self.topology, self.workload)

    @cached_property
    def _laws(self) -> GroupLaws:
        return GroupLaws(self.topology, self.workload)

    @cached_property
    def _numbers(self) -> NumberBytes:
        return NumberBytes.of(self.workload.dense)

    def _calls(self, strategy: DenseStrategy, parameters: float, phase: Phase) -> tuple[CollectiveCall, ...]:
        """Those of the weights of some layers, and of their gradients."""
        layer, world = TrainedLayer(parameters, 0, 0), self.topology.world_size
        return tuple(call for call in layer_calls(strategy, layer, self._numbers, 0, world) if call.phase == phase)

    def _gathers(self, unit: HeldUnit) -> tuple[CollectiveCall, ...]:
        """Of its whole weights, before a pass."""
        return self._calls(unit.strategy, unit.parameters, "forward")

    def _sums(self, unit: HeldUnit) -> tuple[CollectiveCall, ...]:
        """Of its gradients: over the ranks that share, then over those that have the same shard."""
        calls = self._calls(unit.strategy, unit.parameters, "backward")
        return tuple(call for call in calls if call.operation != "all_gather")

    def gather_after_update_s(self) -> float:
        """Seconds in which whole weights are gathered once the update has ended."""
        seconds = 0.0
        for strategy, parameters in _by_strategy(self.units).items():
            whole, rest = divmod(parameters, GATHERED_ELEMENTS)
            seconds += whole * self._laws.total_seconds(self._calls(strategy, GATHERED_ELEMENTS, "update"))
            seconds += self._laws.total_seconds(self._calls(strategy, rest, "update"))
        return seconds

    def summed_over(self) -> tuple[Floats, Floats]:
        """[K] seconds for which the backward pass keeps the port of a rank and its card busy: sums of gradients,
        gathers of FSDP, and what layers that are cut call."""
        calls = [call for unit in self.units[:-1] for call in self._gathers(unit)]
        calls += [call for unit in self.units for call in (*self._sums(unit), *unit.calls.backward)]
        calls += [call for unit in self.units for call in unit.around_backward]
        return self._busy_s(calls)

    def gathered_over(self, *, first: bool) -> tuple[Floats, Floats]:
        """[K] the same of the forward pass: of the units that work beside the exchange of vectors, which are the
        `first`, or of the others."""
        units = [unit for unit in self.units if unit.unit.is_first == first]
        calls = [call for unit in units for call in (*self._gathers(unit), *unit.calls.enter)]
        return self._busy_s([*calls, *(call for unit in units for call in unit.around_forward)])

    def _busy_s(self, calls: Iterable[CollectiveCall]) -> tuple[Floats, Floats]:
        each = [self._laws.busy_s(call) for call in calls] or [(np.zeros(len(self.topology.nodes)),) * 2]
        ports, cards = zip(*each, strict=True)
        return np.sum(ports, axis=0), np.sum(cards, axis=0)

    def stalled(self, dense: DensePass, samples: float, kind: RankKind, passes: float) -> DensePass:
        """The dense part of a kind of rank as it waits for its weights, and its gradients are summed unit by unit."""
        units = [self._timed(unit, samples, kind, passes) for unit in self.units]
        firsts = sum(unit.unit.is_first for unit in self.units)
        ends = ends_of(units[:firsts], units[firsts:])
        return replace(
            dense,
            bottom_forward_s=forward_end_s(units[:firsts]),
            rest_s=ends.rest_s,
            rest_forward_s=ends.forward_s,
            sums=SumsEnd(ends.sums_s, ends.busy_after_s),
        )

    def _timed(self, unit: HeldUnit, samples: float, kind: RankKind, passes: float) -> TimedUnit:
        forward_s = size_seconds(self.workload, unit.size, samples, kind, passes, forward_only=True)
        both_s = size_seconds(self.workload, unit.size, samples, kind, passes, forward_only=False)
        if unit.calls.ring is not None:
            waits_s = ring_waits_s(self.workload, unit.size, unit.calls.ring, self._laws, samples, kind)
            forward_s, both_s = forward_s + waits_s[0], both_s + sum(waits_s)
        gather, sums = (self._transfers(calls) or (Transfer(),) for calls in (self._gathers(unit), self._sums(unit)))
        return TimedUnit(
            forward_s,
            both_s - forward_s,
            gather[0],
            sums[0],
            sums[1] if len(sums) > 1 else Transfer(),
            self._transfers(unit.calls.enter),
            self._transfers(unit.calls.back),
            self._transfers(unit.calls.answer),
        )

    def _transfers(self, calls: Iterable[CollectiveCall]) -> tuple[Transfer, ...]:
        return tuple(map(self._transfer, calls))

    def _transfer(self, call: CollectiveCall) -> Transfer:
        seconds, latency_s = self._laws.seconds(call), self._laws.latency_s(call)
        port_s = float(self._laws.busy_s(call)[0].max())
        return Transfer(latency_s, seconds - latency_s, min(port_s, seconds - latency_s))
