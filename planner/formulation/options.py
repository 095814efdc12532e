"""Every legal way to hold each table, and the planning problem made of them."""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from cost_models.cost_arrays import BlockCosts
from cost_models.model import CostModel
from cost_models.shards import (
    DATA_PARALLEL,
    MEMORY_HBM,
    PLACEMENT_TIERS,
    SIZED_BY_PLAN,
    TIERS,
    Blocks,
    Floats,
    Ints,
    PlacementTier,
)
from planner.formulation.allowed_choices import AllowedChoices, allowed_states
from planner.formulation.block_types import BlockTypes, block_types
from planner.formulation.choice_rules import allowed_choices
from planner.formulation.option_space import EVERY_CUT, EVERY_CUT_IN_HBM, FEW_CUTS, MOST_UNITS, Cuts, Space
from planner.formulation.policy import Policy
from planner.formulation.sites import has_place, sites_on
from planner.problem.arrays import Problem
from planner.problem.goals import HbmMemories
from planner.problem.numbers import Bools

MOST_BLOCKS = ((EVERY_CUT, 4_000), (EVERY_CUT_IN_HBM, 40_000))
"""Block types of a space up to which it is searched; above them one with fewer cuts."""
CACHE_FRACTIONS: dict[PlacementTier, tuple[float, ...]] = {name: tier.cache_fractions for name, tier in TIERS.items()}
"""Cache sizes, in shares of a table's rows, that are tried, where a table has none of its own."""

CacheFractions = Mapping[PlacementTier, Floats]
"""The shares [T, n] of each table's rows that are tried, by tier; NaN where a table has fewer than n. Where variants
are chosen, those of each variant [V, n]."""


@dataclass(frozen=True)
class Options:
    """The options of all tables as arrays, and their block types. O options, B block types."""

    table: Ints
    """[O] ascending."""
    tier: Ints
    """[O]"""
    cache_fraction: Floats
    """[O]"""
    dtype: Ints
    """[O] index into DTYPES of the stored format."""
    state: Ints
    """[O] index into STATE_PLACES: where the optimizer state is."""
    units: Ints
    """[O] column units that the blocks of a splittable option tile; 0 for a fixed one."""
    block_option: Ints
    """[B] ascending."""
    block_sharding: Ints
    """[B] in a splittable option table_wise for the whole width and column_wise for a part."""
    block_columns: Ints
    """[B]"""
    block_count: Ints
    """[B] of a fixed option; 1 in a splittable one."""
    block_units: Ints
    """[B] width in the units of a splittable option, ascending; 0 in a fixed one."""
    choices: AllowedChoices
    """What the options keep to."""
    cuts: Cuts
    """Which column cuts are among them."""
    block_usual: Bools
    """[B] whether the block is among few cuts, too: starts of a search keep to these, where a table has any."""
    block_rows: Ints
    """[B] rows of the block: the table's, or its part of them where the rows are cut into parts on several sites."""
    block_holders: Ints
    """[B] ranks that hold all parts of the rows together, where they are cut so; else 0."""
    fractions: CacheFractions | None = None
    """Cache sizes that are tried; None where these are the same few of every table."""
    variant: Ints | None = None
    """[O] the variant of the table, of those of the choices; None where there is no choice."""

    @property
    def profile(self) -> Ints:
        """[O] the table of the `costed` model that the option is of."""
        return self.table if self.variant is None else self.variant

    @property
    def table_of_profile(self) -> Ints:
        """[P] the table of each profile."""
        variants = self.choices.variants
        return np.arange(len(self.choices.tiers)) if variants is None else variants.table

    def costed(self, model: CostModel) -> CostModel:
        """The model with everything for a table that a table may become."""
        return self.choices.costed(model)

    @property
    def blocks(self) -> Blocks:
        """The block types as the `costed` model takes them."""
        of = self.block_option
        return Blocks(
            self.profile[of],
            self.block_sharding,
            self.tier[of],
            self.block_columns,
            self.cache_fraction[of],
            self.dtype[of],
            self.state[of] if self.state.any() else None,
            self.block_holders if self.block_holders.any() else None,
        )


def coarse_fractions(model: CostModel) -> dict[PlacementTier, Floats]:
    """The shares that are tried of every table alike."""
    tables = len(model.tables.rows)
    shares = {tier: model.cache_fractions.get(tier, CACHE_FRACTIONS[tier]) for tier in PLACEMENT_TIERS}
    return {tier: np.tile(np.array(of_tier), (tables, 1)) for tier, of_tier in shares.items()}


