"""The costs of a step in which some tables have more copies than others.

A group of N ranks has n = N / m ranks for each of m copies of such tables: one of every m neighbours (intra), or a run
of whole nodes (inter). Within these, the costs are those of tables with as many copies as all would have; loads are
those of each rank, wherever it is. What several ranks share, more of them may load here than there are ranks of one
copy, so that each brings less of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from cost_models.cost_arrays import BlockCosts, BlockMemory, Column
from cost_models.costs_at_lines import Line
from cost_models.first_answers import CACHE_FETCH
from cost_models.joint_lines import JointLine, alike, at_once, in_turn
from cost_models.prefetch_lines import PREFETCH
from cost_models.resources import STASHES, Resource
from cost_models.shards import Blocks, Floats, Ints
from cost_models.step_costs import REPLICA_SYNC, StepCosts


@dataclass(frozen=True)
class CopiedTables:
    """Some tables with equally many copies; K kinds of rank."""

    whole: StepCosts
    """The costs of the group, in whose columns theirs are."""
    own: StepCosts
    """The costs of the ranks of one copy."""
    copies: int
    """Ranks with the same shards."""

    @cached_property
    def _columns(self) -> Ints:
        """[columns of their own] the column of the group that each is."""
        there = {(self.whole.stages[each.stage], each.resource): c for c, each in enumerate(self.whole.columns)}
        return np.array([there[self.own.stages[each.stage], self._carrier(each)] for each in self.own.columns])

    def _carrier(self, column: Column) -> Resource:
        """What carries in the group what a resource of their own does: where it exchanges through towers, of which they
        have one rank each, all cards of a tower."""
        resource, stage = column.resource, self.own.stages[column.stage]
        return self.whole.schedule.carrier(stage, resource) if not self.own.schedule.has_towers else resource

    @cached_property
    def _shares(self) -> Floats:
        """[K, columns of their own] what a rank brings to a resource of the group for each second of its own."""
        shares = np.ones((len(self.own.kinds), len(self.own.columns)))
        for k, (kind, one) in enumerate(zip(self.whole.kinds, self.own.kinds, strict=True)):
            cards = self.whole.groups_per_card[k] / self.own.groups_per_card[k]
            for c, column in enumerate(self.own.columns):
                resource = column.resource
                plain = replace(resource, ahead=False, with_rows=False)
                if self._carrier(column) != resource:
                    shares[k, c] = 1 / self.copies
                elif resource.kind in ("uplink", "rails"):
                    shares[k, c] = _sharing(self.own, resource, k) / _sharing(self.whole, resource, k)
                elif resource.kind == "nic":
                    shares[k, c] = cards
                elif resource in STASHES:
                    shares[k, c] = _groups_per_switch(self.whole, k) / _groups_per_switch(self.own, k)
                elif plain in one.ranks_sharing:
                    shares[k, c] = one.ranks_sharing[plain] / kind.ranks_sharing[plain]
        return shares

    def moved(self, costs: BlockCosts, kind: int) -> BlockCosts:
        """Costs of their own on a kind of rank, in the columns of the group."""
        fixed, by_rows, everywhere = (
            self._in_columns(seconds * self._shares[kind]) for seconds in (costs.fixed, costs.by_rows, costs.everywhere)
        )
        return replace(costs, fixed=fixed, by_rows=by_rows, everywhere=everywhere)

    def _in_columns(self, seconds: Floats) -> Floats:
        """[n, C] of [n, columns of their own]."""
        moved = np.zeros((len(seconds), len(self.whole.columns)))
        moved[:, self._columns] = seconds
        return moved


def _groups_per_switch(model: StepCosts, kind: int) -> float:
    """How many groups of a model's tables use the PCIe switch of a kind of rank."""
    return 1.0 if model._replication is None else model._replication.groups_per_switch[kind]


def _sharing(model: StepCosts, resource: Resource, kind: int) -> int:
    """How many ranks use what the first rank of a kind uses of a resource."""
    instance, first = model.resource_of_rank(resource), int(np.argmax(model.kind_of_rank == kind))
    return int((instance == instance[first]).sum())


CostsOf = Callable[[StepCosts, Blocks, int], BlockCosts]
"""A method that costs blocks of a model's own tables on a kind of rank."""


