"""Why a plan is as it is: what each stage waits for, what each table pays, and what its other options would cost.

Costs of options are at the multipliers of the plan's own proof (see `planner.verification.proof`): what a second on
each resource and a byte of each memory are worth to the step as a whole. The bound is the sum, over all tables, of the
cheapest option at these prices, so an option that costs more there is one that lengthens the bound by the difference,
and an option that costs as much may be taken for no better reason than that it packs well.
"""

from dataclasses import dataclass, replace

import numpy as np

from cost_models.loads import Resource
from cost_models.model import BATCH_COPY, CostModel
from cost_models.shards import (
    PARTLY_IN_HBM,
    PLACEMENT_TIERS,
    SHARDINGS,
    MemoryTier,
    PlacementTier,
    Sharding,
)
from planner.diagnosis.fixed_part import FixedCost, fixed_costs
from planner.diagnosis.sensitivity import Gain, gains
from planner.document.plan import Plan, StageTime, TablePlan
from planner.document.planned import placed_shards, planned_model
from planner.document.provenance import planned_options
from planner.errors import UnsoundPlanError
from planner.formulation.options import Options, build_problem
from planner.problem.arrays import Problem
from planner.problem.integrality import grain_seconds
from planner.problem.numbers import Bools, Floats, Ints
from planner.solvers.bound.fluid import Fluid
from planner.verification.proof import faults_of, read_proof
from topologies.errors import Fault

GIB = 1 << 30


NEGLIGIBLE = 1e-6
"""Share of a bound that is nothing but rounding."""


@dataclass(frozen=True)
class Contributor:
    """What takes time of the resource that binds a stage."""

    table: str | None
    """None for what no placement changes: launches and the dense part."""
    seconds: float


@dataclass(frozen=True)
class StageReasons:
    """Why a stage takes as long as it does."""

    stage: StageTime
    resource: Resource | None
    """What binds it, at the critical rank; None where only a constant does."""
    constant_s: float
    contributors: tuple[Contributor, ...]
    """The largest first; with the constant they sum to the stage's time."""
    bound_s: float | None
    """The stage's part of the lower bound; None where the plan has no proof."""


@dataclass(frozen=True)
class MemoryValue:
    """What more of a scarce memory is worth."""

    tier: MemoryTier
    group: str
    seconds_per_gib: float
    """What the bound falls by at most for 1 GiB more of each pool of the group (each accelerator's, each node's)."""


@dataclass(frozen=True)
class PlanReasons:
    """The plan as a whole."""

    model: CostModel
    stages: tuple[StageReasons, ...]
    memory_bound_s: float | None
    """What the bound is lower by as memory is not unlimited in price: the priced capacity, below 0 or 0."""
    cases_bound_s: float | None
    """What looking at whole blocks case by case adds to the bound; None where the plan has no proof."""
    memory: tuple[MemoryValue, ...]
    gains: tuple[Gain, ...]
    fixed: tuple[FixedCost, ...] = ()
    """Of ratings: none."""


@dataclass(frozen=True)
class OptionReasons:
    """One way to hold a table, at the prices of the bound."""

    sharding: Sharding
    tier: PlacementTier
    cache_fraction: float | None
    blocks: int
    """Column blocks that the table is cut into."""
    seconds: float
    """At the prices."""
    by_stage: dict[str, float]
    """Its parts; `memory` is the price of its bytes."""
    bytes: dict[str, int]
    """In each memory, all shards together."""
    is_too_long: bool = False
    """Whether one of its blocks alone makes a step as long as the proof's threshold."""


@dataclass(frozen=True)
class TableReasons:
    """One table."""

    model: CostModel
    table: TablePlan
    stage_seconds: dict[str, float]
    """What it takes of the resource that binds each stage."""
    own_seconds: dict[str, float]
    """The most that it takes of any resource in each stage, on whatever rank."""
    chosen: OptionReasons | None
    """None where the plan has no proof."""
    others: tuple[OptionReasons, ...]
    """The best of each other sharding, tier and cut, the cheapest first."""


