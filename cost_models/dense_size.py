"""How large the dense part is: multiply-accumulates, parameters, activations of MLPs and feature interaction."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from cost_models.workload.beside import NO_KERNELS, Beside, activated, crossed
from cost_models.workload.checkpoints import Checkpointing, is_checkpointed
from cost_models.workload.layer_graph import SizedLayer
from cost_models.workload.layer_kinds import Product
from cost_models.workload.models import Workload
from cost_models.workload.tower_partition import Tower
from cost_models.workload.towers import Towers

FORWARD_FLOPS_PER_MAC = 2
TRAINING_FLOPS_PER_MAC = 6
"""Forward, gradient of the inputs, gradient of the weights: 2 FLOPs each."""

PartName = Literal["bottom_mlp", "interaction", "top_mlp"]


TOTALS_COLUMNS = 1024
"""Assumed width of the layers of a dense part that is given by its totals: Neo's models have 560, 826 and 3,994 columns
(MAD-Max, arXiv:2310.02784)."""


@dataclass(frozen=True)
class LayerProduct:
    """The matrix product of a layer with weights: `rows` of a sample x `inputs` by `inputs` x `outputs`."""

    inputs: float
    outputs: float
    rows: float = 1.0
    count: float = 1.0
    """How many such layers there are."""
    is_aligned: bool = True
    """Whether rows of what it reads begin where fast kernels ask."""


@dataclass(frozen=True)
class DenseSize:
    """The size of one sample's forward pass, and of the parameters."""

    macs: float = 0
    parameters: int = 0
    activation_elements: float = 0
    """Inputs and outputs of all layers; 0 when the workload gives totals only."""
    products: tuple[LayerProduct, ...] = ()
    """Those with weights."""
    within_samples: tuple[Product, ...] = ()
    """The others, of which both matrices come from the sample."""
    product_inputs: float = 0
    """Numbers of a sample that go into the products of its forward pass, weights aside; 0 of totals."""
    product_gradients: float = 0
    """Numbers that come out of them, whose gradients go into the products of the backward pass."""
    uncrossed: float = 0
    """Of the activation elements, those that no kernel beside the products reads or writes."""
    picked: float = 0
    """Pairs of dots that are picked."""
    norm_rows: float = 0
    """Vectors that are normed, each by itself."""
    beside: Beside = NO_KERNELS
    """What kernels beside the products read and write, where they are counted."""
    recomputed: "DenseSize | None" = None
    """What the backward pass computes again before it goes through it; None: nothing."""

    @property
    def macs_within_samples(self) -> float:
        """Multiply-accumulates of a sample of which both matrices come from it."""
        return sum(each.macs for each in self.within_samples)

    @property
    def training_flops(self) -> float:
        """FLOPs of one training sample."""
        return TRAINING_FLOPS_PER_MAC * self.macs

    def __add__(self, other: "DenseSize") -> "DenseSize":
        return DenseSize(
            self.macs + other.macs,
            self.parameters + other.parameters,
            self.activation_elements + other.activation_elements,
            self.products + other.products,
            self.within_samples + other.within_samples,
            self.product_inputs + other.product_inputs,
            self.product_gradients + other.product_gradients,
            self.uncrossed + other.uncrossed,
            self.picked + other.picked,
            self.norm_rows + other.norm_rows,
            self.beside + other.beside,
            _added(self.recomputed, other.recomputed),
        )


def _added(one: DenseSize | None, other: DenseSize | None) -> DenseSize | None:
    return one if other is None else other if one is None else one + other


def dense_size(workload: Workload) -> DenseSize:
    """Sizes of the whole dense part, by its layers or by the totals given.

    DLRM-DCNv2 (arXiv:2008.13535 low-rank cross layers): 16.03 M MACs. DLRM (arXiv:1906.00091): the dot interaction
    multiplies all n x n pairs of the n vectors and keeps n(n-1)/2.
    """
    return sum(dense_parts(workload).values(), DenseSize())


def dense_parts(workload: Workload) -> dict[PartName, DenseSize]:
    """Sizes part by part, in the order of the forward pass: of layers that need no vectors, of those that meet them,
    and of the linear layers at the end; totals that are given count as the last."""
    dense = workload.dense
    if dense.macs_per_sample is not None:
        layers = LayerProduct(TOTALS_COLUMNS, TOTALS_COLUMNS, count=dense.macs_per_sample / TOTALS_COLUMNS**2)
        return {"top_mlp": DenseSize(dense.macs_per_sample, dense.parameters or 0, 0, (layers,))}
    return dict(_parts_of(workload.layers, dense.checkpointing)) if workload.layers else {}


