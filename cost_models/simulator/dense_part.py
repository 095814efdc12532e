"""The dense part of a step: its kernels forward and backward, its optimizer, and the host's fixed overhead."""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from cost_models.coefficients import SoftwareCoefficients
from cost_models.dense_size import (
    FORWARD_FLOPS_PER_MAC,
    DenseSize,
    LayerProduct,
    PartName,
    dense_parts,
    layer_parts,
    layer_sizes,
    tower_sizes,
)
from cost_models.kinds import RankKind
from cost_models.shards import Floats, Ints
from cost_models.simulator.conditions import Lengths
from cost_models.simulator.network import SimulatedNetwork
from cost_models.simulator.preconditioners import Preconditioners
from cost_models.simulator.program import COMPUTE, Label, Streams, Wait
from cost_models.workload.dense_part import COMPUTE_DTYPE_BYTES
from cost_models.workload.formats import codec_bytes, wire_bytes, written_bytes
from cost_models.workload.histories import histories
from cost_models.workload.models import Workload
from cost_models.workload.optimizers import ELEMENTWISE, LAYERWISE, NORM_READS, PARKED_PASSES, UPDATE_BYTES

BUCKET_BYTES = 25e6
"""Dense gradients that one all-reduce takes (`bucket_cap_mb` of DistributedDataParallel)."""
MOST_BUCKETS = 16
Pass = Literal["forward", "backward"]
PASSES: dict[Pass, float] = {"forward": 1.0, "backward": 2.0}
"""Multiply-accumulates over those of the forward pass: the backward pass computes gradients of the inputs and of the
weights. Activations cross memory in the same proportion."""
SUMMED: dict[Pass, tuple[int, ...]] = {"forward": (1,), "backward": (2, 0)}
"""Of the samples, inputs and outputs of a layer, what each of its products sums over: inputs to outputs; outputs to the
gradients of the inputs; samples to those of the weights."""
ACTIVATIONS_FORWARD = 1 / 3
"""Share of the activations' traffic of a training step that its forward pass makes."""
BEFORE_OUTPUTS: PartName = "bottom_mlp"
"""The part that needs no vectors: it runs while they are exchanged."""

Bucket = tuple[Ints, float]
"""[W] activities after which gradients are ready, and their bytes."""


