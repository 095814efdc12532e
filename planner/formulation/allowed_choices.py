"""What a policy means for the tables of a workload on a cluster: a row of allowed choices for each table.

T tables, W ranks, R sets of ranks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cost_models.model import CostModel
from cost_models.registry import cost_model
from cost_models.replicas import Replicas
from cost_models.shards import (
    HBM,
    HBM_MIXED,
    HOME_OF_TIER,
    IS_SPLIT,
    IS_STASHED,
    PLACEMENT_TIERS,
    SHARDINGS,
    STATE_PLACES,
    Floats,
    Ints,
)
from cost_models.stages import VectorExchange
from cost_models.workload.formats import DTYPES
from cost_models.workload.models import Workload
from planner.formulation.checkpoint_choices import expect_settled_checkpointing
from planner.formulation.dense_choices import expect_settled
from planner.formulation.narrowing import Step
from planner.formulation.policy import Policy
from planner.formulation.replica_choices import the_choice
from planner.formulation.variants import TOGETHER, Variants
from planner.problem.numbers import Bools
from planner.problem.regions import TableGroup
from topologies.cluster import Topology
from topologies.errors import InputError

NO_LIMIT = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class AllowedChoices:
    """What each table may use."""

    tiers: Bools
    """[T, PLACEMENT_TIERS]"""
    shardings: Bools
    """[T, 7]"""
    pairs: Bools
    """[T, 7, PLACEMENT_TIERS] shardings in tiers; both must be permitted by themselves, too."""
    cache_fraction: Floats
    """[T] the only share of the rows that HBM may hold of a table in a tier that is partly there; NaN: any."""
    precision_caches: Floats
    """[T, n] shares of the rows that a cache of full precision may hold beside a table in HBM; NaN where there are
    fewer than n."""
    dtypes: Bools
    """[T, DTYPES] formats of the stored rows: the workload's alone, unless the policy names some."""
    states: Bools
    """[T, STATE_PLACES] where the optimizer state may be: with the rows alone, unless the policy names other places."""
    max_shards: Ints
    """[T] parts that a table may be cut into; NO_LIMIT where any number."""
    column_multiple: Ints
    """[T]"""
    rank_sets: Bools
    """[R, W] sets of ranks; the first one holds all."""
    table_rank_set: Ints
    """[T] the set within which every block of the table must stay."""
    together: tuple[TableGroup, ...]
    apart: tuple[TableGroup, ...]
    rules: tuple[tuple[str, Bools], ...]
    """What limits which tables: words, and [T]."""
    steps: tuple[Step, ...]
    """How the limits came about, key by key."""
    variants: Variants | None = None
    """What the tables may become; None where they are what the workload says."""

    def costed(self, model: CostModel) -> CostModel:
        """The model with everything for a table that a table may become."""
        return model if self.variants is None else self.variants.costed(model)

    def of_variants(self, numbers: Ints | None = None) -> "AllowedChoices":
        """The same of tables that are these of the variants: of all [V], or of one for each table [T]."""
        if self.variants is None:
            return self
        of, v = self.variants, np.arange(len(self.variants.table)) if numbers is None else numbers
        t = of.table[v]
        tiers, shardings, dtypes, caches = self.tiers[t], self.shardings[t], self.dtypes[t], self.precision_caches[t]
        shardings[of.has_two_parts[v]] &= TOGETHER
        named = of.dtype[v] >= 0
        dtypes[named] = np.arange(len(DTYPES)) == of.dtype[v][named, None]
        cached = ~np.isnan(of.cache[v])
        tiers[cached, HBM_MIXED], tiers[cached, HBM] = tiers[cached, HBM], False
        tiers[np.ix_(cached, IS_STASHED)] = False  # a stash has no cache of the plan's beside it
        caches[cached] = np.nan
        caches[cached, 0] = of.cache[v][cached]
        return replace(
            self,
            tiers=tiers,
            shardings=shardings,
            pairs=self.pairs[t],
            cache_fraction=self.cache_fraction[t],
            precision_caches=caches,
            dtypes=dtypes,
            states=self.states[t],
            max_shards=self.max_shards[t],
            column_multiple=self.column_multiple[t],
            table_rank_set=self.table_rank_set[t],
            rules=tuple((words, tables[t]) for words, tables in self.rules),
            steps=tuple(replace(step, tables=step.tables[t]) for step in self.steps),
            variants=None,
        )

    def may(self, sharding: int, tier: int) -> Bools:
        """[T] tables that may be held so."""
        return np.asarray(self.shardings[:, sharding] & self.tiers[:, tier] & self.pairs[:, sharding, tier])

    def may_at_all(self, sharding: int) -> Bools:
        """[T] tables that may be held so in some tier."""
        return np.asarray(np.any([self.may(sharding, tier) for tier in range(len(PLACEMENT_TIERS))], axis=0))

    def words(self, table: int) -> str:
        """The limits that hold for a table, in words; empty where there are none."""
        return "; ".join(words for words, tables in self.rules if tables[table])


