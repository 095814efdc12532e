"""The costs of a step in which some tables are made smaller by more than shared rows (`workload.compressors`).

* Quotient and remainder of a table are on the same ranks: each is looked up and updated like a table of its own, and
  what their vectors become together is what travels.
* Shorter vectors travel as they are and are projected where their samples are: as many products in all as at the holder
  of the rows, fewer bytes on the way, and gradients of a small matrix to reduce.

What a step takes before any table is placed, windows beside the dense part among it, is that of tables as large as
their rows and columns say: so what a placement takes stays a sum over its tables.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Self

import numpy as np

from cost_models import collectives
from cost_models.cost_arrays import BlockCosts, BlockMemory
from cost_models.dense import parameter_element_bytes, size_seconds
from cost_models.dense_size import DenseSize, LayerProduct
from cost_models.loads import BlockLoad, Loads
from cost_models.lookup import Lookup
from cost_models.memory import block_bytes, stashed_bytes
from cost_models.mixed_costs import MixedCosts
from cost_models.resources import DEVICE
from cost_models.shards import DATA_PARALLEL, MEMORY_HBM, MEMORY_TIERS, Blocks, Floats, Ints
from cost_models.tables import ID_BYTES, Tables
from cost_models.workload.models import Workload

CROSSINGS = {"multiply": (3.0, 5.0), "add": (3.0, 0.0), "concat": (0.0, 0.0)}
"""Vectors that cross device memory where two are combined, forward (both read, one written) and backward (products:
the gradient and both read, two gradients written; sums: the gradient is that of both). Counted, not measured."""
INDEX_BYTES = 3 * ID_BYTES
"""Of an id that is taken apart: it is read, quotient and remainder are written. Counted, not measured."""


@dataclass(frozen=True)
class Remainders:
    """Remainder tables, whose vectors are all joined to those of their quotient tables, or none of them."""

    tables: Tables
    number: Ints
    """[T] which of them belongs to each table; -1 for none."""

    @classmethod
    def of(cls, workload: Workload, world_size: int) -> "tuple[Remainders, ...]":
        """Those of a workload."""
        found = []
        for joined in (False, True):
            if (parts := workload.remainders(joined=joined)) is None:
                continue
            own, of_table = parts
            tables = Tables.of(own, world_size)
            number = np.full(len(workload.tables), -1)
            number[list(of_table)] = np.arange(len(of_table))
            found.append(cls(tables if joined else tables.kept_on_device, number))
        return tuple(found)

    def beside(self, blocks: Blocks) -> tuple[Ints, Blocks]:
        """[n] positions of the blocks that have such a remainder beside them, and the blocks of it."""
        index = np.flatnonzero(self.number[blocks.table] >= 0)
        beside = blocks.take(index)
        return index, replace(beside, table=self.number[beside.table])


@dataclass(frozen=True)
class Compressions:
    """[T] what compressors ask for beyond the rows of a table that is one of its own."""

    vectors_sent: Ints
    """Vectors of so many columns as the table has that travel in the place of one: 2 of halves that are joined."""
    id_bytes: Floats
    """Bytes of device memory that taking an id apart moves."""
    crossings: tuple[Floats, Floats]
    """Vectors that cross it where two are combined, forward and backward."""
    projected_from: Ints
    """Numbers of a vector that is projected; 0 where none is."""
    projected_to: Ints
    projected_per_sample: Floats
    """Vectors that are projected for a sample."""

    @classmethod
    def of(cls, workload: Workload) -> "Compressions":
        """Those of a workload."""
        tables, all_of = workload.tables, workload.compressors
        two, dim = [each.has_two_parts for each in all_of], [each.kind == "dim" for each in all_of]
        ways = ([CROSSINGS[each.combine][way] * each.has_two_parts for each in all_of] for way in range(2))
        vectors = [table.feature_count * table.poolings if table.pooled else table.pooling_factor for table in tables]
        return cls(
            np.array([1 + (each.has_two_parts and each.combine == "concat") for each in all_of]),
            INDEX_BYTES * np.array(two, dtype=float),
            (np.array(next(ways)), np.array(next(ways))),
            np.array([each.number if is_shorter else 0 for each, is_shorter in zip(all_of, dim, strict=True)]),
            np.array([table.dim for table in tables]),
            np.array(vectors),
        )

    @property
    def projections(self) -> Ints:
        """[T] numbers of the matrix of each projection."""
        return self.projected_from * self.projected_to


class CompressedCosts(MixedCosts):
    """The physical cost model of tables that may be compressed."""

    projection_bytes = 0.0
    """Of the matrices of all projections, on each rank."""
    projection_bytes_of_each: Floats
    """[T] of the matrix that a table's vectors go through, with gradient and optimizer state."""
    compressions: Compressions | None = None
    remainders: tuple[Remainders, ...] = ()

    def _hold_tables(self) -> None:
        """Cost compressed tables as what they are."""
        self._base_bytes, self.projection_bytes_of_each = self.base_bytes, np.zeros(len(self.workload.tables))
        if self.workload.is_compressed:
            self._compress(self.workload, np.arange(len(self.workload.tables)))

    def compressed_as(self, workload: Workload, of_table: Ints | None = None) -> Self:
        """The same base costs with the tables of this workload; every rank has room for the largest projection among
        those that stand in the place of one."""
        other = copy.copy(self)
        for known in ("copies", "own_blocks"):
            other.__dict__.pop(known, None)
        other.workload = workload
        other._compress(workload, np.arange(len(workload.tables)) if of_table is None else of_table)
        return other

    def _compress(self, workload: Workload, of_table: Ints) -> None:
        """Cost the tables of a workload with its compressors, beside the base costs that are known."""
        self.tables, self.compressions = Tables.of(workload, self.topology.world_size), Compressions.of(workload)
        vectors = self.tables.outputs_per_sample * self.compressions.vectors_sent
        self.sent_tables = replace(self.tables, outputs_per_sample=vectors)
        self.remainders = Remainders.of(workload, self.topology.world_size)
        self.projection_bytes_of_each = parameter_element_bytes(workload) * self.compressions.projections.astype(float)
        self.numbers_of_tables = of_table
        largest = np.zeros(int(of_table[-1]) + 1)
        np.maximum.at(largest, of_table, self.projection_bytes_of_each)
        self.projection_bytes = float(largest.sum())
        held = np.where(np.arange(len(self.memories)) == MEMORY_HBM, self.projection_bytes, 0.0)
        self.base_bytes = self._base_bytes + held

    def parts_of(self, blocks: Blocks) -> Iterator[tuple[Tables, Ints, Blocks]]:
        """The tables that blocks are looked up in: their own, and remainders beside some of them; of each, positions
        among the blocks, and what they are of it."""
        yield self.tables, np.arange(len(blocks)), blocks
        for remainders in self.remainders:
            index, beside = remainders.beside(blocks)
            if len(index):
                yield remainders.tables, index, beside

    def block_costs(self, blocks: Blocks, kind: int) -> BlockCosts:
        """Costs of each block if its ranks are of this kind."""
        costs = super().block_costs(blocks, kind)
        if self.compressions is None:
            return costs
        for terms, index in self._beyond_rows(blocks, kind, self.compressions):
            summed = self._summed(terms, len(index), kind)
            self._show_shares(summed)
            for part, more in zip((costs.fixed, costs.by_rows, costs.everywhere), summed, strict=True):
                part[index] += more
        return costs

    def block_memory(self, blocks: Blocks, kind: int) -> BlockMemory:
        """The bytes among the costs of each block."""
        memory = super().block_memory(blocks, kind)
        counted = [MEMORY_TIERS.index(tier) for tier in self.memories]
        for tables, index, beside in islice(self.parts_of(blocks), 1, None):
            for (tier, _), load in block_bytes(tables, beside, self.batching).items():
                if tier in counted:
                    memory.fixed[index, counted.index(tier)] += load.fixed
                    memory.by_rows[index, counted.index(tier)] += load.by_rows
        return memory

    def stashed_bytes(self, blocks: Blocks) -> Floats:
        """[n] bytes of whole blocks that leave HBM between the passes, those of both parts of a table."""
        size = np.zeros(len(blocks))
        for tables, index, part in self.parts_of(blocks):
            size[index] += stashed_bytes(tables, part)
        return size

    def id_sort_seconds(self, blocks: Blocks, kind: int) -> Floats:
        """[n] seconds on the device that sorting the ids of each block takes of its update."""
        seconds = super().id_sort_seconds(blocks, kind)
        if self.tables.training:
            for lookup, index in self._remainder_lookups(blocks, kind):
                seconds[index] += lookup.id_sort()
        return seconds

    def _remainder_lookups(self, blocks: Blocks, kind: int) -> Iterator[tuple[Lookup, Ints]]:
        """The lookups of the remainders beside blocks, and the positions of these."""
        for tables, index, beside in islice(self.parts_of(blocks), 1, None):
            yield Lookup(tables, beside, self.kinds[kind], self.batching, self.coefficients.software), index

    def _beyond_rows(self, blocks: Blocks, kind: int, own: Compressions) -> Iterator[tuple[dict[str, Loads], Ints]]:
        """What blocks take beyond lookup and exchange of their rows, term by term, and their positions."""
        prefetched, training = self.schedule.is_prefetched, self.tables.training
        for lookup, index in self._remainder_lookups(blocks, kind):
            terms = self.lookup_terms(lookup, np.full(len(index), -1))  # their bags are read beside those of quotients
            terms["cache_fetch"] = lookup.fetches(is_prefetched=prefetched)
            if prefetched:
                terms["beside_misses"] = lookup.beside_misses()
            yield terms, index
        if len(index := np.flatnonzero(own.id_bytes[blocks.table])):
            forward, backward = self._combining(blocks.take(index), kind, own)
            yield {"lookup_forward": forward} | ({"lookup_backward": backward} if training else {}), index
        if len(index := np.flatnonzero(own.projected_from[blocks.table])):
            seconds = self._projection_seconds(blocks.table[index], kind, own)
            seconds = seconds * blocks.columns[index] / self.tables.dim[blocks.table[index]]
            yield {"dense": {DEVICE: BlockLoad(everywhere=seconds)}}, index

    def _combining(self, blocks: Blocks, kind: int, own: Compressions) -> tuple[Loads, Loads]:
        """Ids taken apart and vectors combined by the holder of both parts, forward and backward."""
        tables, table = self.tables, blocks.table
        replicated = blocks.sharding == DATA_PARALLEL
        samples = np.where(replicated, self.batching.samples_per_rank, self.batching.global_samples)
        vectors = tables.outputs_per_sample[table] * blocks.columns * tables.written_bytes
        ids = tables.lookups_per_sample[table] * own.id_bytes[table]
        forward, backward = (crossings[table] * vectors for crossings in own.crossings)

        def loads(moved: Floats) -> Loads:
            load = BlockLoad(fixed=samples * moved / self.kinds[kind].hbm_bytes_per_s)
            return {DEVICE: load} | {name: load / ranks for name, ranks in self.kinds[kind].ranks_sharing.items()}

        return loads(forward + ids), loads(backward)

    def _projection_seconds(self, table: Ints, kind: int, own: Compressions) -> Floats:
        """[n] device seconds of the whole projections of tables, forward and in training backward."""
        cases = np.stack([own.projected_from[table], own.projected_to[table], own.projected_per_sample[table]])
        distinct, which = np.unique(cases, axis=1, return_inverse=True)
        passes = self.coefficients.software.activation_passes.value
        seconds = [
            size_seconds(
                self.workload,
                DenseSize(
                    activation_elements=vectors * (numbers + columns),
                    products=(LayerProduct(numbers, columns, vectors),),
                ),
                self.batching.samples_per_rank,
                self.kinds[kind],
                passes,
                forward_only=not self.tables.training,
            )
            for numbers, columns, vectors in distinct.T.tolist()
        ]
        return np.array(seconds)[which.reshape(-1)]

    def _exchange_terms(self, blocks: Blocks, kind: int) -> dict[str, Loads]:
        """What blocks exchange on a kind of rank, at the model's lines; projections reduce their gradients on all."""
        terms, own = super()._exchange_terms(blocks, kind), self.compressions
        if own is None or not self.tables.training or not own.projections.any():
            return terms
        table = blocks.table
        numbers = own.projections[table] * blocks.columns / self.tables.dim[table]
        reduced = collectives.all_reduce_seconds(
            numbers * self.tables.gradient_wire_bytes, self.base.summing_kinds[kind]
        )
        summed = dict(terms["replica_all_reduce"])
        for resource, seconds in reduced.items():
            summed[resource] = summed.get(resource, BlockLoad()) + BlockLoad(everywhere=seconds)
        return terms | {"replica_all_reduce": summed}
