"""Whether a host has room for all tables once for each of its processes, as they are made without the meta device."""

import numpy as np

from planner.exporters.refusals import Placed
from topologies.units import format_bytes


def host_memory_notes(placed: Placed) -> tuple[str, ...]:
    """A warning where a host lacks it (TorchRec's issue 2858); none where none does, or says how much it has.

    Weights alone are counted, in the format that they are stored in.
    """
    tables, cluster = placed.model.tables, placed.model.cluster
    size = tables.rows * tables.row_bytes(np.arange(len(tables.rows)), tables.dim)
    short = [
        (ddr.capacity, group.accelerators.count)
        for group in cluster.nodes
        if (ddr := group.host.ddr) is not None and group.accelerators.count * int(size.sum()) > ddr.capacity
    ]
    if not short:
        return ()
    capacity, processes = min(short)
    whole, largest = (format_bytes(processes * int(each)) for each in (size.sum(), size.max()))
    name = placed.model.workload.tables[int(size.argmax())].name
    return (
        f"Warning: unless collections are on the meta device, each process makes all tables whole before they are"
        f" sharded: the {processes} of a host need {whole} of its memory ({name} alone {largest}), and it has"
        f' {format_bytes(int(capacity))}; write EmbeddingBagCollection(device=torch.device("meta"), …)',
    )
