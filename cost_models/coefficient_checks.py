"""What a topology names that no coefficients are of: costs then rest on data sheets and defaults."""

from collections.abc import Iterator, Sequence

from cost_models.coefficients import collective_files, names_of_files
from topologies.cluster import Topology
from topologies.documents import Document, Key, did_you_mean
from topologies.errors import Fault
from topologies.loading import TOPOLOGIES, read_topology


def warnings(topology: Topology, document: Document) -> list[Fault]:
    """A warning for each device and kind of link that is not known, with the nearest one that is."""
    devices = names_of_files("devices")
    links = [name for name in names_of_files("links") if not name.startswith("default")]
    known = {"device": {name for name in devices if name != "default"}, "kind": set(links)}
    faults = []
    for path, name in _names(topology):
        what = str(path[-1])
        others = _other_devices() if what == "device" and name not in known[what] else set()
        if name in known[what] | others:
            continue
        hint = did_you_mean(name, known[what] | others)
        hint = hint if hint.startswith("; did") else did_you_mean(name, known[what])
        words = "device" if what == "device" else "kind of link"
        message = f"the {words} {name!r} has no coefficients of its own, so its costs are its data sheet's and defaults"
        faults.append(document.fault(path, f"{message}{hint}"))
    return faults


def _names(topology: Topology) -> Iterator[tuple[Sequence[Key], str]]:
    """Each device and kind of link, and where it stands."""
    for index, group in enumerate(topology.nodes):
        yield ("nodes", index, "accelerators", "device"), group.accelerators.device
        for name in ("scale_up", "scale_out"):
            link = getattr(group.links, name)
            if link is not None:
                yield ("nodes", index, "links", name, "kind"), link.kind


def _other_devices() -> set[str]:
    """Devices of the catalog, and those whose collectives were measured: without kernels of their own, but known."""
    catalog = (read_topology(name).data for name in TOPOLOGIES.names())
    shipped = {group["accelerators"]["device"] for data in catalog for group in data.get("nodes", ())}
    return shipped | {device for file in collective_files() for device in file.devices}
