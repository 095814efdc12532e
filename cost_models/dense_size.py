"""How large the dense part is: multiply-accumulates, parameters, activations of MLPs and feature interaction."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from cost_models.workload.layer_graph import SizedLayer
from cost_models.workload.models import Workload
from cost_models.workload.tower_partition import Tower
from cost_models.workload.towers import Towers

FORWARD_FLOPS_PER_MAC = 2
TRAINING_FLOPS_PER_MAC = 6
"""Forward, gradient of the inputs, gradient of the weights: 2 FLOPs each."""

PartName = Literal["bottom_mlp", "interaction", "top_mlp"]


@dataclass(frozen=True)
class DenseSize:
    """The size of one sample's forward pass, and of the parameters."""

    macs: float = 0
    parameters: int = 0
    activation_elements: float = 0
    """Inputs and outputs of all layers; 0 when the workload gives totals only."""
    tile_macs: float = 0
    """Multiply-accumulates with every layer's columns filled up to whole tiles of matrix products."""

    @property
    def training_flops(self) -> float:
        """FLOPs of one training sample."""
        return TRAINING_FLOPS_PER_MAC * self.macs

    def __add__(self, other: "DenseSize") -> "DenseSize":
        return DenseSize(
            self.macs + other.macs,
            self.parameters + other.parameters,
            self.activation_elements + other.activation_elements,
            self.tile_macs + other.tile_macs,
        )


def dense_size(workload: Workload) -> DenseSize:
    """Sizes of the whole dense part, by its layers or by the totals given.

    DLRM-DCNv2 (arXiv:2008.13535 low-rank cross layers): 16.03 M MACs. DLRM (arXiv:1906.00091): the dot interaction
    multiplies all n x n pairs of the n vectors and keeps n(n-1)/2.
    """
    return sum(dense_parts(workload).values(), DenseSize())


def dense_parts(workload: Workload, tile: int = 1) -> dict[PartName, DenseSize]:
    """Sizes part by part, in the order of the forward pass: of layers that need no vectors, of those that meet them,
    and of the linear layers at the end; totals that are given count as the last. Matrix products compute `tile` columns
    at once."""
    dense = workload.dense
    if dense.macs_per_sample is not None:
        return {"top_mlp": DenseSize(dense.macs_per_sample, dense.parameters or 0, 0, dense.macs_per_sample)}
    if not workload.layers:
        return {}
    sizes: dict[PartName, DenseSize] = {"bottom_mlp": DenseSize(), "interaction": DenseSize(), "top_mlp": DenseSize()}
    for layer, part in zip(workload.layers, _parts(workload.layers), strict=True):
        sizes[part] += layer_size(layer, tile)
    return sizes


def _parts(layers: Sequence[SizedLayer]) -> list[PartName]:
    """The part of the step that each layer belongs to."""
    last = len(layers)
    while last and layers[last - 1].kind == "linear" and layers[last - 1].needs_vectors:
        last -= 1
    met: list[PartName] = ["interaction" if layer.needs_vectors else "bottom_mlp" for layer in layers[:last]]
    top: list[PartName] = ["top_mlp"] * (len(layers) - last)
    return met + top


def layer_size(layer: SizedLayer, tile: int = 1) -> DenseSize:
    """The size of one layer."""
    return DenseSize(layer.macs, layer.parameters, layer.activation_elements, layer.tile_macs(tile))


def tower_sizes(workload: Workload, tile: int = 1) -> tuple[DenseSize, ...]:
    """Sizes of the module of each tower; none without modules.

    DMT-DCN (arXiv:2403.00877, table 4): one cross layer of rank 512 over the joined vectors of the tower and a linear
    layer to 128 numbers give the published FLOPs of 2, 4, 8 and 16 towers within 0.7 %.
    """
    return tuple(_module(workload.towers, tower, tile) for tower in workload.tower_modules if workload.towers)


def _module(towers: Towers, tower: Tower, tile: int) -> DenseSize:
    if towers.module == "mlp":
        return _layers(itertools.pairwise((tower.columns, *towers.sizes)), tile)
    linear = _layers([(tower.columns, tower.outputs)], tile)
    if towers.module == "linear":
        return linear
    products = DenseSize(0, 0, 2 * tower.columns * towers.dcn_layers)
    return _layers(_cross_layers(tower.columns, towers.dcn_low_rank, towers.dcn_layers), tile) + products + linear


def macs_per_sample(workload: Workload) -> float:
    """Forward multiply-accumulates of a sample in the dense part and in all towers."""
    return dense_size(workload).macs + sum(size.macs for size in tower_sizes(workload))


def rank_parameters(workload: Workload) -> int:
    """Dense parameters of a rank: those of the dense part, and of the largest module."""
    return dense_size(workload).parameters + max((size.parameters for size in tower_sizes(workload)), default=0)


def _cross_layers(width: int, rank: int, count: int) -> Iterator[tuple[int, int]]:
    for _ in range(count):
        yield from ((width, rank), (rank, width))


def _layers(widths: Iterable[tuple[int, int]], tile: int) -> DenseSize:
    sizes = (DenseSize(i * o, i * o + o, i + o, i * -(-o // tile) * tile) for i, o in widths)
    return sum(sizes, DenseSize())
