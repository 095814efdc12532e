"""Which coefficient files the costs of a step were computed with."""

from dataclasses import dataclass

from cost_models.coefficients import (
    Coefficient,
    CollectiveCoefficients,
    DeviceCoefficients,
    LinkCoefficients,
    NamedCoefficients,
    OptimizerCoefficients,
    SoftwareCoefficients,
    collective_files,
    device_coefficients,
    link_coefficients,
    optimizer_coefficients,
)
from cost_models.collective_laws import collective_law
from cost_models.host_beside import software_on
from cost_models.software import kernels_of
from cost_models.workload.models import Workload
from topologies.cluster import Topology


@dataclass(frozen=True)
class CoefficientsUsed:
    """Which coefficient files a cost was computed with."""

    software: NamedCoefficients
    devices: tuple[DeviceCoefficients, ...] = ()
    links: tuple[LinkCoefficients, ...] = ()
    collectives: tuple[CollectiveCoefficients, ...] = ()
    optimizers: tuple[OptimizerCoefficients, ...] = ()
    """Those of an optimizer of the dense part that has any."""


@dataclass(frozen=True)
class StepCoefficients(CoefficientsUsed):
    """Those of the physical cost model."""

    software: SoftwareCoefficients
    host_beside: Coefficient | None = None
    """What the host does in a step at the same time as its device, which is then no part of the software's fixed
    overhead; None where that has it."""

    @classmethod
    def of(cls, topology: Topology, workload: Workload, cluster: Topology) -> "StepCoefficients":
        """Those for all or a part of a cluster and a workload, each once, in the order of the node groups."""
        software, host_beside = software_on(cluster, workload)
        links: list[LinkCoefficients] = []
        systems: set[str] = set()
        for group in topology.nodes:
            up, out = group.links.scale_up, group.links.scale_out
            links.append(link_coefficients(up.kind if up else "pcie", "default-scale-up"))
            kind, port = (up.kind, up.bandwidth) if up else ("pcie", group.links.pcie.bandwidth)
            law = collective_law("all_to_all", group.accelerators.device, kind, port, 2)
            systems.update([law.system] if law else [])
            cards = [out, *((group.remote, group.links.front_end) if group.remote else ())]
            links += [link_coefficients(each.kind, "default-scale-out") for each in cards if each is not None]
        names = [group.accelerators.device for group in topology.nodes]
        devices = [device_coefficients(name, kernels_of(workload)) for name in names]
        if not all(table.pooled for table in workload.tables):
            devices += map(device_coefficients, names)
        return cls(
            software=software,
            host_beside=host_beside,
            devices=tuple({device.label: device for device in devices}.values()),
            links=tuple(dict.fromkeys(links)),
            collectives=tuple(file for file in collective_files() if file.name in systems),
            optimizers=(optimizer_coefficients("shampoo"),) if workload.trained_by_shampoo is not None else (),
        )
