"""Rounding of the relaxation: from its fractions to one option per table, and a knapsack that fills scarce memory.

A basic solution of the relaxation is fractional for as few tables as it has rows (Lenstra, Shmoys and Tardos, Math.
Program. 46, 1990): rounding these in turn keeps the totals near. Filling one scarce tier is a multiple-choice knapsack,
solved by dynamic programming (Kellerer, Pferschy and Pisinger, Knapsack Problems, 2004, chapter 11).
"""

import numpy as np

from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.products import product
from planner.solvers.bound.cutting_planes import FluidSolution, solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.infeasible import shortage

OVER = 1e-3
"""Share of a tier by which options may take more than all of it: so much can be repaired when they have places."""
SOLVES = 5
"""Fluid optima for one choice of options at most."""
REPAIR_WORTH = 1e-6
"""Share of a tier that a change must take off what is too much."""
REPAIR_WORK = 1e8
"""Options that are looked at for all changes together: about a second."""
FILL_CELLS = 4096
"""Steps in which the bytes that changes add are counted."""
FILL_CHANGES = 20_000
"""Changes that are looked at: those that are least worse by the duals, where there are more."""
FILL_WORTH = 0.005
"""Share of the step by which an option may be worse, by the duals, than a table's present one."""


def choose(
    fluid: Fluid, usable: Bools, headroom: float, *, is_thorough: bool = True, barred: Bools | None = None
) -> tuple[FluidSolution, Ints] | None:
    """Return the fluid optimum over the `usable` blocks [B] within so much of the memory, and its options made whole.

    Where these take more than there is, as large tables fill what the optimum gave to their parts, some change their
    options; then, where that is to be `is_thorough`, the largest are settled one after the other and the others
    chosen anew. None where nothing fits, or the optimum or what is made of it has a block that is `barred` [B].
    """
    if shortage(fluid, usable, headroom) is not None:
        return None
    best: tuple[FluidSolution, Ints] | None = None
    least_over = np.inf
    solves = SOLVES if is_thorough else 1
    for number in range(solves):
        relaxed = solve_relaxation(fluid, usable=usable, headroom=headroom, tolerance=1e-4)
        if barred is not None and barred[relaxed.choices].any():
            return None
        choices = fill(fluid, relaxed, round_choices(fluid, relaxed), usable, headroom)
        if _over(fluid, relaxed, choices) > OVER:
            choices = repair_choices(fluid, relaxed, choices, usable, headroom)
        over = _over(fluid, relaxed, choices)
        if over < least_over:
            best, least_over = (relaxed, choices), over
        if over <= OVER or number == solves - 1:
            break
        settled = _with_largest_settled(fluid, relaxed, choices, usable, headroom)
        if settled is None:
            break
        usable = settled
    return None if best is not None and barred is not None and barred[best[1]].any() else best


def repair_choices(fluid: Fluid, solution: FluidSolution, choices: Ints, usable: Bools, headroom: float) -> Ints:
    """Return the choices [T], some changed so that they take no more than `headroom` of each memory tier, or less too
    much.

    Always the change that costs least by the duals for what it takes off the tiers that are too full; of clusters with
    one kind of rank.
    """
    if len(fluid.capacity) != 1:
        return choices
    problem, limit = fluid.problem, np.maximum(headroom * fluid.capacity[0], 1.0)[:, None]
    value = fluid.choice_values(solution.multipliers, usable)
    least = np.minimum.reduceat(value, problem.block_start[:-1])
    at_least = np.flatnonzero((value == least[problem.block_option]) & np.isfinite(value))
    candidate = at_least[np.unique(problem.block_option[at_least], return_index=True)[1]]
    table = problem.table_of_block[candidate]
    size = np.stack([fluid.choice_bytes(0, tier) for tier in range(len(limit))])
    repaired, (_, taken) = choices.copy(), fluid.usage(solution.multipliers, choices)
    now = taken[0][:, None]
    for _ in range(min(problem.tables, int(REPAIR_WORK / len(candidate)))):
        over = float(np.maximum(now / limit - 1.0, 0.0).sum())
        after = now + size[:, candidate] - size[:, repaired[table]]
        reduction = over - np.maximum(after / limit - 1.0, 0.0).sum(axis=0)
        worth = np.flatnonzero(reduction > REPAIR_WORTH)
        if over <= 0 or not len(worth):
            break
        cost = np.maximum(value[candidate[worth]] - value[repaired[table[worth]]], 0.0)
        best = int(worth[np.argmin(cost / reduction[worth])])
        repaired[table[best]], now = candidate[best], after[:, best : best + 1]
    return repaired


