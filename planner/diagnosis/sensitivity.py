"""What a little more of each resource would bring to a placement as it stands."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cost_models.model import CostModel
from cost_models.resources import RESOURCE_KINDS
from cost_models.shards import BELOW_HBM, MEMORIES, PlacedShards
from cost_models.workload.table_profile import TableProfile
from topologies.cluster import NodeGroup, Topology
from topologies.documents import Record
from topologies.flops import Flops

GROWTH = 0.10
LEAST_GAIN = 0.0005
"""Share of the step below which a gain is not worth a word."""


@dataclass(frozen=True)
class Gain:
    """The step with `GROWTH` more of one resource and everything else as it is."""

    resource: str
    step_s: float
    saved: float
    """Share of the step that goes away."""


def gains(model: CostModel, placed: PlacedShards) -> list[Gain]:
    """The gain from each resource that the cluster has, the largest first; those that bring nothing are left out."""
    now = model.evaluate(placed)
    binding = {resource.kind for resource in now.binding if resource is not None}
    helpful = []
    for resource, (serves, grow) in RESOURCES.items():
        groups = tuple(grow(group) for group in model.cluster.nodes)
        asked = binding & serves or model.quantity == "rating"  # a rating adds up all resources of a rank
        if groups == model.cluster.nodes or not asked:
            continue
        larger = model.on(model.cluster.model_copy(update={"nodes": groups}), model.stated_workload)
        grown = larger.evaluate(placed).step_s
        if grown < now.step_s * (1 - LEAST_GAIN):
            helpful.append(Gain(resource, grown, 1 - grown / now.step_s))
    return sorted(helpful, key=lambda gain: (-gain.saved, gain.resource))


@dataclass(frozen=True)
class Deduplication:
    """What deduplication saves of a placement's step; shares of what there would be without it."""

    lookups: float
    """Rows read; ids on the wire go down with them."""
    vectors: float
    """Bytes of vectors that leave the lookups."""
    step_s: float
    """The step without it."""
    step: float


def deduplication(model: CostModel, placed: PlacedShards) -> Deduplication | None:
    """What deduplication saves of a placement as it stands; None where no table repeats ids."""
    profiles = model.workload.tables
    if all(table.deduplication == 1 for table in profiles):
        return None
    plain = tuple(
        table.model_copy(update={"dedup_factor": 1.0, "samples_per_session": 1.0, "duplicate_share": 0.0})
        for table in profiles
    )
    repeating = model.stated_workload.model_copy(update={"tables": plain})
    without_s = model.on(model.cluster, repeating).evaluate(placed).step_s

    def vectors(tables: Sequence[TableProfile]) -> float:
        return sum(table.vectors_per_sample * table.dim for table in tables)

    kept = sum(table.pooling_factor / table.deduplication for table in profiles)
    return Deduplication(
        lookups=1 - kept / sum(table.pooling_factor for table in profiles),
        vectors=1 - vectors(profiles) / vectors(plain),
        step_s=without_s,
        step=1 - model.evaluate(placed).step_s / without_s,
    )


def _grow(record: Record, *path: str) -> Record:
    """A copy in which the rate at `path` is larger; the record itself where the path leads to nothing."""
    value = getattr(record, path[0])
    if value is None:
        return record
    larger = value * (1 + GROWTH) if len(path) == 1 else _grow(value, *path[1:])
    return record.model_copy(update={path[0]: larger})


def _growing(*path: str) -> Callable[[NodeGroup], NodeGroup]:
    def grow(group: NodeGroup) -> NodeGroup:
        grown = _grow(group, *path)
        assert isinstance(grown, NodeGroup)
        return grown

    return grow


def _more_flops(group: NodeGroup) -> NodeGroup:
    flops = group.accelerators.flops
    larger = {name: rate * (1 + GROWTH) for name, rate in flops if rate is not None}
    accelerators = group.accelerators.model_copy(update={"flops": Flops.model_construct(**larger)})
    return group.model_copy(update={"accelerators": accelerators})


_BELOW_HBM = {kind.name for kind in RESOURCE_KINDS.values() if kind.is_below_hbm}


def _memories(shared_by: str) -> Iterator[tuple[str, tuple[set[str], Callable[[NodeGroup], NodeGroup]]]]:
    """The rates of every memory below HBM that a node's, or a node group's, ranks share."""
    for name in (name for name in BELOW_HBM if MEMORIES[name].shared_by == shared_by):
        for words, rate in MEMORIES[name].growth.items():
            yield words, (_BELOW_HBM, _growing(*NodeGroup.memory_path(name).split("."), rate))


RESOURCES: dict[str, tuple[set[str], Callable[[NodeGroup], NodeGroup]]] = {
    "HBM bandwidth": ({"device"}, _growing("accelerators", "hbm", "bandwidth")),
    "FLOP/s": ({"device"}, _more_flops),
    "scale-up bandwidth": ({"link", "sums"}, _growing("links", "scale_up", "bandwidth")),
    "scale-out bandwidth": ({"nic", "rails", "uplink", "ring", "sums"}, _growing("links", "scale_out", "bandwidth")),
    "PCIe bandwidth": (
        {"device", "link", "nic", "rails", "ring", "sums", *_BELOW_HBM},
        _growing("links", "pcie", "bandwidth"),
    ),
    **dict(_memories("node")),
    "front-end bandwidth": (_BELOW_HBM, _growing("links", "front_end", "bandwidth")),
    **dict(_memories("group")),
}
"""What can grow: the kinds of binding resource that it serves, and how a node group has more of it."""


def describe(gains: list[Gain], topology: Topology, quantity: str = "step") -> str:
    """One sentence: what helps most, and what comes next."""
    if not gains:
        return f"10 % more of any one resource of {topology.name} would not shorten the {quantity}."
    first, *rest = gains
    text = f"+{GROWTH:.0%} {first.resource} would shorten the {quantity} by {first.saved:.1%}"
    if rest:
        text += "; next " + ", ".join(f"{gain.resource} {gain.saved:.1%}" for gain in rest[:2])
    return f"{text}."
