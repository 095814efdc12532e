"""The start portfolio: options chosen by duals under ever other caps, with ever less memory, rounded and placed.

A multi-start method: which caps suit a problem shows only once a start is placed, so several are tried and the best
kept.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property

import numpy as np

from planner.problem.numbers import Bools, Ints
from planner.solvers.bound.cutting_planes import FluidSolution
from planner.solvers.bound.fluid import Fluid
from planner.solvers.construct.caps import PoolCaps, capped_blocks, capped_one_by_one, wide_blocks, without_single_ranks
from planner.solvers.construct.greedy import place
from planner.solvers.construct.overfull import tight_tiers
from planner.solvers.construct.rounding import choose
from planner.solvers.improve.state import AMPLE, SPARE
from planner.solvers.incumbent import Incumbent, Start

STARTS_WORK = 1.5e7
"""Tables x ranks that the starts may take together: large problems get by with one, and one of larger blocks."""
GOOD_START = 0.2
"""Gap below which no start with less memory is tried."""
HEADROOMS = (1.0, 0.998, 0.995, 0.98, 0.96, 0.92, 0.85, 0.75)
"""Shares of the memory that the choice of options may use; less leaves room for placing whole blocks."""
PATIENCE = 3
"""Attempts at one headroom, none of which fits, after which less memory is tried: where whole blocks do not fit into
so much of it, other caps seldom help."""
FULL = 0.5
"""Share of a memory tier that tables take, above which it is filled evenly: the last ones must find room."""


class StartPortfolio:
    """The starts of one problem; the incumbent hears of each."""

    def __init__(self, fluid: Fluid, relaxed: FluidSolution, incumbent: Incumbent) -> None:
        self._fluid, self._relaxed, self._incumbent = fluid, relaxed, incumbent
        self.most_starts = max(1, int(STARTS_WORK / (fluid.problem.tables * fluid.problem.world)))
        """As many as the problem's size allows."""
        self.tight = tight_tiers(fluid, relaxed)
        """[M] memory tiers that are full, or nearly so."""
        self.is_scarce = bool(self.tight.any())
        self._bars_single_ranks = self.most_starts == 1 and not fluid.problem.is_on_rank[relaxed.choices].any()
        """Whether the choices of starts shall have no block on single ranks, as the relaxation has none."""
        self._avoids_single_ranks = False
        """Whether such blocks are left out, as choices had some."""

    @cached_property
    def allowed(self) -> list[tuple[PoolCaps, Bools]]:
        """The caps on shares of a pool, with the blocks [B] that keep to them, the most promising first."""
        return capped_blocks(self._fluid.problem, self._relaxed, self.tight)

    def _allowed_one_by_one(self) -> Iterator[tuple[PoolCaps, Bools]]:
        """Yield the same, the first without waiting for all others: large problems need no more as a rule."""
        yield next(capped_one_by_one(self._fluid.problem, self._relaxed, self.tight))
        yield from self.allowed[1:]

    @property
    def _headrooms(self) -> tuple[float, ...]:
        """Where there is one start and memory is scarce, not all of it: whole blocks hardly ever fill so much."""
        return HEADROOMS[1:] if self.is_scarce and self.most_starts == 1 else HEADROOMS

    def first(self) -> list[Start]:
        """Return the first start, whatever it is worth, so that there is a plan; nothing where none fits."""
        for headroom in HEADROOMS:
            starts, _ = self._at_headroom(headroom, self.allowed[:1], 1, must_find=False, is_thorough=True)
            if starts or self._incumbent.is_done():
                return starts
        return []

    def starts(self) -> list[Start]:
        """Return the starts under all caps, with ever less memory until something fits.

        Where memory is scarce, less of it makes better starts for a while: it goes on as long as that is so. Where it
        is not, less of it is tried once more, and only if no start is good. Where the problem's size allows one start,
        another one has larger blocks, and where the relaxation has nothing on single ranks, neither have they.
        """
        starts = self._descending(min(PATIENCE, self.most_starts))
        if not starts:
            self._bars_single_ranks = self._avoids_single_ranks = False
            starts = self._descending(None)
        if starts and self.most_starts == 1 and not self._incumbent.is_done():
            starts += self._wide()
        return starts

    def _wide(self) -> list[Start]:
        """Return the start of larger blocks, where the problem's size allows one beside it; nothing where it finds no
        places."""
        blocks = wide_blocks(self._fluid.problem, self._relaxed, self.tight)
        return self._at_headroom(self._headrooms[0], [blocks], 1, must_find=False)[0]

    def _descending(self, patience: int | None) -> list[Start]:
        """Return the starts with ever less memory; after so many attempts without any, with less at once.

        The caps that allow most blocks come first where nothing fits with more memory: the relaxation takes few large
        ones then, and room for these is what less memory leaves.
        """
        starts: list[Start] = []
        left, before = self.most_starts, np.inf
        allowed: Iterable[tuple[PoolCaps, Bools]] = self.allowed if left > 1 else self._allowed_one_by_one()
        for headroom in self._headrooms:
            most = None if starts else patience
            starts_here, left = self._at_headroom(headroom, allowed, left, must_find=not starts, patience=most)
            starts += starts_here
            best = min((step_s for _, step_s in starts_here), default=np.inf)
            if self._incumbent.is_done() or (starts and not left):
                break
            is_good, is_stalled = self._incumbent.is_within(GOOD_START), best >= before
            if starts and ((is_good and not self.is_scarce) or (is_stalled and (is_good or not self.is_scarce))):
                break
            before = best
            allowed = self.allowed if starts else _widest_first(self.allowed)
        return starts

    def _at_headroom(
        self,
        headroom: float,
        allowed: Iterable[tuple[PoolCaps, Bools]],
        left: int,
        *,
        must_find: bool,
        patience: int | None = None,
        is_thorough: bool = False,
    ) -> tuple[list[Start], int]:
        """Return the starts at one headroom, and how many of `left` attempts are left then.

        The blocks `allowed` come with their caps on shares of a pool: smaller ones are tried as long as they help.
        Where there `must_find` be a start, attempts go on until there is, or for as many as `patience` says; what they
        choose is repaired thoroughly where that is asked.
        """
        starts: list[Start] = []
        best_of: dict[PoolCaps, float] = {}
        started: dict[bytes, Start | None] = {}
        for number, (of_pool, usable) in enumerate(allowed):
            if (not left and (starts or not must_find)) or (not starts and number == patience):
                break
            if of_pool not in best_of and len(best_of) > 1 and _is_worse(list(best_of.values())):
                break
            left = max(left - 1, 0)
            rounded = self._chosen(usable, headroom, is_thorough=is_thorough)
            same = b"" if rounded is None else rounded[1].tobytes()
            is_new = same not in started
            if is_new:
                started[same] = None if rounded is None else _placed(self._fluid, *rounded)
            start = started[same]
            best_of[of_pool] = min(best_of.get(of_pool, np.inf), np.inf if start is None else start[1])
            if start is not None and is_new:
                starts.append(start)
                self._incumbent.offer(*start, "start")
            if self._incumbent.is_done():
                break
        return starts, left

    def _chosen(self, usable: Bools, headroom: float, *, is_thorough: bool) -> tuple[FluidSolution, Ints] | None:
        """Return what `choose` does; once that has blocks on single ranks that are barred, without them."""
        problem = self._fluid.problem
        if self._bars_single_ranks and not self._avoids_single_ranks:
            rounded = choose(self._fluid, usable, headroom, is_thorough=is_thorough, barred=problem.is_on_rank)
            if rounded is not None:
                return rounded
            self._avoids_single_ranks = True
        if self._avoids_single_ranks:
            usable = without_single_ranks(problem, usable)
        return choose(self._fluid, usable, headroom, is_thorough=is_thorough)