def fixed_fractions(fractions: CacheFractions, choices: AllowedChoices) -> CacheFractions:
    """The shares that are left where the policy fixes those of some tables; of caches of full precision, those that it
    names."""
    fixed = ~np.isnan(choices.cache_fraction)
    left = {**fractions, "hbm_mixed": choices.precision_caches}
    if not fixed.any():
        return left
    for tier in SIZED_BY_PLAN:
        only = np.where(fixed[:, None], np.nan, fractions[tier])
        only[fixed, 0] = choices.cache_fraction[fixed]
        left[tier] = only
    return left


def enumerate_options(
    model: CostModel, policy: Policy | AllowedChoices, fractions: CacheFractions | None = None, cuts: Cuts | None = None
) -> Options:
    """All options that the policy allows, table by table. Raises InputError for a policy that contradicts itself.

    `fractions` are the cache sizes that are tried, for all tiers, of each table, or of each of its variants where the
    policy names some; None: the same few of every one. `cuts` are the column cuts that are options; None: as many as
    can be searched.

    A table on single ranks is one splittable option per tier and cache size: any widths that tile its columns, from
    table_wise to narrow column_wise blocks; where the policy limits its parts to few, the whole table and each
    partition are options of their own. table_column_wise is column_wise with its blocks held on one node, at the
    same cost: it is only enumerated where the policy forbids column_wise. Where ranks have copies of a table, it
    is whole, or cut into 2, 4 or 8 equal column blocks, each an option of its own.
    """
    choices = policy if isinstance(policy, AllowedChoices) else allowed_choices(model, policy)
    if (variants := choices.variants) is not None:
        found = enumerate_options(variants.costed(model), choices.of_variants(), fractions, cuts)
        return replace(found, table=variants.table[found.table], variant=found.table, choices=choices)
    if cuts is not None:
        return _Parts(Space(model, choices, cuts), fractions).options()
    for cuts, most_blocks in MOST_BLOCKS:
        space = Space(model, choices, cuts)
        if len(model.tables.rows) <= most_blocks and space.units.max(initial=0) <= MOST_UNITS:
            parts = _Parts(space, fractions, most_blocks)
            if parts.blocks <= most_blocks:
                return parts.options()
    return _Parts(Space(model, choices, FEW_CUTS), fractions).options()


class _Parts:
    """The block types of a space, one way to cut and hold tables after the other."""

    def __init__(self, space: Space, fractions: CacheFractions | None, most_blocks: float = math.inf) -> None:
        """More than `most_blocks` are not completed."""
        self._space, self._fractions = space, fractions
        # The policy may allow nothing.
        none = np.zeros(0, dtype=np.int64)
        self._parts = [BlockTypes(none, none, none, none, none, none.astype(bool), none, none)]
        self._ways: list[tuple[int, Floats, int, int]] = [(0, np.zeros(len(space.model.tables.rows)), 0, 0)]
        self.blocks = 0
        tried = coarse_fractions(space.model) if fractions is None else fractions
        tried = fixed_fractions(tried, space.choices)
        for code, tier in enumerate(PLACEMENT_TIERS):
            self._add_tier(code, tried[tier])
            if self.blocks > most_blocks:
                return

    def _add_tier(self, code: int, tried: Floats) -> None:
        """Add the block types of a tier, for each of the shares `tried` [T, n], formats and places of the state."""
        choices, variants = self._space.choices, block_types(self._space, code)
        if not variants:
            return
        dtypes, states = np.flatnonzero(choices.dtypes.any(axis=0)).tolist(), allowed_states(choices, code)
        places = np.flatnonzero(states.any(axis=0)).tolist()
        for of_table, dtype, state in itertools.product(tried.T, dtypes, places):
            kept = ~np.isnan(of_table) & choices.dtypes[:, dtype] & states[:, state]
            added = [variant.of_tables(kept) for variant in variants]
            self._parts += added
            self._ways += [(code, of_table, dtype, state)] * len(variants)
            self.blocks += sum(len(part.table) for part in added)

    def options(self) -> Options:
        """Return all of them, table by table."""
        space, parts = self._space, self._parts
        number = np.repeat(np.arange(len(parts)), [len(part.table) for part in parts])
        table, units = (np.concatenate(values) for values in zip(*((p.table, p.units) for p in parts), strict=True))
        order = np.lexsort((units, number, table))
        number = number[order]
        # One after the other: of very many block types every copy touches memory.
        table, sharding, columns, count, units, usual, rows, holders = (
            np.concatenate(values)[order] for values in zip(*parts, strict=True)
        )
        opens = np.ones(len(table), dtype=bool)
        opens[1:] = (table[1:] != table[:-1]) | (number[1:] != number[:-1])
        first = np.flatnonzero(opens)
        tier_of, fraction_of, dtype_of, state_of = (np.array(values) for values in zip(*self._ways, strict=True))
        return Options(
            table=table[first],
            tier=tier_of[number[first]],
            cache_fraction=fraction_of[number[first], table[first]],
            dtype=dtype_of[number[first]],
            state=state_of[number[first]],
            units=np.where(units[first] > 0, space.units[table[first]], 0),
            block_option=np.cumsum(opens) - 1,
            block_sharding=sharding,
            block_columns=columns,
            block_count=count,
            block_units=units,
            choices=space.choices,
            cuts=space.cuts,
            block_usual=usual,
            block_rows=rows,
            block_holders=holders,
            fractions=self._fractions,
        )


