"""A TorchRec `Topology`, by the arguments that it was made with, as our description of a cluster."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from cost_models.torchrec.topology import TorchRecTopology
from topologies.cluster import MOST_RANKS, NodeGroup, Topology
from topologies.documents import Document, Record, validate
from topologies.errors import Fault, InputError
from topologies.sentences import counted

LIKE = "dgx-a100-80"
"""Where what TorchRec does not say comes from, unless another cluster is named."""
LIKE_OF_CPUS = "cpu"
"""The same for ranks that are processes on CPUs."""
RESERVED = 0.15
"""HBM that TorchRec's planner keeps free where it is told nothing (HeuristicalStorageReservation)."""
Bytes = Annotated[NonNegativeInt, Field(lt=1 << 63)]
Ranks = Annotated[PositiveInt, Field(le=MOST_RANKS)]


class Capacities(Record):
    """Fields of `torchrec.distributed.planner.types.CustomTopologyData`: bytes of each rank; they come before `hbm_cap`
    and the like."""

    hbm_cap: tuple[Bytes, ...] | None = None
    ddr_cap: tuple[Bytes, ...] | None = None
    ssd_cap: tuple[Bytes, ...] | None = None


class Arguments(Record):
    """Arguments of `torchrec.distributed.planner.Topology`, 1.8.0; bytes, and bytes per millisecond."""

    world_size: Ranks
    local_world_size: Ranks | None = None
    compute_device: Literal["cuda", "mtia", "cpu"] = "cuda"
    """On `cpu` a rank's DDR is its memory, and there is no other."""
    hbm_cap: Annotated[Bytes, Field(gt=0)] | None = None
    ddr_cap: Annotated[Bytes, Field(gt=0)] | None = None
    """Bytes of one rank, not of its host."""
    ssd_cap: Annotated[Bytes, Field(gt=0)] | None = None
    pod_size: Ranks | None = None
    """Hosts in one scale-up domain."""
    custom_topology_data: Capacities | None = None
    hbm_mem_bw: PositiveFloat | None = None
    ddr_mem_bw: PositiveFloat | None = None
    ssd_mem_bw: PositiveFloat | None = None
    hbm_to_ddr_mem_bw: PositiveFloat | None = None
    intra_host_bw: PositiveFloat | None = None
    inter_host_bw: PositiveFloat | None = None
    storage_reservation: float = Field(RESERVED, ge=0, lt=1)
    """Share of HBM; no argument of Topology, but of the planner's HeuristicalStorageReservation."""


_RATES = {
    "hbm_mem_bw": "hbm_bytes_per_s",
    "ddr_mem_bw": "ddr_bytes_per_s",
    "ssd_mem_bw": "ssd_bytes_per_s",
    "hbm_to_ddr_mem_bw": "hbm_to_ddr_bytes_per_s",
    "intra_host_bw": "intra_host_bytes_per_s",
    "inter_host_bw": "inter_host_bytes_per_s",
}


def topology_of(document: Mapping[str, Any], like: Topology, name: str, source: str) -> Topology:
    """The cluster of a Topology's arguments; what these leave out is TorchRec's default.

    The device, its FLOP/s, the kinds of links and the accesses per second of drives, which TorchRec does not know, are
    those of `like`. Hosts (with `pod_size`: pods) of other capacities are other node groups; ranks of one host or pod
    have what its smallest has. Raises InputError with everything that is wrong.
    """
    told = validate(Document(dict(document), source), Arguments)
    local = told.local_world_size or told.world_size
    if told.world_size % local:
        message = f"{counted(told.world_size, 'rank')} do not fill hosts of {local}"
        raise InputError.at(source, message, path="world_size")
    together = local * (told.pod_size or 1)
    if told.world_size % together:
        message = f"{counted(told.world_size, 'rank')} do not fill pods of {told.pod_size} hosts of {local}"
        raise InputError.at(source, message, path="pod_size")
    smallest = [_smallest(of_ranks, together) for of_ranks in _capacities(told, source)]
    groups: list[dict[str, Any]] = []
    for capacities, alike in groupby(zip(*smallest, strict=True)):
        hosts = len(list(alike)) * together // local
        groups.append(_node_group(told, like.nodes[0], len(groups), hosts, *capacities))
    ranks = counted(told.world_size, "rank")
    description = f"A TorchRec Topology of {ranks}; device, kinds of links and drives as in {like.name}"
    return validate(Document({"name": name, "description": description, "nodes": groups}, source), Topology)