def _widest_first(allowed: list[tuple[PoolCaps, Bools]]) -> list[tuple[PoolCaps, Bools]]:
    """Return the caps with those that allow most blocks before all others."""
    widest = max(range(len(allowed)), key=lambda number: int(allowed[number][1].sum()))
    return [allowed[widest], *allowed[:widest], *allowed[widest + 1 :]]


def _is_worse(best: list[float]) -> bool:
    """Whether the last one is no better than the one before, and both were found."""
    return bool(np.isfinite(best[-1]) and best[-1] >= best[-2])


def _placed(fluid: Fluid, relaxed: FluidSolution, choices: Ints) -> Start | None:
    """Return the options placed, and their step."""
    _, taken = fluid.usage(relaxed.multipliers, choices)
    full = (taken > FULL * fluid.capacity).any(axis=0)
    scarce = np.asarray((relaxed.multipliers.byte > 0).any(axis=0) | full)
    ample = np.asarray(
        (taken <= (1 - AMPLE) * fluid.capacity).all(axis=0) & (relaxed.multipliers.byte == 0).all(axis=0)
    )
    spare = np.where(ample, SPARE * np.array([of_tier.min() for of_tier in fluid.problem.pool_capacity]), 0.0)
    placed = place(fluid.problem, choices, relaxed.stage_seconds, scarce=scarce, spare=spare)
    if placed is None:
        return None
    placement, state = placed
    return placement, state.step_s()
