"""The variants among which the plan chooses, as arrays: what each table may become, and what that costs in quality.

The budget is one more memory, which all ranks share: a table of a variant with some loss takes as much of it, wherever
it is. So relaxation, bound, search and proof treat a loss as they do a byte, and its multiplier is what a unit of loss
is worth. T tables, V variants.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from cost_models.model import CostModel
from cost_models.shards import DATA_PARALLEL, EXTENT_OF_SHARDING, RANK
from cost_models.workload.compressors import Compressor
from cost_models.workload.models import Workload
from planner.problem.numbers import Bools, Floats, Ints

TOGETHER: Bools = np.array([row == RANK for row in EXTENT_OF_SHARDING]) | (
    np.arange(len(EXTENT_OF_SHARDING)) == DATA_PARALLEL
)
"""[SHARDINGS] those whose blocks have all rows of their columns, as the parts of a table need it."""
LOSS = "loss"
"""What proofs call the budget among the memories."""
UNITS = float(1 << 40)
"""The budget, or the largest loss where that is more, in the units that arrays have instead of bytes."""
ROUNDING = 1e-9
"""Share of it by which sums of losses may be above the budget: they are sums of parts of columns."""


STASHED = ("hbm_returned", "hbm_stashed")
"""What proofs call the HBM of ranks when everything that was stashed is back, and what of it is stashed."""


def memory_names(model: CostModel, count: int) -> tuple[str, ...]:
    """[M] what each memory of a problem with so many is called: those of the model, HBM twice more where tables may be
    stashed, and the budget where it has one."""
    return (*model.memories, *(STASHED if model.stashes else ()), LOSS)[:count]


@dataclass(frozen=True)
class Variants:
    """What each table may become."""

    table: Ints
    """[V] ascending; every table has one at least."""
    words: tuple[str, ...]
    """[V] as the plan names them."""
    compressors: tuple[Compressor, ...]
    """[V]"""
    dtype: Ints
    """[V] the only format, an index into DTYPES; -1: what the table may have otherwise."""
    cache: Floats
    """[V] share of the rows in a cache of full precision; NaN: what the table may have otherwise."""
    loss: Floats
    """[V] as the user has it."""
    budget: float
    workload: Workload
    """With the variants for its tables [V], each compressed; unchecked otherwise."""

    @cached_property
    def beyond_least(self) -> Floats:
        """[V] losses above the least of each table's."""
        return self.loss - np.minimum.reduceat(self.loss, self.first)[self.table]

    @cached_property
    def first(self) -> Ints:
        """[T] the first variant of each table."""
        return np.flatnonzero(np.diff(self.table, prepend=-1))

    @property
    def left(self) -> float:
        """What is left of the budget where every table loses least."""
        return self.budget - float(np.minimum.reduceat(self.loss, self.first).sum())

    @property
    def unit(self) -> float:
        """The loss that a unit of the arrays is."""
        return max(self.left, float(self.beyond_least.max()), 1e-300) / UNITS

    @property
    def capacity(self) -> float:
        """What is left of the budget, in these units."""
        return (self.left + self.slack) / self.unit

    @property
    def slack(self) -> float:
        """The loss by which sums may be above the budget."""
        return self.unit * UNITS * ROUNDING

    @property
    def has_choice(self) -> bool:
        """Whether some table has several."""
        return len(self.table) > len(self.first)

    @property
    def is_affordable(self) -> Bools:
        """[V] those that lose no more than the budget leaves where every other table loses least."""
        return np.asarray(self.beyond_least <= self.left + self.slack)

    @property
    def affordable(self) -> "Variants":
        """Those alone."""
        kept = np.flatnonzero(self.is_affordable)
        return replace(
            self,
            table=self.table[kept],
            words=tuple(self.words[v] for v in kept.tolist()),
            compressors=tuple(self.compressors[v] for v in kept.tolist()),
            dtype=self.dtype[kept],
            cache=self.cache[kept],
            loss=self.loss[kept],
            workload=self.workload.with_tables(tuple(self.workload.tables[v] for v in kept.tolist())),
        )

    def costed(self, model: CostModel) -> CostModel:
        """The model with the variants for tables."""
        return model.compressed_as(self.workload, self.table)

    def number_of(self, table: int, word: str | None) -> int | None:
        """The variant of a table that a word names; None where there is none."""
        mine = np.flatnonzero(self.table == table).tolist()
        return next((v for v in mine if self.words[v] == word), None)

    def of_tables(self, words: Sequence[str | None]) -> Ints:
        """[T] the variants that words name. Raises KeyError with the number of a table that has no such variant."""
        found = []
        for table, word in enumerate(words):
            number = self.number_of(table, word)
            if number is None:
                raise KeyError(table)
            found.append(number)
        return np.array(found)

    def loss_of(self, words: Sequence[str | None]) -> float:
        """What tables [T] that are these variants lose together. Raises KeyError as `of_tables` does."""
        return math.fsum(self.loss[self.of_tables(words)].tolist())

    @cached_property
    def has_two_parts(self) -> Bools:
        """[V] variants of two parts, whose rows stay together."""
        return np.array([each.has_two_parts for each in self.compressors], dtype=bool)