def _capacities(told: Arguments, source: str) -> Iterator[list[int | None]]:
    """[W] bytes of each rank: its own memory, its share of its host's, of the host's drives; None: as the model's.

    Raises InputError for ranks without memory, and lists that are not of all ranks.
    """
    own = TorchRecTopology.default(told.world_size, told.world_size)
    custom = told.custom_topology_data or Capacities()
    faults = []
    for key in ("hbm_cap", "ddr_cap", "ssd_cap"):
        of_ranks = getattr(custom, key)
        if of_ranks is not None and len(of_ranks) != told.world_size:
            message = f"has {counted(len(of_ranks), 'number')} for {counted(told.world_size, 'rank')}"
            faults.append(Fault(source, 0, 0, f"custom_topology_data.{key}", message))
    memory = "ddr_cap" if told.compute_device == "cpu" else "hbm_cap"
    for rank, size in enumerate(getattr(custom, memory) or ()):
        if not size:
            faults.append(
                Fault(source, 0, 0, f"custom_topology_data.{memory}.{rank}", "is 0: the rank can hold nothing")
            )
    if faults:
        raise InputError(faults)
    defaults = {"hbm_cap": own.hbm_bytes[0], "ddr_cap": own.ddr_bytes[0], "ssd_cap": None}
    for key in (memory, "ddr_cap", "ssd_cap"):
        of_ranks = getattr(custom, key)
        yield list(of_ranks) if of_ranks is not None else [getattr(told, key) or defaults[key]] * told.world_size


def _smallest(of_ranks: list[int | None], together: int) -> list[int | None]:
    """The least size in each run of `together` ranks."""
    runs = [of_ranks[first : first + together] for first in range(0, len(of_ranks), together)]
    return [min((size for size in run if size is not None), default=None) for run in runs]


def _node_group(
    told: Arguments, like: NodeGroup, number: int, hosts: int, memory: int, host_memory: int, drive: int | None
) -> dict[str, Any]:
    """`hosts` equal hosts; capacities in bytes of a rank."""
    local = told.local_world_size or told.world_size
    rates = {ours: getattr(told, theirs) * 1000 for theirs, ours in _RATES.items() if getattr(told, theirs)}
    own = replace(TorchRecTopology.default(told.world_size, local, told.pod_size), **rates)
    up, out, drives = like.links.scale_up, like.links.scale_out, like.host.ssd
    storage = {"capacity": _bytes(drive * local)} if drive and drives else {}
    if drives and told.ssd_mem_bw:
        storage["read_bandwidth"] = _rate(own.ssd_bytes_per_s)
    on_cpu = told.compute_device == "cpu"
    has_ddr = host_memory and not on_cpu
    return {
        "name": f"{like.name}-{number + 1}" if number else like.name,
        "count": hosts,
        "accelerators": {
            **like.accelerators.model_dump(mode="json"),
            "count": local,
            "hbm": _memory(memory, own.ddr_bytes_per_s if on_cpu else own.hbm_bytes_per_s),
        },
        "host": {
            "ddr": _memory(host_memory * local, own.ddr_bytes_per_s) if has_ddr else None,
            "ssd": drives.model_dump(mode="json") | storage if drives and drive != 0 else None,
        },
        "links": {
            "pcie": {"bandwidth": _rate(own.hbm_to_ddr_bytes_per_s)},
            "scale_up": {
                "kind": up.kind if up else "default",
                "bandwidth": _rate(own.intra_host_bytes_per_s),
                "domain": local * told.pod_size if told.pod_size else None,
            },
            "scale_out": {
                "kind": out.kind if out else "default",
                "count": local,
                "bandwidth": _rate(own.inter_host_bytes_per_s),
            },
        },
        "reserve": {"hbm": told.storage_reservation, "ddr": 0.0, "ssd": 0.0},
    }


def _memory(size: int, bytes_per_s: float) -> dict[str, str]:
    return {"capacity": _bytes(size), "bandwidth": _rate(bytes_per_s)}


def _bytes(size: int) -> str:
    return f"{size}B"


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s!r}B/s"
