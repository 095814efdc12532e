"""Time and memory of the dense part on one rank."""

from collections.abc import Sequence
from dataclasses import dataclass

from cost_models.arithmetic import ProductRate
from cost_models.dense_size import (
    FORWARD_FLOPS_PER_MAC,
    TRAINING_FLOPS_PER_MAC,
    DenseSize,
    dense_parts,
    rank_parameters,
)
from cost_models.gradient_buckets import Backward, GradientBucket, holding_up
from cost_models.kinds import RankKind
from cost_models.shampoo import ShampooStep
from cost_models.shards import Floats
from cost_models.small_products import SmallRates
from cost_models.workload.dense_part import COMPUTE_DTYPE_BYTES
from cost_models.workload.formats import wire_bytes, written_bytes
from cost_models.workload.layer_kinds import Product
from cost_models.workload.models import Workload

TRAINING_OVER_FORWARD = TRAINING_FLOPS_PER_MAC / FORWARD_FLOPS_PER_MAC


@dataclass(frozen=True)
class DensePass:
    """Seconds on one rank: of what overlaps an exchange of embeddings, and of the rest."""

    bottom_forward_s: float
    bottom_backward_s: float
    rest_s: float
    rest_forward_s: float
    """The part of `rest_s` before the backward pass."""
    buckets: tuple[GradientBucket, ...]
    """What holds the sums of its gradients up, where ranks replicate it."""
    sums: "SumsEnd | None" = None
    """Where ranks shard it."""

    @property
    def bucket_count(self) -> float:
        """In how many sums its gradients are summed."""
        return 1 + float(self.buckets[0].buckets_after)

    @property
    def total_s(self) -> float:
        """Seconds of the whole dense part."""
        return self.bottom_forward_s + self.bottom_backward_s + self.rest_s


@dataclass(frozen=True)
class SumsEnd:
    """When gradients are summed, in seconds from the begin of `rest_s`; of one model, or [n] of many."""

    end_s: float | Floats
    busy_after_s: float | Floats
    """For how long the links are busy with them after `rest_s`."""


def product_seconds(rates: Sequence[ProductRate], m: float, n: float, k: float) -> float:
    """Time of a product of matrices [m, k] and [k, n]. It grows with each of the three sizes."""
    return max(
        FORWARD_FLOPS_PER_MAC * (m + rate.edge) * (n + rate.edge) * (k + rate.inner_edge) / rate.flops_per_s
        for rate in rates
    )


def layers_seconds(
    rates: tuple[ProductRate, ...],
    size: DenseSize,
    samples: float,
    small: SmallRates | None = None,
    *,
    forward_only: bool,
) -> float:
    """Matrix products of all layers: forward, and in training the gradients of each layer's inputs and of its weights.
    Those within samples are small products, as many as there are samples; without rates of their own at full ones."""
    small = small or SmallRates.at(rates)
    seconds = samples * sum(
        each.count * within_sample_seconds(small, each, forward_only=forward_only) for each in size.within_samples
    )
    for of in size.products:
        passes = _passes(samples * of.rows, of.inputs, of.outputs, forward_only=forward_only)
        here = rates if of.is_aligned else small.unaligned
        seconds += of.count * sum(product_seconds(here, *sizes) for sizes in passes)
    return seconds


def _passes(rows: float, inputs: float, outputs: float, *, forward_only: bool) -> list[tuple[float, float, float]]:
    """Sizes of a product, and of those of the gradients of both matrices."""
    forward = [(rows, outputs, inputs)]
    return forward if forward_only else [*forward, (rows, inputs, outputs), (inputs, outputs, rows)]


def within_sample_seconds(rates: SmallRates, product: Product, *, forward_only: bool) -> float:
    """A product of one sample, of which a kernel does many: [rows, inner] by [inner, columns]."""
    sizes = product.rows, product.columns, product.inner
    if product.kernel == "attention":
        backward_s = 0.0 if forward_only else product_seconds(rates.attention_gradients, *sizes)
        return product_seconds(rates.attention, *sizes) + backward_s
    if product.kernel == "totals":
        return product_seconds(rates.full, *sizes) * (1 if forward_only else TRAINING_OVER_FORWARD)
    passes = _passes(product.rows, product.inner, product.columns, forward_only=forward_only)
    return sum(product_seconds(rates.batched, *each) for each in passes)


