"""Blocks of splittable options by family and width, and options over the world: what exchanges look up."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Floats, Ints
from planner.solvers.bound.load_steps import amounts


@dataclass(frozen=True)
class ExchangeIndex:
    """Blocks of splittable options by family and width, and what they ask for, to look exchanges up.

    There are F families; `problem` has the other letters. Behind the last block there is an empty one, for width 0.
    """

    problem: Problem
    block_of: Ints
    """[F, most units + 1] -1 where there is none."""
    load: Floats
    """[K, B + 1, C] seconds of the rank that holds the block."""
    everywhere: Floats
    """[K, B + 1, C] seconds of every rank."""
    size: Floats
    """[K, B + 1, M]"""
    allowed: Bools
    """[K, B + 1]"""
    table_of_family: Ints
    """[F]"""

    @cached_property
    def whole(self) -> Ints:
        """The units [F] of each family's table."""
        return self.problem.option_units[self.problem.option_units > 0]

    @cached_property
    def amount(self) -> Floats:
        """The common amount [C] of the loads of each column (see `amounts`)."""
        return amounts(self.problem)

    @cached_property
    def sharing(self) -> Ints:
        """The ranks [M] that share a pool at most."""
        return np.array([np.bincount(pool).max() for pool in self.problem.pool_of_rank])

    @cached_property
    def world_options(self) -> tuple[Ints, Floats, Floats]:
        """The fixed options whose blocks are all world-wide and possible: their numbers, ascending; seconds [n, C] and
        bytes [n, M] that the fullest rank takes of each."""
        problem = self.problem
        wide = problem.is_world_wide
        if not wide.any():
            return np.zeros(0, dtype=np.int64), np.zeros((0, 0)), np.zeros((0, 0))
        everywhere = np.asarray(problem.rank_sets.all(axis=1))
        possible = wide & problem.allowed.all(axis=0) & everywhere[problem.table_rank_set[problem.table_of_block]]
        options = np.flatnonzero(np.logical_and.reduceat(possible, problem.block_start[:-1]))
        blocks = np.flatnonzero(np.isin(problem.block_option, options))
        share = problem.row_shares.largest[0, blocks][:, None]
        count = problem.block_count[blocks, None]
        load = (problem.fixed[:, blocks] + problem.everywhere[:, blocks] + problem.by_rows[:, blocks] * share) * count
        size = (problem.bytes_fixed[:, blocks] + problem.bytes_by_rows[:, blocks] * share) * count
        first = np.searchsorted(problem.block_option[blocks], options)
        if not len(options):
            return options, np.zeros((0, 0)), np.zeros((0, 0))
        return options, np.add.reduceat(load.max(axis=0), first), np.add.reduceat(size.max(axis=0), first)

    def spread_growth(self, kind: Ints, block: Ints, option: Ints) -> Floats:
        """Return the seconds [n, C] that the mean rank takes more, if tables whose only blocks [n] stand on ranks of
        these kinds are held in these of the `world_options`."""
        problem = self.problem
        gone = self.load[kind, block] / problem.world
        for k, share in enumerate(problem.ranks_of_kind / problem.world):
            gone += share * self.everywhere[k, block]
        return np.asarray(self.world_options[1][option] - gone)

    def growth_of_step(self, seconds: Floats, level: Floats, least: Floats) -> Floats:
        """Return by how much the step is longer [n], if the resources of each column, which take `level` [C] now, took
        `seconds` [n, C] more, and no stage took less than `least` [S]."""
        stage = self.problem.stage_of_column
        grown = np.tile(least, (len(seconds), 1))
        now = least.copy()
        np.maximum.at(now, stage, level)
        for column, of in enumerate(stage.tolist()):
            np.maximum(grown[:, of], level[column] + seconds[:, column], out=grown[:, of])
        return np.asarray((grown - now).sum(axis=1))
