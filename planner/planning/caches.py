"""Which cache sizes are tried: shares of each table's own, where HBM is scarce.

Whatever is cached competes for the same bytes of HBM, so at the optimum the next byte saves as much in every table.
The multipliers of the fluid relaxation say how much that is. From coarse shares, the same for all tables, come first
ones; at these each table has its best share, and shares at several times the multiplier of HBM stand beside it for what
multipliers do not see: whole tables on single ranks. The relaxation over these gives new multipliers, until its bound
stops falling. This is column generation (Gilmore & Gomory 1961) over a continuous choice.
"""

import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from cost_models.elementary import power
from cost_models.model import CostModel
from cost_models.shards import (
    HBM,
    MEMORY_HBM,
    PLACEMENT_TIERS,
    SIZED_BY_PLAN,
    TABLE_WISE,
    Blocks,
    Floats,
    PlacementTier,
)
from planner.certificates.multipliers import Multipliers
from planner.formulation.formulation import Formulation
from planner.formulation.options import CacheFractions, Options, coarse_fractions, costs_of
from planner.problem.integrality import integrality_floors
from planner.problem.numbers import Bools
from planner.solvers.bound.cutting_planes import FluidSolution, solve_relaxation
from planner.solvers.bound.fluid import Fluid
from planner.solvers.bound.infeasible import shortage

ROOMY = 0.9
"""Share of HBM up to which whole tables may take it before its dual multiplier is asked for."""
LEAST_FRACTION = 1e-4
GRID = np.geomspace(LEAST_FRACTION, 1.0, 33)
"""Shares at which a curve is looked at first: four decades, a third apart."""
SMALL = (0.0002, 0.002)
"""Shares that are tried where the usual ones do not fit."""
FEW = (0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.55, 0.8)
"""Shares that are tried where tables have several variants, which have too many options with shares of their own. The
search then does not get far (docs/decisions/0067-caches-of-variants.md). Once all is placed, the memory is divided anew
in any case (`cache_division`)."""
LEVELS, POINTS = 2, 9
"""Then so often as many points between the neighbours of the best one: down to 2 % of a share."""
FACTORS = ((0.25, 1.0, 4.0), (0.5, 1.0, 2.0), (0.7, 1.0, 1.4))
"""Multiples of the dual multiplier of HBM that shares are found for, round by round."""
LARGE_ROUNDS, LARGE_BLOCKS = 2, 200_000
"""Rounds of a problem with so many block types: most of a round enumerates them again."""
CONVERGED = 1e-4
"""Relative fall of the bound below which the rounds end."""
COMPETES = 1.2
"""A table whose cheapest option costs less than its cached one by more than this factor gets one share only."""
DIGITS = 3
"""Significant digits of a share."""
ALIKE = 1.02
"""Shares nearer to each other than this factor count as one."""


def with_own_fractions(
    formulation: Formulation,
    more: CacheFractions | None = None,
    has_time: Callable[[float], bool] = lambda _: True,
) -> Formulation:
    """The formulation with cache shares of each table's own; unchanged where HBM is not scarce.

    `more` are shares that are to be options in any case. `has_time` is asked before each round whether there
    is time for one that takes as many seconds as the last.
    """
    own = _own_fractions(formulation, has_time)
    if own is None and more is None:
        return formulation
    own = coarse_fractions(formulation.model) if own is None else own
    return formulation.with_fractions(own if more is None else merged(own, more))


def _own_fractions(formulation: Formulation, has_time: Callable[[float], bool]) -> CacheFractions | None:
    """None where the shares stay as they are: HBM is not scarce, nothing is cached or fits, or there is no time. A few
    of each variant where these are chosen."""
    model = formulation.options.costed(formulation.model)
    tiers = _resizable_tiers(formulation)
    if not tiers or not has_time(0.0) or _is_roomy(formulation):
        return None
    variants = formulation.options.choices.variants
    if variants is not None and variants.has_choice:
        return merged(coarse_fractions(model), _alike(model, tiers, FEW))
    fluid, own = _fluid(formulation), None
    if shortage(fluid) is not None:
        own = merged(coarse_fractions(model), _alike(model, tiers, SMALL))
        formulation = formulation.with_fractions(own)
        fluid = _fluid(formulation)
        if shortage(fluid) is not None:
            return None
    curves = {tier: _Curve(formulation, tier) for tier in tiers}
    before_s = np.inf
    is_large = len(formulation.problem.block_option) > LARGE_BLOCKS
    began, lasted_s = time.monotonic(), 0.0
    for factors in FACTORS[:LARGE_ROUNDS] if is_large else FACTORS:
        began, lasted_s = time.monotonic(), time.monotonic() - began
        if not has_time(lasted_s):
            break
        relaxed = solve_relaxation(fluid, tolerance=CONVERGED)
        is_settled = relaxed.bound_s > before_s * (1 - CONVERGED)
        if is_settled or not (relaxed.multipliers.byte[:, MEMORY_HBM].any() or _caches(formulation, relaxed)):
            break
        before_s = relaxed.bound_s
        own = merged(coarse_fractions(model), _next_fractions(fluid, relaxed, formulation.options, curves, factors))
        formulation = formulation.with_fractions(own)
        fluid = _fluid(formulation)
    return own


