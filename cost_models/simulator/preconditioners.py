"""Distributed Shampoo in a simulated step: ranks of a group work on their own blocks, and gather what others have."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cost_models.arithmetic import ProductRate, fp32_rates, single_rates
from cost_models.coefficients import SoftwareCoefficients, optimizer_coefficients
from cost_models.collective_calls import Members
from cost_models.kinds import RankKind, measured_law, rank_kinds, world_of
from cost_models.shards import Floats, Ints
from cost_models.simulator.collectives import Collectives
from cost_models.simulator.exchanges import Exchanges
from cost_models.simulator.network import SimulatedNetwork
from cost_models.simulator.process_groups import ProcessGroups
from cost_models.simulator.program import COMPUTE, Label, Streams, Wait
from cost_models.workload.formats import wire_bytes, written_bytes
from cost_models.workload.models import Workload

STREAM = "dense optimizer"
TOUCHES = 3
"""Times that the square matrices of a block are touched in a step: the sums twice, to be added to; the roots once."""


@dataclass(frozen=True)
class OwnBlocks:
    """The B blocks of all weights, and the ranks of a group of G that have them."""

    rows: Floats
    """[B] length of a block, or of a block of a vector."""
    columns: Floats
    """[B] 1 for vectors."""
    has_columns: Floats
    """[B] 1 where a block keeps square matrices of its columns, too; 0 for vectors."""
    group: int

    @classmethod
    def of(cls, workload: Workload, block: int, group: int) -> "OwnBlocks":
        """Those of the layers of a workload."""
        listed = []
        for shape in (each for layer in workload.layers for each in layer.weight_shapes):
            heights, widths = (_pieces(side, block) for side in (*shape, 1)[:2])
            for height in heights:
                listed += [(height, width, len(shape) - 1) for width in widths]
        rows, columns, has_columns = np.array(listed, dtype=np.float64).reshape(-1, 3).T
        return cls(rows, columns, has_columns, group)

    @cached_property
    def place(self) -> Ints:
        """[B] the place in its group of the rank that has a block: the largest goes first, to whoever has least."""
        weights, held = self.rows * self.columns, np.zeros(self.group)
        place = np.zeros(len(weights), dtype=np.int64)
        for number in np.argsort(-weights, kind="stable").tolist():
            place[number] = held.argmin()
            held[place[number]] += weights[number]
        return place

    def at_places(self, of_blocks: Floats) -> Floats:
        """[G] sums over each rank's own blocks."""
        return np.asarray(np.bincount(self.place, weights=of_blocks, minlength=self.group), dtype=float)

    @property
    def squares(self) -> Floats:
        """[B] numbers of the matrices of rows by rows and columns by columns."""
        return self.rows**2 + self.has_columns * self.columns**2

    def root_s(self, column_s: float, flops_of_cube: float, rates: tuple[ProductRate, ...]) -> Floats:
        """[B] inverse roots of these matrices, column by column, and products of them."""
        cubes = self.rows**3 + self.has_columns * self.columns**3
        reduced_s = column_s * (self.rows + self.has_columns * self.columns)
        return reduced_s + cubes * flops_of_cube / min(rate.flops_per_s for rate in rates)

    def product_s(self, rates: tuple[ProductRate, ...]) -> Floats:
        """[B] sums of products of the gradient with itself, and the gradient by the roots, from the left and right."""
        seconds = np.zeros_like(self.rows)
        for outer, inner, times in ((self.rows, self.columns, 1.0), (self.columns, self.rows, self.has_columns)):
            taken = [
                2 * (outer + rate.edge)
                * ((outer + rate.edge) * (inner + rate.inner_edge) + (inner + rate.edge) * (outer + rate.inner_edge))
                / rate.flops_per_s
                for rate in rates
            ]  # fmt: skip
            seconds += times * np.max(taken, axis=0)
        return seconds