@lru_cache(maxsize=64)
def _parts_of(layers: tuple[SizedLayer, ...], checkpointing: Checkpointing | None) -> dict[PartName, DenseSize]:
    """Of some layers: asked for again and again, by each model of the same dense part under another strategy."""
    sizes: dict[PartName, DenseSize] = {"bottom_mlp": DenseSize(), "interaction": DenseSize(), "top_mlp": DenseSize()}
    for size, part in zip(_sizes_of(layers, checkpointing), layer_parts(layers), strict=True):
        sizes[part] += size
    return sizes


def layer_sizes(workload: Workload) -> tuple[DenseSize, ...]:
    """The size of each layer, with what checkpointing computes again of it."""
    return _sizes_of(workload.layers, workload.dense.checkpointing)


@lru_cache(maxsize=64)
def _sizes_of(layers: tuple[SizedLayer, ...], checkpointing: Checkpointing | None) -> tuple[DenseSize, ...]:
    sizes = map(layer_size, layers)
    again = (is_checkpointed(checkpointing, layer.stated, layer.block) for layer in layers)
    return tuple(
        replace(size, recomputed=size) if is_again else size for size, is_again in zip(sizes, again, strict=True)
    )


def layer_parts(layers: Sequence[SizedLayer]) -> list[PartName]:
    """The part of the step that each layer belongs to."""
    last = len(layers)
    while last and layers[last - 1].kind == "linear" and layers[last - 1].needs_vectors:
        last -= 1
    met: list[PartName] = ["interaction" if layer.needs_vectors else "bottom_mlp" for layer in layers[:last]]
    top: list[PartName] = ["top_mlp"] * (len(layers) - last)
    return met + top


@lru_cache(maxsize=4096)
def layer_size(layer: SizedLayer) -> DenseSize:
    """The size of one layer."""
    products = tuple(
        LayerProduct(each.inner, each.columns, each.rows, is_aligned=each.is_aligned)
        for each in layer.products
        if each.has_weights
    )
    within = tuple(each for each in layer.products if not each.has_weights)
    inputs, outputs = sum(each.read for each in layer.products), sum(each.made for each in layer.products)
    moved = layer.activation_elements
    others = layer.uncrossed, layer.picked, layer.norm_rows, layer.beside
    return DenseSize(layer.macs, layer.parameters, moved, products, within, inputs, outputs, *others)


def tower_sizes(workload: Workload) -> tuple[DenseSize, ...]:
    """Sizes of the module of each tower; none without modules.

    DMT-DCN (arXiv:2403.00877, table 4): one cross layer of rank 512 over the joined vectors of the tower and a linear
    layer to 128 numbers give the published FLOPs of 2, 4, 8 and 16 towers within 0.7 %.
    """
    return tuple(_module(workload.towers, tower) for tower in workload.tower_modules if workload.towers)


def _module(towers: Towers, tower: Tower) -> DenseSize:
    if towers.module == "mlp":
        return _layers(itertools.pairwise((tower.columns, *towers.sizes)))
    linear = _layers([(tower.columns, tower.outputs)])
    if towers.module == "linear":
        return linear
    count, rank = towers.dcn_layers, towers.dcn_low_rank
    products = DenseSize(0, 0, 2 * tower.columns * count)
    layers = _layers(_cross_layers(tower.columns, rank, count)) + products
    return replace(layers, beside=crossed(tower.columns, count, rank)) + linear


def macs_per_sample(workload: Workload) -> float:
    """Forward multiply-accumulates of a sample in the dense part and in all towers."""
    return dense_size(workload).macs + sum(size.macs for size in tower_sizes(workload))


def rank_parameters(workload: Workload) -> int:
    """Dense parameters of a rank: those of the dense part, and of the largest module."""
    return dense_size(workload).parameters + max((size.parameters for size in tower_sizes(workload)), default=0)


def _cross_layers(width: int, rank: int, count: int) -> Iterator[tuple[int, int]]:
    for _ in range(count):
        yield from ((width, rank), (rank, width))


def _layers(widths: Iterable[tuple[int, int]]) -> DenseSize:
    sizes = (
        DenseSize(i * o, i * o + o, i + o, (LayerProduct(i, o),), (), i, o, beside=activated(o)) for i, o in widths
    )
    return sum(sizes, DenseSize())
