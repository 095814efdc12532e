"""What TorchRec's planner knows of a cluster, and how a topology or a benchmark's case becomes that."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cost_models.memory_rates import usable_bytes
from cost_models.torchrec.constants import torchrec_coefficients
from topologies.cluster import NodeGroup, Topology
from topologies.errors import InputError

GIB = 2**30


@dataclass(frozen=True)
class TorchRecTopology:
    """The fields of `torchrec.distributed.planner.types.Topology`; bandwidths in bytes/s (there: bytes/ms)."""

    world_size: int
    local_world_size: int
    """Ranks on one host."""
    hbm_bytes: tuple[int, ...]
    """[W] bytes of each rank, after the storage reservation (`hbm_cap`)."""
    ddr_bytes: tuple[int, ...]
    """[W] bytes of each rank, not of its host (`ddr_cap`)."""
    hbm_bytes_per_s: float
    ddr_bytes_per_s: float
    """Has no effect on cuda."""
    hbm_to_ddr_bytes_per_s: float
    ssd_bytes_per_s: float
    """Has no effect without key-value tables."""
    intra_host_bytes_per_s: float
    inter_host_bytes_per_s: float
    """The bandwidth of one rank's share of its host's cards ("1 NIC per GPU")."""
    pod_size: int | None = None
    """Hosts in one scale-up domain; unset: each host is its own."""
    backward_ratio: float = 2.0
    """`bwd_compute_multiplier`"""
    weighted_backward_ratio: float = 1.0
    """`weighted_feature_bwd_compute_multiplier`"""

    @property
    def group_size(self) -> int:
        """Ranks that table-row-wise and grid shardings cut rows over (`intra_group_size`)."""
        return self.local_world_size * (self.pod_size or 1)

    @classmethod
    def default(cls, world_size: int, local_world_size: int, pod_size: int | None = None) -> "TorchRecTopology":
        """With the bandwidths and capacities that TorchRec takes where it is told none."""
        own = torchrec_coefficients()
        return cls(
            world_size=world_size,
            local_world_size=local_world_size,
            hbm_bytes=(int(own.hbm_capacity_bytes.value),) * world_size,
            ddr_bytes=(int(own.ddr_capacity_bytes.value),) * world_size,
            hbm_bytes_per_s=own.hbm_bytes_per_s.value,
            ddr_bytes_per_s=own.ddr_bytes_per_s.value,
            hbm_to_ddr_bytes_per_s=own.hbm_to_ddr_bytes_per_s.value,
            ssd_bytes_per_s=own.ssd_bytes_per_s.value,
            intra_host_bytes_per_s=own.intra_host_bytes_per_s.value,
            inter_host_bytes_per_s=own.inter_host_bytes_per_s.value,
            pod_size=pod_size,
            backward_ratio=own.backward_ratio.value,
            weighted_backward_ratio=own.weighted_backward_ratio.value,
        )

    @classmethod
    def from_case(cls, case: Mapping[str, Any]) -> "TorchRecTopology":
        """From a benchmark's case file: capacities in GiB, bandwidths in GiB/s, a reserved share of HBM."""
        world, reserved = case["world_size"], case["storage_reservation"]["percentage"]
        return cls(
            world_size=world,
            local_world_size=case["local_world_size"],
            hbm_bytes=(int((1 - reserved) * int(case["hbm_cap_gib"] * GIB)),) * world,
            ddr_bytes=(int(case["ddr_cap_gib"] * GIB),) * world,
            hbm_bytes_per_s=case["hbm_mem_bw_gibps"] * GIB,
            ddr_bytes_per_s=case["ddr_mem_bw_gibps"] * GIB,
            hbm_to_ddr_bytes_per_s=case["hbm_to_ddr_mem_bw_gibps"] * GIB,
            ssd_bytes_per_s=case["ssd_mem_bw_gibps"] * GIB,
            intra_host_bytes_per_s=case["intra_host_bw_gibps"] * GIB,
            inter_host_bytes_per_s=case["inter_host_bw_gibps"] * GIB,
            pod_size=case["pod_size"],
            backward_ratio=case["bwd_compute_multiplier"],
        )

    @classmethod
    def from_topology(cls, topology: Topology) -> "TorchRecTopology":
        """What a user of TorchRec would tell it of this cluster.

        Capacities are usable ones, a host's DDR in equal shares; every bandwidth is the data sheet's (TorchRec
        knows no efficiencies), the PCIe one a rank's share of its switch, the inter-host one its share of the
        cards. It has one number of each for the whole cluster: the slowest node group's, as collectives wait for
        it. Raises InputError where the groups differ in ranks per node, which TorchRec cannot say.
        """
        groups, own = topology.nodes, torchrec_coefficients()
        sizes = {group.accelerators.count for group in groups}
        if len(sizes) > 1:
            raise InputError.at(
                topology.name,
                f"has nodes of {' and '.join(map(str, sorted(sizes)))} accelerators, and TorchRec's planner knows one"
                " number for all; choose another cost model",
            )
        local = sizes.pop()
        hbm: list[int] = []
        ddr: list[int] = []
        for group in groups:
            of_rank, of_node, *_ = usable_bytes(group)
            hbm += [of_rank] * local * group.count
            ddr += [of_node // local] * local * group.count
        hosts = [group.host.ddr.bandwidth for group in groups if group.host.ddr]
        drives = [group.host.ssd.read_bandwidth for group in groups if group.host.ssd]
        return cls(
            world_size=topology.world_size,
            local_world_size=local,
            hbm_bytes=tuple(hbm),
            ddr_bytes=tuple(ddr),
            hbm_bytes_per_s=min(group.accelerators.hbm.bandwidth for group in groups),
            ddr_bytes_per_s=min(hosts, default=own.ddr_bytes_per_s.value),
            hbm_to_ddr_bytes_per_s=min(
                group.links.pcie.bandwidth / group.links.pcie.accelerators_per_switch for group in groups
            ),
            ssd_bytes_per_s=min(drives, default=own.ssd_bytes_per_s.value),
            intra_host_bytes_per_s=min(_intra_host(group) for group in groups),
            inter_host_bytes_per_s=min(_inter_host(group) for group in groups),
            pod_size=_pod_size(groups, local),
            backward_ratio=own.backward_ratio.value,
            weighted_backward_ratio=own.weighted_backward_ratio.value,
        )


def _intra_host(group: NodeGroup) -> float:
    up = group.links.scale_up
    return up.bandwidth if up else group.links.pcie.bandwidth


def _inter_host(group: NodeGroup) -> float:
    """A rank's share of the cards; its scale-up port where the fabric joins all nodes and there are no cards."""
    nics = group.links.scale_out
    return nics.count * nics.bandwidth / group.accelerators.count if nics else _intra_host(group)


def _pod_size(groups: tuple[NodeGroup, ...], local: int) -> int | None:
    """Whole hosts in the smallest scale-up domain; None where it does not reach beyond one, or not evenly."""
    hosts = min(group.domain_ranks // local for group in groups)
    even = all(group.count % hosts == 0 for group in groups if hosts)
    return hosts if hosts > 1 and even else None