def _fluid(formulation: Formulation) -> Fluid:
    return Fluid(formulation.problem, integrality_floors(formulation.problem))


def _alike(model: CostModel, tiers: Sequence[PlacementTier], shares: Sequence[float]) -> CacheFractions:
    """The same shares of all tables."""
    return {tier: np.tile(np.array(shares), (len(model.tables.rows), 1)) for tier in tiers}


def _resizable_tiers(formulation: Formulation) -> list[PlacementTier]:
    """Cached tiers that some table may use, and of which the cost model leaves the share open."""
    model, problem = formulation.model, formulation.problem
    usable = np.unique(formulation.tiers_of(np.flatnonzero(problem.allowed.any(axis=0))))
    names = [PLACEMENT_TIERS[code] for code in usable.tolist()]
    return [tier for tier in names if tier in SIZED_BY_PLAN and tier not in model.cache_fractions]


def _caches(formulation: Formulation, relaxed: FluidSolution) -> bool:
    """Whether the relaxation takes an option with a cache."""
    taken = formulation.problem.block_option[relaxed.choices]
    return bool((formulation.options.cache_fraction[taken] > 0).any())


def _is_roomy(formulation: Formulation) -> bool:
    """Whether all tables fit into HBM with some room left, and may be there."""
    options, problem = formulation.options, formulation.problem
    choices, model = options.choices.of_variants(), options.costed(formulation.model)
    if not choices.tiers[:, HBM].all():
        return False
    every = np.arange(len(model.tables.rows))
    in_hbm, uncached = np.full_like(every, HBM), np.zeros(len(every))
    whole = Blocks(every, np.full_like(every, TABLE_WISE), in_hbm, model.tables.dim, uncached)
    size = np.max([_total_hbm(model, whole, kind) for kind in range(problem.kinds)], axis=0)
    if options.choices.variants is not None:
        size = np.maximum.reduceat(size, options.choices.variants.first)
    room = (problem.pool_capacity[MEMORY_HBM] - problem.base_bytes[MEMORY_HBM])[problem.reach].sum()
    return bool(size.sum() <= ROOMY * room)


def _total_hbm(model: CostModel, blocks: Blocks, kind: int) -> Floats:
    memory = model.block_memory(blocks, kind)
    return np.asarray((memory.fixed + memory.by_rows)[:, MEMORY_HBM])


def _next_fractions(
    fluid: Fluid,
    relaxed: FluidSolution,
    options: Options,
    curves: Mapping[PlacementTier, "_Curve"],
    factors: tuple[float, ...],
) -> dict[PlacementTier, Floats]:
    """[P, n] shares of each tier: those that the relaxation takes, and the best ones at its multipliers."""
    problem = fluid.problem
    table = options.table_of_profile
    cheapest = fluid.price(relaxed.multipliers)[0][table]
    taken = problem.block_option[relaxed.choices[:, table]]
    is_own = options.profile[taken] == np.arange(len(table))
    shares = {}
    for tier, curve in curves.items():
        in_tier = is_own & (options.tier[taken] == PLACEMENT_TIERS.index(tier))
        taken_shares = np.where(in_tier, options.cache_fraction[taken], np.nan).T
        best, value = curve.best(relaxed.multipliers, factors)
        best[value > COMPETES * cheapest] = best[value > COMPETES * cheapest][:, [factors.index(1.0)]]
        shares[tier] = _distinct(np.concatenate([taken_shares, best], axis=1))
    return shares


