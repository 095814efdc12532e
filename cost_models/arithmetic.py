"""How fast a device multiplies matrices in the format of a model's dense part."""

from dataclasses import dataclass

from cost_models.coefficients import DeviceCoefficients, device_coefficients
from cost_models.workload.models import Workload
from topologies.cluster import NodeGroup, Topology
from topologies.errors import InputError
from topologies.flops import Flops

_HALVES = ("fp16", "bf16", "tf32")
WIDER: dict[str, tuple[str, ...]] = {"fp16": ("bf16", "tf32"), "bf16": ("fp16", "tf32"), "tf32": ()}
"""What a device computes in where it has no rate for one of these formats, the nearest first, and fp32 after all."""


@dataclass(frozen=True)
class ProductRate:
    """What a product of matrices [m, k] and [k, n] takes: 2 (m + edge) (n + edge) (k + inner_edge) FLOPs at a rate."""

    flops_per_s: float
    """Of products that are large in every direction."""
    edge: float = 0.0
    """Rows, and columns, that a product computes beyond its own: tiles that are not full."""
    inner_edge: float = 0.0
    """Steps along the inner size that it takes beyond its own: tiles that are loaded first, and stored."""


def peak_flops(flops: Flops, wanted: str) -> float:
    """FLOP/s in a format, or in the nearest wider one that a device has a rate for."""
    peaks = (getattr(flops, name) for name in (wanted, *WIDER.get(wanted, ()), "fp32"))
    return float(next(peak for peak in peaks if peak is not None))


def are_timed_alone(device: DeviceCoefficients, wanted: str, *, alone: bool) -> bool:
    """Whether products in a format take what they took by themselves: where that is asked for, and was measured."""
    return alone and device.kernel_utilization is not None and wanted in device.kernel_utilization.by_dtype


def _rate(peak: float, name: str, device: DeviceCoefficients, *, alone: bool, is_aligned: bool) -> ProductRate:
    """That of products on matrix units in a format."""
    if not is_aligned and device.unaligned_slowdown is not None:
        peak /= device.unaligned_slowdown.by_dtype.get(name, 1.0)
    share, edge, inner_edge = device.kernel_utilization, device.kernel_edge, device.kernel_inner_edge
    if are_timed_alone(device, name, alone=alone) and share and edge and inner_edge:
        return ProductRate(peak * share.by_dtype[name], edge.by_dtype[name], inner_edge.by_dtype[name])
    return ProductRate(peak * device.flop_utilization.value, device.product_edge.value, device.product_inner_edge.value)


def product_rates(
    group: NodeGroup, wanted: str, device: DeviceCoefficients, *, alone: bool = True, is_aligned: bool = True
) -> tuple[ProductRate, ...]:
    """The rates of matrix products in a format, or in the nearest wider one of 16 bits or more that the device has: a
    product takes as long as by the slowest. Raises InputError for a format of fewer bits that it does not multiply.

    A rate that was calibrated on the device is of the products that it was measured on, as it is. `alone` takes those
    of products that were timed by themselves, where there are any, else those of whole steps; `is_aligned` those whose
    rows begin at multiples of 16 bytes. Those in fp32, which other units compute, were traced without edges; they are
    never faster than those of matrix units.
    """
    flops, measured = group.accelerators.flops, device.matmul_flops_per_s
    for name in (wanted, *WIDER.get(wanted, ())):
        if measured is not None and name in measured.by_dtype:
            return (ProductRate(measured.by_dtype[name]),)
        if name != "fp32" and (peak := getattr(flops, name)) is not None:
            return (_rate(float(peak), name, device, alone=alone, is_aligned=is_aligned),)
    if wanted not in (*WIDER, "fp32"):
        has = [name for name in type(flops).model_fields if getattr(flops, name) is not None]
        message = f"{group.accelerators.device} of node group {group.name} has no FLOP/s in {wanted}"
        remedy = f"choose one that it has ({', '.join(has)}), or state accelerators.flops.{wanted} in the topology"
        raise InputError.at("dense.dtype", f"{message}; {remedy}")
    in_fp32 = ProductRate(flops.fp32 * (device.fp32_utilization or device.flop_utilization).value)
    how = {"alone": alone, "is_aligned": is_aligned}
    units = [_rate(peak, name, device, **how) for name in reversed(_HALVES) if (peak := getattr(flops, name))]
    return in_fp32, *units[:1]


def single_rates(topology: Topology, workload: Workload) -> tuple[tuple[ProductRate, ...], ...]:
    """[K] the rates of products of fp32 numbers outside of layers: in tf32 where the layers' are, as one switch of
    PyTorch says (`torch.set_float32_matmul_precision`), else in fp32."""
    return _rates_in("tf32" if workload.dense.dtype == "tf32" else "fp32", topology)


def fp32_rates(topology: Topology) -> tuple[tuple[ProductRate, ...], ...]:
    """[K] the rates of products in fp32."""
    return _rates_in("fp32", topology)


def _rates_in(wanted: str, topology: Topology) -> tuple[tuple[ProductRate, ...], ...]:
    devices = [device_coefficients(group.accelerators.device) for group in topology.nodes]
    return tuple(product_rates(group, wanted, device) for group, device in zip(topology.nodes, devices, strict=True))
