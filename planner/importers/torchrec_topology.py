"""A TorchRec `Topology`, by the arguments that it was made with, as our description of a cluster."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from cost_models.torchrec.topology import TorchRecTopology
from topologies.cluster import Topology
from topologies.documents import Document, Record, validate
from topologies.errors import InputError
from topologies.sentences import counted

LIKE = "dgx-a100-80"
"""Where what TorchRec does not say comes from, unless another cluster is named."""
LIKE_OF_CPUS = "cpu"
"""The same for ranks that are processes on CPUs."""
RESERVED = 0.15
"""HBM that TorchRec's planner keeps free where it is told nothing (HeuristicalStorageReservation)."""


class Arguments(Record):
    """Of `torchrec.distributed.planner.Topology`, 1.8.0; bytes, and bytes per millisecond."""

    world_size: PositiveInt
    local_world_size: PositiveInt | None = None
    compute_device: Literal["cuda", "mtia", "cpu"] = "cuda"
    """Of `cpu`, a rank's DDR is its memory, and there is no other."""
    hbm_cap: PositiveInt | None = None
    ddr_cap: PositiveInt | None = None
    """Of one rank, not of its host."""
    ssd_cap: PositiveInt | None = None
    pod_size: PositiveInt | None = None
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
    those of `like`. Raises InputError with everything that is wrong.
    """
    told = validate(Document(dict(document), source), Arguments)
    local = told.local_world_size or told.world_size
    if told.world_size % local:
        message = f"{counted(told.world_size, 'rank')} do not fill hosts of {local}"
        raise InputError.at(source, message, path="world_size")
    rates = {ours: getattr(told, theirs) * 1000 for theirs, ours in _RATES.items() if getattr(told, theirs)}
    own = replace(TorchRecTopology.default(told.world_size, local, told.pod_size), **rates)
    group = like.nodes[0]
    up, out, drives = group.links.scale_up, group.links.scale_out, group.host.ssd
    storage = {"capacity": _bytes(told.ssd_cap * local)} if told.ssd_cap and drives else {}
    if drives and told.ssd_mem_bw:
        storage["read_bandwidth"] = _rate(own.ssd_bytes_per_s)
    memory = told.hbm_cap or own.hbm_bytes[0], own.hbm_bytes_per_s
    host_memory = (told.ddr_cap or own.ddr_bytes[0]), own.ddr_bytes_per_s
    on_cpu = told.compute_device == "cpu"
    data = {
        "name": group.name,
        "count": told.world_size // local,
        "accelerators": {
            **group.accelerators.model_dump(mode="json"),
            "count": local,
            "hbm": _memory(*(host_memory if on_cpu else memory)),
        },
        "host": {
            "ddr": None if on_cpu else _memory(host_memory[0] * local, host_memory[1]),
            "ssd": drives.model_dump(mode="json") | storage if drives else None,
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
    ranks = counted(told.world_size, "rank")
    description = f"A TorchRec Topology of {ranks}; device, kinds of links and drives as in {like.name}"
    return validate(Document({"name": name, "description": description, "nodes": [data]}, source), Topology)


def _memory(size: int, bytes_per_s: float) -> dict[str, str]:
    return {"capacity": _bytes(size), "bandwidth": _rate(bytes_per_s)}


def _bytes(size: int) -> str:
    return f"{size}B"


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s!r}B/s"
