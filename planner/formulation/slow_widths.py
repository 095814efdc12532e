"""Layers of widths that fast kernels do not take, which products are not counted longer for.

A law by width would let one more table make a step faster, so that widths are counted as multiples of what fast kernels
ask (decision 77); a plan says which layers are slower than that. On an H100 an even width that is no multiple of 8
takes 2.9 times in 16 bits, an odd one 4.8 (108 products of each format, `measured_h100/even_products.csv`). In tf32 one
that is no multiple of 4 takes 2.2 times, an odd one 2.5 (72 there, and 81 in `layer_products.csv`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from cost_models.software import software_of
from cost_models.workload.layer_graph import SizedLayer
from cost_models.workload.layers import NUMERICAL
from cost_models.workload.models import Workload


@dataclass(frozen=True)
class _Slowness:
    """What fast kernels of a format ask of widths, and how many times as long others take on an H100."""

    unit: int
    """Numbers in the 16 bytes at which rows are to begin."""
    even: float
    odd: float


_IN_16_BITS = _Slowness(8, 2.9, 4.8)
_SLOWNESS = {"bf16": _IN_16_BITS, "fp16": _IN_16_BITS, "tf32": _Slowness(4, 2.2, 2.5)}
FEW = 8
"""Columns up to which a product is small whatever it takes: a model's last layer."""
SHOWN = 4
"""Layers that are named."""


def slow_widths(workload: Workload) -> Iterator[str]:
    """What a reader must know of the layers of a workload in 16 bits or tf32; nothing where the software's own steps
    were fitted, or where its compiler pads."""
    is_fitted, pads = software_of(workload).fits_products, workload.software_mode == "compiled"
    slow = _SLOWNESS.get(workload.dense.dtype)
    if slow is None or is_fitted or pads:
        return
    found = [(layer.name, widths) for layer in workload.layers if (widths := _widths(layer, slow.unit))]
    if not found:
        return
    named = ", ".join(f"{name} ({' and '.join(map(str, widths))})" for name, widths in found[:SHOWN])
    more = f" and {len(found) - SHOWN:,} more" if len(found) > SHOWN else ""
    width = found[0][1][0]
    yield (
        f"dense: layers with widths that are no multiples of {slow.unit} take up to {slow.even} times as long in"
        f" {workload.dense.dtype} as is counted, odd ones up to {slow.odd} (measured on an H100): {named}{more}; pad"
        f" {width} to {-(-width // slow.unit) * slow.unit}, or state software.mode: compiled where the compiler pads"
    )


def _widths(layer: SizedLayer, unit: int) -> list[int]:
    """What a layer reads and gives that is no multiple of `unit`, unless it counts as such (`is_aligned`), or reads
    numerical features alone, which the law was fitted with."""
    if layer.kind not in ("linear", "cross") or layer.inputs == (NUMERICAL,):
        return []
    sizes = {
        round(size)
        for product in layer.products
        if product.has_weights and product.is_aligned
        for size in (product.inner, product.columns)
    }
    return sorted(size for size in sizes if size > FEW and size % unit)
