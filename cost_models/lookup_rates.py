"""What a device achieves in lookups, and the fixed times of its kernels."""

from dataclasses import dataclass

from cost_models.coefficients import Coefficient, DeviceCoefficients
from topologies.cluster import NodeGroup


@dataclass(frozen=True)
class LookupRates:
    """What a device achieves in lookups; bytes and bytes/s."""

    hbm_bytes_per_s: float
    l2_bytes_per_s: float
    l2_reach_bytes: float
    """Bytes of a table at which 1/sqrt(2) of its reads are served by the L2 cache; 0 without one."""
    pcie_bytes_per_s: float
    sector_bytes: float
    row_s: float = 0.0
    """Time of a row beyond its bytes."""
    distinct_row_s: float | None = None
    """Time of a distinct row of a batch beyond that; None where the caches hold small tables from step to step."""
    vector_s: float = 0.0
    """Time of a vector beyond that, with its bag of ids."""


def lookup_rates(group: NodeGroup, device: DeviceCoefficients, host_bytes_per_s: float) -> LookupRates:
    """Rates of a lookup on a device of the group."""
    hbm, l2_bytes = group.accelerators.hbm, group.accelerators.l2 or 0
    rate = either(device.lookup_bytes_per_s, hbm.bandwidth * device.lookup_efficiency.value)
    return LookupRates(
        hbm_bytes_per_s=rate,
        l2_bytes_per_s=rate * device.l2_speedup.value,
        l2_reach_bytes=either(device.l2_reach_bytes, l2_bytes * device.l2_reach.value),
        pcie_bytes_per_s=host_bytes_per_s,
        sector_bytes=device.sector_bytes.value,
        row_s=either(device.lookup_row_s, 0.0),
        distinct_row_s=device.lookup_distinct_row_s.value if device.lookup_distinct_row_s else None,
        vector_s=either(device.lookup_vector_s, 0.0),
    )


def either(measured: Coefficient | None, otherwise: float) -> float:
    """What was measured of a device, or a share of its data sheet."""
    return otherwise if measured is None else measured.value


def launch_s(measured: Coefficient | None, otherwise: Coefficient) -> float:
    """Fixed time of a pass's kernels: as measured on the device, unless the software's are captured in a graph, where
    launching them is part of the step's overhead."""
    return either(measured, otherwise.value) if otherwise.value else 0.0
