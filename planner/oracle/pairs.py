"""Multipliers of the bounds of candidates, each with the protocols at which it proves something."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from planner.certificates.lagrangian import block_values
from planner.certificates.multipliers import Multipliers
from planner.problem.arrays import Problem
from planner.problem.numbers import Bools, Floats, Ints


@dataclass(frozen=True)
class Pair:
    """Multipliers that prove something at some protocols."""

    protocols: tuple[int, ...]
    multipliers: Multipliers
    columns_of: Mapping[tuple[int, int], Ints]
    """(table, stage) -> columns whose loads count for a weight on the table, whose largest block makes the stage
    last."""
    reference: Floats
    """[C] loads of an instance of each resource before any table, to which those of blocks are added there."""

    def peaks(self, problem: Problem) -> Floats:
        """[B, S] seconds of the stages of these weights with a block, as these columns have them."""
        peaks = np.zeros((len(problem.block_option), len(problem.stage_constants)))
        for (table, stage), columns in self.columns_of.items():
            own = np.arange(*problem.table_block_start[table : table + 2])
            peaks[own, stage] = (problem.extremes.peak_load(0, own) + self.reference)[:, columns].max(axis=1)
        return peaks

    def of_other_loads(self, base: Floats, has_table: Bools) -> Floats:
        """[n] what the weights on tables count for more in models with other loads of an instance of each resource
        [n, C] before any table, of which some lack tables [n, T].

        Where every load is higher by a difference, so is the highest; without the table, the stage lasts as long as
        these loads.
        """
        more = np.zeros(len(base))
        for (table, stage), columns in self.columns_of.items():
            with_table = (base - self.reference)[:, columns].min(axis=1)
            without = base[:, columns].max(axis=1)
            more += self.multipliers.of_table[table, stage] * np.where(has_table[:, table], with_table, without)
        return more


def pairs_of(problem: Problem, multipliers: Multipliers, protocols: Sequence[tuple[int, ...]]) -> list[Pair]:
    """Multipliers at each of some protocols. Weights on tables count in two ways: with all columns of their stages, and
    with the one that binds where a table's cheapest option is. The first is better where the fixed loads of a candidate
    are those of the problem, the second where they are not."""
    reference = problem.extremes.base_of_instance[0]
    of_stage = {pair: np.flatnonzero(problem.stage_of_column == pair[1]) for pair in multipliers.of_table}
    ways = [_binding_columns(problem, multipliers)] + [of_stage] * bool(of_stage)
    return [Pair(each, multipliers, columns, reference) for columns in ways for each in protocols]


def _binding_columns(problem: Problem, multipliers: Multipliers) -> dict[tuple[int, int], Ints]:
    """(table, stage) -> the column that is loaded most with the largest block of the option that costs the table
    least."""
    columns = {}
    parts = problem.option_units[problem.block_option] / np.maximum(problem.block_units, 1)
    times = np.where(problem.block_is_splittable, parts, problem.block_count)
    value = block_values(problem, multipliers.weight, multipliers.byte) * times
    for table, stage in multipliers.of_table:
        own = np.arange(*problem.table_block_start[table : table + 2])
        share = multipliers.of_table[table, stage]
        best = own[np.argmin(value[own] + share * problem.extremes.stage_peaks[own, stage])]
        load = problem.extremes.peak_load(0, best[None])[0] + problem.extremes.base_of_instance[0]
        columns[table, stage] = np.array([np.argmax(np.where(problem.stage_of_column == stage, load, -np.inf))])
    return columns
