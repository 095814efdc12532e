"""Local search of one placement: rounds at one norm after the other, then load balancing towards targets."""

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from planner.certificates.multipliers import Multipliers
from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Floats
from planner.problem.placement import Placement
from planner.problem.site_bins import site_bins
from planner.solvers.bound.column_reduction import ReducedProblem, reduce_columns, with_options
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.present_prices import present_prices
from planner.solvers.improve.improver import TURNS, Improver
from planner.solvers.incumbent import Incumbent, Start

SQUARINGS = (3, 4, 5, 6, 7)
"""The local search's norm is 2 to these powers, one after the other."""
LATER_SQUARINGS = (5, 6, 7)
"""Those of a pass that goes on from the best plan."""
ROUNDS, LARGE_ROUNDS = 40, 20
"""Rounds at each norm; in large problems load balancing gains more in the same time."""
TRIAL_ROUNDS, OVERFULL_TRIAL_ROUNDS = 8, 4
"""Rounds at each norm to compare starts by: of the later norms, and of all norms for starts that do not fit."""
BALANCING_ROUNDS = 60
"""Rounds towards a target after them."""
SITE_ROUNDS = 120
"""Rounds of swaps between sites before them, where most blocks are cut over groups of ranks."""
WORTH_SWAPPING = 1e-4
"""Share of the step that a round of swaps gains at least, before tables take other options there."""
SiteMove = Callable[[Improver, Floats], bool]
START_MOVES: tuple[tuple[SiteMove, int], ...] = (
    (Improver.merge_cuts, 2),
    (Improver.split_cuts, 2),
    (Improver.spread_from_sites, 4),
    (Improver.return_to_sites, 4),
)
"""How tables of a start do so, one after the other, and how often."""
LATER_MOVES: tuple[tuple[SiteMove, int], ...] = (
    (Improver.convert_on_sites, 2),
    (Improver.split_cuts, 1),
    (Improver.spread_from_sites, 2),
    (Improver.return_to_sites, 4),
)
"""The same of a plan that came of that."""
IDLE_ROUNDS = 16
"""Rounds without a better plan after which a norm, or load balancing, is done; where ranks are fewer, as many as
these, or one of each kind of round."""
COSTLY, LITTLE_MORE = 2e-4, 0.1
"""Share of what all tables cost from which one costs much, and the share of that by which others of its options may
cost more and still be searched where groups of ranks swap blocks: a table in more of them leaves less room unused."""
REDUCED_BLOCKS, WORTH_A_LOOK = 100_000, 2.0
"""Block types above which local search leaves out options that cost, by the bound's duals, more than so many times
what their table's cheapest one costs."""


class LocalSearch:
    """Improves placements of one problem, and tells the incumbent; of large ones without expensive options."""

    def __init__(self, fluid: Fluid, multipliers: Multipliers, incumbent: Incumbent) -> None:
        """Options are expensive at the `multipliers` of the bound."""
        self._fluid, self._multipliers, self._incumbent = fluid, multipliers, incumbent
        self._reduced: ReducedProblem | None = None

    @property
    def is_large(self) -> bool:
        """Whether expensive options are left out."""
        return len(self._fluid.problem.block_option) > REDUCED_BLOCKS

    @cached_property
    def reduced(self) -> ReducedProblem:
        """The problem with all its options, without idle columns."""
        return reduce_columns(self._fluid.problem)

    def improve(
        self,
        placement: Placement,
        seed: int,
        norms: Sequence[int],
        rounds: int = ROUNDS,
        balancing_rounds: int = BALANCING_ROUNDS,
        overfull: ReducedProblem | None = None,
    ) -> Start:
        """Make so many rounds at each norm, then so many towards targets; return the best placement, and its step.

        Tables of starts are spread anew first (`respread`). With the problem `overfull` instead of its own, placements
        need not fit.
        """
        is_start = norms == SQUARINGS
        reduced, value = self._searched(placement, is_start=is_start, overfull=overfull)
        number, incumbent = 0, self._incumbent
        improver = Improver(reduced.problem, reduced.inside(placement), seed)
        if self.is_large:
            rounds = min(rounds, LARGE_ROUNDS)

        def best() -> Placement:
            return reduced.outside(improver.best())

        def offer() -> None:
            if overfull is None:
                incumbent.offer(best, improver.best_s, "local search")

        offer()
        if is_start:
            improver.respread()
        self._balance_sites(improver, value, offer, is_start=is_start)
        most_idle = min(IDLE_ROUNDS, max(reduced.problem.world, TURNS))
        for squarings in () if improver.only_sites_move else norms:
            idle, stale, best_s = 0, 0, improver.best_s
            for _ in range(rounds):
                idle = 0 if improver.round(number, squarings) else idle + 1
                stale = 0 if improver.best_s < best_s else stale + 1
                number, best_s = number + 1, improver.best_s
                if max(idle, stale) >= most_idle:
                    break
                offer()
                if incumbent.is_done():
                    return best(), improver.best_s
        stale, best_s = 0, improver.best_s
        for _ in range(balancing_rounds):
            if incumbent.is_done() or stale >= most_idle or not improver.balance():
                break
            stale = 0 if improver.best_s < best_s else stale + 1
            best_s = improver.best_s
            offer()
        return best(), improver.best_s

    def _balance_sites(
        self, improver: Improver, value: Callable[[], Floats], offer: Callable[[], None], *, is_start: bool
    ) -> None:
        """Let groups of ranks swap blocks, where these are many. Once that gains little, let tables have other options
        by the `value` [B] of the one that each block names, as long as that is possible; once no lower aim is reached,
        begin anew, as long as that gains something."""
        moves = START_MOVES if is_start else LATER_MOVES
        left, began_s = [times for _, times in moves], np.inf
        for _ in range(SITE_ROUNDS):
            before_s = improver.present_s
            if self._incumbent.is_done():
                return
            if not improver.balance_sites():
                if improver.best_s > began_s * (1 - WORTH_SWAPPING) or not improver.restart_sites():
                    return
                left, began_s = [times for _, times in moves], improver.best_s
                continue
            offer()
            number = next((number for number, times in enumerate(left) if times), None)
            if improver.present_s > before_s * (1 - WORTH_SWAPPING) and number is not None:
                left[number] = left[number] - 1 if moves[number][0](improver, value()) else 0

    def _searched(
        self, placement: Placement, *, is_start: bool, overfull: ReducedProblem | None
    ) -> tuple[ReducedProblem, Callable[[], Floats]]:
        """Return what is searched from a placement, and what gives the value [B] of the option that each block names:
        by the bound's multipliers, or beside a plan whose groups of ranks swap blocks by those at its stages."""
        problem = self._fluid.problem
        if overfull is None and not is_start and self.is_large and only_sites_move(problem, placement):
            prices, usable = present_prices(self._fluid, placement)
            value = self._fluid.choice_values(prices, usable)
            first = problem.block_start[:-1]
            kept = _others_on_groups(problem, value, placement)
            kept |= _cheapest(problem, value[first], problem.is_world_wide[first])
            kept[problem.block_option[placement.item_block]] = True
            narrowed = with_options(problem, kept)
            assert narrowed.blocks is not None
            at_blocks: Floats = value[narrowed.blocks]
            return narrowed, lambda: at_blocks
        reduced = overfull or self._reduced_for(placement)
        return reduced, lambda: self._values(reduced)

    def _values(self, reduced: ReducedProblem) -> Floats:
        """[B] what the option that each block names costs at the multipliers."""
        value = self._fluid.choice_values(self._multipliers)
        return value if reduced.blocks is None else np.asarray(value[reduced.blocks])

    def _reduced_for(self, placement: Placement) -> ReducedProblem:
        """Return what is searched; of large problems, the options that the placement has or that may be better."""
        if not self.is_large:
            return self.reduced
        if self._reduced is None or not self._reduced.holds(placement):
            problem = self._fluid.problem
            kept = _worth_a_look(self._fluid, self._multipliers)
            kept[problem.block_option[placement.item_block]] = True
            if swaps_on_sites(problem, placement):
                kept |= _others_on_groups(problem, self._fluid.choice_values(self._multipliers), placement)
            self._reduced = with_options(problem, kept)
        return self._reduced


