"""What the optimizer of the dense part takes of a step, and of one in which Shampoo takes its inverse roots."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from cost_models.arithmetic import ProductRate, fp32_rates, single_rates
from cost_models.coefficients import optimizer_coefficients
from cost_models.collective_calls import Members
from cost_models.dense import product_seconds
from cost_models.dense_sharding import update_seconds
from cost_models.group_laws import GroupLaws
from cost_models.kinds import RankKind, world_of
from cost_models.shampoo import SUM_PASSES, ShampooStep, Shape, block_products, root_seconds
from cost_models.workload.formats import wire_bytes, written_bytes
from cost_models.workload.models import Workload
from topologies.cluster import Topology
from topologies.errors import InputError


@dataclass(frozen=True)
class DenseUpdate:
    """Seconds on the rank that takes longest."""

    moved_s: float
    """Weights, gradients and what is kept for each weight through device memory: measured as a part of the fixed
    overhead of a step."""
    preconditioned_s: float = 0.0
    """Products with gradients, and the square matrices of blocks through device memory."""
    roots_s: float = 0.0
    """What a step with inverse roots takes longer than one without."""
    gathered_s: float = 0.0
    """Updates, or updated weights, exchanged in groups of ranks."""
    frequency: int = 1
    """Steps from one computation of the roots to the next."""

    @property
    def beyond_overhead_s(self) -> float:
        """What is no part of the fixed overhead, in the mean of all steps."""
        return self.preconditioned_s + self.gathered_s + self.roots_s / self.frequency

    @property
    def late_s(self) -> float:
        """What a step with inverse roots takes longer than the mean step."""
        return self.roots_s * (1 - 1 / self.frequency)

    @classmethod
    def of(cls, topology: Topology, workload: Workload, kinds: Sequence[RankKind]) -> "DenseUpdate":
        """That of a workload on a cluster with these kinds of rank. Raises InputError for groups of ranks that do not
        divide it."""
        step = ShampooStep.of(workload)
        if step is None:
            return cls(update_seconds(topology, workload, min(kind.hbm_bytes_per_s for kind in kinds)))
        gathered_s = _gathered_s(topology, workload, step)
        own = BlockSeconds.of_kinds(step, topology, workload, kinds)
        updates = [each.update(workload, gathered_s) for each in own]
        return max(updates, key=lambda each: each.moved_s + each.beyond_overhead_s)


@dataclass(frozen=True)
class BlockSeconds:
    """What blocks take on one kind of rank."""

    step: ShampooStep
    hbm_bytes_per_s: float
    products: tuple[ProductRate, ...]
    root_rates: tuple[ProductRate, ...]

    @classmethod
    def of_kinds(
        cls, step: ShampooStep, topology: Topology, workload: Workload, kinds: Sequence[RankKind]
    ) -> "tuple[BlockSeconds, ...]":
        """[K] those on each kind of rank."""
        rates = zip(kinds, single_rates(topology, workload), fp32_rates(topology), strict=True)
        return tuple(cls(step, kind.hbm_bytes_per_s, products, root) for kind, products, root in rates)

    def each_step_s(self, block: Shape) -> float:
        """Products with a block's gradient, and its square matrices through device memory."""
        moved = SUM_PASSES * self.step.number_bytes * sum(side**2 for side in block)
        products_s = sum(product_seconds(self.products, m, n, k) for m, n, k in block_products(block))
        return products_s + moved / self.hbm_bytes_per_s

    def roots_s(self, block: Shape) -> float:
        """The inverse roots of a block."""
        own = optimizer_coefficients("shampoo")
        of_cube_s = own.root_flops.value / min(rate.flops_per_s for rate in self.root_rates)
        return root_seconds(block, own.root_column_s.value, of_cube_s)

    def update(self, workload: Workload, gathered_s: float) -> DenseUpdate:
        """The whole update of a workload on this kind of rank."""
        dense, step, each_step_s, roots_s = workload.dense, self.step, cache(self.each_step_s), cache(self.roots_s)
        master = wire_bytes(dense.master_weights or "fp32")
        of_own = written_bytes(dense.gradient_format) + 2 * step.setup.arrays * step.number_bytes + step.sent_bytes
        of_all = 2 * master + dense.copy_bytes + step.sent_bytes
        own_s = step.rank_weights * of_own / self.hbm_bytes_per_s
        computed_s = step.of_ranks(each_step_s(block) for block in step.blocks)
        ordinary_s = own_s + computed_s
        longest_s = ordinary_s + step.of_ranks(roots_s(block) for block in step.blocks)
        busiest = int(ordinary_s.argmax())
        weights = sum(math.prod(shape) for shape in step.shapes)
        return DenseUpdate(
            moved_s=float(own_s[busiest]) + weights * of_all / self.hbm_bytes_per_s,
            preconditioned_s=float(computed_s[busiest]),
            roots_s=float(longest_s.max() - ordinary_s.max()),
            gathered_s=gathered_s,
            frequency=step.setup.frequency,
        )


def why_no_groups(topology: Topology, workload: Workload) -> str | None:
    """Why a cluster has no groups of as many ranks as share the work of Shampoo; None where it has, or needs none."""
    setup, world = workload.trained_by_shampoo, world_of(topology)
    if setup is None:
        return None
    try:
        for group in topology.nodes:
            Members(setup.group).group(world(group))
    except ValueError as error:
        return str(error)
    return None


def _gathered_s(topology: Topology, workload: Workload, step: ShampooStep) -> float:
    """The all-gather of all groups at once. Raises InputError where the cluster has no such groups."""
    if (message := why_no_groups(topology, workload)) is not None:
        raise InputError.at("dense.shampoo.group", message)
    return 0.0 if step.gather is None else GroupLaws(topology, workload).seconds(step.gather)
