"""The units in which a sharded dense part is gathered, what `fully_shard` of PyTorch's FSDP2 is called on, and the
ranks that share them."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cost_models.dense_size import DenseSize, dense_parts, layer_parts, layer_sizes
from cost_models.groups import RankGroup
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
    is_first: bool
    """Whether it needs no vectors of tables, so that it works while these are exchanged."""


def dense_units(workload: Workload) -> tuple[DenseUnit, ...]:
    """The units in the order of the forward pass: consecutive layers until they are large enough, those that need no
    vectors apart. A layer is in one unit; what is given by totals is cut evenly."""
    parts = dense_parts(workload)
    least = max(UNIT_PARAMETERS, sum(size.parameters for size in parts.values()) / MOST_UNITS)
    if not workload.layers:
        return tuple(unit for size in parts.values() for unit in _even(size, least))
    layers = list(zip(layer_sizes(workload), layer_parts(workload.layers), strict=True))
    units: list[DenseUnit] = []
    for is_first in (True, False):
        units += _complete([size for size, part in layers if (part == "bottom_mlp") == is_first], least, is_first)
    return tuple(units)


def _complete(sizes: list[DenseSize], least: float, is_first: bool) -> list[DenseUnit]:
    """Runs of layers of at least so many parameters; layers after the last such run belong to it."""
    runs: list[DenseSize] = []
    for size in sizes:
        if not runs or runs[-1].parameters >= least:
            runs.append(size)
        else:
            runs[-1] += size
    if len(runs) > 1 and runs[-1].parameters < least:
        runs[-2:] = [runs[-2] + runs[-1]]
    return [DenseUnit(run, is_first) for run in runs]


def _even(size: DenseSize, least: float) -> Iterator[DenseUnit]:
    """Totals as units of equal size, to a parameter."""
    count = max(1, int(size.parameters // least))
    products = tuple(replace(each, count=each.count / count) for each in size.products)
    shares = (size.activation_elements / count, products, size.macs_within_samples / count)
    for number in range(count):
        parameters = size.parameters * (number + 1) // count - size.parameters * number // count
        yield DenseUnit(DenseSize(size.macs / count, parameters, *shares), is_first=False)


def neighbours(group: NodeGroup, size: int) -> RankGroup:
    """So many consecutive ranks."""
    return RankGroup(min(group.accelerators.count, size), min(group.domain_ranks, size), size)


def same_shard(group: NodeGroup, world: int, size: int) -> RankGroup:
    """The ranks at the same place of all runs of so many."""
    return RankGroup(1, max(min(group.domain_ranks, world) // size, 1), world // size)
