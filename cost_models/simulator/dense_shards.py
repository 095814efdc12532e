"""The dense part of a step where ranks shard it: its kernels, and the collectives that they wait for.

Sums of its gradients follow each unit, on the stream of all sums. FSDP: its weights are gathered on a stream of their
own from the moment on at which the unit before begins, forward and backward; the last unit stays whole in between.
ZeRO's stages 1 and 2: whole weights are gathered after the optimizer. Layers whose work ranks share: see
`layer_exchanges`.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from cost_models.coefficients import SoftwareCoefficients
from cost_models.dense_size import DenseSize, PartName
from cost_models.dense_units import DenseUnit, dense_units
from cost_models.shards import Floats, Ints
from cost_models.simulator.dense_part import Bucket, DenseKernels, Pass
from cost_models.simulator.inside_layers import InsideLayers, Worked
from cost_models.simulator.layer_exchanges import LayerExchanges
from cost_models.simulator.network import SimulatedNetwork
from cost_models.simulator.program import COMPUTE, REDUCE, Label, Streams, TaskKind, Wait
from cost_models.simulator.rank_groups import GroupCollectives
from cost_models.simulator.shared_sizes import shared_size
from cost_models.workload.dense_part import COMPUTE_DTYPE_BYTES
from cost_models.workload.dense_sharding import Held
from cost_models.workload.formats import wire_bytes
from cost_models.workload.models import Workload

GATHERS = "dense gather"
GATHERED_WEIGHTS = 5e8
"""Weights that DeepSpeed gathers at once after an update (`allgather_bucket_size`, its default)."""


class ShardCollectives:
    """What the ranks call that share the weights of layers which are held in one way, and those with the same shard."""

    def __init__(
        self,
        streams: Streams,
        network: SimulatedNetwork,
        workload: Workload,
        software: SoftwareCoefficients,
        held: Held,
    ) -> None:
        inputs = streams, network, workload, software
        self.parts = GroupCollectives.of_nodes(*inputs).size if held.cuts_weights else 1
        """Into how many parts weights are cut."""
        self._held, self._copies = held, None
        if held.cuts_weights:
            self._sharing = GroupCollectives.of_peers(*inputs)
        elif held.over == "node":
            self._sharing, self._copies = GroupCollectives.of_nodes(*inputs), GroupCollectives.of_peers(*inputs)
        else:
            self._sharing = GroupCollectives.everyone(*inputs)
        self.size = self._sharing.size if held.strategy != "replicate" else 1
        """Ranks that share what is sharded."""

    def gather(self, step: int, size: float, after: Sequence[Wait]) -> Ints:
        """Every rank gets all of `size` bytes, of which each has its part."""
        return self._sharing.gather(Label("dense gather", "all-gather", GATHERS, step), size / self.parts, after)

    def sum(self, step: int, size: float, ready: Ints) -> Ints:
        """Every rank gets the totals of its part of `size` bytes of gradients, or all of them where nothing is
        sharded."""
        size /= self.parts
        if self._held.strategy == "replicate":
            return self._sharing.all_reduce(Label("all-reduce", "all-reduce", REDUCE, step), size, [ready])
        summed = self._sharing.scatter(Label("reduce-scatter", "reduce-scatter", REDUCE, step), size, [ready])
        if self._copies is None:
            return summed
        return self._copies.all_reduce(Label("all-reduce", "all-reduce", REDUCE, step), size / self.size, [summed])


class ShardedKernels(DenseKernels):
    """The kernels of a dense part whose optimizer state, at least, is sharded, or whose work is, of some layers."""

    def __init__(
        self, streams: Streams, network: SimulatedNetwork, workload: Workload, software: SoftwareCoefficients
    ) -> None:
        super().__init__(streams, network, workload, software)
        self._units = dense_units(workload)
        self._firsts = sum(unit.is_first for unit in self._units)
        self._collectives = cache(lambda held: ShardCollectives(streams, network, workload, software, held))
        self._exchanges = LayerExchanges(streams, network, workload, software, self._units)
        self._nodes = cache(lambda: GroupCollectives.of_nodes(streams, network, workload, software))
        self._insides = InsideLayers(streams, self._nodes, self._samples, workload.dense.activation_bytes)
        self._weight_bytes = COMPUTE_DTYPE_BYTES[workload.dense.dtype]
        self._gradient_bytes = wire_bytes(workload.dense.gradient_format)
        self._gathered: Wait = None

    def forward(self, parts: Sequence[PartName], step: int, slow: Floats, after: Sequence[Wait] = ()) -> None:
        """Run the units of these parts; the first of them waits for `after`, and is gathered then."""
        begun = after or [self._streams.last(COMPUTE)]
        for number in self._numbers(parts):
            waits: Sequence[Wait] = [self._gather(number, step, begun), *after]
            begun, after = [self._streams.begin(COMPUTE, waits)], ()
            waits = self._exchanges.enter(self._units[number], step, waits)
            self._run(number, "forward", step, slow, waits)

    def backward(self, parts: Sequence[PartName], step: int, slow: Floats) -> list[Bucket]:
        """Run the units of these parts from the last to the first; each is summed when it has ended, so that no bucket
        is left."""
        for number in reversed(self._numbers(parts)):
            unit = self._units[number]
            waits: Sequence[Wait] = [self._gathered]
            begun = self._streams.begin(COMPUTE, waits)
            self._gathered = self._gather(number - 1, step, [begun]) if number else None
            waits = self._exchanges.answer(unit, step, waits)
            self._run(number, "backward", step, slow, waits)
            ended = self._exchanges.back(unit, step)
            self._collectives(unit.held).sum(step, unit.size.parameters * self._gradient_bytes, ended)
        return []

    def gathered(self, step: int, updated: Ints) -> Ints:
        """The whole weights after their update; nothing where they are gathered before each pass."""
        for held in dict.fromkeys(unit.held for unit in self._units):
            left: float = sum(unit.size.parameters for unit in self._units if unit.held == held)
            if held.strategy not in ("zero1", "zero2") or self._collectives(held).size == 1:
                continue
            while left > 0:
                size = min(left, GATHERED_WEIGHTS) * self._weight_bytes
                updated = self._collectives(held).gather(step, size, [updated])
                left -= GATHERED_WEIGHTS
        return self._streams.join(COMPUTE, [updated])

    def optimizer_s(self, slow: Floats) -> Floats:
        """[W] the update of each rank's part."""
        own = 0.0
        for unit in self._units:
            of = self._collectives(unit.held)
            own += unit.size.parameters / of.parts / of.size
        return super().optimizer_s(slow) * own / self.parameters

    def _numbers(self, parts: Sequence[PartName]) -> range:
        """The units of the parts that need no vectors, or of those that do."""
        return range(self._firsts) if list(parts) == self.first else range(self._firsts, len(self._units))

    def _gather(self, number: int, step: int, after: Sequence[Wait]) -> Wait:
        """The weights of a unit, where they are not whole already."""
        unit = self._units[number]
        if unit.held.strategy != "fsdp" or self._collectives(unit.held).size == 1:
            return None
        return self._collectives(unit.held).gather(step, unit.size.parameters * self._weight_bytes, after)

    def _run(self, number: int, way: Pass, step: int, slow: Floats, waits: Sequence[Wait]) -> Ints:
        kind: TaskKind = "dense forward" if way == "forward" else "dense backward"
        unit = self._units[number]
        size = shared_size(unit, self._nodes().size) if unit.held.cut else unit.size
        longer_s = self._longer_s([layer.name for layer in unit.layers], way, step)
        if unit.held.cut:  # the ranks of a node share the histories of all its samples
            node = self._network.node_of_rank
            longer_s = (np.bincount(node, weights=longer_s) / np.bincount(node))[node]
        label = Label(f"dense unit {number} {way}", kind, COMPUTE, step)
        if unit.held.cut and self._insides.is_one(unit):
            return self._run_inside(unit, replace(size, recomputed=None), label, way, longer_s, slow, waits)
        return self._streams.run(label, (self._way_s(size, way) + longer_s) * slow, waits)

    def _run_inside(
        self,
        unit: DenseUnit,
        size: DenseSize,
        label: Label,
        way: Pass,
        longer_s: Floats,
        slow: Floats,
        waits: Sequence[Wait],
    ) -> Ints:
        """Of a layer that exchanges something inside, and does so once more where it is computed again."""
        attention = DenseSize(within_samples=size.within_samples)
        again: list[Pass] = ["forward"] if way == "backward" and unit.size.recomputed is not None else []
        for one in (*again, way):
            seconds = (self._way_s(size, one) + longer_s * (one == way)) * slow
            worked = Worked(unit.layers[0].name, label, seconds, self._way_s(attention, one) * slow, one == "forward")
            ended, waits = self._insides.run(unit, worked, waits), ()
        return ended
