"""What takes time of the resources that bind the stages of a placement."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cost_models.evaluation import ROUNDING, Evaluation
from cost_models.model import CostModel
from cost_models.resources import Resource
from cost_models.shards import PlacedShards
from cost_models.step_costs import StepCosts
from planner.diagnosis.reasons import StageResource
from planner.document.plan import StageTime
from planner.problem.numbers import Bools, Floats


@dataclass(frozen=True)
class StageLoads:
    """The loads of a placement, stage by stage; T tables, W ranks."""

    model: CostModel
    placed: PlacedShards
    stages: tuple[StageTime, ...]
    """As the plan states them."""

    @cached_property
    def evaluation(self) -> Evaluation:
        """What the placement costs."""
        return self.model.evaluate(self.placed)

    @cached_property
    def instance_loads(self) -> Floats:
        """[W, C] seconds of the instance that each rank uses."""
        return self.model.instance_loads(self.model.rank_loads(self.placed)[0])

    def resource(self, s: int, rank: int) -> Resource | None:
        """What a rank waits for in a stage; None where nothing loads it."""
        at = self._binding(s, rank)
        return None if at is None else self.model.columns[at[0]].resource

    def _binding(self, s: int, rank: int | None) -> tuple[int, Bools] | None:
        """The column that binds a stage, for a rank or for all, and [W] the ranks that share its critical instance."""
        columns = [c for c, of in enumerate(self.model.columns) if of.stage == s]
        if rank is None:
            resource, rank = self.evaluation.binding[s], self.stages[s].critical_rank
            columns = [c for c in columns if self.model.columns[c].resource == resource]
        elif columns:
            loads = self.instance_loads[rank, columns]
            longest = int(np.argmax(loads >= loads.max() * (1 - ROUNDING)))
            columns = [columns[longest]] if loads[longest] else []
        if rank is None or not columns:  # of the floor, which no table changes
            return None
        instance = self.model.resource_of_rank(self.model.columns[columns[0]].resource)
        return columns[0], instance == instance[rank]

    def binding(self, s: int, rank: int | None = None) -> Floats:
        """[T] seconds that each table takes of the resource that binds a stage, for a rank or for all."""
        at = self._binding(s, rank)
        return np.zeros(len(self.model.tables.rows)) if at is None else self._loads(*at)

    def _loads(self, column: int, ranks: Bools) -> Floats:
        """[T] seconds that each table takes of a column's resource on some ranks together."""
        placed, model = self.placed, self.model
        distinct, which = placed.blocks.distinct
        opened = np.bincount(which[placed.opens_block], minlength=len(distinct)).astype(float)
        share = placed.rows / model.tables.rows[placed.blocks.table]
        load = np.zeros(len(self.model.tables.rows))
        for k in range(model.kind_count):
            here = ranks & (model.kind_of_rank == k)
            if not here.any():
                continue
            costs = model.block_costs(distinct, k)
            shards = np.flatnonzero(here[placed.rank])
            block = which[shards]
            seconds = costs.fixed[block, column] + costs.by_rows[block, column] * share[shards]
            load += np.bincount(placed.blocks.table[shards], weights=seconds, minlength=len(load))
            everywhere = opened * costs.everywhere[:, column] * here.sum()
            load += np.bincount(distinct.table, weights=everywhere, minlength=len(load))
        return load

    def base(self, s: int, rank: int | None = None) -> float:
        """Seconds that launches and the dense part take of the resource that binds a stage, for a rank or for all."""
        at = self._binding(s, rank)
        if at is None:
            return 0.0
        column, ranks = at
        return float(self.model.base_loads[self.model.kind_of_rank[ranks], column].sum())

    def of_groups(self, s: int) -> tuple[StageResource, ...]:
        """What a stage asks of every resource that it loads, group by group, the longest first."""
        model, constant, found = self.model, float(self.model.constants[s]), []
        base = model.instance_loads(model.base_loads[model.kind_of_rank])
        for c, column in enumerate(model.columns):
            for k, group in enumerate(model.topology.nodes) if column.stage == s else ():
                ranks = np.flatnonzero(model.kind_of_rank == k)
                rank = int(ranks[np.argmax(self.instance_loads[ranks, c])])
                load, fixed_s = float(self.instance_loads[rank, c]), float(base[rank, c]) + constant
                if load > 0:
                    tables_s = max(load - float(base[rank, c]), 0.0)
                    parts = max(fixed_s, 0.0), tables_s, max(-fixed_s, 0.0)
                    found.append(StageResource(group.name, column.resource, rank, *parts))
        return tuple(sorted(found, key=lambda each: -float(f"{each.seconds:.9g}")))

    def id_sort_s(self, table: int) -> float:
        """The most seconds that sorting a table's ids takes of the update on any rank; 0 of ratings."""
        if not isinstance(self.model, StepCosts):
            return 0.0
        own = self.placed.blocks.table == table
        blocks, rank = self.placed.blocks.take(np.flatnonzero(own)), self.placed.rank[own]
        share, kind = self.placed.rows[own] / self.model.tables.rows[table], self.model.kind_of_rank[rank]
        of_kinds = [self.model.id_sort_seconds(blocks, k) for k in range(self.model.kind_count)]
        return float(np.bincount(rank, weights=np.choose(kind, of_kinds) * share).max())

    def longest(self, s: int, table: int) -> float:
        """The most seconds that a table takes of any resource of a stage."""
        own = self.placed.blocks.table == table
        blocks, rank = self.placed.blocks.take(np.flatnonzero(own)), self.placed.rank[own]
        share = self.placed.rows[own] / self.model.tables.rows[table]
        opens = self.placed.opens_block[own]
        longest_s = 0.0
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
            longest_s = max(longest_s, float(np.bincount(instance, weights=load).max()))
        return longest_s
