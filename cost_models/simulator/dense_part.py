"""The dense part of a step: its kernels forward and backward, its optimizer, and the host's fixed overhead."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from cost_models.arithmetic import ProductRate
from cost_models.coefficients import Coefficient, SoftwareCoefficients
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
from cost_models.workload.layer_kinds import Product
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
SUMMED_WITHIN: dict[Pass, tuple[int, ...]] = {"forward": (1,), "backward": (2, 0)}
"""The same of the rows, inner size and columns of a product within a sample."""
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
        for own in self._jagged if self.lengths else ():
            if own.name in names:
                length, square = self.lengths[step][own.reads]
                seconds += self._way_s(own.size, way, length) - self._way_s(own.size, way)
                again: tuple[Pass, ...] = ("forward",) if way == "backward" and own.size.recomputed else ()
                for each in (way, *again):
                    seconds += self._attention_s(own, each, length, square) - self._attention_s(own, each)
        return seconds

    def _attention_s(
        self, own: "_Jagged", way: Pass, length: Floats | float = 1.0, square: Floats | float = 1.0
    ) -> Floats:
        """[W] one way through the attention of a layer over histories, whose sums of lengths and of their squares are
        so many times those of mean ones."""
        pairs = square if own.rows and own.columns else length
        times = pairs, length if own.rows else 1.0, length if own.columns else 1.0
        world = self._network.world
        of_kinds = [
            sum((_attention_s(kind, each, way, *times) for each in own.attention), np.zeros(world))
            for kind in self._network.kinds
        ]
        return np.asarray(self._samples * np.stack(of_kinds)[self._network.kind_of_rank, np.arange(world)])

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
        moved = self._moved_bytes(size, way)
        products = np.stack([_products_s(kind, size.products, samples, way) for kind in network.kinds])
        small = network.of_kind([_within_sample_s(kind, size.within_samples, way) for kind in network.kinds])
        within_samples = samples * (small + moved / hbm)
        return np.asarray(within_samples + products[network.kind_of_rank, np.arange(network.world)])

    def _moved_bytes(self, size: DenseSize, way: Pass) -> float:
        """What kernels beside products take of device memory one way, for a sample."""
        dense, software, mode = self._workload.dense, self._software, self._workload.software_mode
        is_counted = mode is not None and software.counted_passes is not None
        if is_counted:
            moved, rows = self._counted_bytes(size, way, is_fused=mode == "compiled")
        else:
            crossings = software.activation_passes.value * ACTIVATIONS_FORWARD * PASSES[way]
            moved = (size.activation_elements - size.uncrossed) * dense.activation_bytes * crossings
            rows = [(size.norm_rows, software.norm_row_bytes)] if way == "forward" else []
        if (narrow := COMPUTE_DTYPE_BYTES[dense.dtype]) < dense.activation_bytes:
            converted = {"forward": size.product_inputs, "backward": size.product_gradients}
            moved += converted[way] * (narrow + dense.activation_bytes)
        if way == "backward":
            rows.append((size.picked, software.picked_gradient_bytes))
        return moved + sum(count * took.value for count, took in rows if took is not None)

    def _counted_bytes(
        self, size: DenseSize, way: Pass, *, is_fused: bool
    ) -> tuple[float, list[tuple[float, Coefficient | None]]]:
        """What they read and write, counted kernel by kernel; and numbers and rows that take more than their bytes,
        each with what it takes."""
        beside, software = size.beside, self._software
        turned = {"forward": beside.turned_forward, "backward": beside.turned_backward}[way]
        rows: list[tuple[float, Coefficient | None]] = [(turned, software.turned_number_bytes)]
        if is_fused:
            numbers = {"forward": beside.fused_forward, "backward": beside.fused_backward}[way]
        elif way == "forward":
            numbers = beside.forward
            rows.append((size.norm_rows, software.counted_norm_row_bytes))
        else:
            numbers = beside.backward + beside.summed
            rows.append((size.norm_rows, software.norm_gradient_row_bytes))
            rows.append((beside.summed_rows, software.summed_row_bytes))
        assert software.counted_passes is not None
        return (numbers + turned) * self._workload.dense.activation_bytes * software.counted_passes.value, rows

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
        """[W] the step's fixed overhead, where the device waits for it; the dense optimizer, which was measured as a
        part of it, has its own task."""
        optimizer_s = self.optimizer_s(slow) if self._workload.mode == "training" else 0.0
        return np.maximum(self.host_s - optimizer_s, 0.0)

    @property
    def host_s(self) -> Floats:
        """[W] what the host does in a step."""
        return np.full(self._network.world, self._software.step_overhead_s.value)


@dataclass(frozen=True)
class _Jagged:
    """A layer that works on histories, and what of its work goes with their length."""

    reads: str
    """The layer that reads the history."""
    name: str
    size: DenseSize
    """All but attention."""
    attention: tuple[Product, ...]
    rows: bool
    """Whether its queries are those of the history."""
    columns: bool
    """Whether its keys are."""


def _jagged(workload: Workload) -> list[_Jagged]:
    """The layers that work on histories."""
    sizes = dict(zip((layer.name for layer in workload.layers), layer_sizes(workload), strict=True))
    found = []
    for history in histories(workload):
        long = {history.layer}
        for layer in (layer for layer in workload.layers if layer.name in history.linear):
            size = sizes[layer.name]
            attention = tuple(each for each in size.within_samples if each.kernel == "attention")
            rest = tuple(each for each in size.within_samples if each.kernel != "attention")
            again = size.recomputed and replace(size.recomputed, within_samples=rest)
            own = replace(size, within_samples=rest, recomputed=again)
            ends = (layer.inputs[0] in long, layer.inputs[-1] in long)
            found.append(_Jagged(history.layer, layer.name, own, attention, *ends))
            if layer.output.squared_tokens is not None:
                long.add(layer.name)
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


def _within_sample_s(kind: RankKind, products: Sequence[Product], way: Pass) -> float:
    """The products of one sample that have no weights, one way."""
    small, seconds = kind.small_products, 0.0
    for product in products:
        sizes = (product.rows, product.inner, product.columns)
        if product.kernel == "attention":
            seconds += float(np.sum(_attention_s(kind, product, way, 1.0, 1.0, 1.0)))
        elif product.kernel == "totals":
            macs = PASSES[way] * product.macs
            seconds += FORWARD_FLOPS_PER_MAC * macs / min(rate.flops_per_s for rate in small.full)
        else:
            each = [_product_s(small.batched, sizes, inner) for inner in SUMMED_WITHIN[way]]
            seconds += product.count * sum(each)
    return seconds


def _product_s(rates: Sequence[ProductRate], sizes: Sequence[float], inner: int) -> float:
    """One product of three sizes, of which it sums over the one at `inner`."""
    taken = []
    for rate in rates:
        edges = [rate.inner_edge if at == inner else rate.edge for at in range(3)]
        taken.append(math.prod(size + edge for size, edge in zip(sizes, edges, strict=True)) / rate.flops_per_s)
    return FORWARD_FLOPS_PER_MAC * max(taken)


def _attention_s(
    kind: RankKind, product: Product, way: Pass, pairs: Floats | float, rows: Floats | float, columns: Floats | float
) -> Floats:
    """[W] seconds of a sample's attention one way, where pairs of tokens, queries and keys are so many times those of
    the mean sample: a head takes (queries + edge) (keys + edge) (numbers + edge)."""
    small = kind.small_products
    taken = []
    for rate in small.attention if way == "forward" else small.attention_gradients:
        tokens = product.rows * product.columns * pairs + rate.edge**2
        tokens = tokens + rate.edge * (product.rows * rows + product.columns * columns)
        taken.append(np.asarray(tokens * (product.inner + rate.inner_edge) / rate.flops_per_s))
    return np.asarray(product.count * FORWARD_FLOPS_PER_MAC * np.max(taken, axis=0))


def _products_s(kind: RankKind, products: Sequence[LayerProduct], samples: Floats, way: Pass) -> Floats:
    """[W] the matrix products of layers, one way, on a kind of rank: each sums over one of the sizes of its layer,
    which has the inner edge of a rate; the two others have the outer one."""
    seconds = np.zeros_like(samples)
    for product in products:
        sizes = np.stack(np.broadcast_arrays(samples * product.rows, product.inputs, product.outputs))  # [3, W]
        for inner in SUMMED[way]:
            taken = []
            for rate in kind.products if product.is_aligned else kind.small_products.unaligned:
                edges = np.where(np.arange(3) == inner, rate.inner_edge, rate.edge)
                taken.append(np.prod(sizes + edges[:, None], axis=0) / rate.flops_per_s)
            seconds += product.count * FORWARD_FLOPS_PER_MAC * np.max(taken, axis=0)
    return seconds


def _words(part: PartName) -> str:
    return part.replace("_", " ")
