"""Ways to hold a table from which an estimate chooses: the cheapest at the multipliers of the base, then those that
save device memory at higher and higher prices of a byte (multiple-choice knapsack, Kellerer et al. 2004).

T tables, L choices, C columns and M memories of the cost model.
"""

from dataclasses import replace

import numpy as np

from cost_models.compressed_costs import CompressedCosts
from planner.formulation.options import build_problem, enumerate_options
from planner.formulation.seconds_at_lines import at_lines
from planner.oracle.base import Base
from planner.problem.arrays import Problem
from planner.problem.numbers import Floats, Ints
from planner.solvers.bound.fluid import Fluid

PRICES = tuple(0.05 * 4.0**n for n in range(8))
"""What a byte of HBM is worth, in steps of the base for all HBM of the cluster."""


def choices_of(base: Base, model: CompressedCosts) -> tuple[Floats, Floats]:
    """[T, L, C] seconds on each instance of a resource, if blocks are spread evenly, and [T, L, M] bytes of all ranks,
    of the tables of a model at the protocols of the base plan."""
    options = enumerate_options(model, base.policy, base.fractions, base.formulation.options.cuts)
    at_plan = model.at_protocols(base.plan_protocols)
    problem = at_lines(build_problem(model, options), at_plan, options, model.protocols)
    usable = np.asarray(problem.allowed.any(axis=0))
    values = Fluid(problem).choice_values(replace(base.pairs[0].multipliers, of_table={}), usable)
    seconds, stored = _usage(problem)
    seconds /= base.instances
    alone = np.where(np.isfinite(values), base.stage_seconds(seconds), np.inf)
    hbm = base.model.memories.index("hbm")
    share = stored[:, hbm] / base.empty_capacity[0, hbm]
    kept = [_cheapest(problem, values)]
    kept += [_cheapest(problem, alone + price * base.step_s * share) for price in PRICES]
    chosen = np.stack(kept, axis=1)
    return seconds[chosen], stored[chosen]


def _cheapest(problem: Problem, values: Floats) -> Ints:
    """[T] the choice of each table with the least of some values [B]; the first one of a table that has none."""
    start = problem.table_block_start
    return np.array(
        [
            first + int(np.argmin(values[first:last])) if last > first else 0
            for first, last in zip(start[:-1].tolist(), start[1:].tolist(), strict=True)
        ]
    )


def _usage(problem: Problem) -> tuple[Floats, Floats]:
    """[B, C] seconds and [B, M] bytes on all ranks of the option that each block names: a splittable one cut into
    blocks like it; of a fixed one, by its first block."""
    holders = problem.row_shares.holders[0].astype(float)[:, None]
    rows = np.where(problem.block_replicated, float(problem.world), 1.0)[:, None]
    parts = problem.option_units[problem.block_option] / np.maximum(problem.block_units, 1)
    times = np.where(problem.block_is_splittable, parts, problem.block_count)[:, None]
    seconds = (holders * problem.fixed[0] + rows * problem.by_rows[0] + problem.world * problem.everywhere[0]) * times
    stored = (holders * problem.bytes_fixed[0] + rows * problem.bytes_by_rows[0]) * times
    fixed, start = np.flatnonzero(problem.option_units == 0), problem.block_start[:-1]
    for part in (seconds, stored):
        part[start[fixed]] = np.add.reduceat(part, start)[fixed]
    return seconds, stored