class _Curve:
    """What a cached table costs as its share grows: seconds that fall, bytes that rise. P profiles: of tables, or of
    their variants where these are chosen."""

    def __init__(self, formulation: Formulation, tier: PlacementTier) -> None:
        options = formulation.options
        self._model, self._problem = options.costed(formulation.model), formulation.problem
        self._table, variants = options.table_of_profile, options.choices.variants
        self._dtype = None if variants is None else variants.dtype
        self._memories = len(formulation.problem.pool_capacity) - (variants is not None)  # but for the budget of losses
        self._code = PLACEMENT_TIERS.index(tier)
        grid = np.tile(GRID, (len(self._table), 1))
        self._grid = [self._costs(grid, kind) for kind in range(self._problem.kinds)]

    def best(self, multipliers: Multipliers, factors: tuple[float, ...]) -> tuple[Floats, Floats]:
        """The cheapest share of each profile [P, F x K] at each multiple of the multiplier of HBM, and on each kind of
        rank; and [P] what the cheapest one costs at the multipliers themselves."""
        cheapest, least = [], np.full(len(self._table), np.inf)
        for kind in range(self._problem.kinds):
            weight, byte = self._multipliers(multipliers, kind)
            values = _valued(self._grid[kind], weight, byte, 1.0)
            least = np.minimum(least, values.min(axis=1))
            for factor in factors:
                fraction = self._refined(kind, weight, byte, factor)
                cheapest.append(fraction)
        return _rounded(np.stack(cheapest, axis=1)), least

    def _refined(self, kind: int, weight: Floats, byte: Floats, factor: float) -> Floats:
        """[P]"""
        every = np.arange(len(self._table))
        grid = np.tile(GRID, (len(every), 1))
        at = _valued(self._grid[kind], weight, byte, factor).argmin(axis=1)
        for _ in range(LEVELS):
            low, high = grid[every, np.maximum(at - 1, 0)], grid[every, np.minimum(at + 1, grid.shape[1] - 1)]
            grid = low[:, None] * power((high / low)[:, None], np.linspace(0.0, 1.0, POINTS))
            at = _valued(self._costs(grid, kind), weight, byte, factor).argmin(axis=1)
        return np.asarray(grid[every, at])

    def _costs(self, fractions: Floats, kind: int) -> tuple[Floats, Floats]:
        """Seconds [P, G, C] and bytes [P, G, M] of whole tables on one rank with these shares [P, G]."""
        tables, points = fractions.shape
        table = np.repeat(np.arange(tables), points)
        blocks = Blocks(
            table,
            np.full_like(table, TABLE_WISE),
            np.full_like(table, self._code),
            self._model.tables.dim[table],
            fractions.ravel(),
            None if self._dtype is None else self._dtype[table],
        )
        costs = costs_of(self._model, blocks, kind)
        seconds, size = costs.fixed + costs.by_rows, costs.bytes_fixed + costs.bytes_by_rows
        return seconds.reshape(tables, points, -1), size.reshape(tables, points, -1)

    def _multipliers(self, multipliers: Multipliers, kind: int) -> tuple[Floats, Floats]:
        """[P, C] and [P, M] what a second and a byte cost each profile on ranks of a kind."""
        problem = self._problem
        sets = range(len(problem.rank_sets))
        weight = np.stack(
            [problem.capacity_regions.of_set(multipliers.weight, number, problem.kinds)[kind] for number in sets]
        )
        byte = np.stack(
            [problem.capacity_regions.of_set(multipliers.byte, number, problem.kinds)[kind] for number in sets]
        )
        rank_set = problem.table_rank_set[self._table]
        return weight[rank_set], byte[rank_set, : self._memories]


def _valued(costs: tuple[Floats, Floats], weight: Floats, byte: Floats, factor: float) -> Floats:
    """[P, G] with HBM at a multiple of its dual multiplier."""
    seconds, size = costs
    scaled = byte.copy()
    scaled[:, MEMORY_HBM] *= factor
    return np.asarray(np.einsum("tgc,tc->tg", seconds, weight) + np.einsum("tgm,tm->tg", size, scaled))


def _rounded(fractions: Floats) -> Floats:
    """To significant digits, within the limits."""
    scale = 10.0 ** (DIGITS - 1 - np.floor(np.log10(fractions)))
    return np.clip(np.round(np.round(fractions * scale) / scale, 12), LEAST_FRACTION, 1.0)


def merged(shares: CacheFractions, others: CacheFractions) -> CacheFractions:
    """The shares of both, tier by tier; every one of the other."""
    both_of_tier = dict(shares)
    for tier, more in others.items():
        both = np.concatenate([shares[tier], more], axis=1) if tier in shares else more
        both_of_tier[tier] = _packed(np.sort(both, axis=1), np.diff(np.sort(both, axis=1), axis=1) != 0)
    return both_of_tier


def _distinct(fractions: Floats) -> Floats:
    """[T, n'] ascending, without those of [T, n] that are nearly the one before; NaN is none."""
    ordered = np.sort(fractions, axis=1)
    return _packed(ordered, ordered[:, 1:] > ordered[:, :-1] * ALIKE)


def _packed(ordered: Floats, is_new: Bools) -> Floats:
    """The ascending shares whose difference to the one before `is_new`, in as few columns as possible."""
    keeps = np.concatenate([np.ones((len(ordered), 1), dtype=bool), is_new], axis=1)
    packed = np.sort(np.where(keeps, ordered, np.nan), axis=1)
    return packed[:, : max(1, int((~np.isnan(packed)).sum(axis=1).max(initial=0)))]
