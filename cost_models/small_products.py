"""How fast a device multiplies what is no large layer: products within samples, and rows that fast kernels do not take.

Both matrices of a product within a sample come from the sample: dots of vectors, attention. Each is small, and one
kernel works on those of all samples. Small ones wait for memory and for kernels to begin, so that their rate goes with
the bandwidth of memory; fused attention computes more than it reads, so that its own goes with the peak.
"""

import math
from dataclasses import dataclass, replace

from cost_models.arithmetic import ProductRate, product_rates
from cost_models.coefficients import DeviceCoefficients, DtypeCoefficient
from topologies.cluster import NodeGroup

_HALVES = ("bf16", "fp16")
Rates = tuple[ProductRate, ...]
"""Of which the slowest holds."""


@dataclass(frozen=True)
class SmallRates:
    """Rates of products that are no large ones, in the data type of a workload."""

    unaligned: Rates
    """Of layers whose rows do not begin at multiples of 16 bytes."""
    full: Rates
    """Of products that are large in every direction; of those whose sizes nobody knows."""
    batched: Rates
    """Of a product of each sample: [m, k] by [k, n]."""
    attention: Rates
    """Of scores, and of weighted values, forward: [queries, numbers] by [numbers, keys]."""
    attention_gradients: Rates
    """The same backward, of the FLOPs forward."""

    @classmethod
    def at(cls, rates: Rates) -> "SmallRates":
        """Everything at the rates of large products, and backward at half of them."""
        full = tuple(ProductRate(rate.flops_per_s) for rate in rates)
        half = tuple(ProductRate(rate.flops_per_s / 2) for rate in full)
        return cls(rates, full, full, full, half)


_AT_ONCE = (ProductRate(math.inf),)
NO_TIME = SmallRates(_AT_ONCE, _AT_ONCE, _AT_ONCE, _AT_ONCE, _AT_ONCE)
"""Of products that take none."""


def small_rates(
    group: NodeGroup, wanted: str, device: DeviceCoefficients, *, alone: bool = True, pads: bool = False
) -> SmallRates:
    """The rates of small products in a format. A wider format is never faster: the laws of the narrower ones hold, too.
    Software that `pads` what is unaligned has fast kernels take it.

    Those of whole steps (`alone` unset: software that their rates were fitted to) and of a device that was calibrated
    are the rates of large products, as these are. Fused attention in tf32 is computed in fp32.
    """
    found = SmallRates.at(product_rates(group, wanted, device, alone=alone))
    calibrated = device.matmul_flops_per_s is not None and wanted in device.matmul_flops_per_s.by_dtype
    if not alone or calibrated:
        return found
    halves, flops = _halves(group, wanted), group.accelerators.flops
    batched = device.batched_flops_per_byte
    forward, backward = device.attention_utilization, device.attention_gradient_utilization
    found = replace(found, unaligned=product_rates(group, wanted, device, is_aligned=pads))
    if batched is not None:
        hbm, edges = group.accelerators.hbm.bandwidth, (device.batched_edge, device.batched_inner_edge)
        wider = {"tf32": ("tf32",) if flops.tf32 else ("fp32",), "fp32": ("tf32", "fp32")}.get(wanted, ())
        laws = [_law(batched, edges, name, hbm) for name in (*halves, *wider) if name in batched.by_dtype]
        found = replace(found, batched=(*laws, *found.full))
    if forward is not None and backward is not None:
        units = halves if wanted not in ("tf32", "fp32") else (*halves, "fp32")
        peaks = {name: float(getattr(flops, name)) for name in units if name in forward.by_dtype}
        edges = device.attention_edge, device.attention_inner_edge
        there, back = (
            tuple(_law(share, edges, name, peak) for name, peak in peaks.items()) for share in (forward, backward)
        )
        found = replace(found, attention=there, attention_gradients=back) if peaks else found
    return found


def _law(rate: DtypeCoefficient, edges: tuple[DtypeCoefficient | None, ...], name: str, of: float) -> ProductRate:
    """That of a format, of which the rate is a share, or a multiple."""
    edge, inner_edge = (0.0 if each is None else each.by_dtype[name] for each in edges)
    return ProductRate(of * rate.by_dtype[name], edge, inner_edge)


def _halves(group: NodeGroup, wanted: str) -> tuple[str, ...]:
    """The format of 16 bits whose law holds: the wanted one, or another that the device has, if any."""
    names = (wanted, *_HALVES) if wanted in _HALVES else _HALVES
    return tuple(name for name in names if getattr(group.accelerators.flops, name) is not None)[:1]
