"""The optimum of the fluid relaxation by Kelley's cutting planes (Kelley, J. SIAM 8(4), 1960)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from planner.certificates.multipliers import Multipliers
from planner.problem.numbers import Bools, Floats, Ints
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.master import Master

LONE_SEARCHES, LONE_AT_ONCE, LONE_SEARCH_TOLERANCE = 1, 4, 1e-3
"""How often tables are looked for whose largest block alone outlasts a stage; how many of each stage at once; and how
far the cutting planes go before that."""
LONE_TOLERANCE = 2e-4
"""Where tables have weights, the cutting planes end at this distance at least: they converge slowly then."""


@dataclass(frozen=True)
class FluidSolution:
    """The best multipliers found, the bound they prove, and the fractional choices behind it."""

    bound_s: float
    multipliers: Multipliers
    stage_seconds: Floats
    """[S] stage times of the fluid optimum."""
    choices: Ints
    """[P, T] the option of each table in each of P proposals, named by its block (see Problem.blocks_of_pick)."""
    shares: Floats
    """[P] how the fluid optimum mixes the proposals; sums to 1."""
    lone: tuple[tuple[int, int], ...] = ()
    """(table, stage) for which the stage was held to last as long as the table's largest block."""
    beside: tuple[tuple[int, int], ...] = ()
    """(table, column) for which that was so of the instance that the block loads most, and all that it has."""


def solve_relaxation(
    fluid: Fluid,
    *,
    usable: Bools | None = None,
    headroom: float = 1.0,
    rounds: int = 400,
    tolerance: float = 1e-5,
    lone: Sequence[tuple[int, int]] = (),
    beside: Sequence[tuple[int, int]] = (),
    excess: float | None = None,
    among: int | None = None,
    target_s: float | None = None,
    floors: Floats | None = None,
) -> FluidSolution:
    """Kelley's cutting planes until bound and relaxation differ by `tolerance`, relatively; or, where only that is
    asked, until it is clear whether the bound reaches `target_s`.

    `usable` [B] leaves blocks out and `headroom` below 1 leaves memory free: the result is then no bound of
    the whole problem, but a choice of options that is easier to place. Of the `lone` (table, stage) the stage lasts
    at least as long as the table's largest block, of those `beside` others (table, column) as the instance that such a
    block loads most; more of the former are found where the optimum violates that by more than the `excess`, a share of
    the step, of one table alone if that is given (`among`). `floors` [S] are the seconds that stages take in any case,
    where others than the relaxation's own are to count.
    """
    floors = fluid.floors if floors is None else floors
    master = Master(fluid.problem, fluid.instances, fluid.shared_columns, fluid.capacity * headroom, floors)
    held, proposals = _Held(fluid, master), list[Ints]()
    held.add(lone, beside, proposals)
    multipliers = master.start()
    best_bound, best = -np.inf, multipliers
    ceiling, searches = np.inf, 0 if excess is None else LONE_SEARCHES
    for _ in range(rounds):
        value, choices = fluid.bound(multipliers, usable, headroom, floors)
        if value > best_bound:
            best_bound, best = value, multipliers
        proposals.append(choices)
        seconds, size = fluid.usage(multipliers, choices)
        master.add_cut(seconds, size, held.seconds(choices))
        solved = master.attempt()
        if solved is None:
            break
        multipliers, ceiling = solved[0], solved[1] + float(fluid.problem.stage_constants.sum())
        if target_s is not None and not best_bound < target_s <= ceiling:
            break
        least = LONE_SEARCH_TOLERANCE if searches else LONE_TOLERANCE if held.is_any else 0.0
        if ceiling - best_bound > max(tolerance, least) * abs(best_bound):
            continue
        if not searches:
            break
        found = _too_long(fluid, master, proposals, ceiling * (excess or 0.0), among)
        too_long = [pair for pair in found if pair not in lone]
        searches = searches - 1 if too_long else 0
        held.add(too_long, (), proposals)
        solved = master.attempt()
        if solved is None:
            break
        multipliers = solved[0]
    return _mixture(fluid, master, proposals, best_bound, best)


def _mixture(fluid: Fluid, master: Master, proposals: list[Ints], bound_s: float, best: Multipliers) -> FluidSolution:
    """The best multipliers, with the proposals that the optimum of the last program mixes."""
    shares = master.shares()
    mixed = np.flatnonzero(shares > 1e-9)
    return FluidSolution(
        bound_s,
        best,
        master.stage_seconds() + fluid.problem.stage_constants,
        np.stack([proposals[p] for p in mixed]),
        shares[mixed] / shares[mixed].sum(),
        tuple(best.of_table),
        tuple(best.beside),
    )


class _Held:
    """What stages are held to last as long as: tables' largest blocks, or the instances that these load most."""

    def __init__(self, fluid: Fluid, master: Master) -> None:
        self._fluid, self._master = fluid, master
        self._pairs: list[tuple[int, int, int | None]] = []
        """(table, stage, column), the last for what is beside the block, too."""

    @property
    def is_any(self) -> bool:
        return bool(self._pairs)

    def add(self, lone: Sequence[tuple[int, int]], beside: Sequence[tuple[int, int]], proposals: list[Ints]) -> None:
        """Hold more (table, stage) and (table, column), in all proposals so far, too."""
        stages = self._fluid.problem.stage_of_column
        new: list[tuple[int, int, int | None]] = [(table, stage, None) for table, stage in lone]
        new += [(table, int(stages[column]), column) for table, column in beside]
        known = [self._seconds(new, choices) for choices in proposals]
        for number, (table, stage, column) in enumerate(new):
            self._master.add_table(table, stage, [seconds[number] for seconds in known], column)
        self._pairs += new

    def seconds(self, choices: Ints) -> list[float]:
        """Return what each stage that is held lasts at least under a choice of options."""
        return self._seconds(self._pairs, choices)

    def _seconds(self, pairs: list[tuple[int, int, int | None]], choices: Ints) -> list[float]:
        columns = sorted({column for *_, column in pairs if column is not None})
        of_all = dict(zip(columns, self._fluid.seconds_of_all(choices, columns).tolist(), strict=True))
        return [
            self._fluid.peak(int(choices[table]), table, stage)
            if column is None
            else self._fluid.largest(int(choices[table]), table, column) + of_all[column]
            for table, stage, column in pairs
        ]


def _too_long(
    fluid: Fluid, master: Master, proposals: list[Ints], excess_s: float, among: int | None
) -> list[tuple[int, int]]:
    """(table, stage) of the blocks by which the optimum's stages are most too short, a few of each stage, all by
    more than `excess_s`; those of one table, if that is given."""
    shares = master.shares()
    peaks = np.zeros((fluid.problem.tables, len(fluid.problem.stage_constants)))
    for p in np.flatnonzero(shares > 1e-9).tolist():
        peaks += shares[p] * fluid.peaks_of(proposals[p])
    over = peaks - master.stage_seconds()
    if among is not None:
        over = np.where(np.arange(len(over))[:, None] == among, over, -np.inf)
    too_long = []
    for stage in range(over.shape[1]):
        worst = np.argsort(-over[:, stage], kind="stable")[:LONE_AT_ONCE]
        too_long += [(table, stage) for table in worst.tolist() if over[table, stage] > excess_s]
    return too_long