class DenseKernels:
    """Puts the kernels of the dense part on the compute stream of W ranks."""

    def __init__(
        self, streams: Streams, network: SimulatedNetwork, workload: Workload, software: SoftwareCoefficients
    ) -> None:
        self._streams, self._network, self._workload, self._software = streams, network, workload, software
        self._sizes = _with_projections(dense_parts(workload), workload)
        modules = tower_sizes(workload)
        self.parameters = sum(size.parameters for size in self._sizes.values())
        self.parameters += max((size.parameters for size in modules), default=0)
        """Weights of the dense part, on every rank, and of the largest module of a tower."""
        self._samples = workload.batch(network.world) / network.world
        self.first = [part for part in self._sizes if part == BEFORE_OUTPUTS]
        """The parts that run while vectors are exchanged, in the order of the forward pass."""
        self.rest = [part for part in self._sizes if part != BEFORE_OUTPUTS]
        """The parts that need the vectors, in the order of the forward pass."""
        self._names: dict[PartName, set[str]] = {part: set() for part in self._sizes}
        for layer, part in zip(workload.layers, layer_parts(workload.layers), strict=True):
            self._names.setdefault(part, set()).add(layer.name)
        self._jagged = _jagged(workload)
        self.lengths: Sequence[Lengths] = ()
        """Of the histories of each step; none where all are as long as the mean."""
        self.preconditioners: Preconditioners | None = None
        if workload.trained_by_shampoo is not None:
            self.preconditioners = Preconditioners(streams, network, workload, software)

    def forward(self, parts: Sequence[PartName], step: int, slow: Floats, after: Sequence[Wait] = ()) -> None:
        """Run these parts one after the other; the first of them waits for `after`, too."""
        for number, part in enumerate(parts):
            label = Label(f"{_words(part)} forward", "dense forward", COMPUTE, step)
            self._streams.run(label, self._part_s(part, "forward", step) * slow, () if number else after)

    def backward(self, parts: Sequence[PartName], step: int, slow: Floats) -> list[Bucket]:
        """Run these parts from the last to the first, bucket by bucket."""
        buckets: list[Bucket] = []
        for part in reversed(parts):
            gradient = self._sizes[part].parameters * wire_bytes(self._workload.dense.gradient_format)
            count = max(1, min(MOST_BUCKETS, math.ceil(gradient / BUCKET_BYTES)))
            seconds = self._part_s(part, "backward", step) * slow / count
            label = Label(f"{_words(part)} backward", "dense backward", COMPUTE, step)
            buckets += [(self._streams.run(label, seconds), gradient / count) for _ in range(count)]
        return buckets

    def _part_s(self, part: PartName, way: Pass, step: int) -> Floats:
        """[W] one way through a part, with histories as long as those of a step."""
        return self._way_s(self._sizes[part], way) + self._longer_s(self._names.get(part, set()), way, step)

    def _longer_s(self, names: Collection[str], way: Pass, step: int) -> Floats:
        """[W] what layers of these names take longer than for histories of mean length, or less than 0."""
        seconds: Floats = np.zeros(self._network.world)
        for reads, name, of_length, of_square in self._jagged if self.lengths else ():
            if name in names:
                length, square = self.lengths[step][reads]
                seconds += self._way_s(of_length, way, length) - self._way_s(of_length, way)
                seconds += self._way_s(of_square, way, square) - self._way_s(of_square, way)
        return seconds

    def _way_s(self, size: DenseSize, way: Pass, times: Floats | float = 1.0) -> Floats:
        """[W] one way through layers of this size for `times` the samples of each rank; on the way back what is
        checkpointed goes forward first."""
        samples = np.full(self._network.world, self._samples) * times
        again = size.recomputed if way == "backward" else None
        seconds = self._layers_s(size, samples, way)
        return seconds if again is None else seconds + self._layers_s(again, samples, "forward")

    def module_s(self, way: Pass) -> Floats:
        """[W] one way through the module of each rank's tower, for the samples of its peers."""
        network, sizes = self._network, tower_sizes(self._workload)
        tower = network.tower_of_rank
        samples: Floats = np.asarray(self._samples * network.peers.size, dtype=np.float64)
        seconds = [self._layers_s(size, samples, way) for size in sizes]
        return np.stack(seconds)[tower, np.arange(network.world)]

    def _layers_s(self, size: DenseSize, samples: Floats, way: Pass) -> Floats:
        """[W] seconds of layers of this size for so many samples [W]: products at the rates of the device, activations
        through its memory."""
        network = self._network
        hbm = network.of_kind([kind.hbm_bytes_per_s for kind in network.kinds])
        crossings = self._software.activation_passes.value * ACTIVATIONS_FORWARD * PASSES[way]
        dense = self._workload.dense
        moved = size.activation_elements * dense.activation_bytes * crossings
        if (narrow := COMPUTE_DTYPE_BYTES[dense.dtype]) < dense.activation_bytes:
            converted = {"forward": size.product_inputs, "backward": size.product_gradients}
            moved += converted[way] * (narrow + dense.activation_bytes)
        macs = PASSES[way] * size.macs_within_samples
        slowest = network.of_kind([min(rate.flops_per_s for rate in kind.products) for kind in network.kinds])
        products = np.stack([_products_s(kind, size.products, samples, way) for kind in network.kinds])
        within_samples = samples * (FORWARD_FLOPS_PER_MAC * macs / slowest + moved / hbm)
        return np.asarray(within_samples + products[network.kind_of_rank, np.arange(network.world)])

    def optimizer_s(self, slow: Floats) -> Floats:
        """[W] weights, gradients and state of the dense part read, weights, their copy and state written."""
        if self.preconditioners is not None:
            return self.preconditioners.moved_s * slow
        network, dense = self._network, self._workload.dense
        hbm = network.of_kind([kind.hbm_bytes_per_s for kind in network.kinds])
        state = ELEMENTWISE[dense.optimizer] * wire_bytes(dense.optimizer_state or "fp32")
        master = wire_bytes(dense.master_weights or "fp32")
        moved = 2 * (master + state) + written_bytes(dense.gradient_format) + dense.copy_bytes
        if dense.optimizer in LAYERWISE:
            moved += NORM_READS * master + PARKED_PASSES * UPDATE_BYTES
        return np.asarray(moved * self.parameters / hbm * slow)

    def codec_s(self, gradients: Floats | float, slow: Floats) -> Floats:
        """[W] so many gradients [W] encoded and decoded on the way to their sums, and the sums on their way back."""
        network = self._network
        hbm = network.of_kind([kind.hbm_bytes_per_s for kind in network.kinds])
        there_and_back = 2 * gradients + gradients / network.world + gradients
        moved = there_and_back * codec_bytes(self._workload.dense.gradient_format)
        return np.asarray(self._software.codec_passes.value * moved / hbm * slow)

    def overhead_s(self, slow: Floats) -> Floats:
        """[W] the step's fixed overhead; the dense optimizer, which was measured as a part of it, has its own task."""
        optimizer_s = self.optimizer_s(slow) if self._workload.mode == "training" else 0.0
        return np.maximum(self._software.step_overhead_s.value - optimizer_s, 0.0) * np.ones(self._network.world)


