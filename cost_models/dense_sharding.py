"""What sharding the dense part over ranks costs a step: bytes on each rank, seconds of collectives, and of waits.

Gradients are reduce-scattered unit by unit (see `dense_units`) while the next unit works. Under ZeRO's stages 1 and 2
whole weights are gathered once the update has ended; under FSDP those of each unit before its forward and its backward
pass, while the unit before works (PyTorch's FSDP2 prefetches one unit). The last unit stays whole from its forward to
its backward pass, as torchtitan has it. Gathers and sums of gradients take the links in the order in which they are
asked for, gathers first.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cost_models.collective_calls import CollectiveCall, Members
from cost_models.dense import DensePass, SumsEnd, optimizer_seconds, parameter_bytes, size_seconds
from cost_models.dense_size import dense_size
from cost_models.dense_strategies import DenseStrategy, NumberBytes, Stage, TrainedLayer, held_bytes
from cost_models.dense_timeline import TimedUnit, Transfer, ends_of, forward_end_s
from cost_models.dense_units import DenseUnit, dense_units
from cost_models.group_laws import GroupLaws
from cost_models.kinds import RankKind
from cost_models.shards import Floats
from cost_models.software import software_of
from cost_models.workload.dense_sharding import REPLICATED, DenseSharding, DenseStrategyWord
from cost_models.workload.formats import codec_bytes
from cost_models.workload.models import Workload
from topologies.cluster import Topology
from topologies.errors import InputError

STAGE_OF: dict[DenseStrategyWord, Stage] = {"replicate": 0, "zero1": 1, "zero2": 2, "fsdp": 3}
GATHERED_ELEMENTS = 5e8
"""Weights that are gathered at once after an update (`allgather_bucket_size` of DeepSpeed's ZeRO, its default)."""
DENSE_GATHER = "dense_gather"
"""The stage in which whole weights are gathered after their update."""


def sharding_of(workload: Workload) -> DenseSharding:
    """How ranks hold the dense part."""
    return workload.dense.sharding or REPLICATED


def shard_ranks(topology: Topology, workload: Workload) -> int:
    """Ranks that share what is sharded; 1 where nothing is. Raises InputError as `expect_shardable`."""
    sharding = sharding_of(workload)
    if not sharding.is_sharded:
        return 1
    expect_shardable(topology, workload)
    return topology.world_size if sharding.over == "world" else topology.nodes[0].accelerators.count


def expect_shardable(topology: Topology, workload: Workload) -> None:
    """Raise InputError for a dense part that cannot be sharded as the workload says, by the reason."""
    sharding, ranks = sharding_of(workload), {group.accelerators.count for group in topology.nodes}
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
        "one rank has nobody to share with": topology.world_size == 1,
        "nodes have different numbers of ranks; use over: world": sharding.over == "node" and len(ranks) > 1,
        "nodes have one rank each; use over: world": sharding.over == "node" and ranks == {1},
    }
    for words, is_refused in refusals.items():
        if is_refused:
            raise InputError.at("dense", f"{sharding.words}: {words}", path="strategy")


def is_shardable(topology: Topology, workload: Workload) -> bool:
    """Whether a dense part can be sharded as the workload says."""
    try:
        expect_shardable(topology, workload)
    except InputError:
        return False
    return True


@dataclass(frozen=True)
class ShardedBytes:
    """Bytes of the dense part on every rank."""

    held: float
    """Of weights, gradients and optimizer state, and of what else is there."""
    gathered: float
    """Of whole weights and gradients of two units at most: of the one that works, and of the one gathered ahead."""


def sharded_bytes(workload: Workload, ranks: int) -> ShardedBytes:
    """Those of a dense part of which `ranks` share what is sharded."""
    numbers = NumberBytes.of(workload.dense)
    strategy = DenseStrategy(stage=STAGE_OF[sharding_of(workload).strategy], shard_ranks=ranks)

    def held(parameters: float) -> tuple[float, float]:
        of = held_bytes(strategy, TrainedLayer(parameters, 0, 0), numbers, 0)
        return of.kept, of.gathered

    gathered = [held(unit.size.parameters)[1] for unit in dense_units(workload)]
    two = [sum(gathered[first : first + 2]) for first in range(len(gathered))]
    return ShardedBytes(held(dense_size(workload).parameters)[0] + workload.dense.extra_bytes, max(two, default=0.0))


def dense_bytes(topology: Topology, workload: Workload) -> float:
    """Bytes of the dense part on a rank as the workload says that it is held, activations aside. Raises InputError as
    `expect_shardable`."""
    if not sharding_of(workload).is_sharded:
        return parameter_bytes(workload)
    of = sharded_bytes(workload, shard_ranks(topology, workload))
    return of.held + of.gathered