def _over(fluid: Fluid, relaxed: FluidSolution, choices: Ints) -> float:
    """Return the largest share of a tier by which the choices take more than all of it."""
    _, taken = fluid.usage(relaxed.multipliers, choices)
    return float((taken / np.maximum(fluid.capacity, 1.0)).max()) - 1.0


def _with_largest_settled(
    fluid: Fluid, relaxed: FluidSolution, choices: Ints, usable: Bools, headroom: float
) -> Bools | None:
    """Return the `usable` blocks [B] without those that the largest undecided table has beside its choice; or, where
    that leaves no room for the others, without its choice. None where all is decided."""
    problem = fluid.problem
    undecided = np.flatnonzero((relaxed.choices != relaxed.choices[0]).any(axis=0))
    if not len(undecided):
        return None
    largest = undecided[int(np.argmax([_size(fluid, relaxed, int(table)) for table in undecided]))]
    choice = int(choices[largest])
    of_table = problem.table_of_block == largest
    own = np.isin(np.arange(len(usable)), problem.blocks_of_choice(choice))
    for settled in (usable & (~of_table | own), usable & ~own):
        if shortage(fluid, settled, headroom) is None:
            return np.asarray(settled)
    return None


def _size(fluid: Fluid, relaxed: FluidSolution, table: int) -> float:
    """Return the largest share of a tier that the table takes under an option that the optimum mixes for it."""
    options, _ = _mixture(relaxed, table)
    totals = fluid.choice_totals(options, relaxed.multipliers).reshape(len(options), len(fluid.capacity), -1)
    stored = totals[:, :, -fluid.capacity.shape[1] :]
    return float((stored / np.maximum(fluid.capacity, 1.0)).max())


def round_choices(fluid: Fluid, solution: FluidSolution) -> Ints:
    """Return one choice [T] per table, so that the totals stay near the fluid optimum's.

    Almost every table has the same option in all proposals and keeps it. The others are decided one after the other,
    the heaviest first; each takes, of the options that the optimum mixes for it, the one that keeps the running
    totals (seconds by column, bytes by tier) nearest to those of the fractions.
    """
    agreed: Ints = solution.choices[0].copy()
    undecided = np.flatnonzero((solution.choices != agreed).any(axis=0))
    if not len(undecided):
        return agreed
    scale = _scale(fluid, solution)
    mixtures = [_mixture(solution, int(table)) for table in undecided]
    vectors = [fluid.choice_totals(options, solution.multipliers) * scale for options, _ in mixtures]
    weight = [float(np.abs(vector).max()) for vector in vectors]
    drift = np.zeros(len(scale))
    for i in sorted(range(len(undecided)), key=lambda i: (-weight[i], i)):
        options, shares = mixtures[i]
        wanted = drift - product(shares, vectors[i])
        off = ((wanted + vectors[i]) ** 2).sum(axis=1)
        taken = int(off.argmin())
        drift = wanted + vectors[i][taken]
        agreed[undecided[i]] = options[taken]
    return agreed


def _mixture(solution: FluidSolution, table: int) -> tuple[Ints, Floats]:
    """Return the options that the optimum mixes for a table, and their shares."""
    options, which = np.unique(solution.choices[:, table], return_inverse=True)
    shares: Floats = np.bincount(which, weights=solution.shares).astype(float)
    return options, shares


def _scale(fluid: Fluid, solution: FluidSolution) -> Floats:
    """Return what makes totals comparable [K x (C + M)]: seconds by the stage's time, bytes by the tier's capacity."""
    problem = fluid.problem
    stage = np.maximum(solution.stage_seconds - problem.stage_constants, 1e-12)[problem.stage_of_column]
    seconds = 1.0 / (stage * np.maximum(fluid.instances, 1.0))
    size = 1.0 / np.maximum(fluid.capacity, 1.0)
    return np.concatenate([seconds, size], axis=1).ravel()


