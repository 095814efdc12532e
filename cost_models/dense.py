"""The dense part: multiply-accumulates, parameters, activations of MLPs and feature interaction."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from cost_models.workload.models import DTYPE_BYTES, Workload

FORWARD_FLOPS_PER_MAC = 2
TRAINING_FLOPS_PER_MAC = 6
"""Forward, gradient of the inputs, gradient of the weights: 2 FLOPs each."""


@dataclass(frozen=True)
class DenseSize:
    """Of one sample's forward pass, and of the parameters."""

    macs: int
    parameters: int
    activation_elements: int
    """Inputs and outputs of all layers; 0 when the workload gives totals only."""

    @property
    def training_flops(self) -> int:
        """FLOPs of one training sample."""
        return TRAINING_FLOPS_PER_MAC * self.macs


def dense_size(workload: Workload) -> DenseSize:
    """Sizes of the dense part, by its layers or by the totals given.

    DLRM-DCNv2 (arXiv:2008.13535 low-rank cross layers): 16.03 M MACs. DLRM (arXiv:1906.00091): the dot interaction
    multiplies all n x n pairs of the n vectors and keeps n(n-1)/2.
    """
    dense = workload.dense
    if dense.macs_per_sample is not None:
        return DenseSize(dense.macs_per_sample, dense.parameters or 0, 0)
    macs = parameters = elements = 0
    layers = [*_layers((dense.numerical_features, *dense.bottom_mlp))]
    vectors = sum(table.feature_count for table in workload.tables)
    embedded = sum(table.feature_count * table.dim for table in workload.tables)
    numerical = dense.bottom_mlp[-1] if dense.bottom_mlp else dense.numerical_features
    width = embedded + numerical
    if not dense.top_mlp and not dense.bottom_mlp:
        return DenseSize(0, 0, 0)
    if dense.interaction == "dot":
        vectors += bool(dense.bottom_mlp)
        macs += vectors * vectors * workload.tables[0].dim
        elements += width + vectors * vectors
        width = vectors * (vectors - 1) // 2 + numerical
    elif dense.interaction == "dcn":
        for _ in range(dense.dcn_layers):
            layers += [(width, dense.dcn_low_rank), (dense.dcn_low_rank, width)]
            elements += 2 * width  # the product with the first layer's input
    elif dense.interaction == "pool":
        elements += width
        width = -(-embedded // dense.pool_stride) + numerical
    layers += _layers((width, *dense.top_mlp))
    for inputs, outputs in layers:
        macs += inputs * outputs
        parameters += inputs * outputs + outputs
        elements += inputs + outputs
    return DenseSize(macs, parameters, elements)


def _layers(widths: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    return itertools.pairwise(widths)


FORWARD_SHARE_OF_TRAFFIC = 1 / 3
"""Activation traffic of a forward pass over that of a training step, which reads them back and writes gradients."""


def dense_seconds(
    workload: Workload, samples: float, flops_per_s: float, hbm_bytes_per_s: float, passes: float
) -> float:
    """Compute time of one rank's samples: matrix products, and activations `passes` times through HBM."""
    size = dense_size(workload)
    training = workload.mode == "training"
    flops = (TRAINING_FLOPS_PER_MAC if training else FORWARD_FLOPS_PER_MAC) * size.macs * samples
    crossings = passes if training else passes * FORWARD_SHARE_OF_TRAFFIC
    moved = size.activation_elements * DTYPE_BYTES[workload.dense.dtype] * samples * crossings
    return flops / flops_per_s + moved / hbm_bytes_per_s


def dense_bytes(workload: Workload, samples: float) -> dict[str, float]:
    """Bytes on every rank: parameters with gradients and optimizer state (fp32), activations, received embeddings."""
    size = dense_size(workload)
    training = workload.mode == "training"
    arrays = {"sgd": 0, "rowwise_adagrad": 1, "adagrad": 1, "adam": 2, "lamb": 2}[workload.dense.optimizer]
    copies = 2 + arrays if training else 1
    received = sum(
        (table.feature_count if table.pooled else table.pooling_factor) * table.dim for table in workload.tables
    )
    wire = DTYPE_BYTES[workload.communication.forward]
    return {
        "parameters": 4.0 * size.parameters * copies,
        "activations": float(size.activation_elements * DTYPE_BYTES[workload.dense.dtype] * samples),
        "embeddings": float(received * wire * samples * (2 if training else 1)),
    }
