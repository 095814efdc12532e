"""The multipliers of a lower bound."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from planner.certificates.branch_trees import BranchTree
from planner.certificates.dual_feasible import PricedFunction
from planner.certificates.pattern_trees import PatternTree
from planner.problem.case_divisions import Division
from planner.problem.numbers import Floats, Ints


@dataclass(frozen=True)
class Multipliers:
    """What a second on each resource and a byte of each tier is worth; sizes as in `planner.problem.arrays`."""

    weight: Floats
    """[D, C] of one second on the resource that a rank of the capacity region uses. A rank that is in several capacity
    regions has the sum of their weights. Per stage they sum to one at most over instances, together with those of
    tables; what is missing is the weight of the seconds that the stage takes in any case
    (`planner.problem.integrality`)."""
    byte: Floats
    """[D, M] of one byte, in seconds."""
    of_table: Mapping[tuple[int, int], float] = field(default_factory=dict)
    """(table, stage) -> weight of one second that the table's largest block alone makes the stage last."""
    beside: Mapping[tuple[int, int], float] = field(default_factory=dict)
    """(table, column) -> weight of one second on the instance that the table's largest block loads most, which has what
    every instance has of all tables, too. Ranks of one kind."""

    def of_stage(self, stage: int, stage_of_column: Ints) -> "Multipliers":
        """Return the weights of one stage alone, where columns [C] are of these stages."""
        return Multipliers(
            np.where(stage_of_column == stage, self.weight, 0.0),
            np.zeros_like(self.byte),
            {pair: share for pair, share in self.of_table.items() if pair[1] == stage},
            {pair: share for pair, share in self.beside.items() if stage_of_column[pair[1]] == stage},
        )


@dataclass(frozen=True)
class PackingProof:
    """No placement is faster than the threshold: its blocks would not pack into the ranks, as priced dual feasible
    functions show (`planner.certificates.dual_feasible`), at multipliers of their own."""

    threshold_s: float
    multipliers: Multipliers
    functions: tuple[PricedFunction, ...]


@dataclass(frozen=True)
class Bound:
    """A lower bound with what proves it.

    No placement takes less than `seconds`: at the `multipliers`, the fluid relaxation over the blocks that a plan
    faster than `threshold_s` may hold (all of them, where it is None) takes at least that, and so does any other plan.
    """

    seconds: float
    multipliers: Multipliers
    threshold_s: float | None
    packing: PackingProof | None = None
    """What proves more than the multipliers do, where blocks pack badly."""
    tree: BranchTree | None = None
    """Branch nodes that prove more than the multipliers do."""
    exhaustive_search_s: float | None = None
    """Every plan faster than this was tried: there is none."""
    patterns: PatternTree | None = None
    """Rank patterns that prove more than the multipliers do."""
    cases: "Cases | None" = None
    """Two cases that prove more than the multipliers do."""


@dataclass(frozen=True)
class Cases:
    """The bounds of the two cases into which something divides the plans: the lesser of the two holds for all.

    Infinite where no plan is of a case.
    """

    division: Division
    first: Bound
    """Of the plans whose stage is shorter, or whose table reaches so far or takes the memory."""
    second: Bound
    """Of all others."""


@dataclass(frozen=True)
class ProtocolBound:
    """A lower bound on what placements cost at other protocols than a search's own (`CostModel.at_protocols`)."""

    protocols: tuple[int, ...]
    bound: Bound
