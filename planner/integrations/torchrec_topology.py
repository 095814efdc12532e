"""A `Topology` object of TorchRec as our description of a cluster. torchrec is imported inside."""

import logging
from collections.abc import Iterator
from typing import Any

from planner.importers.torchrec_topology import LIKE, LIKE_OF_CPUS, Arguments, topology_of
from topologies.cluster import Topology
from topologies.errors import Fault, InputError
from topologies.loading import load_topology

_TOLD = (
    "world_size",
    "local_world_size",
    "compute_device",
    "hbm_mem_bw",
    "ddr_mem_bw",
    "ssd_mem_bw",
    "hbm_to_ddr_mem_bw",
    "intra_host_bw",
    "inter_host_bw",
)
_MULTIPLIERS = ("bwd_compute_multiplier", "weighted_feature_bwd_compute_multiplier", "uneven_sharding_perf_multiplier")
"""What TorchRec weighs its estimates by."""

_log = logging.getLogger(__name__)


def cluster_of(theirs: Any) -> Topology:
    """A TorchRec Topology as ours: every rank has what its own `DeviceHardware` says, or less.

    Ranks of one host (or pod) that differ are planned with what the smallest has, and a warning says so. Raises
    InputError with everything that ours cannot say: bandwidths of another form, pods that are not filled.
    """
    faults = list(_unsaid(theirs))
    if faults:
        raise InputError(faults)
    told: dict[str, Any] = {key: getattr(theirs, key) for key in _TOLD}
    hosts = theirs.intra_group_size // theirs.local_world_size
    told["pod_size"] = hosts if hosts > 1 else None
    kept = {key: value for key, value in told.items() if key in Arguments.model_fields and value}
    kept["custom_topology_data"] = {
        f"{memory}_cap": [getattr(device.storage, memory) for device in theirs.devices]
        for memory in (("ddr",) if theirs.compute_device == "cpu" else ("hbm", "ddr", "ssd"))
    }
    _warn_of_unequal(theirs)
    like = LIKE_OF_CPUS if theirs.compute_device == "cpu" else LIKE
    return topology_of(kept, load_topology(like), "torchrec-topology", "Topology")


def _unsaid(theirs: Any) -> Iterator[Fault]:
    """What a Topology says that nothing of ours stands for."""
    from torchrec.distributed.planner.constants import BWD_COMPUTE_MULTIPLIER, WEIGHTED_FEATURE_BWD_COMPUTE_MULTIPLIER
    from torchrec.distributed.planner.types import BasicCommsBandwidths, CollectiveType

    for key, usual in zip(
        _MULTIPLIERS, (BWD_COMPUTE_MULTIPLIER, WEIGHTED_FEATURE_BWD_COMPUTE_MULTIPLIER, 1.0), strict=True
    ):
        if (value := getattr(theirs, key, usual)) != usual:
            words = f"is {value:g}: ShardPlanner does not weigh its estimates so; leave it at {usual:g}"
            yield Fault("Topology", 0, 0, key, words)
    bandwidths = getattr(theirs, "comms_bandwidths", None)
    if bandwidths is None or type(bandwidths) is BasicCommsBandwidths:
        return
    basic = BasicCommsBandwidths(bandwidths.inter_host_bw, bandwidths.intra_host_bw)
    group, world = theirs.intra_group_size, theirs.world_size
    for kind in CollectiveType:
        for ranks in sorted({group, world}):
            own, usual = (each.get_bw(group, ranks, kind) for each in (bandwidths, basic))
            if own != usual:
                words = (
                    f"is a {type(bandwidths).__name__} whose get_bw is {own:g} for {kind.value} of {ranks} ranks, where"
                    f" intra_host_bw and inter_host_bw make {usual:g}: ShardPlanner plans with these two alone; hand"
                    " over our description of the cluster, which has links of every kind"
                )
                yield Fault("Topology", 0, 0, "generalized_comms_bandwidths", words)
                return


def _warn_of_unequal(theirs: Any) -> None:
    """Say which hosts have ranks that are planned with less than they have."""
    together = theirs.intra_group_size
    sizes = [(device.storage.hbm, device.storage.ddr) for device in theirs.devices]
    runs = {first: sizes[first : first + together] for first in range(0, len(sizes), together)}
    unequal = [f"{first}-{first + len(run) - 1}" for first, run in runs.items() if len(set(run)) > 1]
    if unequal:
        _log.warning(
            "ranks %s have unequal memory and share a host or pod: each is planned with what the smallest of them has",
            ", ".join(unequal),
        )
