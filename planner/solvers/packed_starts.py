"""Starts for few blocks on many sites: options for the times that stages will last, then blocks packed as level as can
be.

Where a rank holds less than one block, no block is small beside its stage. A stage lasts as long as some table's
largest block, so that all blocks up to that are for nothing there, and a plan is as good as the others are packed
beside it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from planner.problem.arrays import Problem
from planner.problem.case_divisions import StageDivision
from planner.problem.integrality import integrality_floors
from planner.problem.load_state import load_state
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.placement import Placement
from planner.problem.site_bins import site_bins
from planner.problem.sites import NOWHERE, Sites
from planner.solvers.bound.cutting_planes import FluidSolution, solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.roofs import best_roof
from planner.solvers.construct.beside import with_ranks_of_largest
from planner.solvers.construct.caps import small_blocks
from planner.solvers.construct.rounding import choose
from planner.solvers.construct.site_options import SiteOptions
from planner.solvers.construct.site_packing import SitePacking, distinct_columns
from planner.solvers.incumbent import Incumbent, Start

CAPS = (0.6, 0.8)
"""Shares of a stage that one block may take, the most promising first."""
BLOCKS_PER_SITE = 12
"""Blocks of a site up to which they are packed so: of more, swaps level out."""
LED = 0.5
"""Share of a stage's weight that tables have where it lasts as long as one of their largest blocks."""
IDLE = 0.75
"""Share of such a stage's time that the mean of all ranks takes at most for larger blocks to be barred: elsewhere they
are cut like all others."""
EXCESS = 0.01
"""Share of the step by which a table's largest block must outlast its stage to be held there as a whole."""
AIM = 1.06
"""Share of a stage's mean that blocks are first placed by, unless the largest block lasts longer."""
ROUNDS = 3
"""Packings of each start, in turn with other options for tables in the way."""
MOVES = 2000
"""Moves of blocks for each packing."""

SiteOptionsOf = Callable[[Sites, Ints], SiteOptions]
"""The options of tables over sites, in some columns."""


class PackedStarts:
    """The packed starts of one problem, or of a case of it; the incumbent hears of each."""

    def __init__(self, fluid: Fluid, relaxed: FluidSolution, incumbent: Incumbent, seed: int) -> None:
        self._fluid, self._relaxed, self._incumbent, self._seed = fluid, relaxed, incumbent, seed

    @property
    def are_possible(self) -> bool:
        """Whether the relaxation has few blocks on each of many sites, and nothing on single ranks."""
        problem, choices = self._fluid.problem, self._relaxed.choices[0]
        if problem.kinds > 1 or problem.is_confined or problem.is_on_rank[choices].any():
            return False
        blocks = np.array([b for each in choices.tolist() for b in problem.blocks_of_choice(each)], dtype=np.int64)
        blocks = blocks[problem.is_on_group[blocks]]
        sites = site_bins(problem, blocks) if len(blocks) and not problem.option_apart.any() else None
        return sites is not None and len(blocks) <= BLOCKS_PER_SITE * sites.count

    def starts(self) -> list[Start]:
        """Return the starts under all caps, those that fit."""
        fluid, relaxed, led = self._under_roofs()
        problem = with_ranks_of_largest(fluid.problem, relaxed)
        wider = Fluid(problem, integrality_floors(problem))
        aimed = solve_relaxation(wider)
        narrowed = replace(fluid.problem, allowed=problem.allowed)
        value = fluid.choice_values(relaxed.multipliers)

        def options(sites: Sites, columns: Ints) -> SiteOptions:
            return SiteOptions(narrowed, sites, columns, value)

        starts = []
        for cap in CAPS:
            if self._incumbent.is_done():
                break
            chosen = choose(wider, small_blocks(narrowed, aimed, cap, led), 1.0)
            start = None if chosen is None else self._packed(chosen[1], options)
            if start is not None:
                starts.append(start)
        return starts

    def _under_roofs(self) -> tuple[Fluid, FluidSolution, Bools]:
        """Return the relaxation of the plans whose stages, where tables lead them, are as long as is best, and its
        optimum; and the stages [S] that tables lead."""
        fluid, relaxed = self._fluid, self._relaxed
        led = np.zeros(len(fluid.problem.stage_constants))
        for (_, stage), weight in relaxed.multipliers.of_table.items():
            led[stage] += weight
        problem, mean = fluid.problem, self._means()
        is_led = np.zeros(len(led), dtype=bool)
        for stage in np.flatnonzero(led > LED).tolist():
            roof = best_roof(fluid, relaxed, stage)
            is_led[stage] = mean[stage] <= IDLE * roof
            if is_led[stage]:
                problem, _ = StageDivision(stage, roof).parts(problem)
        if problem is not fluid.problem:
            fluid = Fluid(problem, integrality_floors(problem))
            relaxed = solve_relaxation(fluid, lone=relaxed.lone, excess=EXCESS)
        return fluid, relaxed, is_led

    def _means(self) -> Floats:
        """Return the seconds [S] that what blocks load takes in each stage of the relaxation, were all ranks alike."""
        fluid, relaxed = self._fluid, self._relaxed
        problem, mean = fluid.problem, np.zeros(len(fluid.problem.stage_constants))
        seconds = np.zeros(len(problem.stage_of_column))
        for share, choices in zip(relaxed.shares.tolist(), relaxed.choices, strict=True):
            seconds += share * fluid.usage(relaxed.multipliers, choices)[0][0] / fluid.instances[0]
        np.maximum.at(mean, problem.stage_of_column, np.where(problem.moved_columns, seconds, 0.0))
        return mean

    def _packed(self, choices: Ints, options: SiteOptionsOf) -> Start | None:
        """Return the options packed, in turn with other options for tables in the way; None where one has blocks of
        single ranks, or where they do not fit."""
        problem = self._fluid.problem
        blocks = np.array([b for each in choices.tolist() for b in problem.blocks_of_choice(each)], dtype=np.int64)
        sites = site_bins(problem, blocks[~problem.is_world_wide[blocks]])
        if sites is None:
            return None
        place: Ints | None = None
        best: Start | None = None
        for number in range(ROUNDS):
            bins = _Bins.of(problem, sites, blocks)
            place = bins.packed(place, self._seed + number, self._incumbent.clock.is_over)
            if place is None:
                return best
            placement = Placement(blocks, place)
            state = load_state(problem, placement)
            if state.overflow_bytes() > 0:
                return best
            if best is None or state.step_s() < best[1]:
                best = placement, state.step_s()
                self._incumbent.offer(*best, "packed")
            if self._incumbent.is_done():
                break
            blocks, place = options(sites, bins.columns).improved(blocks, place, *bins.loads(place), best[1])
        return best


