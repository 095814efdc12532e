"""How fast a device multiplies matrices in the format of a model's dense part."""

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


def achieved_flops(group: NodeGroup, workload: Workload, device: DeviceCoefficients) -> float:
    """FLOP/s that matrix products reach, measured on the device or a share of its peak: in the format of the dense
    part, or the nearest wider one that the device has."""
    wanted, flops, measured = workload.dense.dtype, group.accelerators.flops, device.matmul_flops_per_s
    in_fp32 = device.fp32_utilization or device.flop_utilization
    for name in (wanted, *WIDER.get(wanted, ())):
        if measured is not None and name in measured.by_dtype:
            return measured.by_dtype[name]
        if (peak := getattr(flops, name)) is not None:
            return float(peak) * (in_fp32 if name == "fp32" else device.flop_utilization).value
    return flops.fp32 * in_fp32.value