def planning_model(
    name: str, topology: Topology, workload: Workload, policy: Policy, exchange: VectorExchange | None = None
) -> CostModel:
    """The cost model with the policy's reserve taken from its memory, its only choice of replicas, and the exchange of
    vectors that it says, or that was chosen where it leaves one open.

    Raises InputError for an unknown name, for an exchange that the cluster does not have, and for one that is open, as
    for a choice of replicas.
    """
    replicas = the_choice(policy.replicas, topology, workload)
    return model_of_replicas(name, topology, workload, policy, replicas, exchange)


def model_of_replicas(
    name: str,
    topology: Topology,
    workload: Workload,
    policy: Policy,
    replicas: Replicas | None,
    exchange: VectorExchange | None = None,
) -> CostModel:
    """The same with one of the choices of replicas."""
    if exchange is None:
        if policy.exchange == "auto":
            message = "auto is for plans, studies and sizes, which try each; give flat or sptt here"
            raise InputError.at("policy", message, path="exchange")
        exchange = policy.exchange
    expect_settled(policy.dense, workload, name)
    expect_settled_checkpointing(policy.checkpointing, workload, name)
    reserve = policy.reserve.amounts()
    return cost_model(name, topology, workload, reserve, exchange, replicas, stashes=policy.stashes)


@dataclass(frozen=True)
class HeldTable:
    """How a plan holds one table."""

    name: str
    tier: int
    sharding: int
    dtype: int
    state: int
    """Index into STATE_PLACES."""
    ranks: Ints
    """Those of its shards."""
    parts: int
    """Shards, replicas counted once."""
    widths: Ints
    """Columns of its column blocks."""
    cache_fraction: float | None = None
    """Share of its rows that HBM holds, where it is in a tier that is partly there."""


def allowed_states(choices: AllowedChoices, tier: int) -> Bools:
    """[T, STATE_PLACES] places for the state of tables in a tier; where their rows are at home it is with them."""
    states, home = choices.states.copy(), HOME_OF_TIER[PLACEMENT_TIERS[tier]]
    if home in STATE_PLACES:
        at_home = STATE_PLACES.index(home)
        if not IS_SPLIT[tier]:
            states[:, 0] |= states[:, at_home]
        states[:, at_home] = False
    if IS_STASHED[tier]:
        states[:, 1:] = False
    return states


def violations(choices: AllowedChoices, tables: Sequence[HeldTable]) -> Iterator[str]:
    """Everything about held tables that is no allowed choice, naming the table, the rank and the limit."""
    for number, table in enumerate(tables):
        because = choices.words(number)
        if not choices.may(table.sharding, table.tier)[number]:
            yield (
                f"table {table.name}: {SHARDINGS[table.sharding]} in {PLACEMENT_TIERS[table.tier]} is not what the "
                f"policy allows: {because}"
            )
        if not choices.dtypes[number, table.dtype]:
            yield f"table {table.name}: is stored as {DTYPES[table.dtype]}, which neither workload nor policy says"
        if not allowed_states(choices, table.tier)[number, table.state]:
            yield f"table {table.name}: its optimizer state is in {STATE_PLACES[table.state]}, which no policy says"
        share = float(choices.cache_fraction[number])
        if table.cache_fraction is not None and not np.isnan(share) and table.cache_fraction != share:
            yield f"table {table.name}: HBM holds {table.cache_fraction:g} of its rows, against the policy: {because}"
        outside = table.ranks[~choices.rank_sets[choices.table_rank_set[number]][table.ranks]]
        if len(outside):
            yield f"table {table.name}: is on rank {outside[0]}, against the policy: {because}"
        if table.parts > choices.max_shards[number]:
            yield f"table {table.name}: is cut into {table.parts} parts, against the policy: {because}"
        odd = table.widths[(table.widths % choices.column_multiple[number] > 0) & (len(table.widths) > 1)]
        if len(odd):
            yield f"table {table.name}: has a block of {odd[0]} columns, against the policy: {because}"
    yield from _group_violations(choices, tables)


def _group_violations(choices: AllowedChoices, tables: Sequence[HeldTable]) -> Iterator[str]:
    for group in choices.together:
        zones = [group.zone_of_rank[tables[t].ranks] for t in group.tables.tolist()]
        first = zones[0][0]
        for t, of_table in zip(group.tables.tolist(), zones, strict=True):
            if (of_table != first).any():
                rank = int(tables[t].ranks[of_table != first][0])
                yield (
                    f"table {tables[t].name}: is on rank {rank}, away from {tables[group.tables[0]].name}, against "
                    f"the policy: {choices.words(t)}"
                )
    for group in choices.apart:
        owner: dict[int, int] = {}
        for t in group.tables.tolist():
            for zone in np.unique(group.zone_of_rank[tables[t].ranks]).tolist():
                if owner.setdefault(zone, t) != t:
                    rank = int(tables[t].ranks[group.zone_of_rank[tables[t].ranks] == zone][0])
                    yield (
                        f"table {tables[t].name}: is on rank {rank}, beside {tables[owner[zone]].name}, against "
                        f"the policy: {choices.words(t)}"
                    )
