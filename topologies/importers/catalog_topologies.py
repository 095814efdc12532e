"""The topology of the catalog for a device that files name."""

from collections.abc import Iterable, Mapping
from functools import cache

from topologies.errors import Fault, InputError
from topologies.hardware import Accelerators
from topologies.importers.facts import Fact
from topologies.importers.merging import Merged
from topologies.loading import TOPOLOGIES, load_topology

QUERY = "nvidia-smi --query-gpu=name,memory.total --format=csv"


def catalog_topology(merged: Merged, device: Fact | None) -> str:
    """The name of a device's topology: one with as many accelerators a node, its maker's before others.

    Raises InputError where the files name no device, or one that the catalog does not have.
    """
    known: dict[str, list[tuple[bool, bool, str]]] = {}
    count = merged.node.get("accelerators.count")
    for name, each in _catalog():
        other = count is not None and each.count != count.value
        of_others = not name.startswith(("dgx", "hgx"))
        known.setdefault(each.device, []).append((other, of_others, name))
    if device is None:
        place = next(iter([*merged.node.values(), *(group.count for group in merged.groups)]))
        message = (
            f"no file says which accelerator the nodes have; add the output of `{QUERY}` (AMD: `rocm-smi"
            f" --showproductname`), or name a topology like theirs: --like {_choices(known)}"
        )
        raise InputError([Fault(place.source, max(place.line, 1), 1, "accelerators.device", message)])
    if device.value in known:
        return min(known[device.value])[2]
    family = str(device.value).partition("-")[0].partition(" ")[0]
    near = {kind: each for kind, each in known.items() if kind.startswith(family)}
    message = (
        f"the catalog has no {device.value!r}, so that its memory bandwidth and FLOP/s are not known; name the nearest"
        f" topology: --like {_choices(near or known)}"
    )
    raise InputError([Fault(device.source, max(device.line, 1), 1, "accelerators.device", message)])


def _choices(known: Mapping[str, Iterable[tuple[bool, bool, str]]]) -> str:
    return " | ".join(sorted(min(each)[2] for each in known.values()))


@cache
def _catalog() -> tuple[tuple[str, Accelerators], ...]:
    """Name and accelerators of every topology that is shipped."""
    return tuple((name, load_topology(name).nodes[0].accelerators) for name in TOPOLOGIES.names())
