"""A `Topology` object of TorchRec as our description of a cluster."""

from typing import Any

from planner.importers.torchrec_topology import LIKE, LIKE_OF_CPUS, Arguments, topology_of
from topologies.cluster import Topology
from topologies.loading import load_topology

_TOLD = (
    "hbm_mem_bw",
    "ddr_mem_bw",
    "ssd_mem_bw",
    "hbm_to_ddr_mem_bw",
    "intra_host_bw",
    "inter_host_bw",
)


def cluster_of(theirs: Any) -> Topology:
    """A TorchRec Topology as ours."""
    first = theirs.devices[0].storage
    told: dict[str, Any] = {key: getattr(theirs, key) for key in _TOLD}
    told |= {"world_size": theirs.world_size, "local_world_size": theirs.local_world_size}
    told |= {"hbm_cap": first.hbm or None, "ddr_cap": first.ddr or None, "compute_device": theirs.compute_device}
    hosts = theirs.intra_group_size // theirs.local_world_size
    told |= {"pod_size": hosts if hosts > 1 else None}
    kept = {key: value for key, value in told.items() if key in Arguments.model_fields and value}
    like = LIKE_OF_CPUS if theirs.compute_device == "cpu" else LIKE
    return topology_of(kept, load_topology(like), "torchrec-topology", "Topology")