class Explainer:
    """The reasons behind one plan, which must place its tables. Raises InputError if its inputs cannot be read,
    and UnsoundPlanError where its proof is of something else."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.model = planned_model(plan)
        self._placed = placed_shards(plan)
        self._evaluation = self.model.evaluate(self._placed)
        self._problem: Problem | None = None
        if plan.proof is not None:
            self._options: Options = planned_options(plan.provenance, self.model, plan.provenance.policy)
            self._problem = build_problem(self.model, self._options)
            if faults := list(faults_of(plan.proof, self.model, self._problem)):
                raise UnsoundPlanError(Fault("plan", 0, 0, "proof", text) for text in faults)
            self._prices, self._usable = read_proof(plan.proof, self.model, self._problem)
            self._fluid = Fluid(self._problem, grain_seconds(self._problem))

    def plan(self) -> PlanReasons:
        """Stage by stage, then the memory."""
        stages = tuple(self._stage(s) for s in range(len(self.model.stages)))
        memory, paid = self._memory()
        if self._is_bound_by_copy():
            left_s = self.model.whole_step_s(0.0) - sum(each.bound_s or 0.0 for each in stages)
            stages, memory, paid = (*stages[:-1], replace(stages[-1], bound_s=max(left_s, 0.0))), (), 0.0
        found = tuple(gains(self.model, self._placed))
        return PlanReasons(
            self.model, stages, paid, self._by_cases(stages, paid), memory, found, fixed_costs(self.model)
        )

    def _is_bound_by_copy(self) -> bool:
        """Whether the bound is the time of the batch copy, whatever else is proven."""
        objective = self._plan.objective
        return objective is not None and self._problem is not None and self.model.is_copy_time(objective.lower_bound_s)

    def _by_cases(self, stages: tuple[StageReasons, ...], memory_bound_s: float | None) -> float | None:
        """What the bound is above the sum of its parts, or above the threshold of their proof."""
        if self._plan.objective is None or self._plan.proof is None:
            return None
        if self._is_bound_by_copy():
            return 0.0
        parts = sum(each.bound_s or 0.0 for each in stages) + (memory_bound_s or 0.0)
        parts = min(parts, self._plan.proof.threshold_s or parts)
        above = self._plan.objective.lower_bound_s - parts
        return above if above > NEGLIGIBLE * parts else 0.0

    def table(self, name: str) -> TableReasons:
        """Raises KeyError for a table that the plan does not have."""
        names = [table.name for table in self._plan.tables]
        if name not in names:
            raise KeyError(name)
        index = names.index(name)
        stages, model = range(len(self.model.stages)), self.model
        paid = {model.stages[s]: float(self._loads_at(s)[index]) for s in stages}
        most = {model.stages[s]: self._most(s, index) for s in stages}
        chosen = self._chosen(index) if self._problem is not None else None
        others = self._others(self._problem, index) if self._problem is not None else ()
        return TableReasons(model, self._plan.tables[index], paid, most, chosen, others)

    # -- stages ----------------------------------------------------------------------------------------------------

    def _stage(self, s: int) -> StageReasons:
        # Below zero, a constant takes off what others hide, and what it takes off stands in the base.
        constant = float(self.model.constants[s])
        if self.model.stages[s] == BATCH_COPY:
            constant = self._plan.stages[s].seconds
        loads, base = self._loads_at(s), self._base_at(s) + min(constant, 0.0)
        parts = [Contributor(None, base)] if base > 0 else []
        names = self.model.workload.tables
        parts += [Contributor(names[t].name, float(loads[t])) for t in np.flatnonzero(loads > 0).tolist()]
        parts.sort(key=lambda part: (-part.seconds, part.table or ""))
        bound = None if self._problem is None else self._stage_bound(s)
        return StageReasons(self._plan.stages[s], self._evaluation.binding[s], max(constant, 0.0), tuple(parts), bound)

    def _binding_ranks(self, s: int) -> tuple[int, Bools] | None:
        """The column that binds a stage, and [W] the ranks that share its critical instance."""
        resource, rank = self._evaluation.binding[s], self._plan.stages[s].critical_rank
        if resource is None or rank is None:
            return None
        columns = enumerate(self.model.columns)
        column = next((c for c, of in columns if of.stage == s and of.resource == resource), None)
        if column is None:  # of the batch copy, which no table changes
            return None
        instance = self.model.resource_of_rank(resource)
        return column, instance == instance[rank]

    def _loads_at(self, s: int) -> Floats:
        """[T] seconds that each table takes of the resource that binds a stage."""
        found = np.zeros(len(self._plan.tables))
        at = self._binding_ranks(s)
        if at is None:
            return found
        column, ranks = at
        return self._loads(column, ranks)

    def _loads(self, column: int, ranks: Bools) -> Floats:
        """[T] seconds that each table takes of a column's resource on some ranks together."""
        placed, model = self._placed, self.model
        distinct, which = placed.blocks.distinct
        opened = np.bincount(which[placed.opens_block], minlength=len(distinct)).astype(float)
        share = placed.rows / model.tables.rows[placed.blocks.table]
        found = np.zeros(len(self._plan.tables))
        for k in range(model.kind_count):
            here = ranks & (model.kind_of_rank == k)
            if not here.any():
                continue
            costs = model.block_costs(distinct, k)
            shards = np.flatnonzero(here[placed.rank])
            block = which[shards]
            seconds = costs.fixed[block, column] + costs.by_rows[block, column] * share[shards]
            found += np.bincount(placed.blocks.table[shards], weights=seconds, minlength=len(found))
            everywhere = opened * costs.everywhere[:, column] * here.sum()
            found += np.bincount(distinct.table, weights=everywhere, minlength=len(found))
        return found

    def _base_at(self, s: int) -> float:
        """Seconds that launches and the dense part take of the resource that binds a stage."""
        at = self._binding_ranks(s)
        if at is None:
            return 0.0
        column, ranks = at
        return float(self.model.base_loads[self.model.kind_of_rank[ranks], column].sum())

    def _most(self, s: int, table: int) -> float:
        """The most seconds that a table takes of any resource of a stage."""
        own = self._placed.blocks.table == table
        blocks, rank = self._placed.blocks.take(np.flatnonzero(own)), self._placed.rank[own]
        share = self._placed.rows[own] / self.model.tables.rows[table]
        opens = self._placed.opens_block[own]
        most = 0.0
        for c, column in enumerate(self.model.columns):
            if column.stage != s:
                continue
            load = np.zeros(len(self.model.kind_of_rank))
            for k in range(self.model.kind_count):
                costs = self.model.block_costs(blocks, k)
                of_kind = self.model.kind_of_rank[rank] == k
                seconds = costs.fixed[:, c] + costs.by_rows[:, c] * share
                np.add.at(load, rank[of_kind], seconds[of_kind])
                load[self.model.kind_of_rank == k] += costs.everywhere[opens, c].sum()
            instance = self.model.resource_of_rank(column.resource)
            most = max(most, float(np.bincount(instance, weights=load).max()))
        return most

    # -- prices ----------------------------------------------------------------------------------------------------

    def _stage_bound(self, s: int) -> float:
        """A stage's part of the bound: what the cheapest options ask of its resources, at their weights."""
        _, picks = self._fluid.price(self._prices, self._usable)
        seconds, _ = self._fluid.usage(self._prices, picks)
        here = np.array([column.stage == s for column in self.model.columns])
        lone = sum(
            weight * float(self._fluid.peaks[picks[table], stage])
            for (table, stage), weight in self._prices.of_table.items()
            if stage == s
        )
        idle = float(self._fluid.idle_shares(self._prices)[s] * self._fluid.grain[s])
        return float((self._prices.weight * seconds)[:, here].sum()) + lone + idle + float(self.model.constants[s])

    def _memory(self) -> tuple[tuple[MemoryValue, ...], float | None]:
        """The memories with a price; and the part of the bound that is the price of bytes less that of the capacity."""
        if self._problem is None or self._plan.proof is None:
            return (), None
        _, picks = self._fluid.price(self._prices, self._usable)
        _, size = self._fluid.usage(self._prices, picks)
        paid = float((self._prices.byte * (size - self._fluid.capacity)).sum())
        groups = {group.name: k for k, group in enumerate(self.model.topology.nodes)}
        found = []
        for price in self._plan.proof.byte_prices:
            tier = self.model.memories.index(price.tier)
            pool = self.model.memory_pool_of_rank[tier][self.model.kind_of_rank == groups[price.group]]
            if not self.model.memory_capacity[tier][pool].any():
                continue  # what the group does not have cannot grow
            pools = len(np.unique(pool))
            found.append(MemoryValue(price.tier, price.group, price.seconds_per_byte * GIB * pools))
        return tuple(found), paid

    def _chosen(self, table: int) -> OptionReasons:
        """The option of the plan, priced where its shards are."""
        own = np.flatnonzero(self._placed.blocks.table == table)
        blocks, rank = self._placed.blocks.take(own), self._placed.rank[own]
        share = (self._placed.rows[own] / self.model.tables.rows[table])[:, None]
        opens = self._placed.opens_block[own]
        seconds = np.zeros(len(self.model.columns))
        memory, size = 0.0, np.zeros(len(self.model.memories))
        for k in range(self.model.kind_count):
            costs, of_kind = self.model.block_costs(blocks, k), self.model.kind_of_rank[rank] == k
            weight, ranks = self._prices.weight[k], float((self.model.kind_of_rank == k).sum())
            seconds += weight * (costs.fixed + costs.by_rows * share)[of_kind].sum(axis=0)
            seconds += weight * ranks * costs.everywhere[opens].sum(axis=0)
            held = (costs.bytes_fixed + costs.bytes_by_rows * share)[of_kind].sum(axis=0)
            memory, size = memory + float(self._prices.byte[k] @ held), size + held
        planned = self._plan.tables[table]
        stages = range(len(self.model.stages))
        parts = self._parts(seconds, memory, table, [self._most(s, table) for s in stages])
        return OptionReasons(
            planned.sharding,
            planned.tier,
            planned.cache_fraction,
            int(opens.sum()),
            sum(parts.values()),
            parts,
            dict(zip(self.model.memories, size.round().astype(int).tolist(), strict=True)),
        )

    def _others(self, problem: Problem, table: int) -> tuple[OptionReasons, ...]:
        """The cheapest option of each sharding, tier and number of blocks, but the plan's own."""
        picks = np.arange(*problem.table_block_start[table : table + 2])
        values = self._fluid.pick_values(self._prices, np.asarray(problem.allowed.any(axis=0)))
        picks = picks[np.isfinite(values[picks])]
        if not len(picks):
            return ()
        totals = self._fluid.pick_totals(picks, self._prices)
        planned = self._plan.tables[table]
        starts = len(np.unique(planned.shards.column_start))
        taken = {(planned.sharding, planned.tier, starts)}
        found = []
        for i in np.argsort(values[picks], kind="stable").tolist():
            option = self._option(problem, int(picks[i]), totals[i])
            kind = (option.sharding, option.tier, option.blocks)
            if kind not in taken:
                taken.add(kind)
                found.append(option)
        return tuple(found)

    def _option(self, problem: Problem, pick: int, total: Floats) -> OptionReasons:
        """An option named by one of its blocks, with what it asks of each kind in all [K x (C + M)]."""
        options, of = self._options, int(problem.block_option[pick])
        asked = total.reshape(problem.kinds, -1)
        columns = len(self.model.columns)
        seconds = (self._prices.weight * asked[:, :columns]).sum(axis=0)
        size = asked[:, columns:]
        table, paid = int(problem.option_table[of]), float((self._prices.byte * size).sum())
        parts = self._parts(seconds, paid, table, self._fluid.peaks[pick].tolist())
        tier = PLACEMENT_TIERS[options.tier[of]]
        return OptionReasons(
            SHARDINGS[options.block_sharding[pick]],
            tier,
            float(options.cache_fraction[of]) if tier in PARTLY_IN_HBM else None,
            len(problem.blocks_of_pick(pick)),
            sum(parts.values()),
            parts,
            dict(zip(self.model.memories, size.sum(axis=0).round().astype(int).tolist(), strict=True)),
            not all(self._usable[block] for block in problem.blocks_of_pick(pick)),
        )

    def _parts(self, seconds: Floats, memory: float, table: int, longest: list[float]) -> dict[str, float]:
        """Priced seconds [C] by stage, with those of the table's largest block [S], and the price of the bytes."""
        stage: Ints = np.array([column.stage for column in self.model.columns], dtype=np.int64)
        of_stage = np.bincount(stage, weights=seconds, minlength=len(self.model.stages))
        for s, peak in enumerate(longest):
            of_stage[s] += self._prices.of_table.get((table, s), 0.0) * peak
        return {**dict(zip(self.model.stages, of_stage.tolist(), strict=True)), "memory": memory}
