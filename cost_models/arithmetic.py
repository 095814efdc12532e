"""How fast a device multiplies matrices in the format of a model's dense part."""

from dataclasses import dataclass

from cost_models.coefficients import DeviceCoefficients
from cost_models.workload.models import Workload
from topologies.cluster import NodeGroup

_HALVES = ("fp16", "bf16", "tf32")
WIDER: dict[str, tuple[str, ...]] = {
    "fp16": ("bf16", "tf32"),
    "bf16": ("fp16", "tf32"),
    "fp8": _HALVES,
    "mxfp8": _HALVES,
    "mxint8": _HALVES,
    "mxfp6": ("mxfp8", *_HALVES),
    "mxfp4": ("mxfp6", "mxfp8", *_HALVES),
    "mx9": _HALVES,
    "mx6": ("mx9", *_HALVES),
    "mx4": ("mx6", "mx9", *_HALVES),
}
"""The formats that a device computes in where it has no rate for one, the nearest first, and fp32 after all: numbers of
a format are then decoded into one that holds them."""


@dataclass(frozen=True)
class ProductRate:
    """What a product of matrices [m, k] and [k, n] takes: 2 (m + edge) (n + edge) (k + inner_edge) FLOPs at a rate."""

    flops_per_s: float
    """Of products that are large in every direction."""
    edge: float = 0.0
    """Rows, and columns, that a product computes beyond its own: tiles that are not full."""
    inner_edge: float = 0.0
    """Steps along the inner size that it takes beyond its own: tiles that are loaded first, and stored."""


def product_rates(group: NodeGroup, workload: Workload, device: DeviceCoefficients) -> tuple[ProductRate, ...]:
    """The rates of matrix products in the format of the dense part, or the nearest wider one that the device has: a
    product takes as long as by the slowest.

    A rate that was measured on the device is of the products that it was measured on, as it is. Those in fp32, which
    other units compute, were traced without edges; they are never faster than those of matrix units.
    """
    wanted, flops, measured = workload.dense.dtype, group.accelerators.flops, device.matmul_flops_per_s
    share, edges = device.flop_utilization.value, (device.product_edge.value, device.product_inner_edge.value)
    for name in (wanted, *WIDER.get(wanted, ())):
        if measured is not None and name in measured.by_dtype:
            return (ProductRate(measured.by_dtype[name]),)
        if name != "fp32" and (peak := getattr(flops, name)) is not None:
            return (ProductRate(float(peak) * share, *edges),)
    in_fp32 = ProductRate(flops.fp32 * (device.fp32_utilization or device.flop_utilization).value)
    units = [ProductRate(peak * share, *edges) for name in reversed(_HALVES) if (peak := getattr(flops, name))]
    return in_fp32, *units[:1]
