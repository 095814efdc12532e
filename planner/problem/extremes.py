"""The most that single blocks ask of memory pools, resources and stages, and what is there before any."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from planner.problem.extents import NODE, RANK, WORLD
from planner.problem.numbers import Floats, Ints

if TYPE_CHECKING:
    from planner.problem.arrays import Problem

BLOCKS_AT_ONCE = 20_000
"""Whose peaks are computed together, for the memory that this takes."""


@dataclass(frozen=True)
class Extremes:
    """What the blocks of one problem ask for at most, each by itself; `planner.problem.arrays` explains the letters."""

    problem: "Problem"

    @cached_property
    def pool_demand(self) -> Floats:
        """[K, B, M] the most bytes that one block takes from one memory pool of a kind, as a share of the pool.

        The share of a pool without capacity is infinite where the block needs it, else 0.
        """
        problem = self.problem
        demand = np.zeros((problem.kinds, len(problem.block_option), len(problem.pool_capacity)))
        cut = np.where(problem.block_extent == NODE, problem.node_ranks_of_kind[:, None], 1)
        cut = np.where(problem.block_extent == WORLD, np.where(problem.block_replicated, 1, problem.world), cut)
        rows = problem.table_rows[problem.option_table[problem.block_option]]
        largest = -(-rows // cut) / rows
        for k in range(problem.kinds):
            first = int(np.flatnonzero(problem.kind_of_rank == k)[0])
            ranks = int(problem.node_ranks_of_kind[k])
            for m, (pool, capacity) in enumerate(zip(problem.pool_of_rank, problem.pool_capacity, strict=True)):
                sharing = int((pool[first : first + ranks] == pool[first]).sum())
                together = np.where(problem.block_extent == RANK, 1, sharing)
                share = np.minimum(largest[k] * together, np.where(problem.block_replicated, sharing, 1.0))
                size = problem.bytes_fixed[k, :, m] * together + problem.bytes_by_rows[k, :, m] * share
                free = capacity[pool[first]] - sharing * problem.base_bytes[m]
                demand[k, :, m] = size / free if free > 0 else np.where(size > 0, np.inf, 0.0)
        return demand

    @cached_property
    def sharing(self) -> Ints:
        """[K, C] how many ranks of one node use the same instance of a column's resource."""
        problem = self.problem
        ranks_of_instance = np.ones((problem.kinds, len(problem.stage_of_column)), dtype=np.int64)
        for k in range(problem.kinds):
            first = int(np.flatnonzero(problem.kind_of_rank == k)[0])
            members = problem.resource_of_rank[:, first : first + int(problem.node_ranks_of_kind[k])]
            ranks_of_instance[k] = (members == members[:, :1]).sum(axis=1)
        return ranks_of_instance

    @cached_property
    def base_of_instance(self) -> Floats:
        """[K, C] the least load of any instance that a kind's ranks use, before any table is placed."""
        problem = self.problem
        least = np.zeros_like(problem.base_loads)
        base = problem.base_loads[problem.kind_of_rank].T
        for c, instance in enumerate(problem.resource_of_rank):
            total = np.bincount(instance, weights=base[c])[instance]
            least[:, c] = [total[problem.kind_of_rank == k].min() for k in range(problem.kinds)]
        return least

    def peak_load(self, kind: int, blocks: Ints) -> Floats:
        """[n, C] the most that one instance of each resource is loaded by a RANK or NODE block; by a WORLD one, 0."""
        problem = self.problem
        on_node = (problem.block_extent[blocks] == NODE)[:, None]
        ranks = np.where(on_node, self.sharing[kind], 1)
        rows = problem.table_rows[problem.option_table[problem.block_option[blocks]]]
        cut = int(problem.node_ranks_of_kind[kind])
        share = np.where(on_node, np.minimum(ranks * (-(-rows // cut) / rows)[:, None], 1.0), 1.0)
        load = problem.fixed[kind, blocks] * ranks + problem.by_rows[kind, blocks] * share
        load[problem.block_extent[blocks] == WORLD] = 0.0
        return np.asarray(load)

    @cached_property
    def stage_peaks(self) -> Floats:
        """[B, S] seconds that each stage takes at least, constants aside, if a plan holds the block anywhere.

        Infinite for a block that no rank may hold.
        """
        return np.asarray(self.stage_peaks_of_kind.min(axis=0))

    @cached_property
    def stage_peaks_of_kind(self) -> Floats:
        """[K, B, S] the same if it is on ranks of the kind."""
        problem = self.problem
        peaks = np.empty((problem.kinds, len(problem.block_option), len(problem.stage_constants)))
        for begin in range(0, peaks.shape[1], BLOCKS_AT_ONCE):
            some = np.arange(begin, min(begin + BLOCKS_AT_ONCE, peaks.shape[1]))
            peaks[:, some] = self.stage_peaks_of(some)
        return peaks

    def stage_peaks_of(self, blocks: Ints) -> Floats:
        """[K, n, S] the same of these blocks."""
        problem = self.problem
        peaks = np.full((problem.kinds, len(blocks), len(problem.stage_constants)), np.inf)
        for kind in range(problem.kinds):
            possible = np.flatnonzero(problem.allowed[kind, blocks])
            load = self.peak_load(kind, blocks[possible]) + self.base_of_instance[kind]
            peak = np.zeros((len(possible), peaks.shape[2]))
            for column, stage in enumerate(problem.stage_of_column):
                peak[:, stage] = np.maximum(peak[:, stage], load[:, column])
            peaks[kind, possible] = peak
        return peaks
