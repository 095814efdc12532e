"""Ways to hold a table that are no options, each with what forbids it: a rule of the policy by its place, the runtime,
memory that the cluster or no rank has, the cost model, or the table itself."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from cost_models.shards import (
    COLUMN_WISE,
    COLUMNS_CUT,
    DATA_PARALLEL,
    EXTENT_OF_SHARDING,
    HBM,
    HBM_MIXED,
    HOME_OF_TIER,
    IS_STASHED,
    MEMORIES,
    PLACEMENT_TIERS,
    SHARDING_ROWS,
    SHARDINGS,
    TABLE_COLUMN_WISE,
    USUAL_SHARDINGS,
    WORLD,
    PlacementTier,
    Sharding,
)
from planner.formulation.allowed_choices import allowed_states
from planner.formulation.formulation import Formulation
from planner.formulation.narrowing import Step, memories_of
from planner.formulation.option_space import COLUMN_UNIT, Space
from planner.formulation.policy import USUAL_TIERS, Policy
from planner.formulation.variants import TOGETHER
from planner.problem.numbers import Bools, Ints
from topologies.sentences import counted
from topologies.units import format_bytes

Forbids = Literal["policy", "runtime", "cluster", "cost_model", "table", "memory", "search"]
"""Whose rule it is: `search` where the way is no part of the option space, or is another option at the same cost."""


@dataclass(frozen=True)
class ForbiddingRule:
    """What forbids ways to hold a table."""

    kind: Forbids
    words: str
    place: str | None = None
    """The key of the policy, as in `tables.0.tiers`."""


@dataclass(frozen=True)
class ForbiddenWay:
    """A sharding in a tier that is no option of a table."""

    sharding: Sharding
    tier: PlacementTier
    rules: tuple[ForbiddingRule, ...]
    """All of the policy, the runtime and the cluster that forbid it, or the one thing beside them that does."""


@dataclass(frozen=True)
class ForbiddenWays:
    """Those of one table in a formulation."""

    formulation: Formulation
    policy: Policy
    table: int

    def beside(self, possible: Collection[tuple[Sharding, PlacementTier]]) -> tuple[ForbiddenWay, ...]:
        """Every sharding in every tier but those that are possible."""
        return tuple(
            ForbiddenWay(sharding, tier, tuple(dict.fromkeys(self._rules(s, t))))
            for s, sharding in enumerate(SHARDINGS)
            for t, tier in enumerate(PLACEMENT_TIERS)
            if (sharding, tier) not in possible
        )

    @cached_property
    def _space(self) -> Space:
        options = self.formulation.options
        return Space(self.formulation.model, options.choices, options.cuts)

    def _rules(self, sharding: int, tier: int) -> Iterator[ForbiddingRule]:
        compressor = self.formulation.model.workload.compressors[self.table]
        if compressor.has_two_parts and not TOGETHER[sharding]:
            yield ForbiddingRule("table", f"quotient and remainder of {compressor} stay together")
        elif named := [*self._named(sharding, tier), *self._lacking(tier)]:
            yield from named
        elif (of_tier := self._of_tier(tier)) is not None:
            yield of_tier
        else:
            blocks = self._blocks(sharding, tier)
            yield self._too_large(sharding, blocks) if len(blocks) else self._uncut(sharding, tier)

    def _steps(self, *what: str) -> list[Step]:
        return [step for step in self._space.choices.steps if step.tables[self.table] and step.what in what]

    def _named(self, sharding: int, tier: int) -> Iterator[ForbiddingRule]:
        """What the policy and the runtime forbid by name."""
        usual = {"tiers": self.policy.tiers == USUAL_TIERS, "shardings": self.policy.shardings == USUAL_SHARDINGS}
        for step in self._steps("tiers", "shardings", "pairs"):
            is_widened = step.what == "tiers" and bool(self._space.choices.tiers[self.table, tier])
            if is_widened or not step.forbids(sharding, tier):
                continue
            rule = _of(step)
            if step.what == "tiers" and IS_STASHED[tier] and rule.kind == "policy":
                yield ForbiddingRule("policy", "used only where stash of the policy names it", "stash")
                continue
            if rule.place is not None and usual.get(rule.place):
                rule = ForbiddingRule("policy", f"used only where {rule.place} of the policy names it", rule.place)
            yield rule

    def _lacking(self, tier: int) -> Iterator[ForbiddingRule]:
        """Memory that the cluster does not have."""
        model, home = self.formulation.model, HOME_OF_TIER[PLACEMENT_TIERS[tier]]
        if home not in memories_of(model):
            words = f"{model.topology.name} has no {MEMORIES[home].label} with a capacity and a bandwidth"
            yield ForbiddingRule("cluster", words)

    def _of_tier(self, tier: int) -> ForbiddingRule | None:
        """What keeps a table out of a tier however it is cut."""
        choices = self._space.choices
        own = choices.tiers[self.table]
        if not own[tier] and tier == HBM and own[IS_STASHED].any() and not own[HBM_MIXED]:
            return ForbiddingRule("policy", "it always leaves HBM between the passes", "stash")
        if not own[tier] and tier in (HBM, HBM_MIXED):
            beside = "always" if tier == HBM else "never"
            return ForbiddingRule("policy", f"it {beside} has a cache of full precision", "precision_caches")
        if not allowed_states(choices, tier)[self.table].any():
            return next(map(_of, self._steps("states")), None)
        return None

    def _blocks(self, sharding: int, tier: int) -> Ints:
        """The block types of the table that are cut so in a tier, whether or not there is room for one."""
        options, problem = self.formulation.options, self.formulation.problem
        blocks = np.arange(*problem.table_block_start[self.table : self.table + 2])
        is_so = (options.block_sharding[blocks] == sharding) & (options.tier[options.block_option[blocks]] == tier)
        return np.asarray(blocks[is_so])

    # -- ways that are cut for a table, and fit nowhere ------------------------------------------------------------

    def _too_large(self, sharding: int, blocks: Ints) -> ForbiddingRule:
        """What keeps all of these blocks from every rank."""
        problem, model = self.formulation.problem, self.formulation.model
        too_large = problem.extremes.pool_demand[:, blocks] > 1  # [K, n, M]
        is_everywhere = EXTENT_OF_SHARDING[sharding] == WORLD
        is_shut: Bools = np.asarray(too_large.any(axis=0) if is_everywhere else too_large.all(axis=0))
        for m in np.flatnonzero(is_shut.all(axis=0)).tolist():
            kinds = np.flatnonzero(too_large[:, :, m].all(axis=1))
            if m < len(model.memories) and len(kinds):
                return ForbiddingRule("memory", self._memory_words(m, blocks, kinds, is_everywhere=is_everywhere))
        if is_shut.any(axis=1).all():
            return ForbiddingRule("memory", "no rank has room for one of its blocks in all memories that it needs")
        if (limit := self._limit_of_parts(sharding)) is not None:
            return limit
        if not problem.allowed[:, blocks].any() and (steps := self._steps("ranks")):
            return _of(steps[-1])
        return ForbiddingRule("search", "the blocks that fit on a rank do not make up the table")

    def _memory_words(self, m: int, blocks: Ints, kinds: Ints, *, is_everywhere: bool) -> str:
        """How much the smallest block takes of a memory, beside the most that is free, on the roomiest of some kinds of
        rank; of blocks that all ranks hold, on the first of the kinds that have no room."""
        model, problem = self.formulation.model, self.formulation.problem
        kind = kinds[:1] if is_everywhere else kinds
        pool, capacity = problem.pool_of_rank[m], problem.pool_capacity[m]
        free = np.maximum(capacity - np.bincount(pool, minlength=len(capacity)) * problem.base_bytes[m], 0.0)
        most = np.array([free[pool[problem.kind_of_rank == k]].max() for k in kind.tolist()])
        memory = MEMORIES[model.memories[m]]
        of = f"{memory.label} of a {memory.shared_by}"
        group = model.topology.nodes[int(kind[0])].name
        where = f"every rank holds a part of it, and in {group} " if is_everywhere and model.kind_count > 1 else ""
        if not most.any():
            return f"{where}it needs {memory.label}, and no {memory.shared_by} has any left for tables"
        has_some = most > 0
        demand = problem.extremes.pool_demand[kind[has_some]][:, blocks, m].min(axis=1)
        takes = float((demand * most[has_some]).min())
        has = format_bytes(float(most.max()))
        return f"{where}its smallest block takes {format_bytes(takes)} of the {of}, which has {has} for tables"

    # -- ways that no table, or not this one, is cut -----------------------------------------------------------------

    def _uncut(self, sharding: int, tier: int) -> ForbiddingRule:
        space, model, t = self._space, self.formulation.model, self.table
        row, name = SHARDING_ROWS[SHARDINGS[sharding]], SHARDINGS[sharding]
        if not any(model.is_option(sharding, tier, n)[t] for n in space.counts(sharding, tier) or (1, 2)):
            return ForbiddingRule("cost_model", f"the cost model {model.name} has none of it")
        if sharding == TABLE_COLUMN_WISE and space.columns_are_splittable and space.choices.may(COLUMN_WISE, tier)[t]:
            return ForbiddingRule("search", "column_wise has the same blocks on any ranks, at the same cost")
        if sharding == DATA_PARALLEL and tier != HBM:
            return ForbiddingRule("search", "copies on every rank are planned in HBM alone")
        if (limit := self._limit_of_parts(sharding)) is not None:
            return limit
        if row.cuts_into_sites:
            return self._uncut_into_sites(sharding, tier)
        if name in COLUMNS_CUT and model.tables.dim[t] // space.steps[t] < 2:
            columns, step = (
                counted(int(model.tables.dim[t]), "column"),
                np.lcm(COLUMN_UNIT, space.choices.column_multiple[t]),
            )
            return ForbiddingRule("table", f"its {columns} cannot be cut into multiples of {step}")
        if sharding == TABLE_COLUMN_WISE and space.ranks_of_node.max() < 2:
            return ForbiddingRule("cluster", "its blocks would be on two ranks or more of one node")
        return ForbiddingRule("search", "none of the cuts that are tried applies to it")

    def _uncut_into_sites(self, sharding: int, tier: int) -> ForbiddingRule:
        is_of_ranks = SHARDING_ROWS[SHARDINGS[sharding]].is_within_domain
        if not self._space.counts(sharding, tier):
            of = (
                "ranks or more of a single node, or scale-up domain, of three or more"
                if is_of_ranks
                else "nodes or more of three or more of one size"
            )
            return ForbiddingRule("cluster", f"its rows would be on two {of}")
        rows = counted(int(self.formulation.model.tables.rows[self.table]), "row")
        return ForbiddingRule("table", f"its {rows} leave a {'rank' if is_of_ranks else 'node'} without any")

    def _limit_of_parts(self, sharding: int) -> ForbiddingRule | None:
        """The rule that allows too few parts for the fewest that a sharding makes."""
        row, t = SHARDING_ROWS[SHARDINGS[sharding]], self.table
        if sharding == DATA_PARALLEL:
            return None
        ranks = int(self._space.sites_of(sharding).sizes.min())
        fewest = ranks * (2 if row.cuts_into_sites or SHARDINGS[sharding] in COLUMNS_CUT else 1)
        steps = self._steps("max_shards")
        return _of(steps[-1]) if steps and fewest > self._space.choices.max_shards[t] else None


def _of(step: Step) -> ForbiddingRule:
    place = ".".join(map(str, step.path))
    return ForbiddingRule("runtime" if step.path[0] == "runtime" else "policy", step.words, place)