def size_seconds(
    workload: Workload, size: DenseSize, samples: float, kind: RankKind, passes: float, *, forward_only: bool
) -> float:
    """Compute time of layers of one size for a rank's samples: matrix products, activations `passes` times through HBM
    in a training step (or `passes` times what is counted kernel by kernel), what goes into products converted to their
    format, and what norms and the gradients of picked pairs take beyond. What is checkpointed goes forward once more
    before its backward pass."""
    moved = samples * kind.beside.moved_bytes(size, workload.dense, passes, forward_only=forward_only)
    seconds = layers_seconds(kind.products, size, samples, kind.small_products, forward_only=forward_only)
    seconds += moved / kind.hbm_bytes_per_s
    if forward_only or size.recomputed is None:
        return seconds
    return seconds + size_seconds(workload, size.recomputed, samples, kind, passes, forward_only=True)


def dense_seconds(workload: Workload, samples: float, kind: RankKind, passes: float) -> DensePass:
    """Compute time of one rank's samples."""
    training = workload.mode == "training"

    def seconds(size: DenseSize, *, forward_only: bool) -> float:
        return size_seconds(workload, size, samples, kind, passes, forward_only=forward_only)

    def backward_seconds(size: DenseSize) -> float:
        return seconds(size, forward_only=False) - seconds(size, forward_only=True) if training else 0.0

    parts = dense_parts(workload)
    bottom, last = parts.pop("bottom_mlp", DenseSize()), parts.get("top_mlp", DenseSize())
    rest = sum(parts.values(), DenseSize())
    met, forward_s = parts.get("interaction", DenseSize()), seconds(rest, forward_only=True)
    ways = Backward(last, backward_seconds(last)), Backward(met, backward_seconds(met))
    return DensePass(
        bottom_forward_s=seconds(bottom, forward_only=True),
        bottom_backward_s=backward_seconds(bottom),
        rest_s=seconds(rest, forward_only=not training),
        rest_forward_s=forward_s,
        buckets=holding_up(workload, forward_s, *ways, bottom.parameters),
    )


def optimizer_seconds(workload: Workload, hbm_bytes_per_s: float) -> float:
    """Time in which an optimizer that HBM limits reads weights, gradients and state of the dense part and of a tower's
    module, and writes weights, the copy for the matrix products and state."""
    dense, state = workload.dense, workload.dense.state_bytes
    read = wire_bytes(dense.master_weights or "fp32") + written_bytes(dense.gradient_format) + state
    written = wire_bytes(dense.master_weights or "fp32") + dense.copy_bytes + state
    return (read + written + dense.norm_bytes) * rank_parameters(workload) / hbm_bytes_per_s


def parameter_bytes(workload: Workload) -> float:
    """Bytes on every rank of parameters with gradients and optimizer state, and of what else is held.

    The state of Shampoo is that of the rank of a group that has most, beside what it gathers updates in.
    """
    in_blocks = ShampooStep.of(workload)
    of_blocks = 0.0 if in_blocks is None else in_blocks.rank_state_bytes + in_blocks.gathered_bytes
    return parameter_element_bytes(workload) * rank_parameters(workload) + of_blocks + workload.dense.extra_bytes


def parameter_element_bytes(workload: Workload) -> float:
    """Bytes of one parameter with its gradient and optimizer state.

    In mixed precision weights are there twice: those that are updated, and a copy for the matrix products (Micikevicius
    et al., arXiv:1710.03740). Weights that serve are there once. Gradients that something encodes are held in fp32.
    """
    dense = workload.dense
    if workload.mode != "training":
        return COMPUTE_DTYPE_BYTES[dense.dtype]
    weights = wire_bytes(dense.master_weights or "fp32") + dense.copy_bytes
    return weights + written_bytes(dense.gradient_format) + dense.state_bytes