def swaps_on_sites(problem: Problem, placement: Placement) -> bool:
    """Whether groups of ranks, which are many, swap blocks of a placement."""
    return site_bins(problem, placement.item_block[problem.is_on_group[placement.item_block]]) is not None


def only_sites_move(problem: Problem, placement: Placement) -> bool:
    """Whether nothing else moves, as no block is on a single rank."""
    is_on_rank = bool(problem.is_on_rank[placement.item_block].any())
    return problem.kinds == 1 and not is_on_rank and swaps_on_sites(problem, placement)


def _others_on_groups(problem: Problem, value: Floats, placement: Placement) -> Bools:
    """Return which options [O], of blocks over groups of ranks, cost less by the `value` [B] of the option that each
    block names than the one that the placement has of their table, if that is of such blocks, too; of tables that cost
    much, also those that cost little more, and of tables on all ranks the cheapest one."""
    first = problem.block_start[:-1]
    on_group, of_option = problem.is_on_group[first], value[first]
    own = placement.option_of_table(problem)
    is_costly = of_option[own] >= COSTLY * float(of_option[own].sum())
    most = np.where(is_costly, (1 + LITTLE_MORE) * of_option[own], of_option[own])[problem.option_table]
    cheapest = _cheapest(problem, of_option, on_group) & problem.is_world_wide[first[own]][problem.option_table]
    own = own[problem.option_table]
    return np.asarray(on_group & (cheapest | (on_group[own] & ((of_option < of_option[own]) | (of_option <= most)))))


def _cheapest(problem: Problem, value: Floats, among: Bools) -> Bools:
    """Return which of the options [O] `among` all are the cheapest ones of their table by their `value` [O]."""
    least = np.full(problem.tables, np.inf)
    np.minimum.at(least, problem.option_table[among], value[among])
    return np.asarray(among & np.isfinite(value) & (value == least[problem.option_table]))


def _worth_a_look(fluid: Fluid, multipliers: Multipliers) -> Bools:
    """Return which options [O] local search may change to: little more expensive, by the bound's multipliers, than
    the cheapest ones.

    Fixed ones are among them only if spread over the world. Another memory tier, or size of a cache, is none where
    bytes have no multiplier: then the cheapest of a table's splittable options is enough, and of those of the world.
    """
    problem = fluid.problem
    value = np.minimum.reduceat(fluid.choice_values(multipliers), problem.block_start[:-1])
    cheapest, _ = fluid.price(multipliers)
    is_splittable = problem.option_units > 0
    is_wide = np.logical_and.reduceat(problem.is_world_wide, problem.block_start[:-1])
    kept = (value <= WORTH_A_LOOK * cheapest[problem.option_table]) & (is_splittable | is_wide)
    if not multipliers.byte.any():
        for some in (np.flatnonzero(is_splittable), np.flatnonzero(~is_splittable & is_wide)):
            least = np.full(problem.tables, np.inf)
            np.minimum.at(least, problem.option_table[some], value[some])
            kept[some] &= value[some] == least[problem.option_table[some]]
    return np.asarray(kept)