def build_problem(model: CostModel, options: Options) -> Problem:
    """The arrays that a solver works on."""
    return within_capacity(uncapped_problem(model, options))


def within_capacity(problem: Problem) -> Problem:
    """The problem without the blocks that fit on no empty hardware that may hold them."""
    fits_alone = (problem.extremes.pool_demand <= 1).all(axis=2)
    return replace(problem, allowed=problem.allowed & fits_alone & has_place(problem))


def uncapped_problem(model: CostModel, options: Options) -> Problem:
    """`build_problem` with the blocks that are too large for the hardware still allowed."""
    blocks, model = options.blocks, options.costed(model)
    costs = [costs_of(model, blocks, kind) for kind in range(model.kind_count)]
    columns, hbm_again = model.columns, [MEMORY_HBM] * (2 * model.stashes)
    colocated = np.array(model.node_colocated_shardings)
    opens = np.searchsorted(options.block_option, np.arange(len(options.table)))
    of_part, of_parts = _parts_of_rows(model, options)
    problem = Problem(
        kind_of_rank=model.kind_of_rank,
        node_of_rank=model.node_of_rank,
        sites=sites_on(model.node_of_rank, model.extents),
        copies_apart=model.copies_apart,
        stage_of_column=np.array([column.stage for column in columns], dtype=np.int64),
        resource_of_rank=np.stack([model.resource_of_rank(column.resource) for column in columns]),
        stage_constants=model.constants,
        base_loads=model.base_loads,
        pool_of_rank=np.stack([*model.memory_pool_of_rank, *(model.memory_pool_of_rank[m] for m in hbm_again)]),
        pool_capacity=(*model.memory_capacity, *(model.memory_capacity[m] for m in hbm_again)),
        base_bytes=np.append(model.base_bytes, [model.returned_memory(blocks)[0], 0.0] if hbm_again else []),
        table_rows=_rows_of_tables(model, options),
        option_table=options.table,
        option_units=options.units,
        option_colocated=np.isin(options.block_sharding[opens], colocated) & (options.units == 0),
        option_apart=options.block_holders[opens] > 0,
        block_option=options.block_option,
        block_count=options.block_count,
        block_units=options.block_units,
        block_usual=options.block_usual,
        block_extent=model.extent_of(blocks.table, blocks.sharding),
        block_replicated=blocks.sharding == DATA_PARALLEL,
        block_copies=model.copies[blocks.table],
        block_rows=options.block_rows,
        fixed=_of_kinds([cost.fixed for cost in costs]),
        by_rows=_of_kinds([_unless_one(np.multiply, cost.by_rows, of_part) for cost in costs]),
        everywhere=_of_kinds([_unless_one(np.divide, cost.everywhere, of_parts) for cost in costs]),
        bytes_fixed=_of_kinds([cost.bytes_fixed for cost in costs]),
        bytes_by_rows=_of_kinds([_unless_one(np.multiply, cost.bytes_by_rows, of_part) for cost in costs]),
        allowed=np.stack([cost.supported for cost in costs]) & _within_parts(model, options),
        rank_sets=options.choices.rank_sets,
        table_rank_set=options.choices.table_rank_set,
        affinity_groups=options.choices.together,
        anti_affinity_groups=options.choices.apart,
    )
    return problem if options.choices.variants is None else _within_budget(problem, model, options)


def costs_of(model: CostModel, blocks: Blocks, kind: int) -> BlockCosts:
    """The costs of each block on a kind of rank, with the memories of a problem: where tables may be stashed, HBM twice
    more, for the moment when everything is back, and for what is stashed of it."""
    costs = model.block_costs(blocks, kind)
    if not model.stashes:
        return costs
    _, fixed, by_rows = model.returned_memory(blocks)
    return replace(
        costs,
        bytes_fixed=np.column_stack([costs.bytes_fixed, fixed, 0.0 * fixed]),
        bytes_by_rows=np.column_stack([costs.bytes_by_rows, by_rows, by_rows - costs.bytes_by_rows[:, MEMORY_HBM]]),
    )


