"""The dense part of a step where ranks shard it: its kernels, and the collectives that they wait for.

Sums of its gradients follow each unit, on the stream of all sums. FSDP: its weights are gathered on a stream of their
own from the moment on at which the unit before begins, forward and backward; the last unit stays whole in between.
ZeRO's stages 1 and 2: whole weights are gathered after the optimizer.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cost_models.coefficients import CollectiveOperation, SoftwareCoefficients
from cost_models.dense_size import PartName
from cost_models.dense_units import dense_units, neighbours, same_shard
from cost_models.kinds import RankKind, measured_law, rank_kinds
from cost_models.resources import Way
from cost_models.shards import Floats, Ints
from cost_models.simulator.collectives import Collectives
from cost_models.simulator.dense_part import Bucket, DenseKernels, Pass
from cost_models.simulator.exchanges import Exchanges
from cost_models.simulator.network import IN, OUT, SimulatedNetwork
from cost_models.simulator.process_groups import ProcessGroups, position
from cost_models.simulator.program import COMPUTE, REDUCE, Label, Streams, TaskKind, Wait
from cost_models.workload.dense_part import COMPUTE_DTYPE_BYTES
from cost_models.workload.dense_sharding import DenseSharding
from cost_models.workload.formats import wire_bytes
from cost_models.workload.models import Workload

GATHERS = "dense gather"
GATHERED_WEIGHTS = 5e8
"""Weights that DeepSpeed gathers at once after an update (`allgather_bucket_size`, its default)."""


class ShardCollectives:
    """What the ranks of each group that shares shards call, and those that have the same shard."""

    def __init__(
        self,
        streams: Streams,
        network: SimulatedNetwork,
        workload: Workload,
        software: SoftwareCoefficients,
        sharding: DenseSharding,
    ) -> None:
        everyone = sharding.over == "world"
        self._streams, self._network = streams, network
        self.shards = network.everyone if everyone else ProcessGroups(network.node_of_rank, network.domain_of_rank)
        self.size = int(self.shards.size[0])
        self._copies = None if everyone else ProcessGroups(position(network.node_of_rank), network.domain_of_rank)
        operations: dict[Way, CollectiveOperation] = {OUT: "reduce_scatter", IN: "all_gather"}
        self._of: dict[Way, tuple[Collectives, Exchanges]] = {}
        for way, operation in operations.items():
            own = network.seen_by(_kinds(network, workload, self.size, operation))
            self._of[way] = Collectives(own), Exchanges(streams, own, Collectives(own), software)
        peers = network.seen_by(
            rank_kinds(network.topology, workload, lambda group: same_shard(group, network.world, self.size))
        )
        self._among_copies = Exchanges(streams, peers, Collectives(peers), software)

    def gather(self, step: int, size: float, after: Sequence[Wait]) -> Ints:
        """Every rank gets all of `size` bytes, of which each has its part."""
        return self._ring(Label("dense gather", "all-gather", GATHERS, step), size, after, IN)

    def sum(self, step: int, size: float, ready: Ints) -> Ints:
        """Every rank gets the totals of its part of `size` bytes of gradients."""
        summed = self._ring(Label("reduce-scatter", "reduce-scatter", REDUCE, step), size, [ready], OUT)
        if self._copies is None:
            return summed
        return self._among_copies.all_reduce(step, self._copies, size / self.size, summed)

    def _ring(self, label: Label, size: float, after: Sequence[Wait], way: Way) -> Ints:
        collectives, exchanges = self._of[way]
        each = np.full(self._network.world, size)
        transfers = collectives.reduce_scatter(self.shards, each, way, reduction=True)
        around = [replace(transfer, around=not transfer.inside) for transfer in transfers]
        return exchanges.exchange(label, self.shards, around, after)


class ShardedKernels(DenseKernels):
    """The kernels of a dense part whose optimizer state, at least, is sharded."""

    def __init__(
        self, streams: Streams, network: SimulatedNetwork, workload: Workload, software: SoftwareCoefficients
    ) -> None:
        super().__init__(streams, network, workload, software)
        assert workload.dense.sharding is not None
        self._collectives = ShardCollectives(streams, network, workload, software, workload.dense.sharding)
        self._by_unit = workload.dense.sharding.strategy == "fsdp"
        self._units = dense_units(workload)
        self._firsts = sum(unit.is_first for unit in self._units)
        self._weight_bytes = COMPUTE_DTYPE_BYTES[workload.dense.dtype]
        self._gradient_bytes = wire_bytes(workload.dense.gradient_format)
        self._gathered: Wait = None

    def forward(self, parts: Sequence[PartName], step: int, slow: Floats, after: Sequence[Wait] = ()) -> None:
        """Run the units of these parts; the first of them waits for `after`, and is gathered then."""
        begun = after or [self._streams.last(COMPUTE)]
        for number in self._numbers(parts):
            waits = [self._gather(number, step, begun), *after]
            begun, after = [self._streams.begin(COMPUTE, waits)], ()
            self._run(number, "forward", step, slow, waits)

    def backward(self, parts: Sequence[PartName], step: int, slow: Floats) -> list[Bucket]:
        """Run the units of these parts from the last to the first; each is summed when it has ended, so that no bucket
        is left."""
        for number in reversed(self._numbers(parts)):
            waits = [self._gathered]
            begun = self._streams.begin(COMPUTE, waits)
            self._gathered = self._gather(number - 1, step, [begun]) if number else None
            ended = self._run(number, "backward", step, slow, waits)
            self._collectives.sum(step, self._units[number].size.parameters * self._gradient_bytes, ended)
        return []

    def gathered(self, step: int, updated: Ints) -> Ints:
        """The whole weights after their update; nothing where they are gathered before each pass."""
        if self._by_unit:
            return updated
        left: float = self.parameters
        while left > 0:
            updated = self._collectives.gather(step, min(left, GATHERED_WEIGHTS) * self._weight_bytes, [updated])
            left -= GATHERED_WEIGHTS
        return self._streams.join(COMPUTE, [updated])

    def optimizer_s(self, slow: Floats) -> Floats:
        """[W] the update of each rank's part."""
        return super().optimizer_s(slow) / self._collectives.size

    def _numbers(self, parts: Sequence[PartName]) -> range:
        """The units of the parts that need no vectors, or of those that do."""
        return range(self._firsts) if list(parts) == self.first else range(self._firsts, len(self._units))

    def _gather(self, number: int, step: int, after: Sequence[Wait]) -> Wait:
        """The weights of a unit, where they are not whole already."""
        if not self._by_unit:
            return None
        return self._collectives.gather(step, self._units[number].size.parameters * self._weight_bytes, after)

    def _run(self, number: int, way: Pass, step: int, slow: Floats, waits: Sequence[Wait]) -> Ints:
        kind: TaskKind = "dense forward" if way == "forward" else "dense backward"
        seconds = self._way_s(self._units[number].size, way)
        return self._streams.run(Label(f"dense unit {number} {way}", kind, COMPUTE, step), seconds * slow, waits)


def _kinds(
    network: SimulatedNetwork, workload: Workload, size: int, operation: CollectiveOperation
) -> tuple[RankKind, ...]:
    """What ranks achieve in an operation among so many neighbours: over ports what was measured of it, or what they
    achieve in exchanges."""
    topology = network.topology
    kinds = rank_kinds(topology, workload, lambda group: neighbours(group, size))
    own = []
    for kind, group in zip(kinds, topology.nodes, strict=True):
        law = measured_law(operation, group, kind.domain_ranks)
        protocols = kind.exchange_protocols if law is None else law.protocols
        own.append(replace(kind, reduction_protocols=protocols, reduction_hops_s=kind.exchange_hops_s))
    return tuple(own)
