"""Bags of so many ids that their number, and not their bytes, is what a lookup waits for, where the estimate does not
know it: it does where bags were measured on a device (`cost_models.long_bags`)."""

from collections.abc import Iterator

from cost_models.coefficients import device_coefficients
from cost_models.workload.models import Workload
from topologies.cluster import Topology
from topologies.units import format_seconds

LONG_BAG = 1_000
"""Ids of a bag from which on a lookup of few bags takes several times what its bytes do (decision 105)."""
FORWARD_S, BACKWARD_S = 0.29e-6, 0.25e-6
"""What an id of one bag takes FBGEMM's kernels on an H100, whose warps read a bag row after row, in the lookup and
before the sort of ids (`benchmarks/data/measured_h100/tbe.csv`)."""


def long_bags(workload: Workload, stepped_on: Topology | None) -> Iterator[str]:
    """What a reader must know of lookups by FBGEMM of pooled tables with long bags; mostly nothing. `stepped_on` is the
    cluster whose steps are timed; None of a rating, which counts bytes."""
    bags = [(table.pooling_factor / table.feature_count, table) for table in workload.tables if table.pooled]
    longest, table = max(bags, key=lambda bag: bag[0], default=(0.0, None))
    if workload.software != "torchrec" or table is None or longest < LONG_BAG:
        return
    devices = dict.fromkeys(group.accelerators.device for group in stepped_on.nodes) if stepped_on is not None else {}
    unknown = [name for name in devices if device_coefficients(name, workload.software).lookup_bag_row_s is None]
    if devices and not unknown:
        return
    of = f" of {', '.join(unknown)}" if unknown else ""
    yield (
        f"bags of {table.name} have {longest:,.0f} ids, and FBGEMM reads a bag row after row: on an H100"
        f" {format_seconds(FORWARD_S * longest)} a lookup and {format_seconds(BACKWARD_S * longest)} an update at"
        f" least, however few samples a rank has, unless rows are cut over ranks; the estimate{of} counts bytes alone"
    )
