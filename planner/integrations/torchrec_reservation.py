"""What a StorageReservation of TorchRec keeps free, on a cluster of ours: torchrec is needed to import this."""

from typing import Any

from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import CustomTopologyData, PlannerErrorType
from torchrec.distributed.planner.types import Topology as TheirTopology

from cost_models.torchrec.topology import GIB, TorchRecTopology
from planner.integrations.torchrec_errors import ShardPlannerError
from topologies.cluster import NodeGroup, Topology
from topologies.hardware import Reserve
from topologies.units import format_bytes


def their_topology(cluster: Topology) -> TheirTopology:
    """A cluster of ours as TorchRec's, with all the memory that there is: nothing of it is reserved."""
    unreserved = [group.model_copy(update={"reserve": Reserve(hbm=0, ddr=0, ssd=0)}) for group in cluster.nodes]
    told = TorchRecTopology.from_topology(cluster.model_copy(update={"nodes": tuple(unreserved)}))
    capacities = {"hbm_cap": list(told.hbm_bytes), "ddr_cap": list(told.ddr_bytes)}
    differ = any(len(set(each)) > 1 for each in capacities.values())
    return TheirTopology(
        world_size=told.world_size,
        local_world_size=told.local_world_size,
        compute_device="cuda",
        pod_size=told.pod_size,
        hbm_cap=min(told.hbm_bytes),
        ddr_cap=min(told.ddr_bytes),
        custom_topology_data=CustomTopologyData(capacities, told.world_size) if differ else None,
        hbm_mem_bw=told.hbm_bytes_per_s / 1000,
        ddr_mem_bw=told.ddr_bytes_per_s / 1000,
        ssd_mem_bw=told.ssd_bytes_per_s / 1000,
        hbm_to_ddr_mem_bw=told.hbm_to_ddr_bytes_per_s / 1000,
        intra_host_bw=told.intra_host_bytes_per_s / 1000,
        inter_host_bw=told.inter_host_bytes_per_s / 1000,
        bwd_compute_multiplier=told.backward_ratio,
    )


def with_reserved(
    cluster: Topology, theirs: TheirTopology, left: TheirTopology, reservation: Any, least_bytes: float = 0
) -> Topology:
    """A cluster that keeps free what a reservation took from its TorchRec Topology, and `least_bytes` of each rank at
    least; nothing else is reserved of HBM.

    `left` is what the reservation's `reserve` returned. On CPUs, whose memory TorchRec takes no percentage of, the
    reservation's percentage counts all the same. Raises ShardPlannerError where nothing is left.
    """
    on_cpu = theirs.compute_device == "cpu"
    kept = 1 - (getattr(reservation, "_percentage", 0.0) if on_cpu else 0.0)
    memory = "ddr" if on_cpu else "hbm"
    shares = [
        min(kept * getattr(rest.storage, memory), has - least_bytes) / has
        for rest, has in zip(left.devices, (getattr(each.storage, memory) for each in theirs.devices), strict=True)
    ]
    if min(shares) <= 0:
        capacity = format_bytes(min(getattr(each.storage, memory) for each in theirs.devices))
        message = (
            f"nothing is left for tables: {described(reservation)} reserved of {capacity} on each rank; reserve less,"
            " or train a smaller batch or dense part"
        )
        raise ShardPlannerError.of("storage_reservation", message, PlannerErrorType.INSUFFICIENT_STORAGE)
    groups: list[NodeGroup] = []
    first = 0
    for group in cluster.nodes:
        last = first + group.count * group.accelerators.count
        share = 1 - min(1.0, *shares[first:last])
        reserve = group.reserve.model_copy(update={"hbm": share})
        groups.append(group.model_copy(update={"reserve": reserve}))
        first = last
    return cluster.model_copy(update={"nodes": tuple(groups)})


def with_more_reserved(cluster: Topology, size: float) -> Topology:
    """A cluster that keeps so many bytes more free of each rank's HBM (below 0: fewer, and at least none)."""
    groups = []
    for group in cluster.nodes:
        share = group.reserve.hbm + size / group.accelerators.hbm.capacity
        reserve = group.reserve.model_copy(update={"hbm": min(1.0, max(0.0, share))})
        groups.append(group.model_copy(update={"reserve": reserve}))
    return cluster.model_copy(update={"nodes": tuple(groups)})


def described(reservation: Any) -> str:
    """What a reservation reserves, in words."""
    if hasattr(reservation, "_hbm_reserved_bytes"):
        return f"{reservation._hbm_reserved_bytes / GIB:.3g} GB per device"
    parts = []
    if getattr(reservation, "_percentage", None):
        parts.append(f"{reservation._percentage:.3%} of HBM".replace(".000%", "%"))
    if isinstance(reservation, FixedPercentageStorageReservation):  # it notes the ids, and reserves no more for them
        return f"{type(reservation).__name__} ({', '.join(parts) or 'nothing'})"
    for name, field in (("a margin", "_margin_bytes"), ("the runtime", "_runtime_overhead_bytes")):
        if getattr(reservation, field, 0):
            parts.append(f"{format_bytes(getattr(reservation, field))} for {name}")
    for name, field in (("the dense part", "_dense_storage"), ("ids in flight", "_kjt_storage")):
        storage = getattr(reservation, field, None)
        if storage is not None and (storage.hbm or storage.ddr):
            parts.append(f"{format_bytes(max(storage.hbm, storage.ddr))} for {name}")
    return f"{type(reservation).__name__} ({', '.join(parts)})" if parts else type(reservation).__name__
