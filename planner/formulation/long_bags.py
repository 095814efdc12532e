"""Bags of so many ids that their number, and not their bytes, is what a lookup waits for."""

from collections.abc import Iterator

from cost_models.workload.models import Workload
from topologies.units import format_seconds

LONG_BAG = 1_000
"""Ids of a bag from which on a lookup of few bags takes several times what its bytes do (decision 105)."""
FORWARD_S, BACKWARD_S = 0.29e-6, 0.25e-6
"""What an id of one bag takes FBGEMM's kernels on an H100, whose warps read a bag row after row, in the lookup and
before the sort of ids (`benchmarks/data/measured_h100/tbe.csv`)."""


def long_bags(workload: Workload) -> Iterator[str]:
    """What a reader must know of lookups by FBGEMM of pooled tables with long bags; mostly nothing."""
    bags = [(table.pooling_factor / table.feature_count, table) for table in workload.tables if table.pooled]
    longest, table = max(bags, key=lambda bag: bag[0], default=(0.0, None))
    if workload.software != "torchrec" or table is None or longest < LONG_BAG:
        return
    yield (
        f"bags of {table.name} have {longest:,.0f} ids, and FBGEMM reads a bag row after row: on an H100"
        f" {format_seconds(FORWARD_S * longest)} a lookup and {format_seconds(BACKWARD_S * longest)} an update at"
        " least, however few samples a rank has, unless rows are cut over ranks; the estimate counts bytes alone"
    )