class MixedCosts(StepCosts):
    """The physical cost model of tables with different numbers of copies."""

    @cached_property
    def copies(self) -> Ints:
        """[T] how many ranks have the same shards of each table."""
        if self.replicas is None or not self.replicas.rules:
            return np.ones(len(self.workload.tables), dtype=np.int64)
        return self.replicas.factors([table.name for table in self.workload.tables]) // self.replicas.factor

    @cached_property
    def own_blocks(self) -> Blocks:
        """The tables with the fewest copies, each as one block in HBM."""
        return self.tables.whole.take(np.flatnonzero(self.copies == 1))

    @cached_property
    def _copied(self) -> tuple[CopiedTables, ...]:
        """Those with more copies, fewest first."""
        found = []
        for copies in np.unique(self.copies[self.copies > 1]).tolist():
            assert self.replicas is not None
            alike, own = self.replicas.alike(self.replicas.factor * copies), np.flatnonzero(self.copies == copies)
            model = StepCosts(
                self.cluster,
                self.stated_workload,
                exchange=self.exchange,
                replicas=alike,
                own=own,
                copy_meets_rows=self.copy_meets_rows,
                stashes=self.stashes,
                long_tables=self.schedule.long_tables,
            )
            model.batching = replace(model.batching, output_copies=self.batching.output_copies)
            found.append(CopiedTables(self, model, copies))
        return tuple(found)

    @property
    def models_by_copies(self) -> tuple[tuple[int, StepCosts], ...]:
        """How many ranks have the same shards of tables, and whose costs those of such tables are."""
        return ((1, self), *((each.copies, each.own) for each in self._copied))

    def with_output_copies(self, copies: float) -> Self:
        """The same costs with so many copies of a shard's vectors."""
        other = super().with_output_copies(copies)
        parts = (replace(each, own=each.own.with_output_copies(copies)) for each in self._copied)
        other.__dict__["_copied"] = tuple(parts)
        return other

    # -- lines of the exchanges -----------------------------------------------------------------------------------

    @cached_property
    def _joint_lines(self) -> dict[str, tuple[JointLine, ...]]:
        """The lines of each stage that exchanges, of all tables together."""
        models = [model for _, model in self.models_by_copies]
        of_models = {
            stage: [model.own_lines_of(stage) if stage in model.protocol_stages else () for model in models]
            for stage in self.protocol_stages
        }
        ways = {REPLICA_SYNC: in_turn, CACHE_FETCH: alike, PREFETCH: alike}
        return {stage: ways.get(stage, at_once)(each) for stage, each in of_models.items()}

    def lines_of(self, stage: str) -> Sequence[Line]:
        """The lines of the collectives of a stage; none is shorter than the first for no bytes."""
        return self._joint_lines[stage] if self._copied else super().lines_of(stage)

    def _numbers(self, stage: str) -> tuple[int, ...]:
        """The line of tables with each number of copies."""
        number = self.protocols[self.protocol_stages.index(stage)]
        return self._joint_lines[stage][number].numbers if self._copied else (number,)

    def _own_line(self, stage: str) -> int:
        return self._numbers(stage)[0]

    def _take_lines(self, protocols: tuple[int, ...]) -> None:
        super()._take_lines(protocols)
        self._at_lines = tuple(
            each.own.at_protocols(tuple(self._numbers(stage)[n] for stage in each.own.protocol_stages))
            for n, each in enumerate(self._copied, start=1)
        )

    def _balanced_line(self, stage: str) -> int:
        """That nearest to the fastest ones of tables with each number of copies, spread evenly."""
        own = super()._balanced_line(stage)
        if not self._copied:
            return own
        others = (each.own for each in self._copied)
        wanted = np.array(
            [own, *(model._balanced_line(stage) if stage in model.protocol_stages else 0 for model in others)]
        )
        return int(np.argmin([np.abs(wanted - line.numbers).sum() for line in self._joint_lines[stage]]))

    # -- costs of blocks ------------------------------------------------------------------------------------------

    def block_costs(self, blocks: Blocks, kind: int) -> BlockCosts:
        """Costs of each block if its ranks are of this kind."""
        return self._by_copies(blocks, kind, StepCosts.block_costs)

    def exchange_costs(self, blocks: Blocks, kind: int) -> BlockCosts:
        """What blocks exchange, and no bytes."""
        return self._by_copies(blocks, kind, StepCosts.exchange_costs)

    def repeat_costs(self, blocks: Blocks, kind: int) -> BlockCosts:
        """What reading rows again costs, and no bytes."""
        return self._by_copies(blocks, kind, StepCosts.repeat_costs)

    def _by_copies(self, blocks: Blocks, kind: int, costs_of: CostsOf) -> BlockCosts:
        """The costs of blocks of any tables, each by the model of its own."""
        if not self._copied:
            return costs_of(self, blocks, kind)
        first, *others = self._parts(blocks)
        parts = [costs_of(self, blocks.take(first), kind)]
        for of_copies, own, index in zip(self._copied, self._at_lines, others, strict=True):
            parts.append(of_copies.moved(costs_of(own, blocks.take(index), kind), kind))
        return BlockCosts(**_joined([first, *others], parts))

    def block_memory(self, blocks: Blocks, kind: int) -> BlockMemory:
        """The bytes among the costs of each block."""
        if not self._copied:
            return super().block_memory(blocks, kind)
        index, models = self._parts(blocks), (self, *(each.own for each in self._copied))
        parts = [
            StepCosts.block_memory(model, blocks.take(of_model), kind)
            for model, of_model in zip(models, index, strict=True)
        ]
        return BlockMemory(**_joined(index, parts))

    def id_sort_seconds(self, blocks: Blocks, kind: int) -> Floats:
        """[n] seconds on the device that sorting the ids of each block takes of its update."""
        if not self._copied:
            return super().id_sort_seconds(blocks, kind)
        seconds = np.zeros(len(blocks))
        for (_, model), index in zip(self.models_by_copies, self._parts(blocks), strict=True):
            seconds[index] = StepCosts.id_sort_seconds(model, blocks.take(index), kind)
        return seconds

    def _parts(self, blocks: Blocks) -> list[Ints]:
        """The blocks of the tables with each number of copies."""
        copies = self.copies[blocks.table]
        return [np.flatnonzero(copies == each) for each, _ in self.models_by_copies]


def _joined(index: Sequence[Ints], parts: Sequence[BlockCosts | BlockMemory]) -> dict[str, Any]:
    """The fields of costs of all blocks: of those at each `index` the rows of each of the parts."""
    joined: dict[str, Any] = {}
    for name in vars(parts[0]):
        first = getattr(parts[0], name)
        joined[name] = np.zeros((sum(map(len, index)), *first.shape[1:]), dtype=first.dtype)
        for of_part, part in zip(index, parts, strict=True):
            joined[name][of_part] = getattr(part, name)
    return joined