def hbm_of(model: CostModel) -> HbmMemories:
    """The memories of a problem that are HBM."""
    returned = len(model.memories)
    return HbmMemories((MEMORY_HBM, returned), returned + 1) if model.stashes else HbmMemories()


def _of_kinds(parts: list[Floats]) -> Floats:
    """[K, ...] an array of each kind of rank as one, which is not copied where there is one kind: it is large."""
    return parts[0][None] if len(parts) == 1 else np.stack(parts)


def _unless_one(operation: np.ufunc, values: Floats, by: Floats) -> Floats:
    """[B, n] `values` multiplied or divided `by` [B, 1]; themselves where that is 1 everywhere."""
    return values if (by == 1).all() else np.asarray(operation(values, by))


def _within_budget(problem: Problem, costed: CostModel, options: Options) -> Problem:
    """The problem with the budget of losses as one more memory, of which all ranks have one pool: a table takes of it,
    in the parts that its blocks and their ranks hold, what its variant loses. What loses more alone is not allowed:
    in parts it would fit, and relaxations mix them."""
    variants = options.choices.variants
    assert variants is not None
    blocks, of_part = options.blocks, _parts_of_rows(costed, options)[0][:, 0]
    of_table = variants.beyond_least[blocks.table] / variants.unit
    loss = of_table * blocks.columns / costed.tables.dim[blocks.table] * of_part / problem.block_copies
    loss = np.where(problem.block_replicated, loss / problem.world, loss)
    by_rows = np.tile(loss[None, :, None], (problem.kinds, 1, 1))
    return replace(
        problem,
        allowed=problem.allowed & variants.is_affordable[blocks.table],
        pool_of_rank=np.vstack([problem.pool_of_rank, np.zeros((1, problem.world), dtype=np.int64)]),
        pool_capacity=(*problem.pool_capacity, np.array([variants.capacity])),
        base_bytes=np.append(problem.base_bytes, 0.0),
        bytes_fixed=np.concatenate([problem.bytes_fixed, np.zeros_like(by_rows)], axis=2),
        bytes_by_rows=np.concatenate([problem.bytes_by_rows, by_rows], axis=2),
    )


def exchange_seconds(model: CostModel, options: Options) -> tuple[Floats, Floats, Floats]:
    """[K, B, C] each of the three parts of what blocks exchange at the lines of a model."""
    model = options.costed(model)
    costs = [model.exchange_costs(options.blocks, kind) for kind in range(model.kind_count)]
    of_part, of_parts = _parts_of_rows(model, options)
    return (
        _of_kinds([cost.fixed for cost in costs]),
        _of_kinds([_unless_one(np.multiply, cost.by_rows, of_part) for cost in costs]),
        _of_kinds([_unless_one(np.divide, cost.everywhere, of_parts) for cost in costs]),
    )


def _rows_of_tables(costed: CostModel, options: Options) -> Ints:
    """[T] rows of each table; of several variants, those of the first."""
    rows, variants = costed.tables.rows, options.choices.variants
    return rows if variants is None else rows[variants.first]


def _parts_of_rows(model: CostModel, options: Options) -> tuple[Floats, Floats]:
    """[B, 1] the share that all ranks of each block have of its table's rows, copies included, and the parts that these
    are cut into."""
    table = options.profile[options.block_option]
    taken = np.bincount(options.block_option, weights=options.block_count)[options.block_option]
    share = options.block_rows / model.tables.rows[table] * model.copies[table]
    return share[:, None], np.where(options.block_holders > 0, taken, 1.0)[:, None]


def _within_parts(model: CostModel, options: Options) -> Bools:
    """[K, B] whether a table has no more parts than the policy allows where all its blocks are on nodes of the kind."""
    blocks = np.bincount(options.block_option, weights=options.block_count, minlength=len(options.table))
    most = options.choices.max_shards[options.table[options.block_option]]
    within, table = np.ones((model.kind_count, len(most)), dtype=bool), options.profile[options.block_option]
    extents, copies = model.extent_of(table, options.block_sharding), model.copies[table]
    for extent, sites in enumerate(sites_on(model.node_of_rank, model.extents)):
        if sites.reach == "group":
            here = extents == extent
            for k in range(model.kind_count):
                ranks = int(sites.sizes[sites.of_rank[model.kind_of_rank == k]].max()) // copies
                within[k, here] = (ranks * blocks[options.block_option] <= most)[here]
    return within
