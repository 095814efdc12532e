"""What kernels beside matrix products take of a device's memory: by how often activations cross it or, in a stated mode
of software whose kernels were measured, kernel by kernel."""

from dataclasses import dataclass
from typing import Literal

from cost_models.coefficients import Coefficient, SoftwareCoefficients
from cost_models.dense_size import DenseSize
from cost_models.workload.dense_part import Dense
from cost_models.workload.models import Workload

FORWARD_SHARE_OF_TRAFFIC = 1 / 3
"""Activation traffic of a forward pass over that of a training step, which reads them back and writes gradients."""


@dataclass(frozen=True)
class BesideRates:
    """Those of a software profile in a mode; in bytes of device memory that could be read meanwhile."""

    counted: Literal["eager", "compiled"] | None = None
    """How its kernels are counted; a captured graph has the eager ones. None: by crossings. Compiled kernels take
    what they read and write, rows or not."""
    picked_gradient_bytes: float = 0.0
    """Of a picked pair's gradient."""
    norm_row_bytes: float = 0.0
    """Of a vector that is normed, beyond what is read and written of it."""
    norm_gradient_row_bytes: float = 0.0
    """The same of its gradient, where kernels are counted."""
    summed_row_bytes: float = 0.0
    """Of a row that is summed with those of all samples, beyond its own, where kernels are counted."""
    turned_number_bytes: float = 0.0
    """Of a number that is read or written across layouts, likewise."""

    @classmethod
    def of(cls, workload: Workload, software: SoftwareCoefficients) -> "BesideRates":
        """Those of a workload's software."""
        picked = _or_none(software.picked_gradient_bytes)
        mode = workload.software_mode
        if mode is None or software.counted_passes is None:
            return cls(None, picked, _or_none(software.norm_row_bytes))
        turned = _or_none(software.turned_number_bytes)
        if mode == "compiled":
            return cls("compiled", picked, turned_number_bytes=turned)
        norms = _or_none(software.counted_norm_row_bytes), _or_none(software.norm_gradient_row_bytes)
        return cls("eager", picked, *norms, _or_none(software.summed_row_bytes), turned)

    def moved_bytes(self, size: DenseSize, dense: Dense, passes: float, *, forward_only: bool) -> float:
        """Bytes of a sample in layers of one size; where they are counted, what is read and written counts `passes`
        times."""
        moved = passes * self._crossing(size, forward_only=forward_only) * dense.activation_bytes
        moved += size.product_inputs * dense.conversion_bytes + size.norm_rows * self.norm_row_bytes
        moved += size.beside.turned_forward * self.turned_number_bytes
        if forward_only:
            return moved
        moved += size.product_gradients * dense.conversion_bytes + size.norm_rows * self.norm_gradient_row_bytes
        moved += size.beside.turned_backward * self.turned_number_bytes + size.picked * self.picked_gradient_bytes
        return moved + size.beside.summed_rows * self.summed_row_bytes

    def _crossing(self, size: DenseSize, *, forward_only: bool) -> float:
        """Numbers of a sample."""
        beside = size.beside
        if self.counted is None:
            share = FORWARD_SHARE_OF_TRAFFIC if forward_only else 1.0
            return share * (size.activation_elements - size.uncrossed)
        if self.counted == "compiled":
            forward, backward = beside.fused_forward, beside.fused_backward
        else:
            forward, backward = beside.forward, beside.backward + beside.summed
        forward += beside.turned_forward
        return forward if forward_only else forward + backward + beside.turned_backward


def _or_none(coefficient: Coefficient | None) -> float:
    return 0.0 if coefficient is None else coefficient.value
