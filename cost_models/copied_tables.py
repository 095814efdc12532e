"""Tables with more copies than the others, as the costs of a group of ranks see them.

A group of N ranks has n = N / m ranks for each of m copies of such tables: one of every m neighbours. Within these, the
costs are those of tables with as many copies as all would have; loads are those of each rank, wherever it is. What
several ranks share, more of them load here than there are ranks of one copy, so that each brings less of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from cost_models.loads import BlockLoad
from cost_models.lookup import Lookup
from cost_models.model import BlockCosts
from cost_models.resources import DEVICE
from cost_models.shards import Blocks, Floats, Ints

if TYPE_CHECKING:
    from cost_models.step_costs import StepCosts


@dataclass(frozen=True)
class CopiedTables:
    """Some tables with equally many copies; K kinds of rank."""

    whole: "StepCosts"
    """The costs of the group, in whose columns theirs are."""
    own: "StepCosts"
    """The costs of the ranks of one copy."""
    copies: int
    """Neighbours with the same shards."""

    @cached_property
    def _columns(self) -> Ints:
        """[columns of their own] the column of the group that each is."""
        there = {(self.whole.stages[each.stage], each.resource): c for c, each in enumerate(self.whole.columns)}
        return np.array([there[self.own.stages[each.stage], each.resource] for each in self.own.columns])

    @cached_property
    def _shares(self) -> Floats:
        """[K, columns of their own] what a rank brings to a resource of the group for each second of its own."""
        shares = np.ones((len(self.own.kinds), len(self.own.columns)))
        for k, (kind, one) in enumerate(zip(self.whole.kinds, self.own.kinds, strict=True)):
            cards = self.whole.groups_per_card[k] / self.own.groups_per_card[k]
            for c, column in enumerate(self.own.columns):
                resource = column.resource
                if resource.kind == "nic":
                    shares[k, c] = cards
                elif resource.kind == "uplink":
                    shares[k, c] = 1 / self.copies
                elif resource in one.ranks_sharing:
                    shares[k, c] = one.ranks_sharing[resource] / kind.ranks_sharing[resource]
        return shares

    def costs(self, costs: BlockCosts, kind: int) -> BlockCosts:
        """Costs of their own on a kind of rank, in the columns of the group."""
        return replace(
            costs,
            fixed=self._moved(costs.fixed, kind),
            by_rows=self._moved(costs.by_rows, kind),
            everywhere=self._moved(costs.everywhere, kind),
        )

    def _moved(self, seconds: Floats, kind: int) -> Floats:
        """[n, C] of [n, columns of their own]."""
        moved = np.zeros((len(seconds), len(self.whole.columns)))
        moved[:, self._columns] = seconds * self._shares[kind]
        return moved


def hidden_seconds(models: Sequence["StepCosts"], passes: int) -> float:
    """How long the update of the tables of some models keeps a device busy, and in two `passes` the lookup, too: the
    least of all kinds of rank, for an even load of tables in HBM."""
    hidden: list[float] = []
    for k in range(len(models[0].kinds)):
        total = 0.0
        for model in models:
            software = model.coefficients.software
            lookup = Lookup(model.tables, model.own_blocks, model.kinds[k], model.batching, software)
            parts: list[BlockLoad] = [loads[DEVICE] for loads in (lookup.backward(), lookup.forward())[:passes]]
            seconds = sum(float(np.sum(part.fixed) + np.sum(part.by_rows)) for part in parts)
            total += seconds / model.topology.world_size
        hidden.append(total)
    return min(hidden)


def joined_costs(blocks: Blocks, which: Ints, costs: Sequence[BlockCosts]) -> BlockCosts:
    """The costs of all blocks [n], of those of each number in `which` [n], in the same columns and memories."""
    fields = ("fixed", "by_rows", "everywhere", "bytes_fixed", "bytes_by_rows", "supported")
    joined: dict[str, Any] = {}
    for name in fields:
        parts = [getattr(each, name) for each in costs]
        joined[name] = np.zeros((len(blocks), *parts[0].shape[1:]), dtype=parts[0].dtype)
        for number, part in enumerate(parts):
            joined[name][which == number] = part
    return BlockCosts(**joined)