@dataclass(frozen=True)
class _Bins:
    """Blocks of a placement and its sites as bins."""

    columns: Ints
    """[D] that are looked at."""
    is_local: Bools
    """[I] blocks that have a site."""
    packing: SitePacking
    aim: Floats
    """[S] seconds of the stages that blocks are first placed by."""

    @classmethod
    def of(cls, problem: Problem, sites: Sites, every: Ints) -> "_Bins":
        """Return the bins of blocks [I], those of all ranks among them."""
        is_wide = problem.is_world_wide[every]
        blocks, wide = every[~is_wide], every[is_wide]
        state = load_state(problem, Placement(wide, np.full(len(wide), NOWHERE)))
        base = np.maximum.reduceat(state.load, sites.first, axis=1)
        base += problem.everywhere[0, blocks].sum(axis=0)[:, None]
        load, stage = problem.extremes.peak_load(0, blocks).T, problem.stage_of_column
        columns = distinct_columns(stage, load, base)
        of_stage, numbered = np.unique(stage[columns], return_inverse=True)
        share = problem.row_shares.largest[0, blocks][:, None]
        size = (problem.bytes_fixed[0, blocks] + problem.bytes_by_rows[0, blocks] * share).T
        room = np.minimum.reduceat(state.free, sites.first, axis=1)
        load, base = load[columns], base[columns]
        mean = (base.mean(axis=1) + load.sum(axis=1) / sites.count) * AIM
        aim = np.zeros(len(of_stage))
        np.maximum.at(aim, numbered, np.maximum(mean, base.max(axis=1) + load.max(axis=1)))
        return cls(columns, ~is_wide, SitePacking(numbered, load, base, size, room), aim)

    def packed(self, place: Ints | None, seed: int, is_over: Callable[[], bool]) -> Ints | None:
        """Return a site for each block [I], levelled from the places that they have, or packed anew; None where they do
        not fit."""
        if place is not None:
            self.packing.place = place[self.is_local]
        elif not self.packing.place_longest_first(self.aim):
            return None
        self.packing.level(MOVES, seed, is_over)
        packed = np.full(len(self.is_local), NOWHERE)
        packed[self.is_local] = self.packing.place
        return packed

    def loads(self, place: Ints) -> tuple[Floats, Floats]:
        """Return the loads [D, N] of the sites, and the bytes [M, N] that they have room for."""
        return self.packing.loads(place[self.is_local])