def _jagged(workload: Workload) -> list[tuple[str, str, DenseSize, DenseSize]]:
    """The layers that work on histories: the layer that reads the history, their name, and the parts of their size that
    go with its length, and with the square of that."""
    sizes = dict(zip((layer.name for layer in workload.layers), layer_sizes(workload), strict=True))
    found = []
    for history in histories(workload):
        for layer in (layer for layer in workload.layers if layer.name in history.linear):
            size, pairs = sizes[layer.name], DenseSize()
            if layer.name in history.pairs:
                pairs = DenseSize(macs_within_samples=size.macs_within_samples)
                pairs = pairs if size.recomputed is None else replace(pairs, recomputed=pairs)
                again = size.recomputed and replace(size.recomputed, macs_within_samples=0)
                size = replace(size, macs_within_samples=0, recomputed=again)
            found.append((history.layer, layer.name, size, pairs))
    return found


def _with_projections(sizes: dict[PartName, DenseSize], workload: Workload) -> dict[PartName, DenseSize]:
    """The parts with what brings short vectors to the width of the others: the first that vectors meet."""
    projections = DenseSize()
    for table, compressor in zip(workload.tables, workload.compressors, strict=True):
        if compressor.kind != "dim":
            continue
        numbers, columns = compressor.number, table.dim
        count = table.feature_count * table.poolings if table.pooled else table.pooling_factor
        product = LayerProduct(numbers, columns, count)
        elements = count * numbers + count * columns
        projections += DenseSize(count * numbers * columns, numbers * columns, elements, (product,))
    if not projections.products:
        return sizes
    order: tuple[PartName, ...] = ("bottom_mlp", "interaction", "top_mlp")
    met = {**sizes, "interaction": sizes.get("interaction", DenseSize()) + projections}
    return {part: met[part] for part in order if part in met}


def _products_s(kind: RankKind, products: Sequence[LayerProduct], samples: Floats, way: Pass) -> Floats:
    """[W] the matrix products of layers, one way, on a kind of rank: each sums over one of the sizes of its layer,
    which has the inner edge of a rate; the two others have the outer one."""
    seconds = np.zeros_like(samples)
    for product in products:
        sizes = np.stack(np.broadcast_arrays(samples * product.rows, product.inputs, product.outputs))  # [3, W]
        for inner in SUMMED[way]:
            taken = []
            for rate in kind.products:
                edges = np.where(np.arange(3) == inner, rate.inner_edge, rate.edge)
                taken.append(np.prod(sizes + edges[:, None], axis=0) / rate.flops_per_s)
            seconds += product.count * FORWARD_FLOPS_PER_MAC * np.max(taken, axis=0)
    return seconds


def _words(part: PartName) -> str:
    return part.replace("_", " ")
