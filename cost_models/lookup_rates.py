"""What a device achieves in lookups, and the fixed times of its kernels."""

import math
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
    l2_bytes: float = math.inf
    """Bytes of the L2 cache; infinite where they are not known."""


@dataclass(frozen=True)
class BagRates:
    """How long one bag takes a device, whose rows and ids it goes through one after the other."""

    row_s: float
    """Of each row out of device memory."""
    cached_row_s: float
    """Of each row that its cache holds."""
    cache_bytes: float
    """What its cache holds."""
    id_s: float
    """Of each id in a kernel before the update."""
    at_once: float
    """Bags that this kernel goes through at the same time."""
    long_from: float
    """Rows of a bag from which on both passes of it take longer than launching them. Shorter ones are not told from
    what launches take."""


def bag_rates(group: NodeGroup, device: DeviceCoefficients, launches_s: float) -> BagRates | None:
    """Those of a device of the group, whose two passes take `launches_s` to launch; None where they were not
    measured."""
    row, cached_row, of_id, at_once = (
        device.lookup_bag_row_s,
        device.lookup_bag_cached_row_s,
        device.update_bag_id_s,
        device.update_bags_at_once,
    )
    if row is None or cached_row is None or of_id is None or at_once is None:
        return None
    return BagRates(
        row_s=row.value,
        cached_row_s=cached_row.value,
        cache_bytes=float(group.accelerators.l2 or 0),
        id_s=of_id.value,
        at_once=at_once.value,
        long_from=launches_s / (row.value + of_id.value),
    )


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
        l2_bytes=math.inf if group.accelerators.l2 is None else float(group.accelerators.l2),
    )


def either(measured: Coefficient | None, otherwise: float) -> float:
    """What was measured of a device, or a share of its data sheet."""
    return otherwise if measured is None else measured.value


def launch_s(measured: Coefficient | None, otherwise: Coefficient) -> float:
    """Fixed time of a pass's kernels: as measured on the device, unless the software's are captured in a graph, where
    launching them is part of the step's overhead."""
    return either(measured, otherwise.value) if otherwise.value else 0.0