def fill(fluid: Fluid, solution: FluidSolution, choices: Ints, usable: Bools, headroom: float) -> Ints:
    """Return the choices [T], some changed so that the one memory tier that is scarce is filled as well as tables can.

    A knapsack: the least seconds by the duals, of options that are nearly as good as each table's best one, in no more
    than `headroom` of the memory. By dynamic programming over the bytes that changes add; the choices stay where more
    or fewer tiers than one are scarce, and where ranks differ.
    """
    scarce = np.argwhere(solution.multipliers.byte > 0)
    if len(scarce) != 1 or len(fluid.capacity) != 1:
        return choices
    tier = int(scarce[0, 1])
    multiplier = float(solution.multipliers.byte[0, tier])
    choice, more_s, more_bytes = _changes(fluid, solution, choices, usable, tier)
    _, taken = fluid.usage(solution.multipliers, choices)
    budget = headroom * float(fluid.capacity[0, tier]) - float(taken[0, tier])
    reach = float(np.abs(more_bytes).max(initial=0.0)) + abs(budget)
    if not len(choice) or reach <= 0:
        return choices
    cell = 2 * reach / FILL_CELLS
    step = np.ceil(more_bytes / cell).astype(np.int64)
    cost = more_s - multiplier * more_bytes
    middle = FILL_CELLS // 2
    least = np.full(FILL_CELLS + 1, np.inf)
    least[middle] = 0.0
    table = fluid.problem.table_of_block[choice]
    tables, first = np.unique(table, return_index=True)
    last = [*first[1:].tolist(), len(choice)]
    chosen = np.zeros((len(tables), FILL_CELLS + 1), dtype=np.min_scalar_type(np.bincount(table).max()))
    for n, (begin, end) in enumerate(zip(first.tolist(), last, strict=True)):
        before = least.copy()
        for number, i in enumerate(range(begin, end), start=1):
            by = int(step[i])
            source, target = slice(max(-by, 0), len(least) - max(by, 0)), slice(max(by, 0), len(least) - max(-by, 0))
            with_it = before[source] + cost[i]
            better = with_it < least[target]
            np.copyto(least[target], with_it, where=better)
            np.copyto(chosen[n, target], number, where=better)
    at = int(np.floor(budget / cell)) + middle
    if not np.isfinite(least[: at + 1]).any():
        return choices
    at = int(least[: at + 1].argmin())
    filled = choices.copy()
    for n in range(len(tables) - 1, -1, -1):
        if chosen[n, at]:
            i = int(first[n]) + int(chosen[n, at]) - 1
            filled[tables[n]] = choice[i]
            at -= int(step[i])
    _, size = fluid.usage(solution.multipliers, filled)
    return filled if (size <= np.maximum(headroom * fluid.capacity, taken)).all() else choices


def _changes(
    fluid: Fluid, solution: FluidSolution, choices: Ints, usable: Bools, tier: int
) -> tuple[Ints, Floats, Floats]:
    """Return of every other option of a table its cheapest choice [n], by table, if it is nearly as good as the table's
    present one, of very many the best ones; the seconds [n] by which it is worse by the duals, and the bytes [n] by
    which it is larger."""
    problem = fluid.problem
    value = fluid.choice_values(solution.multipliers, usable)
    least = np.minimum.reduceat(value, problem.block_start[:-1])
    at_least = np.flatnonzero((value == least[problem.block_option]) & np.isfinite(value))
    choice = at_least[np.unique(problem.block_option[at_least], return_index=True)[1]]
    table = problem.table_of_block[choice]
    more_s = value[choice] - value[choices[table]]
    is_other = problem.block_option[choice] != problem.block_option[choices[table]]
    near = is_other & (more_s <= FILL_WORTH * solution.bound_s)
    if near.sum() > FILL_CHANGES:
        near &= more_s <= np.sort(more_s[near])[FILL_CHANGES - 1]
    choice, more_s = choice[near], more_s[near]
    size = fluid.choice_bytes(0, tier)
    return choice, more_s, size[choice] - size[choices[problem.table_of_block[choice]]]
