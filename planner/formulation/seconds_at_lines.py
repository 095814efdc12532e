"""The problems of a question at many choices of a line for each stage that exchanges, without the costs of each choice.

What blocks exchange in a stage depends on that stage's own line alone, but where lines are those of no exchange: of
stages with three lines each there are many choices, and three numbers of a line.
"""

from dataclasses import replace

import numpy as np

from cost_models.exchange_lines import Case
from cost_models.model import CostModel
from planner.formulation.options import Options, exchange_seconds
from planner.problem.arrays import Problem
from planner.problem.numbers import Floats

MOST_KEPT = 1 << 18
"""Seconds of block types up to which those at each number of a line are kept: 2 MiB an array."""


def at_lines(problem: Problem, model: CostModel, options: Options) -> Problem:
    """A problem of the same options and of the same model at other lines, which change what its exchanges cost."""
    stages = [model.stages.index(stage) for stage in model.protocol_stages]
    others = np.flatnonzero(~np.isin(problem.stage_of_column, stages))
    fixed, by_rows, everywhere = exchange_seconds(model, options)  # large and not shared: the others are put into them
    for there, here in ((fixed, problem.fixed), (by_rows, problem.by_rows), (everywhere, problem.everywhere)):
        for column in others.tolist():
            if here[..., column].any() or there[..., column].any():  # columns of zeros take no memory
                there[..., column] = here[..., column]
    return _with_seconds(problem, model, fixed, by_rows, everywhere)


class SecondsAtLines:
    """What the blocks of one model and its options exchange at each number of a line, worked out when first asked."""

    def __init__(self) -> None:
        self._at: dict[tuple[Case, int], tuple[Floats, Floats, Floats]] = {}

    def problem(self, problem: Problem, model: CostModel, options: Options) -> Problem:
        """`at_lines` of a problem of these options."""
        if problem.fixed.size > MOST_KEPT or model.case == "nothing":
            return at_lines(problem, model, options)
        parts = [problem.fixed.copy(), problem.by_rows.copy(), problem.everywhere.copy()]
        for number in set(model.protocols):
            key = model.case, number
            there = self._at.get(key) or self._at.setdefault(key, _seconds_at(number, model, options))
            with_it = [own == number for own in model.protocols]
            stages = [
                model.stages.index(stage) for stage, own in zip(model.protocol_stages, with_it, strict=True) if own
            ]
            columns = np.flatnonzero(np.isin(problem.stage_of_column, stages))
            for part, seconds in zip(parts, there, strict=True):
                part[:, :, columns] = seconds[:, :, columns]
        return _with_seconds(problem, model, *parts)


def without_sums(problem: Problem, model: CostModel, options: Options) -> Problem:
    """A problem at lines with sums around all ranks (`CostModel.around`) at a model's own, which are of placements
    without any: of blocks with such sums, whose rows have no parts, every rank has more."""
    everywhere = problem.everywhere + model.beyond(options.blocks)
    return replace(problem, stage_constants=model.constants, base_loads=model.base_loads, everywhere=everywhere)


def _seconds_at(number: int, model: CostModel, options: Options) -> tuple[Floats, Floats, Floats]:
    """`exchange_seconds` at the lines with that number; of stages that have none such in the model's case, at the first
    or the last."""
    alike = [each for each in model.all_protocols if model.at_protocols(each).case == model.case]
    numbers = np.clip(number, np.min(alike, axis=0), np.max(alike, axis=0))
    return exchange_seconds(model.at_protocols(tuple(numbers.tolist())), options)


def _with_seconds(problem: Problem, model: CostModel, fixed: Floats, by_rows: Floats, everywhere: Floats) -> Problem:
    """The problem with what its blocks, and what is there before any, take at the lines of a model."""
    return replace(
        problem,
        stage_constants=model.constants,
        base_loads=model.base_loads,
        fixed=fixed,
        by_rows=by_rows,
        everywhere=everywhere,
    )
