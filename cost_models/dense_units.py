"""The units in which a sharded dense part is gathered, what `fully_shard` of PyTorch's FSDP2 is called on, and the
ranks that share them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cost_models.dense_size import DenseSize, dense_parts, layer_parts, layer_sizes
from cost_models.groups import RankGroup
from cost_models.workload.dense_sharding import REPLICATED, DenseSharding, Held
from cost_models.workload.layer_graph import SizedLayer
from cost_models.workload.models import Workload
from topologies.cluster import NodeGroup

UNIT_PARAMETERS = 1e8
"""Parameters from which on a unit is complete (`min_num_params` of size_based_auto_wrap_policy in
torch.distributed.fsdp, PyTorch 2.8)."""
MOST_UNITS = 32
"""Units of a dense part that has more parameters than that many times as many; assumed: blocks of large models."""


@dataclass(frozen=True)
class DenseUnit:
    """Layers whose weights are gathered together."""

    size: DenseSize
    """Of one rank's samples, whoever works for them."""
    is_first: bool
    """Whether it needs no vectors of tables, so that it works while these are exchanged."""
    held: Held
    """How its weights are held, and its work is cut."""
    layers: tuple[SizedLayer, ...] = ()
    """None of what is given by totals."""


def dense_units(workload: Workload) -> tuple[DenseUnit, ...]:
    """The units in the order of the forward pass: consecutive layers that are held alike until they are large enough,
    those that need no vectors apart, and each layer that is cut by itself. A layer is in one unit; what is given by
    totals is cut evenly."""
    parts, sharding = dense_parts(workload), workload.dense.sharding or REPLICATED
    least = max(UNIT_PARAMETERS, sum(size.parameters for size in parts.values()) / MOST_UNITS)
    if not workload.layers:
        return tuple(unit for size in parts.values() for unit in _even(size, least, sharding.of_others))
    layers = list(zip(workload.layers, layer_parts(workload.layers), strict=True))
    sizes = dict(zip((layer.name for layer in workload.layers), layer_sizes(workload), strict=True))
    units: list[DenseUnit] = []
    for is_first in (True, False):
        own = [layer for layer, part in layers if (part == "bottom_mlp") == is_first]
        for held, run in _held_alike(own, sharding):
            runs = _complete(run, least)
            units += [DenseUnit(_sum(each, sizes), is_first, held, tuple(each)) for each in runs]
    return tuple(units)


def _held_alike(layers: Sequence[SizedLayer], sharding: DenseSharding) -> Iterator[tuple[Held, list[SizedLayer]]]:
    """Runs of layers that are held alike; those without parameters are as the ones before, unless these are cut."""
    runs: list[tuple[Held, list[SizedLayer]]] = []
    for layer in layers:
        held = sharding.of_layer(layer.name)
        if not layer.parameters and held.cut is None:
            held = runs[-1][0] if runs and runs[-1][0].cut is None else sharding.of_others
        if runs and runs[-1][0] == held and held.cut is None:
            runs[-1][1].append(layer)
        else:
            runs.append((held, [layer]))
    yield from runs


def _complete(layers: list[SizedLayer], least: float) -> list[list[SizedLayer]]:
    """Runs of layers of at least so many parameters; layers after the last such run belong to it."""
    runs: list[list[SizedLayer]] = []
    reached = least
    for layer in layers:
        if reached >= least:
            runs.append([])
            reached = 0.0
        runs[-1].append(layer)
        reached += layer.parameters
    if len(runs) > 1 and reached < least:
        runs[-2:] = [runs[-2] + runs[-1]]
    return runs


def _sum(layers: Sequence[SizedLayer], sizes: Mapping[str, DenseSize]) -> DenseSize:
    """The size of some layers, from those of all by their names."""
    first, *others = (sizes[layer.name] for layer in layers)
    return sum(others, first)


def _even(size: DenseSize, least: float, held: Held) -> Iterator[DenseUnit]:
    """Totals as units of equal size, to a parameter."""
    count = max(1, int(size.parameters // least))
    products = tuple(replace(each, count=each.count / count) for each in size.products)
    shares = (size.activation_elements / count, products)
    for number in range(count):
        parameters = size.parameters * (number + 1) // count - size.parameters * number // count
        yield DenseUnit(DenseSize(size.macs / count, parameters, *shares), is_first=False, held=held)


def neighbours(group: NodeGroup, size: int) -> RankGroup:
    """So many consecutive ranks."""
    return RankGroup(min(group.accelerators.count, size), min(group.domain_ranks, size), size)


def same_shard(group: NodeGroup, world: int, size: int) -> RankGroup:
    """The ranks at the same place of all runs of so many."""
    return RankGroup(1, max(min(group.domain_ranks, world) // size, 1), world // size)