def update_seconds(topology: Topology, workload: Workload, hbm_bytes_per_s: float) -> float:
    """Time of the dense optimizer on a rank, for its share of the parameters."""
    return optimizer_seconds(workload, hbm_bytes_per_s) / shard_ranks(topology, workload)


@dataclass(frozen=True)
class ShardedDense:
    """The collectives of one sharded dense part on one cluster; K kinds of rank."""

    topology: Topology
    workload: Workload

    @property
    def is_gathered_by_unit(self) -> bool:
        """Whether weights are gathered before each pass, not after the update."""
        return sharding_of(self.workload).strategy == "fsdp"

    @cached_property
    def ranks(self) -> int:
        """Ranks that share what is sharded."""
        return shard_ranks(self.topology, self.workload)

    @cached_property
    def units(self) -> tuple[DenseUnit, ...]:
        """Those of the dense part."""
        return dense_units(self.workload)

    @cached_property
    def _laws(self) -> GroupLaws:
        return GroupLaws(self.topology, self.workload)

    @cached_property
    def _numbers(self) -> NumberBytes:
        return NumberBytes.of(self.workload.dense)

    def _gather(self, parameters: float) -> CollectiveCall:
        return CollectiveCall("all_gather", "forward", parameters * self._numbers.computed, Members(self.ranks))

    def _sums(self, parameters: float) -> tuple[CollectiveCall, ...]:
        """Sums of gradients: over the ranks that share, then over those that have the same shard."""
        size, world = parameters * self._numbers.sent_gradient, self.topology.world_size
        scatter = CollectiveCall("reduce_scatter", "backward", size, Members(self.ranks))
        if self.ranks == world:
            return (scatter,)
        others = Members(world // self.ranks, are_peers=True)
        return scatter, CollectiveCall("all_reduce", "backward", size / self.ranks, others)

    def gather_after_update_s(self) -> float:
        """Seconds in which whole weights are gathered once the update has ended."""
        if self.is_gathered_by_unit:
            return 0.0
        parameters = dense_size(self.workload).parameters
        whole, rest = divmod(parameters, GATHERED_ELEMENTS)
        seconds = whole * self._laws.seconds(self._gather(GATHERED_ELEMENTS))
        return seconds + self._laws.seconds(self._gather(rest))

    def summed_over(self) -> tuple[Floats, Floats]:
        """[K] seconds for which the backward pass keeps the port of a rank and its card busy: sums of gradients, and
        gathers of FSDP."""
        gathered = self.units[:-1] if self.is_gathered_by_unit else ()
        calls = [self._gather(unit.size.parameters) for unit in gathered]
        return self._busy_s([*calls, *(call for unit in self.units for call in self._sums(unit.size.parameters))])

    def gathered_over(self, *, first: bool) -> tuple[Floats, Floats]:
        """[K] the same of gathers of the forward pass: of the units that work beside the exchange of vectors, which are
        the `first`, or of the others."""
        units = [unit for unit in self.units if unit.is_first == first and self.is_gathered_by_unit]
        return self._busy_s([self._gather(unit.size.parameters) for unit in units])

    def _busy_s(self, calls: Iterable[CollectiveCall]) -> tuple[Floats, Floats]:
        each = [self._laws.busy_s(call) for call in calls] or [(np.zeros(len(self.topology.nodes)),) * 2]
        ports, cards = zip(*each, strict=True)
        return np.sum(ports, axis=0), np.sum(cards, axis=0)

    def stalled(self, dense: DensePass, samples: float, kind: RankKind, passes: float) -> DensePass:
        """The dense part of a kind of rank as it waits for its weights, and its gradients are summed unit by unit."""
        units = [self._timed(unit, samples, kind, passes) for unit in self.units]
        firsts = sum(unit.is_first for unit in self.units)
        ends = ends_of(units[:firsts], units[firsts:])
        return replace(
            dense,
            bottom_forward_s=forward_end_s(units[:firsts]),
            rest_s=ends.rest_s,
            rest_forward_s=ends.forward_s,
            sums=SumsEnd(ends.sums_s, ends.busy_after_s),
        )

    def _timed(self, unit: DenseUnit, samples: float, kind: RankKind, passes: float) -> TimedUnit:
        forward_s = size_seconds(self.workload, unit.size, samples, kind, passes, forward_only=True)
        both_s = size_seconds(self.workload, unit.size, samples, kind, passes, forward_only=False)
        parameters = unit.size.parameters
        gather = self._transfer(self._gather(parameters)) if self.is_gathered_by_unit else Transfer()
        scatter, *others = map(self._transfer, self._sums(parameters))
        return TimedUnit(forward_s, both_s - forward_s, gather, scatter, *(others or [Transfer()]))

    def _transfer(self, call: CollectiveCall) -> Transfer:
        seconds, latency_s = self._laws.seconds(call), self._laws.latency_s(call)
        return Transfer(latency_s, seconds - latency_s)
