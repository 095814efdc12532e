"""What options of tables cost at the multipliers of a plan's own proof."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cost_models.model import CostModel
from cost_models.shards import (
    EXTENT_OF_SHARDING,
    PARTLY_IN_HBM,
    PLACEMENT_TIERS,
    SHARDING_ROWS,
    SHARDINGS,
    WORLD,
    MemoryTier,
    sites_with_parts,
)
from planner.certificates.multipliers import Multipliers
from planner.diagnosis.reasons import MemoryValue, OptionReasons
from planner.diagnosis.stage_loads import StageLoads
from planner.document.certificates import Proof
from planner.document.plan import TablePlan
from planner.formulation.formulation import Formulation
from planner.formulation.options import costs_of
from planner.formulation.variants import LOSS, Variants
from planner.problem.integrality import integrality_floors
from planner.problem.numbers import Bools, Floats, Ints
from planner.problem.products import product
from planner.solvers.bound.fluid import Fluid
from planner.verification.proof import read_proof

GIB = 1 << 30


@dataclass(frozen=True)
class PricedOptions:
    """The options of every table of a plan, at the dual multipliers of its bound."""

    formulation: Formulation
    proof: Proof
    loads: StageLoads
    tables: tuple[TablePlan, ...]
    """As the plan holds them."""

    @cached_property
    def _proven(self) -> tuple[Multipliers, Bools]:
        """The multipliers, and [B] the blocks that a plan below the threshold may hold."""
        return read_proof(self.proof, self._model, self.formulation.problem)

    @property
    def _multipliers(self) -> Multipliers:
        return self._proven[0]

    @cached_property
    def _fluid(self) -> Fluid:
        return Fluid(self.formulation.problem, integrality_floors(self.formulation.problem))

    @cached_property
    def _cheapest(self) -> Ints:
        """[T] the cheapest option of each table, named by one of its blocks."""
        return self._fluid.price(*self._proven)[1]

    @property
    def _model(self) -> CostModel:
        return self.formulation.model

    def stage_bound_s(self, s: int) -> float:
        """A stage's part of the bound: what the cheapest options ask of its resources, at their weights."""
        seconds, _ = self._fluid.usage(self._multipliers, self._cheapest)
        here = np.array([column.stage == s for column in self._model.columns])
        lone = sum(
            weight * float(self._fluid.peaks[self._cheapest[table], stage])
            for (table, stage), weight in self._multipliers.of_table.items()
            if stage == s
        )
        idle = float(self._fluid.idle_shares(self._multipliers)[s] * self._fluid.floors[s])
        return (
            float((self._multipliers.weight * seconds)[:, here].sum()) + lone + idle + float(self._model.constants[s])
        )

    def memory(self) -> tuple[tuple[MemoryValue, ...], float]:
        """The memories with a multiplier; and the part of the bound that is multipliers times (bytes - capacity)."""
        _, size = self._fluid.usage(self._multipliers, self._cheapest)
        paid = float((self._multipliers.byte * (size - self._fluid.capacity)).sum())
        groups = {group.name: k for k, group in enumerate(self._model.topology.nodes)}
        values: dict[tuple[MemoryTier, str], MemoryValue] = {}
        for multiplier in self.proof.memory_multipliers:
            if multiplier.tier == "loss":
                continue
            memory: MemoryTier = "hbm"
            if multiplier.tier != "hbm_returned" and multiplier.tier != "hbm_stashed":
                memory = multiplier.tier
            tier = self._model.memories.index(memory)
            pool = self._model.memory_pool_of_rank[tier][self._model.kind_of_rank == groups[multiplier.group]]
            if not self._model.memory_capacity[tier][pool].any():
                continue  # what the group does not have cannot grow
            worth, key = multiplier.seconds_per_byte * GIB * len(np.unique(pool)), (memory, multiplier.group)
            worth += values[key].seconds_per_gib if key in values else 0.0  # more HBM is there at both of its moments
            values[key] = MemoryValue(memory, multiplier.group, worth)
        return tuple(values.values()), paid

    def seconds_per_loss(self) -> float | None:
        """What a unit of loss is worth in the bound; None without a budget."""
        if self._variants is None:
            return None
        units = sum(each.seconds_per_byte for each in self.proof.memory_multipliers if each.tier == LOSS)
        return units / self._variants.unit

    @property
    def _variants(self) -> Variants | None:
        return self.formulation.options.choices.variants

    def _loss_units(self, table: int) -> float:
        """What a table of the plan takes of the budget, in the units of arrays; 0 without a budget."""
        if self._variants is None:
            return 0.0
        number = self._variants.number_of(table, self.tables[table].variant)
        return 0.0 if number is None else float(self._variants.beyond_least[number]) / self._variants.unit

    def chosen(self, table: int) -> OptionReasons:
        """The option of the plan, priced where its shards are."""
        own = np.flatnonzero(self.loads.placed.blocks.table == table)
        blocks, rank = self.loads.placed.blocks.take(own), self.loads.placed.rank[own]
        share = (self.loads.placed.rows[own] / self._model.tables.rows[table])[:, None]
        opens = self.loads.placed.opens_block[own]
        seconds = np.zeros(len(self._model.columns))
        paid, size = 0.0, np.zeros(len(self._model.memories) + 2 * self._model.stashes)
        for k in range(self._model.kind_count):
            costs, of_kind = costs_of(self._model, blocks, k), self._model.kind_of_rank[rank] == k
            weight, ranks = self._multipliers.weight[k], float((self._model.kind_of_rank == k).sum())
            seconds += weight * (costs.fixed + costs.by_rows * share)[of_kind].sum(axis=0)
            seconds += weight * ranks * costs.everywhere[opens].sum(axis=0)
            own_bytes = (costs.bytes_fixed + costs.bytes_by_rows * share)[of_kind].sum(axis=0)
            prices = self._multipliers.byte[k, : len(own_bytes)]
            paid, size = paid + float(product(prices, own_bytes)), size + own_bytes
        planned = self.tables[table]
        if self._variants is not None:
            kind = int(self._model.kind_of_rank[rank[0]])
            paid += self._loss_units(table) * float(self._multipliers.byte[kind, -1])
        parts = self._parts(seconds, paid, table, self._peaks(table).tolist())
        return OptionReasons(
            planned.sharding,
            planned.tier,
            planned.cache_fraction,
            self._blocks_of(planned),
            sum(parts.values()),
            parts,
            dict(zip(self._model.memories, size.round().astype(int).tolist(), strict=False)),
            planned.variant,
        )

    def _peaks(self, table: int) -> Floats:
        """[S] seconds that each stage takes at least with the blocks of a table where they are, as `Fluid.peaks` says
        of options: of every block by itself, beside what loads its resources before any table is placed."""
        problem, placed = self.formulation.problem, self.loads.placed
        own = np.flatnonzero(placed.blocks.table == table)
        blocks, rank, start = placed.blocks.take(own), placed.rank[own], self.tables[table].shards.column_start
        share, extent = placed.rows[own] / self._model.tables.rows[table], EXTENT_OF_SHARDING[blocks.sharding][0]
        base, kind = problem.extremes.base_of_instance, problem.kind_of_rank[rank]
        if extent == WORLD:
            return np.asarray(self._stage_most(base).min(axis=0))
        site = problem.sites[int(self._model.extent_of(blocks.table[:1], blocks.sharding[:1])[0])].of_rank[rank]
        load = np.zeros((len(own), len(self._model.columns)))
        for k in range(self._model.kind_count):
            costs = self._model.block_costs(blocks, k)
            load += np.where((kind == k)[:, None], costs.fixed + costs.by_rows * share[:, None], 0.0)
        for c, instance in enumerate(problem.resource_of_rank):
            _, together = np.unique(np.stack([start, site, instance[rank]]), axis=1, return_inverse=True)
            load[:, c] = np.bincount(together.ravel(), weights=load[:, c])[together.ravel()]
        return np.asarray(self._stage_most(load + base[kind]).max(axis=0))

    def _stage_most(self, load: Floats) -> Floats:
        """[n, S] the most of loads [n, C] in each stage."""
        most = np.zeros((len(load), len(self._model.stages)))
        for column, stage in enumerate(self.formulation.problem.stage_of_column):
            most[:, stage] = np.maximum(most[:, stage], load[:, column])
        return most

    def _blocks_of(self, table: TablePlan) -> int:
        """Column blocks of a table of the plan; parts of its rows, where these are on several nodes or ranks."""
        if SHARDING_ROWS[table.sharding].cuts_into_sites:
            return len(sites_with_parts(table.sharding, table.shards.rank, self._model.node_of_rank))
        return len(np.unique(table.shards.column_start))

    def others(self, table: int) -> tuple[OptionReasons, ...]:
        """The cheapest option of each sharding, tier and number of blocks, but the plan's own."""
        problem = self.formulation.problem
        choices = np.arange(*problem.table_block_start[table : table + 2])
        values = self._fluid.choice_values(self._multipliers, np.asarray(problem.allowed.any(axis=0)))
        choices = choices[np.isfinite(values[choices])]
        if not len(choices):
            return ()
        totals = self._fluid.choice_totals(choices, self._multipliers)
        planned = self.tables[table]
        taken = {(planned.sharding, planned.tier, self._blocks_of(planned), planned.variant)}
        others = []
        for i in np.argsort(values[choices], kind="stable").tolist():
            option = self._option(int(choices[i]), totals[i])
            kind = (option.sharding, option.tier, option.blocks, option.variant)
            if kind not in taken:
                taken.add(kind)
                others.append(option)
        return tuple(others)

    def _option(self, choice: int, total: Floats) -> OptionReasons:
        """An option named by one of its blocks, with what it asks of each kind in all [K x (C + M)]."""
        options, problem, usable = self.formulation.options, self.formulation.problem, self._proven[1]
        of = int(problem.block_option[choice])
        asked = total.reshape(problem.kinds, -1)
        columns = len(self._model.columns)
        seconds = (self._multipliers.weight * asked[:, :columns]).sum(axis=0)
        size = asked[:, columns:]
        table, paid = int(problem.option_table[of]), float((self._multipliers.byte * size).sum())
        parts = self._parts(seconds, paid, table, self._fluid.peaks[choice].tolist())
        tier = PLACEMENT_TIERS[options.tier[of]]
        return OptionReasons(
            SHARDINGS[options.block_sharding[choice]],
            tier,
            float(options.cache_fraction[of]) if tier in PARTLY_IN_HBM else None,
            len(problem.blocks_of_choice(choice)),
            sum(parts.values()),
            parts,
            dict(zip(self._model.memories, size.sum(axis=0).round().astype(int).tolist(), strict=False)),
            None if self._variants is None else self._variants.words[options.profile[of]],
            not all(usable[block] for block in problem.blocks_of_choice(choice)),
        )

    def _parts(self, seconds: Floats, memory: float, table: int, longest: list[float]) -> dict[str, float]:
        """Priced seconds [C] by stage, with those of the table's largest block [S], and the price of the bytes."""
        stage: Ints = np.array([column.stage for column in self._model.columns], dtype=np.int64)
        of_stage = np.bincount(stage, weights=seconds, minlength=len(self._model.stages))
        for s, peak in enumerate(longest):
            of_stage[s] += self._multipliers.of_table.get((table, s), 0.0) * peak
        return {**dict(zip(self._model.stages, of_stage.tolist(), strict=True)), "memory": memory}
