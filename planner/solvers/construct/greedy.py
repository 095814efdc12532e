"""Longest-first placement of the chosen options' blocks, all stages and all memory tiers at once.

The list scheduling of Graham (SIAM J. Appl. Math. 17, 1969) with the longest processing time first, for vectors of
loads: a block goes where a potential of all the loads it adds to grows least.
"""

import itertools

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.load_state import LoadState
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.placement import Placement
from planner.solvers.construct.block_placer import BlockPlacer
from planner.solvers.construct.capacity_regions import TableUnit, units_of
from planner.solvers.construct.partial_placement import PartialPlacement
from planner.solvers.construct.potential import Potential

_HEAVY = 0.5
"""Share of a rank's memory above which a single rank's block is placed before those that need a node; where these find
no room then, they are placed first."""


def place(
    problem: Problem,
    choices: Ints,
    stage_seconds: Floats,
    preplaced: Placement | None = None,
    unplaced: Ints | None = None,
    random: np.random.Generator | None = None,
    scarce: Bools | None = None,
    spare: Floats | None = None,
) -> tuple[Placement, LoadState] | None:
    """Give every block of the chosen options a place, or None when the next block fits nowhere.

    World-wide blocks come first, then tables that may not be anywhere or not beside any other, then blocks that fill
    most of a rank, then those that need a node, then single ranks' from the largest to the smallest. Each goes where
    the potential over the resources it uses grows least, among the places with memory for it.
    `choices` name the chosen options, each by one of its blocks; `stage_seconds` [S] are the times to aim at. Of the
    `scarce` [M] tiers, too, the fullest decide. Blocks that are `preplaced` have their places already; `unplaced` ones,
    of single ranks or nodes, are placed like those of the choices, and all together make up an option of each table.
    With `random`, another order and other places are tried. Of each tier's pools `spare` [M] bytes are left free,
    where that is possible.
    """
    tiers = np.zeros(len(problem.pool_capacity), dtype=bool) if scarce is None else scarce
    members: list[list[int]] = [[] for _ in range(problem.tables)]
    colocated = np.zeros(problem.tables, dtype=bool)
    for block in [] if unplaced is None else unplaced.tolist():
        members[int(problem.table_of_block[block])].append(block)
    for choice, table in zip(choices.tolist(), problem.table_of_block[choices].tolist(), strict=True):
        members[table] = problem.blocks_of_choice(choice)
        colocated[table] = problem.option_colocated[problem.block_option[choice]]
    spares = (spare, None) if spare is not None and spare.any() else (None,)
    stored = problem.extremes.pool_demand.min(axis=0).max(axis=1)
    single = np.array([block for blocks in members for block in blocks if problem.is_on_rank[block]], dtype=np.int64)
    firsts = (_HEAVY, np.inf) if (stored[single] > _HEAVY).any() else (np.inf,)
    for heavy, kept_free in itertools.product(firsts, spares):
        partial = PartialPlacement(problem, preplaced, kept_free)
        potential = Potential(partial, stage_seconds, tiers, random)
        placement = _Greedy(partial, potential, members, colocated, random).run(heavy)
        if placement is not None:
            return placement
    return None


class _Greedy:
    """One attempt to place the blocks of all tables."""

    def __init__(
        self,
        partial: PartialPlacement,
        potential: Potential,
        members: list[list[int]],
        colocated: Bools,
        random: np.random.Generator | None,
    ) -> None:
        """`members` are each table's blocks that are to be placed; of `colocated` [T] tables on one node."""
        self._partial, self._potential, self._problem = partial, potential, partial.problem
        self._members, self._colocated, self._random = members, colocated, random
        self._placer = BlockPlacer(partial, potential, one_by_one=random is not None)
        self._size_of: dict[int, float] = {}

    def run(self, heavy: float) -> tuple[Placement, LoadState] | None:
        """Place all blocks; those that take more than the share `heavy` of a rank's memory before those of nodes."""
        problem, members, placer = self._problem, self._members, self._placer
        every = np.array([block for blocks in members for block in blocks], dtype=np.int64)
        self._partial.charge_everywhere(every)
        if self._partial.state.overflow_bytes() > 0:
            return None
        self._size_of = self._potential.sizes(np.unique(every))
        units = units_of(problem)
        if self._random is not None:
            units = [units[i] for i in self._random.permutation(len(units))]
        self._partial.confine(units)
        unconfined = np.ones(problem.tables, dtype=bool)
        unconfined[[table for unit in units for table in unit.tables]] = False
        blocks = [b for t in np.flatnonzero(unconfined & ~self._colocated).tolist() for b in members[t]]
        by_size = sorted(blocks, key=self._size_of.__getitem__, reverse=True)
        colocated = [members[t] for t in np.flatnonzero(unconfined & self._colocated).tolist()]
        stored = problem.extremes.pool_demand.min(axis=0).max(axis=1)
        single = [block for block in by_size if problem.is_on_rank[block]]
        done = (
            all(self._put_unit(unit) for unit in units)
            and placer.put_on_ranks([block for block in single if stored[block] > heavy])
            and placer.put_on_groups([block for block in by_size if problem.is_on_group[block]])
            and all(placer.put_within_one_node(each) for each in sorted(colocated, key=self._total_size, reverse=True))
            and placer.put_on_ranks([block for block in single if stored[block] <= heavy])
        )
        return self._partial.finished() if done else None

    def _total_size(self, blocks: list[int]) -> float:
        return sum(self._size_of[block] for block in blocks)

    def _put_unit(self, unit: TableUnit) -> bool:
        """Put all blocks of a unit in the zone where they cost least, or the next one where they fit."""
        is_world_wide = self._problem.is_world_wide
        local = [b for table in unit.tables for b in self._members[table] if not is_world_wide[b]]
        if not unit.zone_of_rank[-1]:
            return self._put_tables(unit)
        if not local:
            return True
        growth = self._zone_growth(unit, local)
        for zone in np.argsort(growth, kind="stable").tolist():
            if growth[zone] == np.inf:
                break
            before = self._partial.snapshot()
            self._partial.open_ranks.keep(unit.tables, unit.zone_of_rank == zone)
            if self._put_tables(unit):
                return True
            self._partial.restore(before)
        return False

    def _zone_growth(self, unit: TableUnit, blocks: list[int]) -> Floats:
        """Return what the blocks cost [zones] in each zone at least; infinite where they do not fit, one by one or in
        all."""
        problem, zone = self._problem, unit.zone_of_rank
        starts = np.searchsorted(zone, np.arange(zone[-1] + 1))
        if len(starts) == problem.world:  # on a rank they add up
            return self._potential.by_blocks_on_one_rank(blocks)
        total = np.zeros(len(starts))
        for block in blocks:
            if problem.is_on_group[block]:
                total += np.add.reduceat(self._potential.by_block_on_group(block)[0], starts)
            else:
                total += np.minimum.reduceat(self._potential.by_block_on_rank(block), starts)
        return total

    def _put_tables(self, unit: TableUnit) -> bool:
        members, problem, placer = self._members, self._problem, self._placer
        for table in sorted(unit.tables, key=lambda table: -self._total_size(members[table])):
            if self._colocated[table]:
                done = placer.put_within_one_node(members[table])
            else:
                local = [block for block in members[table] if not problem.is_world_wide[block]]
                done = all(
                    placer.put_on_group(block) if problem.is_on_group[block] else placer.put_on_rank(block)
                    for block in sorted(local, key=self._size_of.__getitem__, reverse=True)
                )
            if not done:
                return False
        return True
