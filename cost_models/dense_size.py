"""How large the dense part is: multiply-accumulates, parameters, activations of MLPs and feature interaction."""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from cost_models.workload.dense_part import Dense
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

    macs: int = 0
    parameters: int = 0
    activation_elements: int = 0
    """Inputs and outputs of all layers; 0 when the workload gives totals only."""
    tile_macs: int = 0
    """Multiply-accumulates with every layer's columns filled up to whole tiles of matrix products."""

    @property
    def training_flops(self) -> int:
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
    """Sizes part by part, in the order of the forward pass; totals that are given count as `top_mlp`. Matrix products
    compute `tile` columns at once."""
    dense = workload.dense
    if dense.macs_per_sample is not None:
        return {"top_mlp": DenseSize(dense.macs_per_sample, dense.parameters or 0, 0, dense.macs_per_sample)}
    if not dense.top_mlp and not dense.bottom_mlp:
        return {}
    numerical = dense.bottom_mlp[-1] if dense.bottom_mlp else dense.numerical_features
    interaction, width = _interaction(workload, dense, numerical, tile)
    return {
        "bottom_mlp": _layers(itertools.pairwise((dense.numerical_features, *dense.bottom_mlp)), tile),
        "interaction": interaction,
        "top_mlp": _layers(itertools.pairwise((width, *dense.top_mlp)), tile),
    }


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


def macs_per_sample(workload: Workload) -> int:
    """Forward multiply-accumulates of a sample in the dense part and in all towers."""
    return dense_size(workload).macs + sum(size.macs for size in tower_sizes(workload))


def rank_parameters(workload: Workload) -> int:
    """Dense parameters of a rank: those of the dense part, and of the largest module."""
    return dense_size(workload).parameters + max((size.parameters for size in tower_sizes(workload)), default=0)


def _interaction(workload: Workload, dense: Dense, numerical: int, tile: int) -> tuple[DenseSize, int]:
    """Its size, and the width of its output."""
    dim = dense.bottom_mlp[-1] if dense.bottom_mlp else workload.tables[0].dim
    vectors = sum(table.feature_count for table in workload.tables)
    embedded = sum(table.feature_count * table.dim for table in workload.tables)
    if workload.tower_modules:
        embedded = sum(tower.outputs for tower in workload.tower_modules)
        vectors = embedded // dim
    width = embedded + numerical
    if dense.interaction == "dot":
        vectors += bool(dense.bottom_mlp)
        pairs = vectors * vectors
        macs = pairs * dim
        return (
            DenseSize(macs, 0, width + pairs, macs),
            vectors * (vectors - 1) // 2 + numerical,
        )
    if dense.interaction == "dcn":
        rank, count = dense.dcn_low_rank, dense.dcn_layers
        products = DenseSize(0, 0, 2 * width * count)  # the product with the first layer's input
        return _layers(_cross_layers(width, rank, count), tile) + products, width
    if dense.interaction == "pool":
        return DenseSize(0, 0, width), -(-embedded // dense.pool_stride) + numerical
    return DenseSize(), width


def _cross_layers(width: int, rank: int, count: int) -> Iterator[tuple[int, int]]:
    for _ in range(count):
        yield from ((width, rank), (rank, width))


def _layers(widths: Iterable[tuple[int, int]], tile: int) -> DenseSize:
    sizes = (DenseSize(i * o, i * o + o, i + o, i * -(-o // tile) * tile) for i, o in widths)
    return sum(sizes, DenseSize())