class Preconditioners:
    """Puts the work on blocks, and its exchange, on the streams of W ranks."""

    def __init__(
        self, streams: Streams, network: SimulatedNetwork, workload: Workload, software: SoftwareCoefficients
    ) -> None:
        """`workload` is one whose dense part is trained with Shampoo."""
        setup = workload.trained_by_shampoo
        assert setup is not None
        self._streams, self._network, self._workload, self._setup = streams, network, workload, setup
        self._own = OwnBlocks.of(workload, setup.block, setup.group)
        self._sent = wire_bytes(setup.exchange) * (setup.group > 1)
        self._place = np.arange(network.world) % setup.group
        self._exchanges: Exchanges | None = None
        if setup.group > 1:
            seen = network.seen_by(_gathering_kinds(network, workload, setup.group))
            self._exchanges = Exchanges(streams, seen, Collectives(seen), software)
            self._groups = ProcessGroups(np.arange(network.world) // setup.group, network.domain_of_rank)

    @cached_property
    def moved_s(self) -> Floats:
        """[W] weights, gradients and what is kept for each weight, read and written; the square matrices apart."""
        dense, own = self._workload.dense, self._own.at_places(self._own.rows * self._own.columns)
        kept = self._setup.arrays * wire_bytes(dense.optimizer_state or "fp32")
        of_own = own * (written_bytes(dense.gradient_format) + kept + kept + self._sent)
        updated = 2 * wire_bytes(dense.master_weights or "fp32") + dense.copy_bytes + self._sent
        return np.asarray((of_own[self._place] + own.sum() * updated) / self._hbm_bytes_per_s)

    @cached_property
    def _hbm_bytes_per_s(self) -> Floats:
        network = self._network
        return network.of_kind([kind.hbm_bytes_per_s for kind in network.kinds])

    @cached_property
    def _computed_s(self) -> Floats:
        """[W] products of each step, and the square matrices through device memory."""
        size = wire_bytes(self._workload.dense.optimizer_state or "fp32")
        touched = TOUCHES * size * self._own.at_places(self._own.squares)
        rates = single_rates(self._network.topology, self._workload)
        products_s = self._of_kind([self._own.at_places(self._own.product_s(each)) for each in rates])
        return np.asarray(products_s + touched[self._place] / self._hbm_bytes_per_s)

    @cached_property
    def _roots_s(self) -> Floats:
        """[W] the inverse roots of a step that takes them."""
        law = optimizer_coefficients("shampoo")
        column_s, flops = law.root_column_s.value, law.root_flops.value
        rates = fp32_rates(self._network.topology)
        return self._of_kind([self._own.at_places(self._own.root_s(column_s, flops, each)) for each in rates])

    def _of_kind(self, seconds: list[Floats]) -> Floats:
        """[W] from [G] of each kind of rank."""
        return np.asarray(np.stack(seconds)[self._network.kind_of_rank, self._place])

    def _last_of_group(self, seconds: Floats) -> Floats:
        """[W] the most seconds of any rank of its group."""
        longest = seconds.reshape(-1, self._setup.group).max(axis=1)
        return np.repeat(longest, self._setup.group)

    def run(self, step: int, slow: Floats, after: Wait, *, with_roots: bool) -> Ints:
        """[W] when each rank has the updates of all weights. A step takes the inverse roots, or as much longer as the
        mean step does."""
        usual_s = self._computed_s * slow
        with_s = usual_s + self._roots_s * slow
        if not with_roots:  # all ranks of a group wait for the one that is last, with roots as without
            later_s = self._last_of_group(with_s) - self._last_of_group(usual_s)
            with_s = usual_s + later_s / self._setup.frequency
        label = Label("Shampoo", "dense optimizer", COMPUTE, step)
        end = self._streams.run(label, with_s, [after])
        if self._exchanges is None:
            return end
        most = self._own.at_places(self._own.rows * self._own.columns).max()  # what others have is padded to it
        size = np.full(self._network.world, most * self._setup.group * self._sent)
        label = Label("update gather", "all-gather", STREAM, step)
        return self._exchanges.gather(label, self._groups, size, end)


def _pieces(side: int, most: int) -> list[int]:
    """A side in pieces of the longest length that is allowed, and what is left."""
    whole, left = divmod(side, most)
    return [most] * whole + [left] * (left > 0)


def _gathering_kinds(network: SimulatedNetwork, workload: Workload, group: int) -> tuple[RankKind, ...]:
    """Ranks as they achieve all-gathers among groups of so many: over ports as was measured of these, over cards as in
    the sums whose second half they are."""
    world, members = world_of(network.topology), Members(group)
    kinds = rank_kinds(network.topology, workload, lambda nodes: members.group(world(nodes)))
    found = []
    for nodes, kind in zip(network.topology.nodes, kinds, strict=True):
        law = measured_law("all_gather", nodes, kind.domain_ranks)
        protocols = law.protocols if law is not None else kind.exchange_protocols
        found.append(replace(kind, exchange_protocols=protocols, nic_all_to_all=kind.nic_all_reduce))
    return tuple(found)
