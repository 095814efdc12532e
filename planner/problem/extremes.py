"""The most that single blocks ask of memory pools, resources and stages, and what is there before any."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from planner.problem.company import company
from planner.problem.numbers import Floats, Ints
from planner.problem.sites import Sites

if TYPE_CHECKING:
    from planner.problem.arrays import Problem

BLOCKS_AT_ONCE = 20_000
"""Whose peaks are computed together, for the memory that this takes."""


@dataclass(frozen=True)
class Extremes:
    """What the blocks of one problem ask for at most, each by itself; `planner.problem.arrays` explains the letters."""

    problem: "Problem"
    """By a weak reference, as the problem holds these: arrays of a cycle stay until Python looks for cycles."""

    @cached_property
    def pool_demand(self) -> Floats:
        """[K, B, M] the most bytes that one block takes from one memory pool of a kind, as a share of the pool.

        The share of a pool without capacity is infinite where the block needs it, else 0.
        """
        problem = self.problem
        demand = np.zeros((problem.kinds, len(problem.block_option), len(problem.pool_capacity)))
        largest = problem.row_shares.largest
        for k in range(problem.kinds):
            first = int(np.flatnonzero(problem.kind_of_rank == k)[0])
            for m, (pool, capacity) in enumerate(zip(problem.pool_of_rank, problem.pool_capacity, strict=True)):
                sharing = int(self._sharing_in_node(pool[None])[k, 0])
                together = self._sharing_in_sites(pool[None])[k, :, 0][problem.block_extent]
                share = np.minimum(largest[k] * together, np.where(problem.block_replicated, sharing, 1.0))
                size = problem.bytes_fixed[k, :, m] * together + problem.bytes_by_rows[k, :, m] * share
                free = capacity[pool[first]] - sharing * problem.base_bytes[m]
                demand[k, :, m] = size / free if free > 0 else np.where(size > 0, np.inf, 0.0)
        return demand

    @cached_property
    def sharing(self) -> Ints:
        """[K, C] how many ranks of one node use the same instance of a column's resource."""
        return self._sharing_in_node(self.problem.resource_of_rank)

    @cached_property
    def _sharing_of_resources(self) -> Ints:
        """[K, E, C] how many ranks of one site of each extent use the same instance of a column's resource."""
        return self._sharing_in_sites(self.problem.resource_of_rank)

    def _sharing_in_sites(self, instances: Ints) -> Ints:
        """[K, E, n] how many ranks of one site of each extent use one of the `instances` [n, W]; of a world-wide one,
        how many of a node."""
        sites = (self.problem.nodes if each.reach == "world" else each for each in self.problem.sites)
        return np.stack([self._sharing_in(each, instances) for each in sites], axis=1)

    def _sharing_in_node(self, instances: Ints) -> Ints:
        return self._sharing_in(self.problem.nodes, instances)

    def _sharing_in(self, sites: Sites, instances: Ints) -> Ints:
        """[K, n] how many ranks of a kind's first site use the instance [n, W] of its first rank."""
        sharing = np.ones((self.problem.kinds, len(instances)), dtype=np.int64)
        for k in range(self.problem.kinds):
            members = instances[:, sites.ranks(int(sites.of_rank[self.problem.kind_of_rank == k][0]))]
            sharing[k] = (members == members[:, :1]).sum(axis=1)
        return sharing

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

    def peak_load(self, kind: int, blocks: Ints | slice, columns: Ints | slice = slice(None)) -> Floats:
        """[n, C] the most that one instance of each resource, of all or of these `columns`, is loaded by a block on a
        site; by a world-wide one, 0."""
        problem = self.problem
        ranks = self._sharing_of_resources[kind][:, columns][problem.block_extent[blocks]]
        largest = problem.row_shares.largest[kind, blocks]
        share = np.minimum(ranks * largest[:, None], 1.0)
        fixed, by_rows = (part[kind, blocks][:, columns] for part in (problem.fixed, problem.by_rows))
        load = fixed * ranks + by_rows * share
        load[problem.is_world_wide[blocks]] = 0.0
        return np.asarray(load)

    def peaks_in_stage(self, stage: int) -> Floats:
        """[B] seconds that one stage takes at least, constants aside, if a plan holds the block; of one kind of
        rank."""
        problem = self.problem
        columns: Ints = np.flatnonzero((problem.stage_of_column == stage) & problem.loaded_columns[0])
        peaks = np.zeros(len(problem.block_option))
        for begin in range(0, len(peaks), BLOCKS_AT_ONCE):
            some = slice(begin, begin + BLOCKS_AT_ONCE)
            load = self.peak_load(0, some, columns) + self.base_of_instance[0, columns]
            peaks[some] = load.max(axis=1, initial=0.0)
        return peaks

    @cached_property
    def company(self) -> Floats:
        """[T, C] seconds that every rank has of a table at least, wherever blocks are (`planner.problem.company`)."""
        return company(self.problem)

    @cached_property
    def _fewest_sharing(self) -> Ints:
        """[C] how many ranks use an instance of a column's resource at least."""
        return np.array([np.bincount(each)[each].min() for each in self.problem.resource_of_rank])

    def beside(self, blocks: Ints) -> Floats | float:
        """[n, C] the least load of any instance that other tables than a block's have there in any case; 0 where none
        has any, or ranks are of several kinds."""
        if not self.company.any():
            return 0.0
        others = self.company.sum(axis=0) - self.company[self.problem.table_of_block[blocks]]
        return np.asarray(self._fewest_sharing * np.maximum(others, 0.0))

    def of_all(self, column: int) -> Floats:
        """[B] seconds that each instance of a column's resource has of a block at least, wherever that is: of one of
        all ranks, what the rank with the fewest rows has; of any other, what blocks load everywhere. Ranks of one
        kind."""
        problem = self.problem
        held = problem.fixed[0, :, column] + problem.by_rows[0, :, column] * problem.row_shares.least
        load = problem.everywhere[0, :, column] + np.where(problem.is_world_wide, held, 0.0)
        return np.asarray(self._fewest_sharing[column] * load)

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
            load += self.beside(blocks[possible])
            peak = np.zeros((len(possible), peaks.shape[2]))
            for column, stage in enumerate(problem.stage_of_column):
                peak[:, stage] = np.maximum(peak[:, stage], load[:, column])
            peaks[kind, possible] = peak
        return peaks
